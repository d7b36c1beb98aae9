//! Removals that must never happen, and conditions that must never be written.

use super::*;
use ccm_cloud::{
    ErrorReason as R, ProviderStatus,
    fake::{error, method},
};
use ccm_kube::fixtures::invalid;

/// Nothing irreversible is done at an unhealthy provider; routes are still made.
#[tokio::test(start_paused = true)]
async fn nothing_is_removed_while_the_provider_is_not_trusted() {
    let fake = FakeProvider::new("fake");
    fake.set_status(ProviderStatus::Frozen("CREDENTIALS_VALID is FALSE".into()));
    fake.set_route(route("a", "10.120.9.0/24", "gone"));
    fake.set_route(blackhole("b", "10.120.8.0/24", ""));
    fake.set_route(route("c", "10.120.7.0/24", "n1"));
    let scene = Scene::with([n1()], fake, vec![]).await;
    sleep(PERIOD * 2).await;
    assert_eq!(
        scene.routes(),
        ["10.120.0.0/24 n1", "10.120.7.0/24 n1", "10.120.8.0/24 -", "10.120.9.0/24 gone"]
    );
    scene.fake.set_status(ProviderStatus::Serving);
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"], "at once, when it is well");
    scene.stop().await;
}

/// A list that wrongly reports itself complete for a moment: what it lacks is ensured, and no node loses its network.
#[tokio::test(start_paused = true)]
async fn a_list_that_shrinks_for_a_moment_costs_an_ensure() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    scene.fake.drop_route("a");
    sleep(PERIOD * 2).await;
    let calls = scene.calls();
    assert_eq!(calls.iter().filter(|call| *call != "list").collect::<Vec<_>>(), ["ensure 10.120.0.0/24 n1"]);
    assert_eq!(scene.server.take_lines(), [""; 0], "the condition stays");
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}

/// A provider lists more routes of nobody than there are places, and removes none of them.
#[tokio::test(start_paused = true)]
async fn routes_that_no_node_has_hold_up_no_node() {
    let fake = FakeProvider::new("fake");
    for number in 0..Controller::AT_ONCE + 100 {
        let cidr = format!("10.120.{}.{}/32", number / 250, number % 250);
        let of_nobody = if number % 2 == 0 { format!("gone-{number}") } else { String::new() };
        fake.set_route(route(&number.to_string(), &cidr, &of_nobody));
    }
    fake.set_latency(method::DELETE_ROUTE, Duration::from_secs(3600));
    let scene = Scene::with([], fake, vec![]).await;
    scene.rest().await;
    scene.server.put(&wanting("n1", &["10.120.255.0/24"]));
    scene.rest().await;
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}

/// The cache lags behind: a live read shows that the node exists.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_cache_does_not_know_yet_keeps_its_routes() {
    let server = NodeServer::new([]);
    let fake = FakeProvider::new("fake");
    fake.set_route(route("a", "10.120.0.0/24", "n1"));
    let stage = Stage::set(&REGISTRATION, server.clone(), &[Arc::clone(&fake)], settings()).await;
    server.hold_watches();
    server.put(&n1());
    let stage = stage.run();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(routes_of(&fake), ["10.120.0.0/24 n1"]);
    assert!(server.take_lines().iter().all(|line| line == "GET n1"));
    server.release_all();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fake.take_calls().len(), 1, "nothing but the list");
    stage.stop().await;
}

/// A live read shows that the node wants again what it gave up according to the cache.
#[tokio::test(start_paused = true)]
async fn a_wish_that_the_cache_does_not_know_yet_counts() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    let wish = |cidrs: Value| scene.server.edit("n1", |node| node["spec"]["podCIDRs"] = cidrs);
    scene.server.hold_watches();
    wish(Value::Null);
    wish(serde_json::json!(["10.120.0.0/24"]));
    scene.server.release(1);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.server.release_all();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.calls(), [""; 0]);
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}

/// Rule 10: a route re-pointed since is listed again, and decided on again.
#[tokio::test(start_paused = true)]
async fn a_route_that_was_repointed_meanwhile_is_not_removed() {
    let scene = Scene::settled([n1(), wanting("n2", &[])], [route("a", "10.120.5.0/24", "n2")]).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"], "nobody wants it");
    scene.server.put(&wanting("n3", &["10.120.6.0/24"]));
    scene.rest().await;
    let id =
        scene.fake.routes().into_iter().find(|route| route.destination == net("10.120.6.0/24")).unwrap().id;
    // Someone else points it to an existing node, unnoticed; then its old node is deleted.
    scene.fake.set_route(Route { id: id.clone(), ..route("", "10.120.6.0/24", "n2") });
    scene.calls();
    scene.server.delete("n3");
    scene.rest().await;
    assert_eq!(scene.calls(), [format!("delete {id}")]);
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1", "10.120.6.0/24 n2"], "ROUTE_CHANGED");
    sleep(Duration::from_secs(11)).await;
    assert_eq!(
        scene.calls(),
        [format!("delete {id}"), "list".to_owned()],
        "listed, decided anew: n2 does not want it"
    );
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.stop().await;
}

