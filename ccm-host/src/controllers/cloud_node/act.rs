//! Writes what was decided, and only what differs; emits the node's Events.
//!
//! In: an answer. Out: at most two writes, in the order that leaves no window: first the addresses, then provider ID,
//! labels and taints in one. [`super::decide`] decides what to write, and does so again on a live read whenever a
//! write conflicts.

use std::{sync::Arc, time::Duration};

use ccm_state::Standing;

use super::{
    Controller,
    decide::{Notice, Obstacle, Plan, Verdict, decide, decide_without_answer},
    is_new,
    labels::Seen,
};
use crate::{
    cloud::{Freshness, InstanceAnswer},
    kube::{
        events::EventType,
        keep::{Keep, KeySet},
        node::Node,
        patch::{WriteError, Writer, Written, node_addresses, node_main},
        queue::Outcome,
    },
    reconcile::{ToldOnce, pass_on},
};

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
            let seen =
                if is_live { Seen::live(&node, &kept.labels) } else { Seen::cached(&node, &kept.labels) };
            match self.try_once(&seen, answer).await {
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
        seen: &Seen<'_>,
        answer: Option<(&InstanceAnswer, Freshness)>,
    ) -> Result<Outcome, WriteError> {
        let Some((answer, freshness)) = answer else {
            if let Some(plan) = decide_without_answer(seen) {
                write(&self.parts.writer, &seen.node, &plan).await?;
            }
            return Ok(Outcome::Done);
        };
        let node = &*seen.node;
        match decide(seen, answer) {
            Verdict::Initialise(plan) => {
                let written = write(&self.parts.writer, node, &plan).await?;
                self.obstacles.lock().clear(&node.name);
                self.initialised(node, written);
                self.say(node, plan.notices);
            }
            Verdict::Refresh(plan) => {
                if plan.reordered {
                    self.metrics.reordered();
                }
                write(&self.parts.writer, node, &plan).await?;
                self.obstacles.lock().clear(&node.name);
                self.say(node, plan.notices);
            }
            Verdict::NotYet(obstacle) => {
                pass_on(&self.recorder, node, &answer.events);
                let unread = answer.error.is_some().then_some(freshness);
                return Ok(self.not_yet(node, &obstacle, unread));
            }
            Verdict::NotOurs => {
                let notice = Notice::not_ours();
                self.obstacles.lock().note(node, Standing::LeftAlone, notice.reason, &notice.message);
                self.say(node, vec![notice]);
                let again = self.parts.settings.nodes.node_status_update_frequency;
                return Ok(if is_new(node) { Outcome::Slow(again) } else { Outcome::Done });
            }
        }
        pass_on(&self.recorder, node, &answer.events);
        Ok(Outcome::Done)
    }

    /// Reads all labels, also those that the cache does not keep: one of them may have caused the conflict.
    async fn read_afresh(&self, name: &str) -> Result<Option<Node>, WriteError> {
        let kept = self.parts.nodes.keep();
        let all = Keep { labels: KeySet::all(), annotations: kept.annotations.clone() };
        self.parts.writer.get(&name.to_owned(), &all).await
    }

    fn initialised(&self, node: &Node, written: Option<Written>) {
        if let Some(written) = written {
            self.memory.lock().untainted(node, &written.resource_version);
        }
        self.metrics.initialised(node, crate::clock::now());
        self.recorder.record(node, EventType::Normal, "Synced", "the node is initialised");
        tracing::info!(node = node.name, "initialised");
    }

    /// Handles a node for which there is nothing to write yet. `unread`: how freshly it was asked about, if that failed.
    /// A known node waits for the next sweep, unless the question was about the present: nothing else would ask it again.
    pub(super) fn not_yet(&self, node: &Node, obstacle: &Obstacle, unread: Option<Freshness>) -> Outcome {
        let Obstacle { reason, message, retry, expected: _ } = obstacle;
        self.obstacles.lock().met(node, obstacle);
        self.metrics.failed(node, reason);
        tracing::debug!(node = node.name, reason, message, ?retry, "not initialised or refreshed yet");
        if is_new(node) {
            self.say(node, obstacle.notice().into_iter().collect());
        } else {
            let Some(freshness) = unread.filter(|freshness| *freshness <= Freshness::NOW) else {
                return Outcome::Done;
            };
            self.memory.lock().due(&node.name, freshness);
        }
        retry.outcome(message)
    }

    fn write_failed(&self, node: &Node, error: WriteError, was_asked: bool) -> Outcome {
        let reason = match &error {
            WriteError::NotFound | WriteError::NotLeading => return Outcome::Done,
            WriteError::HeldBack(again) => {
                self.obstacles.lock().clear(&node.name);
                self.memory.lock().due(&node.name, Freshness::AtMost(*again));
                return Outcome::RetryAfter(*again);
            }
            WriteError::Gone | WriteError::Conflict => "WriteConflict",
            WriteError::Invalid(_) => "WriteInvalid",
            WriteError::Other(_) => "WriteFailed",
        };
        self.metrics.failed(node, reason);
        self.obstacles.lock().note(node, Standing::Blocked, reason, &error.to_string());
        if let WriteError::Invalid(_) = error {
            self.say(node, vec![Notice::warning("InvalidInstanceMetadata", error.to_string())]);
        }
        if was_asked {
            let freshness = Freshness::AtMost(self.parts.settings.nodes.node_status_update_frequency);
            self.memory.lock().due(&node.name, freshness);
        }
        Outcome::retry(anyhow::Error::from(error))
    }
}

/// Returns the response to the second write; `None` if only addresses differed. Where the first is held back, the
/// second is still tried, so that both are known.
async fn write(writer: &Writer, node: &Node, plan: &Plan) -> Result<Option<Written>, WriteError> {
    let addresses = plan.addresses.as_ref().and_then(|addresses| node_addresses(node, addresses));
    let first = match addresses {
        Some(patch) => writer.patch::<Node>(&node.name, &patch).await.map(drop),
        None => Ok(()),
    };
    if !matches!(first, Ok(()) | Err(WriteError::HeldBack(_))) {
        return first.map(|()| None);
    }
    let second = match node_main(node, &plan.change) {
        Some(patch) => writer.patch::<Node>(&node.name, &patch).await.map(Some),
        None => Ok(None),
    };
    first.and(second)
}

/// The notices already emitted, by reason and subject.
pub(super) type Said = ToldOnce<(&'static str, String)>;

impl Controller {
    /// Emits those of the node's current notices that are new.
    pub(super) fn say(&self, node: &Node, notices: Vec<Notice>) {
        let topic = |notice: &Notice| (notice.reason, notice.about.clone());
        for Notice { type_, reason, about: _, message } in self.said.lock().news(&node.name, notices, topic) {
            self.recorder.record(node, type_, reason, message);
        }
    }
}
