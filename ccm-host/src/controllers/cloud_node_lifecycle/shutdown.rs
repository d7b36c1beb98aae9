//! Gives up nodes whose instance stays stopped, so that their pods move.
//!
//! In: `--node-shutdown-policy`, the nodes that a provider reliably reports as stopped, and their kubelets' Leases. Out:
//! a taint that evicts pods, or one that also detaches volumes; [`super::decide`] removes it when the instance returns.
//! A node is given up only after it was reported stopped and its kubelet was silent for the whole grace by this
//! process's own clock, and when a guard of the same kind as that of deletions allows it. A taint that only keeps new
//! pods away needs no guard: it is written at once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Controller, Memory,
    act::each,
    decide::zone,
    guard::{Evidence, Findings, Guard, Rule},
    observe::{Seen, Sighting},
    settings::Policy,
};
use crate::{
    clock,
    cloud::Provider,
    controllers::taint,
    kube::{
        events::EventType,
        node::{Node, Taint},
        patch::NodeLease,
    },
    reconcile::ToldOnce,
};

/// What is known of one provider's stopped nodes from pass to pass.
#[derive(Debug)]
pub(super) struct Stops {
    guard: Guard,
    silences: Silences,
    told: ToldOnce<Rule>,
}

/// How long the kubelets of stopped nodes have been silent, by uid.
#[derive(Debug, Default)]
struct Silences(HashMap<String, Silence>);

#[derive(Debug)]
struct Silence {
    /// The Lease has been as it is since then.
    since: Instant,
    renewed: Option<Timestamp>,
}

impl Silences {
    /// Forgets all other nodes: their instances are not stopped any more.
    fn only(&mut self, stopped: &[Sighting]) {
        self.0.retain(|uid, _| stopped.iter().any(|stopped| stopped.node.uid == *uid));
    }

    /// For how long the kubelet has been silent; zero until it has been so for the duration of its Lease. Compares
    /// the Lease only with itself: the kubelet's clock may be wrong.
    fn heard(&mut self, now: Instant, uid: &str, lease: Option<&NodeLease>) -> Duration {
        let renewed = lease.and_then(|lease| lease.renewed);
        let silence = self.0.entry(uid.to_owned()).or_insert(Silence { since: now, renewed });
        if silence.renewed != renewed {
            *silence = Silence { since: now, renewed };
        }
        let silent = now.saturating_duration_since(silence.since);
        let is_alive = lease.is_some_and(|lease| silent < lease.duration);
        if is_alive { Duration::ZERO } else { silent }
    }
}

impl Stops {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, silences: Silences::default(), told: ToldOnce::default() }
    }

    /// The provider was unhealthy at some point: discards all it has said so far.
    pub(super) fn distrust(&mut self) {
        self.guard.distrust();
        self.silences.0.clear();
    }

    /// Whether the node is about to be given up, so that the provider is asked about Ready nodes as well.
    pub(super) fn is_suspect(&self, uid: &str) -> bool {
        self.guard.is_suspect(uid)
    }
}

