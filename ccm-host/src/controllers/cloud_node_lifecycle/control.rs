//! What a provider's answers are checked against: Ready nodes, and the Leases of kubelets. Pure: time and randomness are
//! arguments.
//!
//! In: the Ready nodes, and what the provider said about some of them; the Leases of nodes that it denies. Out: the
//! control group, which is asked about together with the candidates for deletion; whether a denied kubelet is alive.
//! [`super::guard`] decides what that means for deletions.
//!
//! A kubelet renews its Lease every quarter of the Lease's duration: every 10 s at default settings.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::decide::{Presence, zone};
use crate::kube::{node::Node, patch::NodeLease};

/// Maximum Ready nodes that the provider is asked about.
const MOST: usize = 20;
/// Maximum of those that it denied before.
const MOST_DENIED: usize = 10;

/// The Ready nodes that the provider denies, by uid.
#[derive(Debug, Default)]
pub(super) struct Denials(HashMap<String, Denial>);

#[derive(Debug)]
struct Denial {
    since: Timestamp,
    told: bool,
}

/// A sample: nodes denied before, then random ones from each zone in turn, starting with the candidates' zones.
pub(super) fn sample(
    ready: &[Arc<Node>],
    candidates: &HashSet<String>,
    denials: &Denials,
    rng: &mut fastrand::Rng,
) -> Vec<Arc<Node>> {
    let mut pool = ready.to_vec();
    // Sort first: a seed must replay whatever the order of the cache.
    pool.sort_by(|one, other| one.name.cmp(&other.name));
    rng.shuffle(&mut pool);
    let (mut group, rest): (Vec<_>, Vec<_>) =
        pool.into_iter().partition(|node| denials.0.contains_key(&node.uid));
    let surplus = group.split_off(group.len().min(MOST_DENIED));
    let mut zones: Vec<(String, Vec<Arc<Node>>)> = Vec::new();
    for node in rest.into_iter().chain(surplus) {
        match zones.iter_mut().find(|(zone_of, _)| *zone_of == zone(&node)) {
            Some((_, nodes)) => nodes.push(node),
            None => zones.push((zone(&node).to_owned(), vec![node])),
        }
    }
    zones.sort_by_key(|(zone, _)| !candidates.contains(zone));
    while group.len() < MOST && !zones.is_empty() {
        zones.retain_mut(|(_, nodes)| {
            if group.len() < MOST {
                group.extend(nodes.pop());
            }
            !nodes.is_empty()
        });
    }
    group
}

impl Denials {
    /// Forgets nodes that are no longer Ready: they prove nothing.
    pub(super) fn only(&mut self, ready: &[Arc<Node>]) {
        let uids: HashSet<&str> = ready.iter().map(|node| node.uid.as_str()).collect();
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Records what the provider said about a Ready node.
    pub(super) fn heard(&mut self, node: &Node, presence: Presence) {
        match presence {
            Presence::Found => drop(self.0.remove(&node.uid)),
            Presence::Denied(since) => {
                self.0.entry(node.uid.clone()).or_insert(Denial { since, told: false });
            }
            Presence::Unknown => {}
        }
    }

    /// When the provider first denied the node.
    pub(super) fn since(&self, node: &Node) -> Option<Timestamp> {
        self.0.get(&node.uid).map(|denial| denial.since)
    }

    /// Whether this contradiction is new, and so still to be reported.
    pub(super) fn is_news(&mut self, node: &Node, life: Life) -> bool {
        let denial = self.0.get_mut(&node.uid).filter(|_| life == Life::Alive);
        denial.is_some_and(|denial| !std::mem::replace(&mut denial.told, true))
    }
}

/// Whether a kubelet is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It renewed its Lease after its instance was denied, and has not fallen silent since.
    Alive,
    /// It has missed two renewals, or has no Lease.
    Silent,
    /// Not known yet: two renewals will tell.
    Unsettled,
}

/// Judges by its Lease a kubelet whose instance the provider denied at `denied_at`.
pub(super) fn life(lease: Option<&NodeLease>, denied_at: Timestamp, now: Timestamp) -> Life {
    let Some(NodeLease { renewed: Some(renewed), duration }) = lease else { return Life::Silent };
    let two_renewals = jiff::SignedDuration::try_from(*duration / 2).unwrap_or(jiff::SignedDuration::MAX);
    if now.duration_since(*renewed) >= two_renewals {
        Life::Silent
    } else if *renewed > denied_at {
        Life::Alive
    } else {
        Life::Unsettled
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kube::fixtures::node;

    fn cluster(zones: usize, each: usize) -> Vec<Arc<Node>> {
        let of = |zone: usize, index: usize| {
            let node = node(&format!("z{zone:02}-{index:03}"));
            Arc::new(node.with_label("topology.kubernetes.io/zone", &format!("z{zone:02}")).ready())
        };
        (0..zones).flat_map(|zone| (0..each).map(move |index| of(zone, index))).collect()
    }

    fn drawn(nodes: &[Arc<Node>], candidates: &[&str], denials: &Denials, seed: u64) -> Vec<Arc<Node>> {
        let candidates = candidates.iter().map(|&zone| zone.to_owned()).collect();
        sample(nodes, &candidates, denials, &mut fastrand::Rng::with_seed(seed))
    }

    #[test]
    fn is_spread_over_all_zones_and_fresh_each_time() {
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
        let mut denials = Denials::default();
        for node in &nodes[..3] {
            denials.heard(node, Presence::Denied(Timestamp::UNIX_EPOCH));
        }
        let group = drawn(&nodes, &[], &denials, 1);
        assert_eq!(group.len(), MOST);
        assert!(nodes[..3].iter().all(|node| group.iter().any(|other| other.uid == node.uid)));
        assert!(denials.is_news(&nodes[0], Life::Alive) && !denials.is_news(&nodes[0], Life::Alive));
        denials.heard(&nodes[0], Presence::Unknown);
        assert!(denials.since(&nodes[0]).is_some(), "not knowing takes nothing back");
        denials.heard(&nodes[0], Presence::Found);
        denials.only(&nodes[2..]);
        assert_eq!(nodes[..3].iter().filter(|node| denials.since(node).is_some()).count(), 1);
    }

    /// N9, E1.
    #[test]
    fn a_lease_that_was_renewed_after_the_denial_proves_life() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let lease = |renewed| NodeLease { renewed, duration: Duration::from_secs(40) };
        let rows = [
            ("renewed after the denial", Some(lease(Some(at(101)))), Life::Alive),
            ("by a clock that is ahead", Some(lease(Some(at(500)))), Life::Alive),
            ("renewed before it, and not due again", Some(lease(Some(at(95)))), Life::Unsettled),
            ("one renewal late", Some(lease(Some(at(91)))), Life::Unsettled),
            ("two renewals late", Some(lease(Some(at(90)))), Life::Silent),
            ("never renewed", Some(lease(None)), Life::Silent),
            ("no Lease", None, Life::Silent),
        ];
        for (what, lease, want) in rows {
            assert_eq!(life(lease.as_ref(), at(100), at(110)), want, "{what}");
        }
        let once = lease(Some(at(101)));
        assert_eq!(life(Some(&once), at(100), at(121)), Life::Silent, "alive then, and silent now");
    }
}
