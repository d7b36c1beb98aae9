//! The tables. Networks: n1 10.120.0.0/24, n2 10.120.1.0/24; n3 and n4 have these and a00:100::/24, a00:200::/24.

use super::*;
use ccm_cloud::InstanceAddress;
use ccm_kube::fixtures::node;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn cluster() -> Vec<IpNet> {
    vec![net("10.120.0.0/16"), net("a00::/8")]
}

fn route(id: &str, cidr: &str, to: &str) -> Route {
    let target = RouteTarget { name: to.to_owned(), ..RouteTarget::default() };
    Route {
        id: id.to_owned(),
        destination: net(cidr),
        target: Some(target).filter(|_| !to.is_empty()),
        state: RouteState::Active,
        ours: true,
    }
}

fn blackhole(id: &str, cidr: &str, to: &str) -> Route {
    Route { state: RouteState::Blackhole, ..route(id, cidr, to) }
}

fn holding(route: Route, addresses: &[&str]) -> Route {
    let addresses = addresses
        .iter()
        .map(|address| InstanceAddress { kind: AddressType::InternalIp, address: (*address).to_owned() });
    let target = route.target.clone().map(|target| RouteTarget { addresses: addresses.collect(), ..target });
    Route { target, ..route }
}

/// A node with these pod CIDRs.
fn wanting(name: &str, cidrs: &[&str]) -> Node {
    cidrs.iter().fold(node(name), |node, cidr| node.with_pod_cidr(cidr))
}

struct Case {
    node: Node,
    routes: Vec<Route>,
    holds_addresses: bool,
    held_by_others: Vec<IpNet>,
}

impl Case {
    fn of(node: Node, routes: Vec<Route>) -> Self {
        Self { node, routes, holds_addresses: false, held_by_others: Vec::new() }
    }

    fn holding_addresses(self) -> Self {
        Self { holds_addresses: true, ..self }
    }

    fn held_by_others(self, cidr: &str) -> Self {
        Self { held_by_others: vec![net(cidr)], ..self }
    }

    fn plan(&self) -> Plan {
        let wanted = super::super::observe::destinations(&self.node);
        let holder = |destination: &IpNet| match self.held_by_others.contains(destination) {
            true => "older".to_owned(),
            false => self.node.name.clone(),
        };
        decide(&Facts {
            node: &self.node,
            wishes: wanted
                .into_iter()
                .map(|destination| Wish { holder: holder(&destination), destination })
                .collect(),
            routes: self.routes.iter().cloned().map(Arc::new).collect(),
            held_by_others: self.held_by_others.iter().copied().collect(),
            holds_addresses: self.holds_addresses,
            cluster: &cluster(),
        })
    }

    /// The routes to remove, by id, and the destinations to ensure.
    fn words(&self) -> (Vec<String>, Vec<String>) {
        let plan = self.plan();
        let mut removed: Vec<_> = plan.removals().map(|route| route.id.clone()).collect();
        removed.sort();
        let ensured = plan.lanes.iter().filter(|lane| lane.ensure);
        (removed, ensured.map(|lane| lane.destination.to_string()).collect())
    }
}

