//! Upstream's scenarios: given routes and nodes, the final state.

use super::*;

const AVAILABLE: &str = "False RouteCreated";
const UNAVAILABLE: &str = "True NoRouteCreated";

struct Row {
    ids: &'static str,
    nodes: Vec<Node>,
    routes: Vec<Route>,
    /// The final routes.
    want: &'static [&'static str],
    conditions: &'static [(&'static str, &'static str)],
}

fn n2() -> Node {
    wanting("n2", &["10.120.1.0/24"])
}

fn dual() -> Vec<Node> {
    vec![wanting("n3", &["10.120.0.0/24", "a00:100::/24"]), wanting("n4", &["10.120.1.0/24", "a00:200::/24"])]
}

fn dual_routes() -> Vec<Route> {
    vec![
        route("a", "10.120.0.0/24", "n3"),
        route("b", "a00:100::/24", "n3"),
        route("c", "10.120.1.0/24", "n4"),
        route("d", "a00:200::/24", "n4"),
    ]
}

const DUAL: &[&str] = &["10.120.0.0/24 n3", "10.120.1.0/24 n4", "a00:100::/24 n3", "a00:200::/24 n4"];
const BOTH: &[&str] = &["10.120.0.0/24 n1", "10.120.1.0/24 n2"];
const DUAL_AVAILABLE: &[(&str, &str)] = &[("n3", AVAILABLE), ("n4", AVAILABLE)];
const BOTH_AVAILABLE: &[(&str, &str)] = &[("n1", AVAILABLE), ("n2", AVAILABLE)];

