//! What a list may settle, and what only an answer can.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::{addresses, lb, node},
    restarting::A_SWEEP,
    world::{A_WHILE, World},
};
use ccm_cloud::{InProgress, ServiceCondition, fake::method};

const SECOND: Duration = Duration::from_secs(1);

fn again_after(retry_after: Duration) -> InProgress {
    InProgress { retry_after, reason: String::new(), message: String::new() }
}

fn published(world: &World) -> Vec<String> {
    addresses(&world.cluster.service("web").unwrap())
}

fn retype(world: &World, type_: &str) {
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!(type_));
}

/// F6: annotations, conditions and Events come with the last answer only.
#[tokio::test(start_paused = true)]
async fn a_list_does_not_stand_for_the_answer_that_is_due() {
    let world = World::settled([node("n1")]).await;
    let open = ServiceCondition { status: "True", reason: "R".to_owned(), message: String::new() };
    world.cloud.set_conditions([("cloud/Open".to_owned(), open)].into());
    world.cloud.takes_next(method::ENSURE, 100 * SECOND, again_after(12_000 * SECOND));
    world.cluster.put(lb("web"));
    world.pass(A_SWEEP).await;
    assert_eq!(published(&world), ["192.0.2.1"], "as the list showed");
    world.pass(12_000 * SECOND).await;
    let story = world.take();
    assert_eq!(story.iter().filter(|word| word.starts_with("ensure")).count(), 2, "{story:?}");
    assert!(story.contains(&"condition cloud/Open=True".to_owned()), "{story:?}");
}

/// F6: an address went while no host was there to hear of it. No list removes one, but the Ensure that it causes does.
#[tokio::test(start_paused = true)]
async fn an_address_that_a_restart_misses_costs_one_ensure() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    world.cluster.change_service("web", |service| {
        let entries = ["192.0.2.1", "192.0.2.2"].map(|ip| json!({"ip": ip, "ipMode": "VIP"}));
        service["status"] = json!({"loadBalancer": {"ingress": entries}});
    });
    world.start();
    world.pass(3 * A_SWEEP).await;
    assert_eq!(published(&world), ["192.0.2.1"]);
    assert_eq!(world.count("ensure"), 1, "{:?}", world.calls());
}

/// F7: the old balancer is half deleted, the new one has no address yet.
#[tokio::test(start_paused = true)]
async fn a_removal_that_is_taken_back_publishes_nothing_that_is_gone() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.in_progress_next(method::DELETE, again_after(50 * SECOND));
    retype(&world, "ClusterIP");
    world.until("the removal", |world| world.count("delete") == 1).await;
    world.pass(SECOND).await;
    world.cloud.in_progress_next(method::ENSURE, again_after(60 * SECOND));
    retype(&world, "LoadBalancer");
    world.pass(30 * SECOND).await;
    assert_eq!(published(&world), [""; 0]);
    world.pass(A_WHILE).await;
    assert_eq!(published(&world), ["192.0.2.2"]);
}

/// F13: the list shows what was before the update that is still going on.
#[tokio::test(start_paused = true)]
async fn a_list_ends_no_doubt_about_an_update_in_progress() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.takes_next(method::UPDATE, 11_200 * SECOND, again_after(11_300 * SECOND));
    world.cluster.put(node("n2"));
    world.pass(A_SWEEP).await;
    assert_eq!(world.calls(), ["update web n1,n2", "list"]);
    world.cluster.remove_node("n2");
    world.pass(400 * SECOND).await;
    assert_eq!(world.cloud.backends_of("web-uid"), ["n1"], "{:?}", world.calls());
}

