//! Changes over time: nodes come, go and change, and so does the cloud.

use super::*;
use ccm_cloud::{
    ErrorReason as R, Family, InProgress, ProviderStatus,
    fake::{error, method},
};
use ccm_kube::keep::KeySet;

/// SW-29: no calls while nothing changes but the clock and heartbeats.
#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_costs_one_list_a_period() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    sleep(PERIOD - Duration::from_secs(1)).await;
    assert_eq!(scene.calls(), [""; 0]);
    sleep(PERIOD * 10).await;
    let calls = scene.calls();
    assert!(calls.iter().all(|call| call == "list"), "{calls:?}");
    assert!((9..=10).contains(&calls.len()), "one a period with some jitter, but {}", calls.len());
    assert_eq!(scene.server.take_lines(), [""; 0]);
    assert!(scene.fake.take_calls().is_empty());
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_routes_inside_the_cluster_cidrs_are_asked_for() {
    let scene = Scene::start([], []).await;
    scene.rest().await;
    let within = ["10.120.0.0/16", "a00::/8"].map(str::to_owned).to_vec();
    assert_eq!(scene.fake.take_calls(), [Call::ListRoutes { within }]);
    assert!(scene.has_metric("route_controller_route_sync_total{outcome=\"noop\",trigger=\"periodic\"} 1"));
    scene.stop().await;
}