fn rows() -> Vec<Row> {
    let both = || vec![route("a", "10.120.0.0/24", "n1"), route("b", "10.120.1.0/24", "n2")];
    let with = |mut routes: Vec<Route>, more: Vec<Route>| {
        routes.extend(more);
        routes
    };
    let swapped = || {
        vec![
            route("a", "10.120.1.0/24", "n3"),
            route("b", "a00:200::/24", "n3"),
            route("c", "10.120.0.0/24", "n4"),
            route("d", "a00:100::/24", "n4"),
        ]
    };
    let dual_row = |ids, routes| Row { ids, nodes: dual(), routes, want: DUAL, conditions: DUAL_AVAILABLE };
    let row =
        |ids, routes| Row { ids, nodes: vec![n1(), n2()], routes, want: BOTH, conditions: BOTH_AVAILABLE };
    vec![
        dual_row("ROUTE-3 none", vec![]),
        dual_row("ROUTE-4 all correct", dual_routes()),
        dual_row("ROUTE-5 swapped", swapped()),
        dual_row("ROUTE-6 two of four", dual_routes().into_iter().take(2).collect()),
        dual_row(
            "ROUTE-7 two more",
            with(
                dual_routes(),
                vec![route("x", "10.120.2.0/24", "node-x"), route("y", "a00:300::/24", "node-y")],
            ),
        ),
        row("ROUTE-8 both correct", both()),
        row("ROUTE-10 one of two", both().into_iter().take(1).collect()),
        row("ROUTE-11 none", vec![]),
        row(
            "ROUTE-12 two of nodes that are gone",
            with(both(), vec![route("x", "10.120.2.0/24", "node-3"), route("y", "10.120.3.0/24", "node-4")]),
        ),
        row(
            "ROUTE-13 one correct, one of a node that is gone",
            vec![route("a", "10.120.0.0/24", "n1"), route("x", "10.120.2.0/24", "node-3")],
        ),
        Row {
            ids: "ROUTE-14 a node without pod CIDR",
            nodes: vec![n1(), wanting("n2", &[])],
            routes: vec![],
            want: &["10.120.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE), ("n2", "none")],
        },
        row("ROUTE-15 a blackhole inside", with(both(), vec![blackhole("x", "10.120.2.0/24", "")])),
        Row {
            ids: "ROUTE-16 a blackhole outside",
            nodes: vec![n1(), n2()],
            routes: with(both(), vec![blackhole("x", "10.1.2.0/24", "")]),
            want: &["10.1.2.0/24 -", "10.120.0.0/24 n1", "10.120.1.0/24 n2"],
            conditions: BOTH_AVAILABLE,
        },
        Row {
            ids: "ROUTE-17 the same CIDR twice",
            nodes: vec![wanting("n", &["10.120.1.0/24", "10.120.1.0/24"])],
            routes: vec![],
            want: &["10.120.1.0/24 n"],
            conditions: &[("n", AVAILABLE)],
        },
        Row {
            ids: "ROUTE-18 a leftover of a node without pod CIDRs",
            nodes: vec![wanting("n", &[])],
            routes: vec![route("a", "10.120.1.0/24", "n")],
            want: &[],
            conditions: &[("n", UNAVAILABLE)],
        },
        Row {
            ids: "ROUTE-23 an old route outside",
            nodes: vec![n1()],
            routes: vec![route("a", "10.9.0.0/24", "n1")],
            want: &["10.120.0.0/24 n1", "10.9.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE)],
        },
        Row {
            ids: "ROUTE-24 no target, nobody wants it",
            nodes: vec![n1()],
            routes: vec![route("a", "10.120.7.0/24", "")],
            want: &["10.120.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE)],
        },
        Row {
            ids: "ROUTE-25 ours: a blackhole is replaced in the same run",
            nodes: vec![n1()],
            routes: vec![blackhole("a", "10.120.0.0/24", "n1")],
            want: &["10.120.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE)],
        },
        Row {
            ids: "ROUTE-27 two for one node and CIDR",
            nodes: vec![n1()],
            routes: vec![route("a", "10.120.0.0/24", "n1"), route("b", "10.120.0.0/24", "n1")],
            want: &["10.120.0.0/24 n1", "10.120.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE)],
        },
        Row {
            ids: "a former machine of that name",
            nodes: vec![n1()],
            routes: vec![Route {
                target: Some(RouteTarget {
                    provider_id: "fake://old".into(),
                    ..route("a", "10.120.0.0/24", "n1").target.unwrap()
                }),
                ..route("a", "10.120.0.0/24", "n1")
            }],
            want: &["10.120.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE)],
        },
        Row {
            ids: "only a machine is named, and it has no node",
            nodes: vec![n1()],
            routes: vec![Route {
                target: Some(RouteTarget {
                    name: String::new(),
                    ..route("a", "10.120.9.0/24", "gone").target.unwrap()
                }),
                ..route("a", "10.120.9.0/24", "gone")
            }],
            want: &["10.120.0.0/24 n1"],
            conditions: &[("n1", AVAILABLE)],
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn what_upstream_would_have_in_the_end_is_there() {
    for Row { ids, nodes, routes, want, conditions } in rows() {
        let scene = Scene::start(nodes, routes).await;
        scene.rest().await;
        assert_eq!(scene.routes(), want, "{ids}");
        for (node, condition) in conditions {
            assert_eq!(scene.condition(node), *condition, "{ids}: {node}");
        }
        assert!(
            scene.fake.routes().iter().all(|route| route.state == RouteState::Active || route.id == "x"),
            "{ids}"
        );
        scene.fake.take_calls();
        scene.server.take_calls();
        sleep(PERIOD * 2).await;
        let calls = scene.calls();
        assert!(calls.iter().all(|call| call == "list"), "{ids}: nothing is left to do, but {calls:?}");
        assert_eq!(scene.server.take_lines(), [""; 0], "{ids}");
        scene.stop().await;
    }
}

/// ROUTE-1, ROUTE-2, ROUTE-9, ROUTE-28: addresses count where routes contain them.
#[tokio::test(start_paused = true)]
async fn routes_that_hold_addresses_follow_them() {
    let fake = FakeProvider::new("fake");
    fake.change_info(|info| info.route_node_addresses = true);
    dual_routes().into_iter().for_each(|route| fake.set_route(route));
    let scene = Scene::with(dual(), fake, vec![]).await;
    scene.rest().await;
    assert_eq!(scene.routes(), DUAL);
    let held = |scene: &Scene| -> Vec<String> {
        let routes = scene.fake.routes();
        let targets = routes.iter().filter_map(|route| route.target.as_ref());
        targets.flat_map(|target| &target.addresses).map(|address| address.address.clone()).collect()
    };
    assert_eq!(held(&scene), ["10.0.0.1"; 4]);
    scene.calls();
    scene.server.edit("n3", |node| node["status"]["addresses"][0]["address"] = "10.0.0.7".into());
    scene.rest().await;
    assert_eq!(scene.calls(), ["ensure 10.120.0.0/24 n3", "ensure a00:100::/24 n3"]);
    assert_eq!(held(&scene).iter().filter(|address| *address == "10.0.0.7").count(), 2);
    assert_eq!(scene.condition("n3"), AVAILABLE);
    scene.stop().await;
}

/// ROUTE-29, SW-33: no node waits for another node's route; `cloud` decides how many share a call.
#[tokio::test(start_paused = true)]
async fn all_nodes_are_at_it_at_once() {
    let nodes =
        (0..500).map(|i| wanting(&format!("n-{i}"), &[&format!("10.120.{}.{}/28", i / 16, (i % 16) * 16)]));
    let fake = FakeProvider::new("fake");
    fake.set_latency(ccm_cloud::fake::method::ENSURE_ROUTE, Duration::from_secs(50));
    let scene = Scene::with(nodes.collect::<Vec<_>>(), fake, vec![]).await;
    sleep(Duration::from_secs(51)).await;
    scene.rest().await;
    assert_eq!(scene.routes().len(), 500);
    assert!((0..500).all(|i| scene.condition(&format!("n-{i}")) == AVAILABLE));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn people_see_the_routes_that_are_known() {
    let scene = Scene::settled([n1()], []).await;
    let tables = scene.parts.views.all(|one| one.routes());
    assert_eq!(tables.iter().map(|table| table.provider.as_str()).collect::<Vec<_>>(), ["fake"]);
    let destinations: Vec<_> = tables[0].routes.iter().map(|route| route.destination.as_str()).collect();
    assert_eq!(destinations, ["10.120.0.0/24"]);
}