/// F13: likewise of an Ensure whose deadline passed, though the user takes the edit back.
#[tokio::test(start_paused = true)]
async fn a_list_ends_no_doubt_about_an_ensure_that_was_given_up() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let port = |port: u16| {
        world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(port));
    };
    world.pass(9_990 * SECOND).await;
    world.cloud.set_latency(method::ENSURE, 1_500 * SECOND);
    world.cloud.set_patience(method::ENSURE, 5 * SECOND);
    port(81);
    world.until("the Ensure", |world| world.count("ensure") == 1).await;
    world.cloud.set_latency(method::ENSURE, Duration::ZERO);
    world.until("the list", |world| world.count("list") == 1).await;
    world.pass(SECOND).await;
    port(80);
    world.pass(5_000 * SECOND).await;
    let applied = world.cloud.balancers()["web-uid"].applied_digest.clone().unwrap();
    assert!(applied.contains("port:80,"), "{:?}", world.calls());
}

/// An update makes no balancer: that one is under way takes nothing from a list that lacks it. (Seed 21725)
#[tokio::test(start_paused = true)]
async fn updates_that_hang_hide_no_balancer_that_is_gone() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.set_latency(method::UPDATE, 16_000 * SECOND);
    world.cloud.set_patience(method::UPDATE, 16_000 * SECOND);
    world.cluster.put(node("n2"));
    world.until("the update", |world| world.count("update") == 1).await;
    world.cloud.remove_balancer("web-uid");
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["update web n1,n2", "list"]);
    world.pass(5_000 * SECOND).await;
    assert_eq!(world.cloud.backends_of("web-uid"), ["n1", "n2"], "{:?}", world.calls());
}

/// F15: the list began before the balancer was made anew.
#[tokio::test(start_paused = true)]
async fn a_list_from_before_a_round_trip_is_not_believed() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.set_latency(method::LIST, 60 * SECOND);
    world.pass(9_900 * SECOND).await;
    world.until("the list", |world| world.count("list") == 1).await;
    retype(&world, "ClusterIP");
    world.pass(5 * SECOND).await;
    retype(&world, "LoadBalancer");
    world.pass(5 * SECOND).await;
    assert_eq!(published(&world), ["192.0.2.2"]);
    world.pass(100 * SECOND).await;
    assert_eq!(published(&world), ["192.0.2.2"]);
}

/// Seed 134: it is taken back while the provider is being asked, and not yet done then.
#[tokio::test(start_paused = true)]
async fn a_removal_that_is_taken_back_while_it_is_asked_for_is_made_good_at_once() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.set_latency(method::DELETE, 2 * SECOND);
    world.cloud.in_progress_next(method::DELETE, again_after(50 * SECOND));
    retype(&world, "ClusterIP");
    world.until("the removal", |world| world.count("delete") == 1).await;
    retype(&world, "LoadBalancer");
    world.pass(5 * SECOND).await;
    assert_eq!(world.calls(), ["delete web-uid", "ensure web n1"]);
    world.pass(A_WHILE).await;
    assert_eq!((published(&world).len(), world.metric("ccm_service_pending")), (1, "0".to_owned()));
}

/// A cloud shows a balancer as it was until its deletion has ended: whoever wants it back meanwhile has it made again.
#[tokio::test(start_paused = true)]
async fn a_list_in_the_middle_of_a_removal_makes_nothing_whole() {
    for knows_digests in [true, false] {
        let mut world = World::new([node("n1"), lb("web")]);
        world.cloud.change_info(|info| info.durable_digest = knows_digests);
        world.start();
        world.pass(3 * SECOND).await;
        world.cloud.takes_next(method::DELETE, 2 * A_SWEEP, again_after(3 * A_SWEEP));
        retype(&world, "ClusterIP");
        world.pass(A_SWEEP + 500 * SECOND).await;
        world.take();
        world.cloud.takes_next(method::ENSURE, 100 * SECOND, again_after(100 * SECOND));
        retype(&world, "LoadBalancer");
        world.pass(10 * SECOND).await;
        assert_eq!(published(&world), [""; 0], "its address is going");
        world.pass(A_WHILE).await;
        assert!(world.count("ensure") > 0, "{:?}", world.calls());
        assert_eq!(world.cloud.balancers().len(), 1);
    }
}
