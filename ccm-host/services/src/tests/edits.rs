//! Edits that cannot be applied: the balancer keeps its last applied state, but its nodes follow the cluster (S2).

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    cluster::{lb, node},
    restarting::A_SWEEP,
    world::{A_WHILE, World},
};
use crate::nodes::EXCLUDE_LABEL;
use ccm_cloud::{
    ErrorReason, InProgress, SyncState,
    fake::{Call, error, method},
};

const SOON: Duration = Duration::from_secs(15);

fn port(world: &World, port: u16) {
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(port));
}

fn bad_range(service: &mut Value) {
    service["spec"]["loadBalancerSourceRanges"] = json!(["nowhere"]);
}

/// Removes one node and adds another.
fn rotate(world: &World, gone: &str, new: &str) {
    world.cluster.remove_node(gone);
    world.cluster.put(node(new));
}

async fn made() -> World {
    World::settled([node("n1"), node("n2"), lb("web")]).await
}

fn refuses_edits(world: &World, reason: Option<ErrorReason>) {
    world.cloud.fail_always(method::ENSURE, Some(error(method::ENSURE, reason)));
}

fn updates(world: &World) -> Vec<String> {
    world.calls().into_iter().filter(|call| call.starts_with("update")).collect()
}

/// Somebody changes the balancer behind the provider's back.
fn drift(world: &World) {
    let mut balancer = world.cloud.balancers().remove("web-uid").unwrap();
    balancer.sync_state = SyncState::Drifted;
    world.cloud.set_balancer(balancer);
}

/// The digest that the last call beginning with `begin` carried.
fn last_wish(world: &World, begin: &str) -> String {
    let calls = world.cloud.calls();
    let call = calls.iter().rfind(|call| super::world::word(call).starts_with(begin)).expect("a call");
    match call {
        Call::Ensure { digest, .. } | Call::Update { digest, .. } => digest.clone(),
        other => panic!("{other:?} wishes nothing"),
    }
}

/// S2: whatever the edit waits for, and however often nodes change meanwhile.
#[tokio::test(start_paused = true)]
async fn nodes_follow_while_an_edit_fails() {
    use ErrorReason as R;
    for reason in
        [None, Some(R::InvalidArgumentShape), Some(R::UnsupportedFeature), Some(R::ConcurrentOperation)]
    {
        let world = made().await;
        refuses_edits(&world, reason);
        port(&world, 81);
        world.pass(SOON).await;
        rotate(&world, "n1", "n3");
        world.pass(SOON).await;
        assert_eq!(updates(&world), ["update web n2,n3"], "{reason:?}");
        assert!(!last_wish(&world, "update").contains("port:81"), "{reason:?}: the Service that was applied");
        rotate(&world, "n2", "n4");
        world.pass(A_WHILE).await;
        assert_eq!(updates(&world), ["update web n2,n3", "update web n3,n4"], "{reason:?}");
        assert_eq!(world.metric("ccm_service_pending"), "1", "{reason:?}");
        world.cloud.fail_always(method::ENSURE, None);
        world.take();
        world.pass(A_SWEEP).await;
        assert_eq!(world.count("ensure web n3,n4"), 1, "{reason:?}: the edit goes on");
        assert_eq!(world.metric("ccm_service_pending"), "0", "{reason:?}");
    }
}

/// S2: the host itself refuses, and never sends the edit to the provider.
#[tokio::test(start_paused = true)]
async fn nodes_follow_while_the_edit_makes_no_sense() {
    let world = made().await;
    world.cluster.change_service("web", bad_range);
    world.pass(SOON).await;
    rotate(&world, "n1", "n3");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["update web n2,n3"]);
}

/// S2: nodes change together with the Service.
#[tokio::test(start_paused = true)]
async fn nodes_follow_after_the_edit_that_came_with_them_failed() {
    let world = made().await;
    refuses_edits(&world, Some(ErrorReason::UnsupportedFeature));
    world.cluster.remove_node("n1");
    port(&world, 81);
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure web n1,n2", "update web n2"]);
}

/// S2: a provider that forgot what was applied when the edit failed gets the whole applied state again.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_cannot_be_updated_is_ensured_as_it_was_applied() {
    let world = made().await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::UnsupportedFeature)));
    port(&world, 81);
    world.pass(SOON).await;
    world.cloud.fail_next(method::UPDATE, error(method::UPDATE, Some(ErrorReason::NeedsEnsure)));
    rotate(&world, "n1", "n3");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure web n1,n2", "update web n2,n3", "ensure web n2,n3"]);
    rotate(&world, "n2", "n4");
    world.pass(A_WHILE).await;
    assert!(!last_wish(&world, "update").contains("port:81"));
    assert_eq!(world.take(), ["update web n3,n4"]);
}

/// S2, SW-15: a cloud that fails every call is called at the pace of the backoff, however many nodes join.
#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_follow_either_are_tried_in_their_time() {
    let world = made().await;
    refuses_edits(&world, None);
    world.cloud.fail_always(method::UPDATE, Some(error(method::UPDATE, None)));
    port(&world, 81);
    for number in 10..60 {
        world.cluster.put(node(&format!("n{number}")));
        world.pass(Duration::from_secs(20)).await;
    }
    assert!((3..=12).contains(&world.count("update")), "{:?}", world.calls());
    assert!((3..=12).contains(&world.count("ensure")), "{:?}", world.calls());
    world.cloud.fail_always(method::UPDATE, None);
    world.pass(Duration::from_secs(310)).await;
    assert!(updates(&world).last().unwrap().ends_with(",n59"), "{:?}", world.calls());
}