/// WATCH-2, WATCH-5: each change takes effect at once, however many there are.
#[tokio::test(start_paused = true)]
async fn a_node_gets_its_route_when_it_gets_its_pod_cidr() {
    let scene = Scene::settled([wanting("n1", &[]), wanting("n2", &[])], []).await;
    for (name, cidr) in [("n1", "10.120.0.0/24"), ("n2", "10.120.1.0/24")] {
        scene.server.edit(name, |node| node["spec"]["podCIDRs"] = serde_json::json!([cidr]));
        scene.rest().await;
        assert_eq!(scene.calls(), [format!("ensure {cidr} {name}")]);
        assert_eq!(scene.condition(name), "False RouteCreated");
    }
    assert_eq!(scene.server.take_lines(), ["PATCH n1/status", "PATCH n2/status"], "and nothing is read");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_initialised_waits_for_that() {
    let new = node("n").tainted_uninitialized().with_pod_cidr("10.120.0.0/24");
    let scene = Scene::start([new], []).await;
    scene.rest().await;
    assert_eq!(scene.calls(), ["list"]);
    assert_eq!(scene.condition("n"), "none");
    scene.server.edit("n", |node| {
        node["spec"]["providerID"] = "fake://n".into();
        node["spec"]["taints"] = serde_json::json!([]);
    });
    scene.rest().await;
    assert_eq!(scene.calls(), ["ensure 10.120.0.0/24 n"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_takes_its_routes_along() {
    let both = wanting("n", &["10.120.0.0/24", "a00:100::/24"]);
    let scene = Scene::settled([both, n1_other()], []).await;
    scene.server.delete("n");
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.5.0/24 other"]);
    assert_eq!(scene.server.take_lines(), ["GET n", "GET n"], "one last look for each");
    assert_eq!(scene.calls().len(), 2);
    scene.stop().await;
}

fn n1_other() -> Node {
    wanting("other", &["10.120.5.0/24"])
}

#[tokio::test(start_paused = true)]
async fn a_node_with_another_machine_gets_its_route_anew() {
    let scene = Scene::settled([n1()], []).await;
    scene.server.delete("n1");
    scene.server.put(&n1().uid("second").with_provider_id("fake://second"));
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    assert_eq!(scene.fake.routes()[0].target.as_ref().unwrap().provider_id, "fake://second");
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}

/// WATCH-3 ours, SW-32: the sweep finds changes made by others, and repairs them without an Event on the node.
#[tokio::test(start_paused = true)]
async fn drift_is_found_by_the_sweep() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    let synced = |labels: &str| scene.has_metric(&format!("route_controller_route_sync_total{{{labels}}} 1"));
    assert!(!synced(r#"outcome="changed",trigger="periodic""#));
    scene.fake.drop_route("a");
    sleep(PERIOD * 2).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    assert!(synced(r#"outcome="changed",trigger="periodic""#), "drift");
    assert!(synced(r#"outcome="changed",trigger="node_change""#), "what was done about it");
    scene.fake.set_route(Route { id: "made-1".into(), ..route("", "10.120.0.0/24", "stranger") });
    scene.fake.set_route(route("junk", "10.120.99.0/24", "stranger"));
    sleep(PERIOD * 2).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    assert_eq!(scene.server.take_lines(), ["GET stranger"]);
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_is_a_reason_to_list() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    scene.fake.drop_route("a");
    for _ in 0..5 {
        scene.fake.request_sweep();
    }
    sleep(Duration::from_secs(11)).await;
    assert_eq!(scene.calls(), ["ensure 10.120.0.0/24 n1", "list"], "once for all of them");
    scene.stop().await;
}

/// SW-32, and a truce with a writer that keeps overwriting the condition.
#[tokio::test(start_paused = true)]
async fn a_condition_of_somebody_else_is_replaced_but_not_for_ever() {
    let scene = Scene::settled([n1()], []).await;
    let calico = |scene: &Scene| {
        scene.server.edit("n1", |node| {
            node["status"]["conditions"] =
                serde_json::json!([{"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"}]);
        });
    };
    calico(&scene);
    scene.rest().await;
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    for _ in 0..50 {
        calico(&scene);
        scene.rest().await;
    }
    let writes = scene.server.take_lines().len();
    assert!(writes <= 2, "{writes} writes in five seconds");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.condition("n1"), "False RouteCreated", "it has the last word");
    assert_eq!(scene.calls(), [""; 0], "and the cloud hears nothing of it");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_nodes_with_one_pod_cidr_keeps_the_route() {
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let (old, young) = (n1().created_at(at(1)), wanting("a2", &["10.120.0.0/24"]).created_at(at(2)));
    let scene = Scene::start([old, young], []).await;
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    assert_eq!(
        (scene.condition("n1"), scene.condition("a2")),
        ("False RouteCreated".into(), "True NoRouteCreated".into())
    );
    assert_eq!(scene.reasons(), ["PodCIDRConflict"]);
    scene.calls();
    sleep(PERIOD * 3).await;
    assert!(scene.calls().iter().all(|call| call == "list"), "they do not take it from each other");
    assert_eq!(scene.reasons(), [""; 0], "it is told once");

    scene.server.delete("n1");
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 a2"]);
    assert_eq!(scene.condition("a2"), "False RouteCreated");
    scene.stop().await;
}

/// ROUTE-22 ours, SW-40: a route that would never be removed is not made, but reported.
#[tokio::test(start_paused = true)]
async fn a_pod_cidr_outside_of_the_cluster_cidrs_is_told() {
    let scene =
        Scene::start([wanting("n", &["10.9.0.0/24"]), wanting("m", &["10.9.1.0/24", "10.120.1.0/24"])], [])
            .await;
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.1.0/24 m"]);
    assert_eq!(scene.reasons(), ["PodCIDROutsideClusterCIDR"; 2]);
    assert_eq!(scene.condition("n"), "none", "a route may be there from before");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_go_to_the_provider_of_their_machine() {
    let (one, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    other.set_route(to("o", "10.120.9.0/24", "gone", "other://gone"));
    let foreign = node("f").with_provider_id("other://f").with_pod_cidr("10.120.1.0/24");
    let nobodys = node("x").with_provider_id("nobody://x").with_pod_cidr("10.120.2.0/24");
    let scene = Scene::with([n1(), foreign, nobodys], one, vec![Arc::clone(&other)]).await;
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    assert_eq!(routes_of(&other), ["10.120.1.0/24 f"]);
    assert_eq!(scene.condition("x"), "none");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_nothing_but_routes_serves_the_nodes_of_another() {
    let (machines, routes) = (FakeProvider::new("fake"), FakeProvider::new("net"));
    machines.change_info(|info| info.routes = false);
    routes.change_info(|info| info.instances = false);
    let scene = Scene::with([n1()], machines, vec![Arc::clone(&routes)]).await;
    scene.rest().await;
    assert_eq!(routes_of(&routes), ["10.120.0.0/24 n1"]);
    assert_eq!(scene.calls(), [""; 0]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_opted_out_is_left_alone_until_it_opts_in() {
    let out = n1().with_label(ccm_reconcile::settings::EXCLUDE_LABEL, "true");
    let scene = Scene::start([out], [route("a", "10.120.3.0/24", "n1")]).await;
    sleep(PERIOD * 2).await;
    assert_eq!(
        (scene.routes(), scene.condition("n1")),
        (vec!["10.120.3.0/24 n1".to_owned()], "none".to_owned())
    );
    scene.server.edit("n1", |node| node["metadata"]["labels"] = serde_json::Value::Null);
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.stop().await;
}

/// S12: an excluded node takes no destination from another one, even if it ranks first.
#[tokio::test(start_paused = true)]
async fn a_node_that_opted_out_holds_no_destination() {
    let out = wanting("first", &["10.120.0.0/24"]).with_label(ccm_reconcile::settings::EXCLUDE_LABEL, "true");
    let scene = Scene::settled([out, n1()], []).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.server.edit("first", |node| node["metadata"]["labels"] = serde_json::Value::Null);
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 first"]);
    scene.stop().await;
}

/// A condition that says that there is no route is taken back once no route is missing, whatever else the node wants.
#[tokio::test(start_paused = true)]
async fn a_pod_cidr_outside_of_the_cluster_cidrs_keeps_no_node_unschedulable() {
    let not_yet =
        || InProgress { retry_after: Duration::from_secs(7), reason: String::new(), message: String::new() };
    let (refused, unfinished) = (FakeProvider::new("fake"), FakeProvider::new("fake"));
    refused.fail_next(method::ENSURE_ROUTE, error(method::ENSURE_ROUTE, Some(R::InstanceNotFound)));
    unfinished.in_progress_next(method::ENSURE_ROUTE, not_yet());
    for fake in [refused, unfinished] {
        let scene = Scene::with([wanting("m", &["10.9.1.0/24", "10.120.1.0/24"])], fake, vec![]).await;
        scene.rest().await;
        assert_eq!(scene.condition("m"), "True NoRouteCreated");
        sleep(PERIOD * 2).await;
        assert_eq!(scene.routes(), ["10.120.1.0/24 m"]);
        assert_eq!(scene.condition("m"), "False RouteCreated");
        scene.stop().await;
    }
}

/// The same after somebody narrowed --cluster-cidr.
#[tokio::test(start_paused = true)]
async fn a_node_whose_pod_cidr_is_outside_now_is_not_left_unschedulable() {
    let without = wanting("n", &["10.9.0.0/24"]).with_condition(
        condition::NETWORK_UNAVAILABLE,
        "True",
        "NoRouteCreated",
    );
    let scene = Scene::start([without], []).await;
    scene.rest().await;
    assert_eq!(scene.condition("n"), "False RouteCreated");
    scene.stop().await;
}

/// N4: a provider whose watch ends all the time is not listed all the time.
#[tokio::test(start_paused = true)]
async fn lists_that_are_wished_all_the_time_become_rare() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    for _ in 0..360 {
        scene.fake.request_sweep();
        sleep(Duration::from_secs(5)).await;
    }
    let lists = scene.calls().len();
    assert!((6..=12).contains(&lists), "{lists} lists in half an hour");
    sleep(PERIOD * 3).await;
    scene.calls();
    scene.fake.request_sweep();
    scene.rest().await;
    assert_eq!(scene.calls(), ["list"], "one that comes alone is made at once");
    scene.stop().await;
}

/// N5: routes are made with what the provider wants to know of the node.
#[tokio::test(start_paused = true)]
async fn what_a_provider_wants_to_know_is_known_before_routes_are_made() {
    let scene = Scene::settled([], []).await;
    let label = "example.com/network";
    scene.fake.change_info(|info| info.keep_of_nodes.labels = KeySet::keys([label]));
    let wanted = scene.fake.info().unwrap().keep_of_nodes.clone();
    assert!(!scene.parts.nodes.holds(&wanted));
    scene.server.put(&n1().with_label(label, "blue"));
    scene.until(|scene| !scene.fake.routes().is_empty()).await;
    assert!(scene.parts.nodes.holds(&wanted));
    scene.stop().await;
}

/// N5: what is removed first may take long, and another process may have taken the provider's place meanwhile.
#[tokio::test(start_paused = true)]
async fn what_a_new_process_wants_to_know_is_known_before_a_route_is_made() {
    let fake = FakeProvider::new("fake");
    fake.set_route(blackhole("a", "10.120.0.0/24", "n1"));
    fake.set_route(route("b", "10.120.0.0/24", "gone"));
    fake.set_latency(method::DELETE_ROUTE, Duration::from_secs(60));
    let label = "example.com/network";
    let scene = Scene::with([n1().with_label(label, "blue")], Arc::clone(&fake), vec![]).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(scene.calls(), ["delete b", "list"]);
    fake.change_info(|info| info.keep_of_nodes.labels = KeySet::keys([label]));
    let (wanted, nodes) = (fake.info().unwrap().keep_of_nodes.clone(), scene.parts.nodes.clone());
    assert!(!nodes.holds(&wanted));
    let known = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&known);
    fake.witness(move |call| {
        if matches!(call, Call::EnsureRoute { .. }) {
            noted.lock().push(nodes.holds(&wanted));
        }
    });
    sleep(PERIOD).await;
    assert_eq!((scene.routes(), &*known.lock()), (vec!["10.120.0.0/24 n1".to_owned()], &vec![true]));
    scene.stop().await;
}

/// A freeze of one family of calls holds back only what that family destroys.
#[tokio::test(start_paused = true)]
async fn broken_load_balancers_keep_no_route() {
    let scene = Scene::settled([n1()], [route("a", "10.120.0.0/24", "n1")]).await;
    scene.fake.freeze(Family::LoadBalancers, "their API is down");
    scene.server.delete("n1");
    scene.rest().await;
    assert_eq!(scene.routes(), [""; 0]);
    scene.stop().await;
}

/// F17: whose a node is may depend on a provider that comes late.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_nobodys_for_sure_has_its_route_once_it_is() {
    let (fake, late) = (FakeProvider::new("fake"), FakeProvider::new("late"));
    let known = late.info().unwrap();
    late.forget_info();
    let scene = Scene::with([n1()], fake, vec![Arc::clone(&late)]).await;
    scene.rest().await;
    assert_eq!(scene.calls(), ["list"]);
    late.change_info(|info| *info = (*known).clone());
    late.set_status(ProviderStatus::Serving);
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.stop().await;
}

/// A block that was released and given to a node of another provider: that one makes its route, and what is left at the first
/// would draw the traffic of the node's pods to where the block was.
#[tokio::test(start_paused = true)]
async fn a_block_that_went_to_another_providers_node_has_no_route_at_the_former_one() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    fake.set_route(route("a", "10.120.0.0/24", "n1"));
    fake.set_route(route("b", "10.120.1.0/24", "gone"));
    let elsewhere = |name: &str, cidr: &str| {
        wanting(name, &[cidr]).with_provider_id(&format!("other://{name}")).created_at(jiff::Timestamp::MAX)
    };
    let unknown = node("new").with_pod_cidr("10.120.3.0/24").tainted_uninitialized();
    fake.set_route(route("c", "10.120.3.0/24", "gone"));
    let nodes = [
        wanting("n1", &["10.120.2.0/24"]),
        elsewhere("n2", "10.120.0.0/24"),
        elsewhere("n3", "10.120.1.0/24"),
        unknown,
    ];
    let scene = Scene::with(nodes, fake, vec![Arc::clone(&other)]).await;
    scene.rest().await;
    assert_eq!(routes_of(&other), ["10.120.0.0/24 n2", "10.120.1.0/24 n3"]);
    assert_eq!(
        scene.routes(),
        ["10.120.2.0/24 n1", "10.120.3.0/24 gone"],
        "whose node the last one is, nobody knows yet"
    );
}

/// Two providers of one cloud, one for nodes and one for balancers, list the same routes, each with what it knows of the target.
#[tokio::test(start_paused = true)]
async fn a_route_that_another_provider_lists_as_well_is_its_owners() {
    for (name, machine) in
        [("n1", "fake://n1"), ("n1", ""), ("", "fake://n1"), ("", "fake:///zone/n1"), ("", "")]
    {
        let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
        fake.set_route(route("a", "10.120.0.0/24", "n1"));
        fake.set_route(route("b", "10.120.9.0/24", "n1"));
        other.set_route(to("its own a", "10.120.0.0/24", name, machine));
        other.set_route(to("its own b", "10.120.9.0/24", name, machine));
        let scene = Scene::with([n1()], fake, vec![Arc::clone(&other)]).await;
        scene.rest().await;
        assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
        sleep(PERIOD * 2).await;
        // The second is its owner's no more.
        let left = 1 + usize::from(!machine.is_empty());
        assert_eq!(other.routes().len(), left, "{name:?} {machine:?}");
        scene.stop().await;
    }
}

/// What a former machine of a node's name had at its provider, and what leads to none of another's machines, is left over.
#[tokio::test(start_paused = true)]
async fn what_is_left_at_another_provider_goes() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    other.set_route(to("former", "10.120.8.0/24", "n1", "other://n1"));
    other.set_route(to("unknown", "10.120.9.0/24", "", ""));
    other.set_route(to("outside", "10.9.9.0/24", "gone", "other://gone"));
    other.set_route(to("held", "10.120.0.0/24", "n1", "other://n1"));
    fake.set_route(to("wanted", "10.120.0.0/24", "", ""));
    fake.set_latency(method::ENSURE_ROUTE, Duration::from_secs(1));
    let scene = Scene::with([n1()], fake, vec![Arc::clone(&other)]).await;
    scene.rest().await;
    assert_eq!(routes_of(&other), ["10.9.9.0/24 gone"], "ROUTE-23");
    assert_eq!(scene.calls(), ["ensure 10.120.0.0/24 n1", "list"], "ROUTE-24: replaced, not removed first");
}

/// What hangs at one provider keeps no other from its retries, nor from its own removals.
#[tokio::test(start_paused = true)]
async fn a_provider_that_removes_nothing_holds_up_no_other() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    other.set_route(to("former", "10.120.8.0/24", "n1", "other://n1"));
    for number in 0..STRAYS_AT_ONCE + 100 {
        let cidr = format!("10.120.{}.{}/32", 100 + number / 250, number % 250);
        other.set_route(to(&number.to_string(), &cidr, &format!("gone-{number}"), "other://gone"));
    }
    other.set_latency(method::DELETE_ROUTE, Duration::from_secs(3600));
    fake.fail_next(method::ENSURE_ROUTE, error(method::ENSURE_ROUTE, Some(R::InternalError)));
    fake.set_route(route("gone", "10.120.9.0/24", "gone"));
    let scene = Scene::with([n1()], fake, vec![other]).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}
