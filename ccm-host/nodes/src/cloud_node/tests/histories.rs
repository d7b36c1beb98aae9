//! Random histories with restarts of the host: the end is the same as after a fresh start.

use proptest::prelude::*;

use super::*;
use ccm_cloud::{InstanceAnswer, InstanceState, fake::machine};
use ccm_kube::fixtures::refusal;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A kubelet registers its node, unless it exists.
    Join(usize),
    Leave(usize),
    /// The instance runs, with the shape of this number.
    Runs(usize, u8),
    /// The instance is in a state without a description.
    Is(usize, InstanceState),
    /// The watch reports the instance.
    Told(usize),
    /// Changes may have been missed.
    Sweep,
    /// The next write conflicts.
    Conflict,
    /// The next write is refused.
    Refused,
    Restart,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..NAMES.len();
    let states = vec![InstanceState::Absent, InstanceState::Unspecified, InstanceState::Terminating];
    prop_oneof![
        3 => which().prop_map(Step::Join),
        1 => which().prop_map(Step::Leave),
        4 => (which(), 0..4_u8).prop_map(|(which, shape)| Step::Runs(which, shape)),
        1 => (which(), prop::sample::select(states)).prop_map(|(which, state)| Step::Is(which, state)),
        2 => which().prop_map(Step::Told),
        1 => Just(Step::Sweep),
        2 => Just(Step::Conflict),
        1 => Just(Step::Refused),
        1 => Just(Step::Restart),
        3 => prop_oneof![Just(0), 0..5_u64, 0..900_u64].prop_map(Step::Wait),
    ]
}

/// Zone, type, address and labels differ by shape; labels come and go.
fn shape(name: &str, shape: u8) -> InstanceAnswer {
    let mut machine = instance(&format!("fake://{name}"));
    machine.zone = Some(format!("zone-{shape}"));
    machine.instance_type = Some(format!("type-{}", shape / 2));
    machine.addresses[0].address = format!("10.0.0.{shape}");
    if shape.is_multiple_of(2) {
        machine.labels.insert("example.com/shape".to_owned(), shape.to_string());
    }
    ccm_cloud::fake::machine(InstanceState::Running, Some(machine))
}

async fn take(scene: Scene, step: Step) -> Scene {
    let Stage { server, fake, .. } = &*scene;
    match step {
        Step::Join(which) if server.node(NAMES[which]).is_none() => server.put(&new_node(NAMES[which])),
        Step::Leave(which) => server.delete(NAMES[which]),
        Step::Runs(which, number) => fake.set_answer(NAMES[which], shape(NAMES[which], number)),
        Step::Is(which, state) => fake.set_answer(NAMES[which], machine(state, None)),
        Step::Told(which) => fake.notify_change(NAMES[which]),
        Step::Sweep => fake.request_sweep(),
        Step::Conflict => server.answer_next_write(refusal(409, "Conflict")),
        Step::Refused => server.answer_next_write(refusal(500, "InternalError")),
        Step::Restart => return scene.restart().await,
        Step::Wait(seconds) => sleep(Duration::from_secs(seconds)).await,
        Step::Join(_) => {}
    }
    scene
}

/// The part of a node that the controller determines, without the record of labels.
fn outcome(server: &NodeServer, name: &str) -> serde_json::Value {
    let part = |pointer: &str| server.part(name, pointer);
    serde_json::json!([part("/spec"), part("/metadata/labels"), part("/status/addresses")])
}

async fn ends_as_a_fresh_start(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut scene = Scene::start([], |_| {}).await;
    for step in steps {
        scene = take(scene, step).await;
    }
    // Longer than the longest backoff, a sweep, and all prepared replies not used yet.
    sleep(PERIOD * 4).await;
    let there: Vec<_> = NAMES.into_iter().filter(|name| scene.server.node(name).is_some()).collect();
    let fresh = Scene::start(there.iter().map(|name| new_node(name)), |_| {}).await;
    for name in &there {
        if let Some(answer) = scene.fake.answer(name).filter(|answer| answer.state == InstanceState::Running)
        {
            fresh.fake.set_answer(name, answer);
            fresh.fake.notify_change(name);
            fresh.fake.request_sweep();
            fresh.until_initialised(name).await;
            prop_assert_eq!(outcome(&scene.server, name), outcome(&fresh.server, name), "{}", name);
        }
    }
    let scene = scene.restart().await;
    sleep(PERIOD * 2).await;
    prop_assert_eq!(scene.server.take_lines(), Vec::<String>::new(), "and nothing is left to do");
    fresh.stop().await;
    scene.stop().await;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_as_a_fresh_start_would(steps in prop::collection::vec(step(), 1..40)) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(ends_as_a_fresh_start(steps))?;
    }
}
