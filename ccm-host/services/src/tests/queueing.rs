//! More Services wait for a slow cloud than it takes at a time, and change meanwhile.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::{
    cluster::{lb, node},
    restarting::A_SWEEP,
    world::World,
};
use ccm_cloud::{
    ErrorReason, InProgress,
    fake::{Call, error, method},
};

const SOON: Duration = Duration::from_secs(5);
const SLOW: Duration = Duration::from_secs(600);
const SERVICES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn port(world: &World, name: &str, port: u16) {
    if world.cluster.service(name).is_some() {
        world.cluster.change_service(name, |service| service["spec"]["ports"][0]["port"] = json!(port));
    }
}

/// These Services have settled, at a cloud that then gets slow and takes `at_once`.
async fn settled(services: &[&str], at_once: usize) -> World {
    let mut world =
        World::new([node("n1"), node("n2")].into_iter().chain(services.iter().map(|name| lb(name))));
    world.settings.concurrent_service_syncs = at_once;
    world.start();
    world.pass(SOON).await;
    world.cloud.set_latency(method::ENSURE, SLOW);
    world.take();
    world
}

/// F2: the nodes of a balancer follow, though its edit waits for its turn.
#[tokio::test(start_paused = true)]
async fn an_edit_that_waits_for_its_turn_pins_no_dead_node() {
    let world = settled(&["a", "b"], 1).await;
    port(&world, "a", 81);
    world.pass(Duration::from_secs(1)).await;
    port(&world, "b", 81);
    world.pass(Duration::from_secs(1)).await;
    world.cluster.remove_node("n1");
    world.cluster.put(node("n3"));
    world.pass(SOON).await;
    assert_eq!(world.calls(), ["ensure a n1,n2", "update b n2,n3"]);
    let Some(Call::Update { digest, .. }) = world.cloud.calls().pop() else { panic!("an update") };
    assert!(digest.contains("port:80,"), "as it is applied: {digest}");
    world.cloud.set_latency(method::ENSURE, Duration::ZERO);
    world.pass(SLOW + SLOW).await;
    assert_eq!(world.calls().last().unwrap(), "ensure b n2,n3", "its turn comes all the same");
}

/// F2: what waits for nothing but a place is deleted at once.
#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_wait_for_the_turn_of_its_edit() {
    let world = settled(&["a", "b"], 1).await;
    port(&world, "a", 81);
    world.pass(Duration::from_secs(1)).await;
    port(&world, "b", 81);
    world.pass(Duration::from_secs(1)).await;
    world.cluster.delete_service("b");
    world.pass(SOON).await;
    assert_eq!(world.take(), ["ensure a n1,n2", "delete b-uid", "finalizer removed"]);
}

/// A provider that takes few calls at a time has few places: a call that waits for its turn at the provider would freeze
/// its Service as well.
#[tokio::test(start_paused = true)]
async fn a_provider_gets_no_more_than_it_takes() {
    let world = settled(&["a", "b"], 16).await;
    world.cloud.change_info(|info| info.balancers_at_once = 1);
    port(&world, "a", 81);
    world.pass(Duration::from_secs(1)).await;
    port(&world, "b", 81);
    world.pass(Duration::from_secs(1)).await;
    world.cluster.remove_node("n1");
    world.pass(SOON).await;
    assert_eq!(world.calls(), ["ensure a n1,n2", "update b n2"]);
}

/// A Service that went before its turn came, and an edit that was taken back.
#[tokio::test(start_paused = true)]
async fn what_nobody_wants_any_more_takes_no_turn() {
    let world = settled(&["a", "b"], 1).await;
    port(&world, "a", 81);
    world.pass(Duration::from_secs(1)).await;
    world.cluster.put(lb("new"));
    port(&world, "b", 81);
    world.pass(Duration::from_secs(1)).await;
    world.cluster.delete_service("new");
    port(&world, "b", 80);
    world.pass(SOON).await;
    assert!(world.cluster.service("new").is_none());
    world.pass(2 * SLOW).await;
    assert_eq!(world.count("ensure"), 1, "{:?}", world.calls());
}