impl Controller {
    /// Gives up the nodes that have been stopped for long enough, as far as the guard allows.
    pub(super) async fn give_up(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        total: usize,
        seen: &Seen,
    ) {
        self.metrics.stopped(provider.name(), seen.stopped.len());
        let Some(wanted) = self.parts.settings.lifecycle.node_shutdown_policy.taint() else {
            return self.metrics.given_up_blocked(provider.name(), &HashMap::new());
        };
        let stops = &mut memory.stops;
        stops.silences.only(&seen.stopped);
        let is_given_up = |node: &Node| node.taints.iter().any(|taint| taint::same(taint, &wanted));
        let fresh = seen.stopped.iter().filter(|stopped| !is_given_up(&stopped.node)).cloned().collect();
        let read = async |stopped: Sighting| {
            let lease = self.parts.writer.get_node_lease(&stopped.node.name).await;
            (stopped, lease)
        };
        let leases = each(fresh, read).await;
        let now = Instant::now();
        let mut evidence = Vec::new();
        for (Sighting { node, observed_at }, lease) in leases {
            let age = match lease {
                Ok(lease) => stops.silences.heard(now, &node.uid, lease.as_ref()),
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    tracing::warn!(
                        node = node.name,
                        error = format!("{error:#}"),
                        "its Lease cannot be read"
                    );
                    Duration::ZERO
                }
            };
            let (uid, zone) = (node.uid.clone(), zone(&node).to_owned());
            evidence.push(Evidence { uid, zone, age, vouched: false, given_up: false, observed_at });
        }
        stops.guard.confirm(now, &evidence);
        let findings = Findings {
            total,
            absent: evidence,
            uncertain: seen.uncertain,
            control: seen.control.clone(),
            ..Findings::default()
        };
        let ruling = stops.guard.rule(now, &findings);
        for Sighting { node, .. } in &seen.stopped {
            let rule = ruling.held_back.get(&node.uid).filter(|rule| !rule.is_brief());
            for rule in stops.told.news(&node.uid, rule.into_iter().copied().collect(), |rule| *rule) {
                self.not_given_up(node, rule);
            }
        }
        self.metrics.given_up_blocked(provider.name(), &ruling.held_back);
        let all = seen.stopped.iter().map(|stopped| Arc::clone(&stopped.node));
        let to_go = all.filter(|node| ruling.delete.contains(&node.uid));
        let wanted = Taint { time_added: Some(clock::now().strftime("%FT%TZ").to_string()), ..wanted };
        let taints = to_go.filter_map(|node| taint::with(&node.taints, &wanted).map(|taints| (node, taints)));
        for node in self.write_taints(taints.collect()).await {
            self.given_up(provider, &node, &wanted);
        }
    }

    fn given_up(&self, provider: &Arc<dyn Provider>, node: &Node, taint: &Taint) {
        let grace = self.parts.settings.lifecycle.node_shutdown_grace;
        let effect = match self.parts.settings.lifecycle.node_shutdown_policy {
            Policy::OutOfService => "its pods are deleted and its volumes detached",
            _ => "its pods are evicted",
        };
        let message = format!(
            "the instance is stopped and the kubelet has been silent for {}: tainted {}:{}, so {effect}; the taint goes \
             when the instance runs again",
            crate::flag::duration::text(grace),
            taint.key,
            taint.effect
        );
        tracing::info!(
            node = node.name,
            provider = provider.name(),
            taint = taint.key,
            "given up: its instance is stopped"
        );
        self.metrics.given_up(provider.name());
        self.recorder.record(node, EventType::Warning, "NodeGivenUp", message);
    }

    fn not_given_up(&self, node: &Node, rule: Rule) {
        tracing::warn!(node = node.name, rule = rule.label(), "stopped, but not given up");
        let message = format!(
            "the instance is stopped, but its pods are not evicted yet: too many nodes of the provider at once, or none of \
             its Ready nodes bears out its answers (rule {})",
            rule.label()
        );
        self.recorder.record(node, EventType::Warning, "NodeGivingUpBlocked", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a kubelet is silent by this process's clock, whatever its own shows.
    #[test]
    fn a_kubelet_is_silent_once_its_lease_has_not_changed_for_its_duration() {
        let start = Instant::now();
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let lease = |second| NodeLease { renewed: Some(at(second)), duration: Duration::from_secs(40) };
        let mut silences = Silences::default();
        let mut heard = |second: u64, lease: Option<NodeLease>| {
            silences.heard(start + Duration::from_secs(second), "uid", lease.as_ref()).as_secs()
        };
        assert_eq!(heard(0, Some(lease(-9_000))), 0, "however old it says it is");
        assert_eq!(heard(39, Some(lease(-9_000))), 0);
        assert_eq!(heard(40, Some(lease(-9_000))), 40);
        assert_eq!(heard(45, Some(lease(-8_990))), 0, "it lives");
        assert_eq!(heard(85, Some(lease(-8_990))), 40);
        assert_eq!(heard(90, None), 0, "its Lease is gone");
        assert_eq!(heard(95, None), 5);
    }
}
