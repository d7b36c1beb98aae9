//! Tables of node.md 4.9, and histories in any order.

mod properties;

use prometheus_client::registry::Registry;

use super::*;
use ccm_kube::fixtures::node;

const V4: &str = "10.10.0.0/16>24";
const V6: &str = "a00::/48>64";

fn net(text: &str) -> IpNet {
    cidr::parse(text).unwrap()
}

fn range(text: &str) -> NodeRange {
    let (cluster, mask) = text.split_once('>').unwrap();
    NodeRange { cluster: net(cluster), node_mask: mask.parse().unwrap() }
}

/// A ledger with ranges written as `cluster>mask`, and the Service ranges.
fn ledger(ranges: &[&str], services: &[&str]) -> Ledger {
    let metrics = IpamMetrics::register(&mut Registry::default());
    let ranges: Vec<_> = ranges.iter().map(|text| range(text)).collect();
    let reserved: Vec<_> = services.iter().map(|text| net(text)).collect();
    Ledger::new(&ranges, &reserved, &metrics)
}

fn with(name: &str, cidrs: &[&str]) -> Node {
    cidrs.iter().fold(node(name), |node, cidr| node.with_pod_cidr(cidr))
}

impl Ledger {
    /// A new node joins and requests CIDRs.
    fn join(&mut self, name: &str) -> String {
        self.see(&node(name));
        self.ask(name)
    }

    /// A known node requests CIDRs.
    fn ask(&mut self, name: &str) -> String {
        match self.allot(&node(name).uid) {
            Allotment::Cidrs(cidrs) => cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Allotment::Exhausted(cluster, None) => format!("exhausted {cluster}"),
            Allotment::Exhausted(cluster, Some((name, network))) => {
                format!("exhausted {cluster} by {name} {network}")
            }
            Allotment::Contested => "contested".to_owned(),
            Allotment::Nothing => "nothing".to_owned(),
        }
    }

    fn leave(&mut self, name: &str) -> Vec<String> {
        self.forget(&node(name).uid)
    }

    /// What is wrong with a node, without the remedy.
    fn told(&self, name: &str) -> Vec<String> {
        let remedy = format!("; {}", problem::REMEDY);
        let said = self.problems(&node(name).uid).into_iter().map(|report| report.message);
        said.map(|message| message.strip_suffix(&remedy).expect("a remedy").to_owned()).collect()
    }

    fn occupied(&self) -> Vec<f64> {
        self.sets.iter().map(CidrSet::usage).collect()
    }
}

/// The problems of a node seen with these CIDRs.
fn problems(ledger: &mut Ledger, name: &str, cidrs: &[&str]) -> Vec<String> {
    ledger.see(&with(name, cidrs));
    ledger.told(name)
}

/// IPAM-1..3, IPAM-19: valid CIDRs are recorded without a report.
#[test]
fn known_cidrs_are_taken() {
    let rows: [(&[&str], &[&str]); 6] = [
        (&[V4], &[]),
        (&[V4, V6], &[]),
        (&[V4], &["10.10.0.1/24"]),
        (&[V4, "a00::/8>24"], &["10.10.0.1/24", "a00::/86"]),
        (&["a00::/8>24", V4], &["10.10.0.0/24", "a00::/86"]),
        (&[V4, V6], &["10.10.0.0/24"]),
    ];
    for (ranges, cidrs) in rows {
        let mut ledger = ledger(ranges, &[]);
        assert_eq!(problems(&mut ledger, "a", cidrs), [""; 0], "{cidrs:?}");
        let first = if cidrs.is_empty() { "10.10.0.0/24" } else { "10.10.1.0/24" };
        assert!(ledger.join("b").contains(first), "{cidrs:?} in {ranges:?}");
    }
}

/// IPAM-4..6, NW-29: upstream does not start. We report it, and serve all other nodes.
#[test]
fn wrong_cidrs_are_told_and_harm_nobody() {
    let out = |network| format!("the pod CIDR {network} is outside the cluster CIDR 10.10.0.0/16");
    let alien =
        |network| format!("the pod CIDR {network} is of an IP family for which the cluster has no CIDR");
    let none = |text| format!("the pod CIDR {text:?} is not a network");
    let rows: [(&[&str], &[&str], Vec<String>); 5] = [
        (&[V4], &["10.11.0.0/24"], vec![out("10.11.0.0/24")]),
        (&[V4], &["10.10.0.0/24", "a00::/64"], vec![alien("a00::/64")]),
        (&[V4, V6], &["10.10.0.x/24", "a00::/64"], vec![none("10.10.0.x/24")]),
        (&[V4, V6], &["10.10.0.0/24", "a00::/640"], vec![none("a00::/640")]),
        (&[V4, V6], &["", "10.9.0.0/24"], vec![none(""), out("10.9.0.0/24")]),
    ];
    for (ranges, cidrs, want) in rows {
        let mut ledger = ledger(ranges, &[]);
        assert_eq!(problems(&mut ledger, "a", cidrs), want);
        assert!(ledger.join("b").starts_with("10.10."), "{cidrs:?}");
        assert_eq!(ledger.ask("a"), "nothing", "what a node has, it keeps");
        ledger.leave("a");
    }
}