/// A step while the cloud is slow to make and change balancers, and does the rest at once.
#[derive(Debug, Clone)]
enum Step {
    Make(&'static str),
    Port(&'static str, u16),
    Delete(&'static str),
    Join(&'static str),
    Leave(&'static str),
    /// How long an Ensure takes from now on.
    Slow(u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let service = || prop::sample::select(&SERVICES[..]);
    let node = || prop::sample::select(&["n1", "n2", "n3"][..]);
    prop_oneof![
        3 => service().prop_map(Step::Make),
        5 => (service(), 80..84_u16).prop_map(|(name, port)| Step::Port(name, port)),
        2 => service().prop_map(Step::Delete),
        2 => node().prop_map(Step::Join),
        2 => node().prop_map(Step::Leave),
        1 => (1..900_u64).prop_map(Step::Slow),
        6 => (1..300_u64).prop_map(Step::Pass),
    ]
}

/// What is not right though nothing but a place at the cloud is missing.
fn wrong(world: &World) -> Vec<String> {
    let nodes: Vec<_> = world.cluster.nodes().into_keys().collect();
    let services = world.cluster.services();
    let uid = |name: &str| services[name]["metadata"]["uid"].as_str().unwrap().to_owned();
    let idle = |uid: &str| !world.cloud.is_busy(uid);
    let balancers = world.cloud.balancers();
    let dead = (balancers.keys()).filter(|uid| idle(uid) && world.cloud.backends_of(uid) != nodes);
    let dead = dead.map(|uid| format!("{uid} has {:?}, not {nodes:?}", world.cloud.backends_of(uid)));
    let going = services.iter().filter(|(_, service)| !service["metadata"]["deletionTimestamp"].is_null());
    let stays = going.filter(|(name, _)| idle(&uid(name))).map(|(name, _)| format!("{name} is not deleted"));
    dead.chain(stays).collect()
}

async fn play(steps: &[Step], at_once: usize) -> Vec<String> {
    let world = settled(&SERVICES[..3], at_once).await;
    let mut made = 0;
    for step in steps {
        match *step {
            Step::Make(name) if world.cluster.service(name).is_none() => {
                made += 1;
                let mut service = lb(name);
                service["metadata"]["uid"] = json!(format!("{name}-{made}"));
                world.cluster.put(service);
            }
            Step::Port(name, number) => port(&world, name, number),
            Step::Delete(name) if world.cluster.service(name).is_some() => world.cluster.delete_service(name),
            Step::Join(name) => world.cluster.put(node(name)),
            Step::Leave(name) if world.cluster.has_node(name) => world.cluster.remove_node(name),
            Step::Slow(seconds) => world.cloud.set_latency(method::ENSURE, Duration::from_secs(seconds)),
            Step::Pass(seconds) => world.pass(Duration::from_secs(seconds)).await,
            Step::Make(_) | Step::Delete(_) | Step::Leave(_) => {}
        }
    }
    // The longest debounce; and once more, for what a call that ended just now leaves to do.
    world.pass(Duration::from_secs(15)).await;
    let before = wrong(&world);
    world.pass(Duration::from_secs(15)).await;
    let mut wrong = wrong(&world);
    wrong.retain(|one| before.contains(one));
    world.cloud.set_latency(method::ENSURE, Duration::ZERO);
    world.pass(A_SWEEP).await;
    for (name, service) in world.cluster.services() {
        let uid = service["metadata"]["uid"].as_str().unwrap();
        let port = format!("port:{},", service["spec"]["ports"][0]["port"]);
        let applied = world.cloud.balancers().remove(uid).and_then(|balancer| balancer.applied_digest);
        if !applied.is_some_and(|digest| digest.contains(&port)) {
            wrong.push(format!("{name} is not as it should be in the end"));
        }
    }
    wrong
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// F2: to wait for a place delays the wait's own change and nothing else.
    #[test]
    fn whoever_waits_for_a_place_is_not_frozen(
        steps in prop::collection::vec(step(), 1..30),
        at_once in 1..3_usize,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let wrong = runtime.block_on(play(&steps, at_once));
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Whoever edits a Service again and again has a place for one edit at a time.
#[tokio::test(start_paused = true)]
async fn an_edit_during_an_edit_stands_in_line_again() {
    let world = settled(&["a", "b"], 1).await;
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(10));
    port(&world, "a", 81);
    world.pass(Duration::from_secs(1)).await;
    port(&world, "b", 81);
    for number in 82..88 {
        port(&world, "a", number);
        world.pass(SOON).await;
    }
    let calls = world.calls();
    assert_eq!(calls[..3], ["ensure a n1,n2", "ensure b n1,n2", "ensure a n1,n2"], "{calls:?}");
}

/// F2: the update that failed is tried again, though meanwhile the edit stands in line.
#[tokio::test(start_paused = true)]
async fn an_update_that_failed_waits_for_no_turn() {
    let world = settled(&["a", "b"], 1).await;
    port(&world, "a", 81);
    world.pass(Duration::from_secs(1)).await;
    port(&world, "b", 81);
    world.pass(Duration::from_secs(1)).await;
    for _ in 0..2 {
        world.cloud.fail_next(method::UPDATE, error(method::UPDATE, Some(ErrorReason::CloudApiUnavailable)));
    }
    world.cluster.remove_node("n1");
    world.pass(Duration::from_secs(2)).await;
    world.cluster.put(node("n3"));
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.calls().last().unwrap(), "update b n2,n3", "{:?}", world.calls());
    assert_eq!(world.count("update b"), 3, "two failed");
}

/// A cloud may have states that never end: as many balancers in one as there are places hold up the others for a while alone.
#[tokio::test(start_paused = true)]
async fn work_that_never_ends_keeps_no_place_for_ever() {
    let mut world = World::new([node("n1")]);
    world.settings.concurrent_service_syncs = 1;
    world.start();
    let (call, pause) = (Duration::from_secs(20), Duration::from_secs(10));
    let again = InProgress { retry_after: pause, reason: String::new(), message: String::new() };
    world.cloud.set_latency(method::ENSURE, call);
    world.cloud.takes_next(method::ENSURE, Duration::from_secs(1_000_000), again.clone());
    world.cluster.put(lb("stuck"));
    world.pass(Duration::from_secs(60)).await;
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(1_200)).await;
    assert!(world.cloud.balancers().contains_key("web-uid"));
    world.cloud.set_latency(method::DELETE, call);
    world.cloud.takes_next(method::DELETE, Duration::from_secs(1_000_000), again);
    world.cluster.delete_service("stuck");
    world.pass(Duration::from_secs(60)).await;
    world.cluster.delete_service("web");
    world.pass(Duration::from_secs(1_200)).await;
    assert!(world.cluster.service("web").is_none());
}
