//! Gives up nodes whose instance stays stopped, so that their pods move.
//!
//! In: `--node-shutdown-policy`, the nodes that a provider reliably reports as stopped, and their kubelets' Leases. Out:
//! a taint that evicts pods, or one that also detaches volumes; [`super::decide`] removes it when the instance returns.
//! A node is given up only after it was reported stopped and its kubelet was silent for the whole grace by this
//! process's own clock, and when a guard of the same kind as that of deletions allows it. A taint that only keeps new
//! pods away needs no guard: it is written at once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Controller, Domain, DomainMemory, decide::Evidence, guard::Guard, observe::SeenNodes, rule::Rule,
};
use ccm_base::{clock, metric::of_provider};
use ccm_kube::{
    events::EventType,
    node::{Node, Taint},
};
use ccm_reconcile::{settings::lifecycle::ShutdownPolicy, taint};

/// What is known of one provider's stopped nodes from pass to pass.
#[derive(Debug)]
pub(super) struct Stops {
    guard: Guard,
    /// Since when each was reported as stopped without a break, by uid.
    since: HashMap<String, Instant>,
    /// The rule that holds each back, as reported.
    told: HashMap<String, Rule>,
}

impl Stops {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, since: HashMap::new(), told: HashMap::new() }
    }

    /// The provider was unhealthy at some point: discards all it has said so far.
    pub(super) fn distrust(&mut self) {
        self.guard.distrust();
        self.since.clear();
    }

    /// Whether the node is about to be given up, so that the provider is asked about Ready nodes as well.
    pub(super) fn is_suspect(&self, uid: &str) -> bool {
        self.guard.first_denied(uid).is_some()
    }
}

impl Controller {
    /// Gives up the nodes that have been stopped for long enough, as far as the guard allows.
    pub(super) async fn give_up(&self, memory: &mut DomainMemory<'_>, total: usize, seen: &SeenNodes) {
        let domain = memory.domain;
        self.metrics.stopped(&domain.name, seen.stopped.len());
        let Some(wanted) = self.parts.settings.lifecycle.node_shutdown_policy.taint() else {
            return self.metrics.given_up_blocked(&domain.name, &HashMap::new());
        };
        let stopped: HashSet<&str> = seen.stopped.iter().map(|evidence| evidence.node.uid.as_str()).collect();
        memory.stops.since.retain(|uid, _| stopped.contains(uid.as_str()));
        let is_given_up = |node: &Node| node.taints.iter().any(|taint| taint::same(taint, &wanted));
        let fresh = seen.stopped.iter().filter(|stopped| !is_given_up(&stopped.node)).cloned().collect();
        let leases = self.leases(fresh, |stopped: &Evidence| &stopped.node).await;
        let now = Instant::now();
        let mut evidence = Vec::new();
        for (stopped, lease) in leases {
            let uid = &stopped.node.uid;
            let since = *memory.stops.since.entry(uid.clone()).or_insert(now);
            let silent = match lease {
                Ok(lease) => {
                    memory.leases.heard(now, uid, lease.as_ref());
                    memory.leases.silent_for(now, uid)
                }
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "a stopped node is not given up");
                    Duration::ZERO
                }
            };
            evidence.push(Evidence { age: silent.min(now.saturating_duration_since(since)), ..stopped });
        }
        let stops = &mut memory.stops;
        stops.guard.confirm(now, &evidence);
        let ruling = stops.guard.rule(now, total, &evidence, &seen.control);
        self.metrics.given_up_blocked(&domain.name, &ruling.held_back);
        let held = ruling.held_back.into_iter().filter(|(_, rule)| !rule.is_brief()).collect();
        let told = std::mem::replace(&mut stops.told, held);
        for Evidence { node, .. } in &evidence {
            let rule = stops.told.get(&node.uid);
            if let Some(rule) = rule.filter(|rule| told.get(&node.uid) != Some(*rule)) {
                self.not_given_up(node, *rule);
            }
        }
        let wanted = Taint { time_added: Some(clock::now().strftime("%FT%TZ").to_string()), ..wanted };
        let taints = |node: Arc<Node>| taint::with(&node.taints, &wanted).map(|taints| (node, taints));
        for node in self.write_taints(ruling.delete.into_iter().filter_map(taints).collect()).await {
            self.given_up(domain, &node, &wanted);
        }
    }

    fn given_up(&self, domain: &Domain, node: &Node, taint: &Taint) {
        let grace = self.parts.settings.lifecycle.node_shutdown_grace;
        let effect = match self.parts.settings.lifecycle.node_shutdown_policy {
            ShutdownPolicy::OutOfService => "its pods are deleted and its volumes detached",
            _ => "its pods are evicted",
        };
        let message = format!(
            "the instance is stopped and the kubelet has been silent for {}: tainted {}:{}, so {effect}; the taint goes \
             when the instance runs again",
            ccm_base::flag::duration::text(grace),
            taint.key,
            taint.effect
        );
        tracing::info!(
            node = node.name,
            provider = domain.name,
            taint = taint.key,
            "given up: its instance is stopped"
        );
        self.metrics.given_up.get_or_create(&of_provider(domain.name.as_str(), [])).inc();
        self.recorder.record(node, EventType::Warning, "NodeGivenUp", message);
    }

    fn not_given_up(&self, node: &Node, rule: Rule) {
        tracing::warn!(node = node.name, rule = rule.label(), "stopped, but not given up");
        let message = format!(
            "the instance is stopped, but its pods are not evicted yet: too many nodes of the provider at once, or none of its Ready nodes confirms its answers (rule {})",
            rule.label()
        );
        self.recorder.record(node, EventType::Warning, "NodeGivingUpBlocked", message);
    }
}
