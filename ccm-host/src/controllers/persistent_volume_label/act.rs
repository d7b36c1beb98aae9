//! Labels one volume, and says what there is to say, once.
//!
//! In: a name from the queue. Out: at most one patch, Events on the volume, metrics, and when to look again.

use std::time::Duration;

use super::{
    Controller,
    decide::{self, Basis, Notice, Plan, Problem, Verdict},
    observe,
};
use crate::{
    kube::{
        events::EventType,
        patch::{WriteError, volume_topology},
        persistent_volume::PersistentVolume,
        queue::Outcome,
    },
    reconcile::{Retry, SLOW_RETRY, passes_by_itself, unwritten},
};

const LABELLED: &str = "VolumeLabelled";
const NOT_LABELLED: &str = "VolumeNotLabelled";
const DIFFERENT: &str = "VolumeLabelsDiffer";
const INVALID: &str = "InvalidVolumeLabels";

/// Until a provider that has not introduced itself may be known.
const UNDECIDED: Duration = Duration::from_secs(5);

impl Controller {
    pub(super) async fn label(&self, name: &str) -> Outcome {
        let Some(volume) = self.parts.volumes.get(name) else { return Outcome::Done };
        let verdict = match decide::basis(&volume) {
            Basis::Nothing => Verdict::Leave,
            Basis::Trusted(labels) => Verdict::Label(labels, Vec::new()),
            Basis::Ask(query) => observe::ask(&self.parts.providers, query).await,
        };
        let (labels, rejected) = match verdict {
            Verdict::Label(labels, rejected) => (labels, rejected),
            Verdict::Leave => {
                self.tell(&volume, Vec::new());
                return Outcome::Done;
            }
            Verdict::Undecided => return Outcome::RetryAfter(UNDECIDED),
            Verdict::Unlabelled(problem) => return self.fail(&volume, problem),
        };
        let plan = match decide::plan(&volume, labels) {
            Ok(plan) => plan,
            Err(message) => {
                let problem = Problem::new("refused", message, Retry::After(SLOW_RETRY));
                return self.fail(&volume, problem);
            }
        };
        match self.write(&volume, &plan).await {
            Ok(()) => {
                let mut notices = Vec::new();
                if !rejected.is_empty() {
                    notices.push(Notice { reason: INVALID, message: rejected.join("; ") });
                }
                if !plan.differing.is_empty() {
                    let message = format!("labels are left as they are: {}", plan.differing.join(", "));
                    notices.push(Notice { reason: DIFFERENT, message });
                }
                for notice in self.tell(&volume, notices) {
                    self.metrics.count(if notice == DIFFERENT { "differs" } else { "invalid" });
                }
                Outcome::Done
            }
            Err(WriteError::Invalid(message)) => {
                let message = format!("the apiserver refuses its labels or node affinity: {message}");
                self.fail(&volume, Problem::new("refused", message, Retry::After(SLOW_RETRY)))
            }
            Err(error) => unwritten(error),
        }
    }

    async fn write(&self, volume: &PersistentVolume, plan: &Plan) -> Result<(), WriteError> {
        let affinity = plan.affinity(None);
        let Some(patch) = volume_topology(volume, &plan.labels, affinity.as_ref()) else { return Ok(()) };
        let Ok(_permit) = self.writing.acquire().await else { return Ok(()) };
        self.parts.writer.patch::<PersistentVolume>(&volume.name, &patch).await?;
        self.metrics.count("labelled");
        let labels: Vec<_> = plan.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        tracing::info!(volume = volume.name, labels = labels.join(","), "volume labelled");
        let message = match (volume.affinity_keys.is_some(), affinity) {
            (true, Some(_)) => "its node affinity can no longer be changed",
            (false, Some(_)) => "its node affinity says the same",
            (_, None) => "its node affinity stays",
        };
        let labels = if labels.is_empty() { "as before".to_owned() } else { labels.join(", ") };
        let message = format!("labels: {labels}; {message}");
        self.recorder.record(volume, EventType::Normal, LABELLED, message);
        Ok(())
    }

    fn fail(&self, volume: &PersistentVolume, problem: Problem) -> Outcome {
        let Problem { result, message, retry, error } = problem;
        let failing_for = self.queue.failing_for(&volume.name);
        if error.is_none_or(|error| !passes_by_itself(&error, failing_for)) {
            let notice = Notice { reason: NOT_LABELLED, message: message.clone() };
            if !self.tell(volume, vec![notice]).is_empty() {
                self.metrics.count(result);
                tracing::warn!(volume = volume.name, result, message, "volume not labelled");
            }
        }
        retry.outcome(message)
    }

    /// Records what was not said before; returns the reasons. Nothing is kept of a volume that went meanwhile.
    fn tell(&self, volume: &PersistentVolume, notices: Vec<Notice>) -> Vec<&'static str> {
        let news = {
            let mut told = self.told.lock();
            let news = told.news(&volume.uid, notices, Notice::clone);
            if self.parts.volumes.get(&volume.name).is_none_or(|now| now.uid != volume.uid) {
                told.forget(&volume.uid);
            }
            news
        };
        let record = |notice: Notice| {
            self.recorder.record(volume, EventType::Warning, notice.reason, notice.message);
            notice.reason
        };
        news.into_iter().map(record).collect()
    }
}
