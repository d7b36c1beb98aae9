//! Writes what was decided, and only what differs; emits the node's Events.
//!
//! In: an answer. Out: at most three writes, in the order that leaves no window: first the addresses, then planned
//! maintenance, then provider ID, labels, annotations and taints in one. [`super::decide`] decides what to write, and
//! does so again on a live read whenever a write conflicts.

use std::{sync::Arc, time::Duration};

use super::{
    Controller,
    decide::{Plan, Verdict, decide, decide_without_answer},
    is_new,
    labels::VisibleLabels,
    problem,
};
use ccm_base::clock;
use ccm_cloud::{Freshness, InstanceAnswer};
use ccm_kube::{
    events::EventType,
    keep::{Keep, KeySet},
    node::Node,
    patch::{WriteError, Writer, node_addresses, node_condition, node_main},
    queue::Outcome,
};
use ccm_reconcile::{Report, Retry, pass_on};

/// Maximum decisions before the node goes back to the queue.
const ATTEMPTS: u32 = 5;

/// Maximum delay before asking again about a node that changed since the question.
const ANOTHER_QUESTION: Duration = Duration::from_secs(1);

impl Controller {
    /// Applies the answer to the current node, which may differ from the node that was asked about.
    pub(super) async fn settle(
        &self,
        asked: &Arc<Node>,
        answer: Option<(&InstanceAnswer, Freshness)>,
    ) -> Outcome {
        let kept = self.parts.nodes.keep();
        let Some(cached) = self.ours(&asked.name) else { return Outcome::Done };
        let mut node = cached;
        let mut is_live = false;
        for _ in 0..ATTEMPTS {
            if (&node.uid, &node.provider_id) != (&asked.uid, &asked.provider_id) {
                // The question has changed. The cache may lag behind; once it shows the change, the watch requeues
                // the node earlier.
                return Outcome::RetryAfter(ANOTHER_QUESTION);
            }
            let seen = if is_live {
                VisibleLabels::live(&node, &kept.labels)
            } else {
                VisibleLabels::cached(&node, &kept.labels)
            };
            match self.try_once(asked, &seen, answer).await {
                Ok(outcome) => return outcome,
                Err(error) if error.is_stale() => {}
                Err(error) => return self.write_failed(&node, error, answer.is_some()),
            }
            node = match self.read_afresh(&asked.name).await {
                Ok(Some(live)) if self.parts.is_ours(&live) => Arc::new(live),
                Ok(_) => return Outcome::Done,
                Err(error) => return self.write_failed(&node, error, answer.is_some()),
            };
            is_live = true;
        }
        self.write_failed(&node, WriteError::Conflict, answer.is_some())
    }

    async fn try_once(
        &self,
        asked: &Node,
        seen: &VisibleLabels<'_>,
        answer: Option<(&InstanceAnswer, Freshness)>,
    ) -> Result<Outcome, WriteError> {
        let Some((answer, freshness)) = answer else {
            if let Some(plan) = decide_without_answer(seen) {
                write(&self.parts.writer, &seen.node, &plan).await?;
                // Only such a write has a retry here; what an answer said stays.
                let mut all = self.known.reports.of(&seen.node.name);
                all.retain(|report| report.retry != Retry::Backoff);
                return Ok(self.report(&seen.node, &self.known, all));
            }
            return Ok(Outcome::Done);
        };
        let node = &*seen.node;
        let verdict = decide(seen, answer);
        let is_initialised = matches!(verdict, Verdict::Initialise(_));
        let outcome = match verdict {
            Verdict::Initialise(mut plan) | Verdict::Refresh(mut plan) => {
                if !self.parts.settings.nodes.planned_maintenance_condition {
                    // It may be somebody else's.
                    plan.maintenance = None;
                }
                if plan.reordered {
                    self.metrics.reordered.inc();
                }
                let written = write(&self.parts.writer, node, &plan).await?;
                if is_initialised {
                    self.initialised(asked, written);
                }
                self.report(node, &self.known, plan.reports)
            }
            Verdict::NotYet(report) => {
                let unread = answer.error.is_some().then_some(freshness);
                self.not_yet(node, report, unread)
            }
            Verdict::NotOurs => {
                let outcome = self.report(node, self.lane(node), vec![problem::not_ours()]);
                let again = self.parts.settings.nodes.node_status_update_frequency;
                if is_new(node) { Outcome::Slow(again) } else { outcome }
            }
        };
        pass_on(&self.new.recorder, node, &answer.events);
        Ok(outcome)
    }

