//! Carries out a verdict: writes the decision, and says what there is to say, once.
//!
//! In: a verdict. Out: one patch of the approval subresource, an Event on the Node, a line in the log, metrics, and when
//! to look again. No line holds the request itself.

use std::collections::HashMap;

use super::{
    Controller,
    decide::{self, Ignored, Refusal, Verdict, Waiting},
    metrics::CsrMetrics,
    settings::Policy,
};
use crate::{
    clock,
    kube::{
        certificate_request::CertificateRequest,
        events::EventType,
        patch::{Decision, WriteError, certificate_decision},
        queue::Outcome,
    },
    reconcile::unwritten,
};

const APPROVED: &str = "KubeletServingCertificateApproved";
const REFUSED: &str = "KubeletServingCertificateRefused";
const WAITING: &str = "KubeletServingCertificateWaiting";

impl Controller {
    pub(super) async fn carry_out(&self, request: &CertificateRequest, verdict: Verdict) -> Outcome {
        match verdict {
            Verdict::Approve => {
                let message =
                    "the cloud reports every name and address of this request for the node's instance";
                let written = self.write(request, Decision::Approved, APPROVED, message).await;
                if matches!(written, Ok(true)) {
                    self.metrics.count("approved", "Approved");
                    self.told.lock().forget(&request.uid);
                    tracing::info!(
                        request = request.name,
                        node = request.node(),
                        "serving certificate approved"
                    );
                    self.record(request, EventType::Normal, APPROVED, format!("approved {}", request.name));
                }
                outcome(written)
            }
            Verdict::Refuse(refusal) => self.refuse(request, &refusal).await,
            Verdict::Wait(waiting) => self.wait(request, &waiting),
            Verdict::Ignore(Ignored::Settled) => {
                self.told.lock().forget(&request.uid);
                Outcome::Done
            }
            Verdict::Ignore(ignored) => {
                let reason = if ignored == Ignored::TooOld { "TooOld" } else { "NotOurs" };
                if self.is_news(request, Saying::Over("ignored", reason)) {
                    tracing::debug!(request = request.name, reason, "certificate request ignored");
                }
                Outcome::Done
            }
        }
    }

    async fn refuse(&self, request: &CertificateRequest, refusal: &Refusal) -> Outcome {
        let Refusal { reason, message, may_pass } = refusal;
        let denies = self.parts.settings.kubelet_serving.kubelet_serving_csr_policy == Policy::ApproveAndDeny;
        let (result, outcome) = if denies {
            match self.write(request, Decision::Denied, reason, message).await {
                Ok(true) => ("denied", Outcome::Done),
                other => return outcome(other),
            }
        } else {
            let again = || Outcome::RetryAfter(decide::pause(request, clock::now()));
            ("refused", if *may_pass { again() } else { Outcome::Done })
        };
        if self.is_news(request, Saying::Over(result, reason)) {
            tracing::warn!(
                request = request.name,
                user = request.username,
                reason,
                message,
                result,
                "serving certificate not approved"
            );
            let text = format!("{} is {result}: {reason}: {message}", request.name);
            self.record(request, EventType::Warning, REFUSED, text);
        }
        outcome
    }

    fn wait(&self, request: &CertificateRequest, waiting: &Waiting) -> Outcome {
        let Waiting { reason, message, needs_person, after } = waiting;
        if self.is_news(request, Saying::Waiting(reason)) {
            tracing::info!(
                request = request.name,
                node = request.node(),
                reason,
                message,
                "certificate request waits"
            );
            if *needs_person {
                self.record(
                    request,
                    EventType::Warning,
                    WAITING,
                    format!("{} waits: {message}", request.name),
                );
            }
        }
        Outcome::RetryAfter(decide::pause(request, clock::now()).max(*after))
    }

    /// Whether this is news about the request. Nothing is kept of one that went meanwhile.
    fn is_news(&self, request: &CertificateRequest, saying: Saying) -> bool {
        let mut told = self.told.lock();
        let is_news = told.is_news(&request.uid, saying);
        if self.parts.certificate_requests.get(&request.name).is_none_or(|now| now.uid != request.uid) {
            told.forget(&request.uid);
        }
        is_news
    }

    /// Writes the decision; `false` if somebody else's stands there already.
    async fn write(
        &self,
        request: &CertificateRequest,
        decision: Decision,
        reason: &str,
        message: &str,
    ) -> Result<bool, WriteError> {
        let Some(patch) = certificate_decision(request, decision, reason, message) else { return Ok(false) };
        let Ok(_permit) = self.writing.acquire().await else { return Ok(false) };
        self.parts.writer.patch::<CertificateRequest>(&request.name, &patch).await?;
        Ok(true)
    }

    /// Records an Event on the Node of the kubelet that asks, if there is one. The apiserver vouches for that name, not for
    /// those in the request.
    fn record(&self, request: &CertificateRequest, type_: EventType, reason: &'static str, message: String) {
        if let Some(node) = request.node().and_then(|name| self.parts.nodes.get(name)) {
            self.recorder.record(&*node, type_, reason, message);
        }
    }
}

/// The last thing said about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saying {
    Waiting(&'static str),
    /// Denied, refused or ignored, with the result's name in the metric.
    Over(&'static str, &'static str),
}

/// What was said about each open request, by uid, so that it is said and counted once. Only requests that exist take
/// memory.
#[derive(Debug)]
pub(super) struct Told {
    last: HashMap<String, Saying>,
    metrics: CsrMetrics,
}

impl Told {
    pub(super) fn new(metrics: CsrMetrics) -> Self {
        Self { last: HashMap::new(), metrics }
    }

    /// Whether this is news about the request.
    fn is_news(&mut self, uid: &str, saying: Saying) -> bool {
        let before = self.last.get(uid).copied();
        if before == Some(saying) {
            return false;
        }
        self.forget(uid);
        match saying {
            Saying::Waiting(reason) => self.metrics.waiting(reason, 1),
            Saying::Over(result, reason) => self.metrics.count(result, reason),
        }
        self.last.insert(uid.to_owned(), saying);
        true
    }

    /// Nothing more will be said about it.
    pub(super) fn forget(&mut self, uid: &str) {
        if let Some(Saying::Waiting(reason)) = self.last.remove(uid) {
            self.metrics.waiting(reason, -1);
        }
    }
}

fn outcome(written: Result<bool, WriteError>) -> Outcome {
    match written {
        Ok(_) => Outcome::Done,
        // A change that nothing kept shows brings no further look.
        Err(error) => unwritten(error),
    }
}