/// IPAM-7..9, IPAM-18: occupied blocks and those of the Services are skipped.
#[test]
fn the_first_free_block_is_given() {
    let rows: [(&str, &[&str], &[&str], &str); 4] = [
        ("127.123.234.0/24>30", &[], &[], "127.123.234.0/30"),
        ("127.123.234.0/24>30", &["127.123.234.0/26"], &[], "127.123.234.64/30"),
        (
            "127.123.234.0/24>30",
            &["127.123.234.0/26"],
            &["127.123.234.64/30", "127.123.234.68/30", "127.123.234.72/30", "127.123.234.80/30"],
            "127.123.234.76/30",
        ),
        (V4, &[], &["10.10.0.0/24", "10.10.2.0/24"], "10.10.1.0/24"),
    ];
    for (cluster, services, used, want) in rows {
        let mut ledger = ledger(&[cluster], services);
        for (number, cidr) in used.iter().enumerate() {
            ledger.see(&with(&number.to_string(), &[cidr]));
        }
        assert_eq!(ledger.join("new"), want);
    }
    for service in ["10.0.255.0/24", "10.1.0.0/24", "10.1.255.0/24", "10.2.0.0/24"] {
        let mut ledger = ledger(&["10.1.0.0/16>24"], &[service]);
        let given: Vec<_> = (0..300).map(|number| ledger.join(&number.to_string())).collect();
        let networks: Vec<_> = given.iter().filter_map(|text| cidr::parse(text)).collect();
        assert_eq!(networks.len(), if service.starts_with("10.1.") { 255 } else { 256 }, "{service}");
        assert!(networks.iter().all(|network| !cidr::overlap(network, &net(service))), "{service}");
    }
}

/// IPAM-10.
#[test]
fn each_family_gives_one_in_the_order_of_the_flag() {
    assert_eq!(ledger(&[V4, V6], &[]).join("a"), "10.10.0.0/24,a00::/64");
    assert_eq!(ledger(&[V6, V4], &[]).join("a"), "a00::/64,10.10.0.0/24");
}

/// IPAM-12..14.
#[test]
fn what_is_released_goes_to_who_waits() {
    let mut ledger = ledger(&["127.123.234.0/28>30"], &[]);
    let full = "exhausted 127.123.234.0/28";
    for cidr in ["127.123.234.0/30", "127.123.234.4/30", "127.123.234.8/30", "127.123.234.12/30"] {
        ledger.see(&with(cidr, &[cidr]));
    }
    assert_eq!(ledger.join("new"), full);
    assert_eq!(ledger.join("newer"), full);
    assert_eq!(ledger.leave("127.123.234.4/30"), ["new", "newer"]);
    assert_eq!(ledger.ask("new"), "127.123.234.4/30");
    assert_eq!(ledger.ask("newer"), full);
    assert_eq!(ledger.leave("new"), ["newer"], "what was only proposed comes back, too");
    assert_eq!(ledger.ask("newer"), "127.123.234.4/30");
    assert_eq!(ledger.leave("127.123.234.0/30"), [""; 0], "nobody waits any more");
}

/// IPAM-15, IPAM-16: seeing a node, terminating or not, releases nothing; IPAM-17: an unknown one occupies nothing.
#[test]
fn only_a_node_that_is_gone_releases() {
    let mut ledger = ledger(&[V4], &[]);
    let rows = [
        (with("a", &["10.10.0.0/24"]), vec!["a"]),
        (with("a", &["10.10.0.0/24"]), vec![]),
        (with("a", &["10.10.0.0/24"]).deleting(), vec![]),
    ];
    for (seen, affected) in rows {
        assert_eq!(ledger.see(&seen), affected, "a heartbeat is no reason to look");
        assert_eq!(ledger.occupied(), [1.0 / 256.0]);
    }
    assert_eq!(ledger.ask("nobody"), "nothing");
    assert_eq!(ledger.join("b"), "10.10.1.0/24");
    assert_eq!(ledger.leave("nobody"), [""; 0]);
}

/// IPAM-23, NW-26.
#[test]
fn both_families_or_nothing() {
    let mut ledger = ledger(&["10.10.0.0/22>24", "a00::/64>64"], &[]);
    assert_eq!(ledger.join("a"), "10.10.0.0/24,a00::/64");
    for _ in 0..5 {
        assert_eq!(ledger.join("b"), "exhausted a00::/64");
    }
    assert_eq!(ledger.occupied(), [0.25, 1.0]);
    assert_eq!(ledger.leave("a"), ["b"]);
    assert_eq!(ledger.ask("b"), "10.10.1.0/24,a00::/64");
}