    /// Reads all labels, also those that the cache does not keep: one of them may have caused the conflict.
    async fn read_afresh(&self, name: &str) -> Result<Option<Node>, WriteError> {
        let kept = self.parts.nodes.keep();
        let all = Keep { labels: KeySet::all(), annotations: kept.annotations.clone() };
        self.parts.writer.get(&name.to_owned(), &all).await
    }

    fn initialised(&self, node: &Node, version: Option<String>) {
        if let Some(version) = version {
            self.memory.lock().untainted(node, &version);
        }
        self.metrics.initialised(node, clock::now());
        self.new.recorder.record(node, EventType::Normal, "Synced", "the node is initialised");
        tracing::info!(node = node.name, "initialised");
    }

    /// Handles a node for which there is nothing to write yet. `unread`: how freshly it was asked about, if that failed.
    /// A known node waits for the next sweep, unless the question was about the present: nothing else would ask it again.
    pub(super) fn not_yet(&self, node: &Node, report: Report, unread: Option<Freshness>) -> Outcome {
        self.metrics.failed(node, report.reason);
        if is_new(node) {
            return self.report(node, &self.new, vec![report]);
        }
        let mut retry = report.retry;
        match unread.filter(|freshness| *freshness <= Freshness::NOW) {
            Some(freshness) => self.memory.lock().due(&node.name, freshness),
            None => retry = Retry::Wait,
        }
        // What was wrong with the last answer is not reported again for the next one.
        let mut all = self.known.reports.of(&node.name);
        all.retain(|before| before.event.is_some());
        all.push(Report { retry, ..report });
        self.report(node, &self.known, all)
    }

    fn write_failed(&self, node: &Node, error: WriteError, was_asked: bool) -> Outcome {
        let period = self.parts.settings.nodes.node_status_update_frequency;
        match error {
            WriteError::NotFound | WriteError::NotLeading => Outcome::Done,
            WriteError::HeldBack(again) => {
                self.report(node, self.lane(node), vec![]);
                self.memory.lock().due(&node.name, Freshness::AtMost(again));
                Outcome::RetryAfter(again)
            }
            error => {
                let report = problem::not_written(node, error);
                self.metrics.failed(node, report.reason);
                if was_asked {
                    self.memory.lock().due(&node.name, Freshness::AtMost(period));
                }
                self.report(node, self.lane(node), vec![report])
            }
        }
    }
}

/// Returns the node's version after the last write; `None` if only the status differed. Where one is held back, the
/// others are still tried, so that all are known.
async fn write(writer: &Writer, node: &Node, plan: &Plan) -> Result<Option<String>, WriteError> {
    let addresses = plan.addresses.as_ref().and_then(|addresses| node_addresses(node, addresses));
    let maintenance = plan.maintenance.as_ref();
    let maintenance = maintenance.and_then(|said| node_condition(node, said, clock::now()));
    let mut held = Ok(());
    for patch in [addresses, maintenance].into_iter().flatten() {
        match writer.patch::<Node>(&node.name, &patch).await {
            Ok(_) => {}
            Err(error @ WriteError::HeldBack(_)) => held = Err(error),
            Err(error) => return Err(error),
        }
    }
    let main = match node_main(node, &plan.change) {
        Some(patch) => writer.patch::<Node>(&node.name, &patch).await.map(Some),
        None => Ok(None),
    };
    held.and(main)
}