/// Rule 7: an incomplete list neither removes what it lacks, nor marks a network unavailable.
#[tokio::test(start_paused = true)]
async fn an_incomplete_list_takes_nothing_away() {
    let fake = FakeProvider::new("fake");
    fake.set_unreachable(vec![("eu-1".into(), error(method::LIST_ROUTES, Some(R::LocationUnreachable)))]);
    fake.fail_always(method::ENSURE_ROUTE, Some(error(method::ENSURE_ROUTE, Some(R::InternalError))));
    fake.set_route(route("x", "10.120.9.0/24", "gone"));
    let known = n1().with_condition(condition::NETWORK_UNAVAILABLE, "False", "RouteCreated");
    let scene = Scene::with([known], fake, vec![]).await;
    sleep(PERIOD * 3).await;
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    assert_eq!(scene.routes(), [""; 0], "what is listed is known to be there, and may go");
    scene.fake.set_unreachable(vec![]);
    sleep(PERIOD * 2).await;
    assert_eq!(scene.condition("n1"), "True NoRouteCreated", "now it is known");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_incomplete_list_lacks_is_known_still() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    scene.fake.set_rejected_routes(vec!["the route \"b\" leads to \"junk\", which is no CIDR".into()]);
    let kept = scene.fake.drop_route("a");
    sleep(PERIOD * 2).await;
    assert!(scene.calls().iter().all(|call| call == "list"), "it may be there: {kept:?}");
    scene.stop().await;
}

/// A wider route that shares an edge with a cluster CIDR is someone's aggregate: RESP-13, RESP-14 ours, SW-36.
#[tokio::test(start_paused = true)]
async fn a_wider_route_is_never_removed() {
    let wide =
        [route("a", "10.120.0.0/15", "gone"), route("b", "0.0.0.0/0", ""), blackhole("c", "10.0.0.0/8", "")];
    let scene = Scene::start([n1()], wide).await;
    sleep(PERIOD * 2).await;
    assert_eq!(scene.routes().len(), 4);
    scene.stop().await;
}

/// An unknown state is no reason to remove a route.
#[tokio::test(start_paused = true)]
async fn a_route_of_unknown_state_is_kept() {
    let unknown = |id, cidr, to| Route { state: RouteState::Unspecified, ..route(id, cidr, to) };
    let given = [unknown("a", "10.120.8.0/24", "gone"), unknown("b", "10.120.9.0/24", "")];
    let scene = Scene::start([n1()], given).await;
    sleep(PERIOD * 2).await;
    assert_eq!(scene.routes().len(), 3);
    scene.stop().await;
}

/// A failing apiserver proves nothing about the node.
#[tokio::test(start_paused = true)]
async fn a_condition_meets_a_node_that_was_replaced() {
    let scene = Scene::settled([], []).await;
    scene.server.answer_next_write(invalid("field is immutable", &["metadata.uid"]));
    scene.server.put(&n1());
    scene.rest().await;
    assert_eq!(scene.server.take_lines(), ["PATCH n1/status"], "it is not written to another node");
    scene.stop().await;
}

/// The deletion of a route without a node's name is under way when its node comes back.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_while_its_route_is_removed_has_one_again() {
    let mut nameless = route("a", "10.120.0.0/24", "n1");
    nameless.target.iter_mut().for_each(|target| target.name.clear());
    let scene = Scene::settled([n1()], [nameless]).await;
    scene.fake.set_latency(method::DELETE_ROUTE, Duration::from_secs(5));
    scene.server.delete("n1");
    sleep(Duration::from_secs(1)).await;
    scene.server.put(&n1().uid("newer"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.calls(), ["delete a", "ensure 10.120.0.0/24 n1"]);
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.stop().await;
}

/// Calls that wait for minutes before they begin, and are outdated by then.
#[tokio::test(start_paused = true)]
async fn a_route_is_not_made_for_a_node_that_went_while_the_call_waited() {
    let scene = Scene::settled([], []).await;
    scene.fake.set_queued(method::ENSURE_ROUTE, Duration::from_secs(200));
    scene.server.put(&n1());
    scene.server.put(&wanting("n2", &["10.120.2.0/24"]));
    sleep(Duration::from_secs(10)).await;
    scene.server.delete("n1");
    sleep(Duration::from_secs(10)).await;
    // Its block is another node's now; the other node gets a new machine.
    scene.server.put(&wanting("n3", &["10.120.0.0/24"]));
    scene.server.put(&wanting("n2", &["10.120.2.0/24"]).uid("newer"));
    sleep(Duration::from_secs(250)).await;
    assert_eq!(scene.calls(), ["ensure 10.120.0.0/24 n3", "ensure 10.120.2.0/24 n2", "list", "list"]);
    assert_eq!(scene.routes(), ["10.120.0.0/24 n3", "10.120.2.0/24 n2"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_is_not_removed_for_a_node_that_came_back_while_the_call_waited() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    scene.fake.set_queued(method::DELETE_ROUTE, Duration::from_secs(200));
    scene.server.delete("n1");
    sleep(Duration::from_secs(10)).await;
    scene.server.put(&n1().uid("newer"));
    sleep(Duration::from_secs(250)).await;
    assert!(!scene.calls().contains(&"delete a".to_owned()));
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.stop().await;
}
