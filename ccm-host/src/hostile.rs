//! Runs all controllers together against a provider that answers anything, a tenant and a worker that write anything:
//! nothing panics, and nothing is written or requested that the contract does not allow.
//!
//! Some thousand answers by default. For a long run, and to replay one seed:
//!
//! ```text
//! HOSTILE_ANSWERS=1000000 cargo test --release -p ccm-host --lib whatever_a_provider_answers -- --nocapture
//! HOSTILE_SEED=7 HOSTILE_ANSWERS=1 cargo test -p ccm-host --lib whatever_a_provider_answers
//! HOSTILE_SEEDS=10000 HOSTILE_ROUNDS=3 HOSTILE_ANSWERS=100000000 cargo test --release -p ccm-host --lib no_controller_does_harm
//! ```

mod judge;
mod neighbours;
mod scene;
mod unknown;

use std::{
    cell::Cell,
    sync::{Arc, Once},
    time::Duration,
};

use tokio::{runtime::Builder, time::sleep};

use ccm_cloud::hostile::{Hostile, from_env};
use judge::{Deeds, Lies};
use scene::Scene;

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts panics on this thread, wherever they are caught. A scene runs on one thread.
fn count_panics() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    PANICS.set(0);
}

/// Each seed is another provider, and another cluster. One in three lies only in its lists, which must take nothing
/// from a living Service.
#[test]
fn whatever_a_provider_answers_no_controller_does_harm() {
    count_panics();
    let (answers, first) = (from_env("HOSTILE_ANSWERS", 6000), from_env("HOSTILE_SEED", 1));
    let (mut given, mut seed, mut deeds) = (0, first, Deeds::default());
    let last = first.saturating_add(from_env("HOSTILE_SEEDS", u64::MAX));
    while given < answers && seed < last {
        // With a runtime, and so a clock, of its own, so that no scene depends on the ones before.
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (done, answers) = runtime.block_on(play(seed));
        deeds.add(&done);
        given += answers;
        seed += 1;
    }
    println!("{given} answers, seeds {first}..{seed}: {deeds:?}");
    // Rare deeds need many answers.
    assert!(given < 20_000 || deeds.are_of_every_kind(), "not everything was tried: {deeds:?}");
}

/// Plays the scene of one seed; returns what was done in it, and how many answers the provider gave.
async fn play(seed: u64) -> (Deeds, u64) {
    let (hostile, lies) = match seed % 3 {
        0 => (Hostile::only(seed, &["ListLoadBalancers", "ListRoutes"]), Lies::InLists),
        _ => (Hostile::new(seed), Lies::Everywhere),
    };
    let mut scene = Scene::start(Arc::clone(&hostile), seed, lies).await;
    for round in 0..from_env("HOSTILE_ROUNDS", 12) {
        scene.disturb(round);
        sleep(Duration::from_secs(600)).await;
        scene.assert_harmless(PANICS.get());
    }
    (scene.end().await, hostile.answers())
}