#[test]
fn routes_become_what_nodes_want() {
    let n1 = || wanting("n1", &["10.120.0.0/24"]);
    let n3 = || wanting("n3", &["10.120.0.0/24", "a00:100::/24"]);
    let at = |node: Node, address: &str| node.with_address("InternalIP", address);
    let own4 = || route("r4", "10.120.0.0/24", "n3");
    let own6 = || route("r6", "a00:100::/24", "n3");
    let both = ["10.120.0.0/24", "a00:100::/24"];
    type Row = (&'static str, Case, &'static [&'static str], &'static [&'static str]);
    let rows: [Row; 23] = [
        (
            "ROUTE-1 no addresses yet",
            Case::of(at(n3(), "10.0.0.1"), vec![own4(), own6()]).holding_addresses(),
            &[],
            &["10.120.0.0/24", "a00:100::/24"],
        ),
        (
            "ROUTE-2, ROUTE-9 other addresses",
            Case::of(at(n1(), "10.0.0.1"), vec![holding(route("r", both[0], "n1"), &["10.0.0.9"])])
                .holding_addresses(),
            &[],
            &["10.120.0.0/24"],
        ),
        ("ROUTE-3, ROUTE-11 none", Case::of(n3(), vec![]), &[], &["10.120.0.0/24", "a00:100::/24"]),
        ("ROUTE-4, ROUTE-8 as wanted", Case::of(n3(), vec![own4(), own6()]), &[], &[]),
        (
            "ROUTE-4 addresses do not matter without the capability",
            Case::of(at(n3(), "10.0.0.1"), vec![own4(), own6()]),
            &[],
            &[],
        ),
        (
            "ROUTE-5 swapped: the wrong target is replaced, not removed first",
            Case::of(n1(), vec![route("a", "10.120.0.0/24", "n2"), route("b", "10.120.1.0/24", "n1")])
                .held_by_others("10.120.1.0/24"),
            &[],
            &["10.120.0.0/24"],
        ),
        ("ROUTE-6, ROUTE-10 one of two", Case::of(n3(), vec![own4()]), &[], &["a00:100::/24"]),
        ("ROUTE-14 no pod CIDR", Case::of(node("n2"), vec![]), &[], &[]),
        (
            "ROUTE-17 the same twice",
            Case::of(wanting("n", &["10.120.1.0/24", "10.120.1.0/24"]), vec![]),
            &[],
            &["10.120.1.0/24"],
        ),
        ("ROUTE-18 a leftover", Case::of(node("n2"), vec![route("r", "10.120.1.0/24", "n2")]), &["r"], &[]),
        (
            "ROUTE-22 ours: outside of the cluster CIDRs",
            Case::of(wanting("n", &["10.9.1.0/24"]), vec![]),
            &[],
            &[],
        ),
        (
            "ROUTE-23 an old route outside",
            Case::of(n1(), vec![route("r", "10.9.1.0/24", "n1"), route("s", "10.120.0.0/24", "n1")]),
            &[],
            &[],
        ),
        (
            "ROUTE-25 ours: a blackhole is no route, and replaced at once",
            Case::of(n1(), vec![blackhole("r", "10.120.0.0/24", "n1")]),
            &[],
            &["10.120.0.0/24"],
        ),
        (
            "a blackhole beside the route",
            Case::of(n1(), vec![blackhole("a", "10.120.0.0/24", ""), route("b", "10.120.0.0/24", "n1")]),
            &["a"],
            &[],
        ),
        (
            "ROUTE-24 no target, at what a node wants",
            Case::of(n1(), vec![route("a", "10.120.0.0/24", "")]),
            &[],
            &["10.120.0.0/24"],
        ),
        (
            "ROUTE-27 two that are as wanted",
            Case::of(n1(), vec![route("a", "10.120.0.0/24", "n1"), route("b", "10.120.0.0/24", "n1")]),
            &[],
            &[],
        ),
        (
            "two, one of them another node's",
            Case::of(n1(), vec![route("a", "10.120.0.0/24", "n2"), route("b", "10.120.0.0/24", "n1")]),
            &["a"],
            &[],
        ),
        (
            "two, both other nodes': one is replaced, one is removed",
            Case::of(n1(), vec![route("a", "10.120.0.0/24", "n2"), route("b", "10.120.0.0/24", "n4")]),
            &["b"],
            &["10.120.0.0/24"],
        ),
        (
            "ROUTE-28 the same addresses in another order",
            Case::of(
                at(at(n1(), "10.0.0.1"), "10.0.0.2"),
                vec![holding(route("r", both[0], "n1"), &["10.0.0.2", "10.0.0.1"])],
            )
            .holding_addresses(),
            &[],
            &[],
        ),
        (
            "a state that is not known is kept, and not taken as standing",
            Case::of(
                n1(),
                vec![
                    Route { state: RouteState::Unspecified, ..route("a", "10.120.0.0/24", "n1") },
                    Route { state: RouteState::Unspecified, ..route("b", "10.120.7.0/24", "n1") },
                ],
            ),
            &[],
            &["10.120.0.0/24"],
        ),
        (
            "what is not ours serves, or is replaced where a node wants the destination, and never removed",
            Case::of(
                n1(),
                vec![
                    Route { ours: false, ..route("a", "10.120.0.0/24", "n1") },
                    Route { ours: false, ..route("b", "10.120.7.0/24", "n1") },
                    Route { ours: false, ..route("c", "10.120.0.0/24", "n2") },
                ],
            ),
            &[],
            &[],
        ),
        (
            "being made",
            Case::of(n1(), vec![Route { state: RouteState::Pending, ..route("a", "10.120.0.0/24", "n1") }]),
            &[],
            &["10.120.0.0/24"],
        ),
        (
            "an older node holds it",
            Case::of(n1(), vec![route("a", "10.120.0.0/24", "n1")]).held_by_others("10.120.0.0/24"),
            &[],
            &[],
        ),
    ];
    for (name, case, removed, ensured) in rows {
        assert_eq!(case.words(), (owned(removed), owned(ensured)), "{name}");
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn whether_a_node_has_to_do_with_routes() {
    let rows = [
        ("ROUTE-14 neither wishes nor routes", Case::of(node("n"), vec![]), false),
        ("ROUTE-18 a route", Case::of(node("n"), vec![route("r", "10.120.1.0/24", "n")]), true),
        ("a wish", Case::of(wanting("n", &["10.120.1.0/24"]), vec![]), true),
    ];
    for (name, case, want) in rows {
        assert_eq!(case.plan().concerned, want, "{name}");
    }
}

#[test]
fn what_is_odd_is_told() {
    let rows = [
        (
            "SW-40 outside",
            Case::of(wanting("n", &["10.9.1.0/24"]), vec![]),
            ("PodCIDROutsideClusterCIDR", "the pod CIDR 10.9.1.0/24"),
        ),
        (
            "taken",
            Case::of(wanting("n", &["10.120.1.0/24"]), vec![]).held_by_others("10.120.1.0/24"),
            ("PodCIDRConflict", "10.120.1.0/24 is also that of the older node older"),
        ),
        (
            "doubled",
            Case::of(
                wanting("n", &["10.120.1.0/24"]),
                vec![route("a", "10.120.1.0/24", "n"), route("b", "10.120.1.0/24", "n")],
            ),
            ("DuplicateRoutes", "2 routes lead to the pod CIDR 10.120.1.0/24"),
        ),
    ];
    for (name, case, (reason, words)) in rows {
        let reports = case.plan().reports;
        let [report] = reports.as_slice() else { panic!("{name}: {reports:?}") };
        assert!(report.reason == reason && report.message.contains(words), "{name}: {report:?}");
    }
}

#[test]
fn a_route_leads_to_a_node_by_name_and_machine() {
    let target = |name: &str, provider_id: &str| RouteTarget {
        name: name.to_owned(),
        provider_id: provider_id.to_owned(),
        ..RouteTarget::default()
    };
    let n = || node("n").with_provider_id("x://1");
    let rows = [
        ("by both", n(), target("n", "x://1"), true),
        ("by name, the machine is not told", n(), target("n", ""), true),
        ("by name, the node has no machine yet", node("n"), target("n", "x://1"), true),
        ("by machine, the name is not told", n(), target("", "x://1"), true),
        ("a former node of that name", n(), target("n", "x://0"), false),
        ("another node", n(), target("m", "x://1"), false),
        ("nothing in common", node("n"), target("", "x://1"), false),
    ];
    for (name, node, target, want) in rows {
        let route = Route { target: Some(target), ..route("r", "10.120.0.0/24", "") };
        assert_eq!(leads_to(&route, &node), want, "{name}");
    }
}

/// Upstream considers [A,A] and [A,B] equal.
#[test]
fn addresses_are_compared_as_sets_of_what_travels() {
    let n = node("n").with_address("InternalIP", "10.0.0.1").with_address("InternalIP", "10.0.0.1");
    let held = |addresses: &[&str]| holding(route("r", "10.120.0.0/24", "n"), addresses).target.unwrap();
    assert!(!are_its_addresses(&n, &held(&["10.0.0.1", "10.0.0.2"])));
    assert!(are_its_addresses(&n.with_address("VendorsOwn", "x"), &held(&["10.0.0.1"])));
}
