//! Who is asked about, and what Leases tell, by table.

use jiff::Timestamp;

use super::*;
use ccm_base::label::ZONE;
use ccm_kube::fixtures::node;

fn cluster(zones: usize, each: usize) -> Vec<Arc<Node>> {
    let of = |zone: usize, index: usize| {
        Arc::new(node(&format!("z{zone:02}-{index:03}")).with_label(ZONE[0], &format!("z{zone:02}")).ready())
    };
    (0..zones).flat_map(|zone| (0..each).map(move |index| of(zone, index))).collect()
}

fn drawn(nodes: &[Arc<Node>], candidates: &[&str], denials: &Denials, seed: u64) -> Vec<Arc<Node>> {
    sample(nodes, &candidates.iter().copied().collect(), denials, &mut fastrand::Rng::with_seed(seed))
}

#[test]
fn a_sample_is_spread_over_all_zones_and_fresh_each_time() {
    let none = Denials::default();
    for (zones, each, size) in [(1, 3, 3), (3, 100, 20), (20, 5, 20), (4, 5, 20), (1, 400, 20)] {
        let nodes = cluster(zones, each);
        let group = drawn(&nodes, &[], &none, 1);
        let uids: HashSet<_> = group.iter().map(|node| &node.uid).collect();
        let seen: HashSet<_> = group.iter().map(|node| zone(node)).collect();
        assert_eq!((group.len(), uids.len(), seen.len()), (size, size, zones), "{zones} x {each}");
    }
    let nodes = cluster(3, 100);
    let names = |seed| drawn(&nodes, &[], &none, seed).iter().map(|node| node.name.clone()).collect();
    let (one, again, other): (Vec<_>, Vec<_>, Vec<_>) = (names(1), names(1), names(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

#[test]
fn zones_of_candidates_come_first() {
    let nodes = cluster(40, 3);
    for seed in 0..50 {
        let group = drawn(&nodes, &["z07", "z33"], &Denials::default(), seed);
        for wanted in ["z07", "z33"] {
            assert!(group.iter().any(|node| zone(node) == wanted), "{wanted}, seed {seed}");
        }
    }
}

#[test]
fn who_was_denied_is_asked_about_again() {
    let nodes = cluster(2, 100);
    let (mut denials, now) = (Denials::default(), Instant::now());
    for node in &nodes[..3] {
        assert_eq!(denials.heard(now, node, Presence::Denied), Some((now, false)));
    }
    let group = drawn(&nodes, &[], &denials, 1);
    assert_eq!(group.len(), MOST + 3, "beside the sample, which is to be a fair one");
    assert!(nodes[..3].iter().all(|node| group.iter().any(|other| other.uid == node.uid)));
    assert!(denials.is_news(&nodes[0]) && !denials.is_news(&nodes[0]));
    let later = now + Duration::from_secs(5);
    assert_eq!(denials.heard(later, &nodes[0], Presence::Unknown), None, "it contradicts nothing now");
    assert_eq!(
        denials.heard(later, &nodes[0], Presence::Denied),
        Some((now, false)),
        "but takes nothing back"
    );
    assert_eq!(denials.heard(later, &nodes[0], Presence::Found), None);
    denials.only(&nodes[2..]);
    assert_eq!(denials.uids().collect::<Vec<_>>(), [nodes[2].uid.as_str()]);
}

/// N9, R7: what a kubelet writes is compared only with what it wrote before.
#[test]
fn a_lease_that_changed_after_the_denial_proves_life() {
    let start = Instant::now();
    let at = |second: u64| start + Duration::from_secs(second);
    let lease = |renewed: i64, seconds| {
        let renewed = Some(Timestamp::from_second(renewed).unwrap().to_string());
        Some(NodeLease { renewed, duration: Duration::from_secs(seconds) })
    };
    let far = 4_070_908_800;
    // When it was read and what it showed; the denial, now, whether the Node is Unknown, and the verdict.
    let rows = [
        ("first seen", vec![(100, lease(1, 40))], (100, 139, false), Life::Unsettled),
        ("not changed for its duration", vec![(100, lease(1, 40))], (100, 140, false), Life::Silent),
        ("a long one", vec![(100, lease(1, 120))], (100, 219, false), Life::Unsettled),
        ("changed", vec![(100, lease(1, 40)), (105, lease(2, 40))], (100, 110, false), Life::Alive),
        ("changed backwards", vec![(100, lease(9, 40)), (105, lease(2, 40))], (100, 110, false), Life::Alive),
        ("in 2099", vec![(100, lease(far, 40)), (105, lease(far + 1, 40))], (100, 110, false), Life::Alive),
        (
            "in 2099, once",
            vec![(100, lease(far, 40)), (140, lease(far, 40))],
            (100, 140, false),
            Life::Silent,
        ),
        (
            "alive, then silent",
            vec![(100, lease(1, 40)), (105, lease(2, 40))],
            (100, 145, false),
            Life::Silent,
        ),
        (
            "changed, perhaps before the denial",
            vec![(50, lease(1, 40)), (101, lease(2, 40))],
            (100, 110, false),
            Life::Unsettled,
        ),
        ("Unknown, first seen", vec![(100, lease(1, 40))], (100, 100, true), Life::Silent),
        ("Unknown, changed", vec![(100, lease(1, 40)), (105, lease(2, 40))], (100, 110, true), Life::Alive),
        ("for ever, it says", vec![(100, lease(1, u64::MAX))], (100, 700, false), Life::Silent),
        ("no Lease", vec![(100, None)], (100, 100, false), Life::Silent),
        ("its Lease was deleted", vec![(100, lease(1, 40)), (101, None)], (100, 101, false), Life::Silent),
        ("never read", vec![], (100, 900, true), Life::Unsettled),
    ];
    for (what, reads, (denied, now, unheard), want) in rows {
        let mut leases = Leases::default();
        for (second, lease) in reads {
            leases.heard(at(second), "uid", lease.as_ref());
        }
        assert_eq!(leases.life(at(now), "uid", at(denied), unheard), want, "{what}");
    }
}

/// For the shutdown policy: a kubelet is silent by this process's clock, whatever its own shows.
#[test]
fn a_kubelet_is_silent_once_its_lease_has_not_changed_for_its_duration() {
    let start = Instant::now();
    let lease = |second: i64| {
        let renewed = Timestamp::from_second(1_000_000 + second).unwrap();
        Some(NodeLease { renewed: Some(renewed.to_string()), duration: Duration::from_secs(40) })
    };
    let mut leases = Leases::default();
    let mut silent = |second: u64, lease: Option<NodeLease>| {
        let now = start + Duration::from_secs(second);
        leases.heard(now, "uid", lease.as_ref());
        leases.silent_for(now, "uid").as_secs()
    };
    assert_eq!(silent(0, lease(-9_000)), 0, "however old it says it is");
    assert_eq!(silent(39, lease(-9_000)), 0);
    assert_eq!(silent(40, lease(-9_000)), 40);
    assert_eq!(silent(45, lease(-8_990)), 0, "it lives");
    assert_eq!(silent(85, lease(-8_990)), 40);
    assert_eq!(silent(90, None), 0, "its Lease is gone");
    assert_eq!(silent(95, None), 5);
}

/// A lie that begins is told from provider IDs that have long been stale: a few of many nodes stop nothing, whatever the draw.
#[test]
fn who_has_long_been_denied_counts_among_all_ready_nodes() {
    let nodes = cluster(3, 100);
    let (mut denials, now) = (Denials::default(), Instant::now());
    let mut control = |denied: usize, later: Duration| {
        for node in &nodes[..denied] {
            denials.heard(now + later, node, Presence::Denied);
        }
        let (ready_in, stale) = (by_zone(&nodes), denials.stale(&nodes));
        Control { ready: nodes.len(), ready_in, stale, found: by_zone(&nodes[280..]), ..Control::default() }
    };
    assert!(control(40, Duration::ZERO).stale.is_empty());
    assert!(control(40, STALE / 2).stale.is_empty(), "they count with the draw");
    let few = control(4, STALE);
    assert_eq!(few.stale.values().sum::<usize>(), 4, "nobody knows whether the others still are");
    assert!(few.outweighed_by(&[]).is_empty());
    let many = control(40, STALE).outweighed_by(&[]);
    assert_eq!(many, [None, Some("z00".to_owned())].into());
}