/// IPAM-24, NW-27: after a write of unknown outcome, the same is proposed again.
#[test]
fn what_may_have_been_written_stays_the_nodes() {
    let mut ledger = ledger(&[V4], &[]);
    assert_eq!(ledger.join("a"), "10.10.0.0/24");
    ledger.see(&node("a"));
    assert_eq!(ledger.ask("a"), "10.10.0.0/24");
    assert_eq!(ledger.join("b"), "10.10.1.0/24");
    ledger.give_back(&node("b").uid);
    assert_eq!(ledger.ask("b"), "10.10.2.0/24", "what the apiserver refused is not tried at once again");
    ledger.learn(&with("a", &["10.10.7.0/24"]));
    assert_eq!(ledger.occupied(), [2.0 / 256.0], "the proposal is free, what stands in the node is not");
    ledger.see(&node("a"));
    assert_eq!(ledger.ask("a"), "nothing", "a cache that lags does not undo what is known");
}

/// A kubelet may register its Node with any podCIDRs: who gets none is told who has them.
#[test]
fn who_holds_many_blocks_is_named() {
    let mut ledger = ledger(&["10.10.0.0/22>24"], &[]);
    ledger.see(&with("a", &["10.10.0.0/24"]));
    ledger.see(&with("greedy", &["10.10.0.0/22"]));
    assert_eq!(ledger.join("c"), "exhausted 10.10.0.0/22 by greedy 10.10.0.0/22");
    ledger.leave("greedy");
    assert_eq!(ledger.ask("c"), "10.10.1.0/24");
}

/// IPAM-25, NW-28.
#[test]
fn a_block_of_two_nodes_stays_taken_until_both_are_gone() {
    let mut ledger = ledger(&["10.10.0.0/23>24"], &["10.10.1.0/24"]);
    ledger.see(&with("a", &["10.10.0.0/24"]));
    assert_eq!(ledger.see(&with("b", &["10.10.0.0/24"])), ["a", "b"]);
    for (name, other) in [("a", "b"), ("b", "a")] {
        assert_eq!(ledger.told(name), [format!("the pod CIDR 10.10.0.0/24 overlaps that of node {other}")]);
    }
    assert_eq!(ledger.join("c"), "exhausted 10.10.0.0/23");
    assert_eq!(ledger.leave("a"), ["b"], "nothing is free");
    assert_eq!(ledger.told("b"), [""; 0], "healed");
    assert_eq!(ledger.leave("b"), ["c"]);
    let of_services = "the pod CIDR 10.10.1.0/24 overlaps the range of the Services";
    assert_eq!(problems(&mut ledger, "d", &["10.10.1.0/24"]), [of_services]);
    ledger.leave("d");
    assert_eq!(ledger.occupied(), [0.5], "what belongs to Services is never free");
}

/// IPAM-26, NW-26.
#[test]
fn a_node_that_went_in_between_leaks_nothing() {
    let mut ledger = ledger(&[V4], &[]);
    ledger.join("a");
    ledger.leave("a");
    assert_eq!(ledger.occupied(), [0.0]);
    assert_eq!(ledger.learn(&with("a", &["10.10.0.0/24"])), [""; 0]);
    assert_eq!(ledger.ask("a"), "nothing");
    assert_eq!(ledger.occupied(), [0.0]);
}

/// IPAM-27.
#[test]
fn a_node_of_one_family_stays_so() {
    let mut ledger = ledger(&[V4, V6], &[]);
    ledger.see(&with("a", &["10.10.0.0/24"]));
    assert_eq!(ledger.ask("a"), "nothing");
    assert_eq!(ledger.occupied()[1], 0.0);
}

#[test]
fn a_proposal_that_somebody_else_got_is_contested() {
    let mut ledger = ledger(&[V4, V6], &[]);
    assert_eq!(ledger.join("a"), "10.10.0.0/24,a00::/64");
    assert_eq!(problems(&mut ledger, "b", &["10.10.0.0/24"]), [""; 0], "a proposal is nobody's business");
    assert_eq!(ledger.ask("a"), "contested");
    ledger.give_back("a-uid");
    assert_eq!(ledger.ask("a"), "10.10.1.0/24,a00:0:0:1::/64");
}

#[test]
fn a_node_of_the_same_name_is_another_node() {
    let mut ledger = ledger(&[V4], &[]);
    ledger.see(&with("a", &["10.10.0.0/24"]));
    ledger.see(&node("a").uid("newer"));
    ledger.forget("a-uid");
    assert_eq!(ledger.occupied(), [0.0]);
    assert!(matches!(ledger.allot("newer"), Allotment::Cidrs(_)));
}