/// Work in progress is not disturbed: the provider is asked again when it said, with the newest nodes.
#[tokio::test(start_paused = true)]
async fn an_edit_that_takes_time_takes_the_nodes_along() {
    let world = made().await;
    let retry_after = Duration::from_secs(60);
    let work = InProgress { retry_after, reason: String::new(), message: String::new() };
    world.cloud.in_progress_next(method::ENSURE, work);
    port(&world, 81);
    world.pass(SOON).await;
    rotate(&world, "n1", "n3");
    world.pass(A_WHILE).await;
    let calls: Vec<_> = world.take().into_iter().filter(|word| !word.starts_with("status")).collect();
    assert_eq!(calls, ["ensure web n1,n2", "ensure web n2,n3"]);
}

/// S2: the listed digest tells what was applied, though not the Service: the update repeats that digest's Service
/// part.
#[tokio::test(start_paused = true)]
async fn nodes_follow_after_a_restart_though_the_edit_still_fails() {
    let mut world = made().await;
    refuses_edits(&world, Some(ErrorReason::InvalidArgumentShape));
    port(&world, 81);
    world.pass(SOON).await;
    world.stop().await;
    rotate(&world, "n1", "n3");
    world.take();
    world.start();
    world.pass(SOON).await;
    assert_eq!(world.calls(), ["list", "ensure web n2,n3", "update web n2,n3"]);
    assert!(!last_wish(&world, "update").contains("port:81"));
    // A provider that cannot do that is not asked over and over.
    world.cloud.fail_always(method::UPDATE, Some(error(method::UPDATE, Some(ErrorReason::NeedsEnsure))));
    rotate(&world, "n2", "n4");
    world.pass(Duration::from_secs(400)).await;
    assert_eq!(world.count("update"), 2);
    assert!(world.count("ensure") <= 3, "{:?}", world.calls());
}

/// S2: what was changed behind the provider's back stays so for as long as Ensures fail, also after a restart.
#[tokio::test(start_paused = true)]
async fn nodes_follow_while_drift_cannot_be_mended() {
    let mut world = made().await;
    refuses_edits(&world, Some(ErrorReason::UnsupportedFeature));
    drift(&world);
    world.pass(A_SWEEP).await;
    rotate(&world, "n1", "n3");
    world.pass(SOON).await;
    assert_eq!(world.cloud.backends_of("web-uid"), ["n2", "n3"], "{:?}", world.calls());
    world.stop().await;
    rotate(&world, "n2", "n4");
    world.start();
    world.pass(SOON).await;
    assert_eq!(world.cloud.backends_of("web-uid"), ["n3", "n4"], "{:?}", world.calls());
}

/// A step in the life of a Service with a balancer, while its cloud refuses every edit.
#[derive(Debug, Clone)]
enum Step {
    Port(u16),
    BadRange(bool),
    Join(&'static str),
    Leave(&'static str),
    Exclude(&'static str),
    Refuse(Option<ErrorReason>),
    Pass(u64),
    Drift,
    Sweep,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(&["n1", "n2", "n3", "n4"][..]);
    let reasons = [None, Some(ErrorReason::InvalidArgumentShape), Some(ErrorReason::UnsupportedFeature)];
    prop_oneof![
        2 => (80..84_u16).prop_map(Step::Port),
        1 => any::<bool>().prop_map(Step::BadRange),
        3 => name().prop_map(Step::Join),
        3 => name().prop_map(Step::Leave),
        1 => name().prop_map(Step::Exclude),
        2 => prop::sample::select(reasons.to_vec()).prop_map(Step::Refuse),
        4 => (0..40_000_u64).prop_map(Step::Pass),
        1 => prop::sample::select(vec![Step::Drift, Step::Sweep, Step::Restart]),
    ]
}

async fn carry_out(world: &mut World, step: &Step) {
    match *step {
        Step::Port(number) => port(world, number),
        Step::BadRange(true) => world.cluster.change_service("web", bad_range),
        Step::BadRange(false) => world.cluster.change_service("web", |service| {
            service["spec"].as_object_mut().unwrap().remove("loadBalancerSourceRanges");
        }),
        Step::Join(name) => world.cluster.put(node(name)),
        Step::Leave(name) if world.cluster.has_node(name) => world.cluster.remove_node(name),
        Step::Exclude(name) if world.cluster.has_node(name) => world.cluster.change_node(name, |node| {
            node["metadata"]["labels"] = json!({ EXCLUDE_LABEL: "" });
        }),
        Step::Leave(_) | Step::Exclude(_) => {}
        Step::Refuse(reason) => refuses_edits(world, reason),
        Step::Pass(milliseconds) => world.pass(Duration::from_millis(milliseconds)).await,
        Step::Drift => drift(world),
        Step::Sweep => world.pass(A_SWEEP).await,
        Step::Restart => {
            world.stop().await;
            world.start();
        }
    }
}

fn eligible(world: &World) -> Vec<String> {
    let nodes = world.cluster.nodes();
    let included = |node: &&Value| node["metadata"]["labels"].get(EXCLUDE_LABEL).is_none();
    nodes
        .values()
        .filter(included)
        .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// S2: a failing Ensure never pins dead nodes to a balancer.
    #[test]
    fn no_refused_edit_keeps_a_dead_node(steps in prop::collection::vec(step(), 1..30)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (behind, want) = runtime.block_on(async {
            let mut world = made().await;
            refuses_edits(&world, None);
            for step in &steps {
                carry_out(&mut world, step).await;
            }
            world.pass(Duration::from_secs(30)).await;
            (world.cloud.backends_of("web-uid"), eligible(&world))
        });
        prop_assert_eq!(behind, want);
    }
}
