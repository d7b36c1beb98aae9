//! Carries out a verdict: one patch of the approval subresource, or a report.
//!
//! In: a verdict. Out: the decision and its Event on the Node, or what the request waits for. No line holds the request
//! itself.

use ccm_state::Standing;

use super::{
    Controller,
    decide::{self, Verdict},
};
use ccm_base::clock;
use ccm_kube::{
    certificate_request::CertificateRequest,
    events::{EventType, Regarding},
    patch::{Decision, WriteError, certificate_decision},
    queue::Outcome,
};
use ccm_reconcile::{Report, Retry, settings::CsrPolicy, unwritten};

const APPROVED: &str = "KubeletServingCertificateApproved";

impl Controller {
    pub(super) async fn carry_out(&self, request: &CertificateRequest, verdict: Verdict) -> Outcome {
        let settings = &self.shell.parts.settings.kubelet_serving;
        let denies = settings.kubelet_serving_csr_policy == CsrPolicy::ApproveAndDeny;
        let decided = match verdict {
            Verdict::Settled => Ok(()),
            Verdict::Approve => {
                let message =
                    "the cloud reports every name and address of this request for the node's instance";
                self.decide(request, Decision::Approved, APPROVED, message).await
            }
            Verdict::Leave(report) if denies && report.standing == Standing::Blocked => {
                self.decide(request, Decision::Denied, report.reason, &report.message).await
            }
            Verdict::Leave(report) => return self.report(request, report),
        };
        // A change that nothing kept shows brings no further look.
        let outcome = decided.map_or_else(unwritten, |()| Outcome::Done);
        self.shell.reports.clear(&request.name);
        outcome
    }

    fn report(&self, request: &CertificateRequest, report: Report) -> Outcome {
        let retry = match report.retry {
            Retry::After(least) => Retry::After(decide::pause(request, clock::now()).max(least)),
            retry => retry,
        };
        let message = format!("{}: {}: {}", request.name, report.reason, report.message);
        self.shell.reports.set(&request.name, self.node(request), vec![Report { message, retry, ..report }])
    }

    /// Writes the decision, unless the request has been decided already.
    async fn decide(
        &self,
        request: &CertificateRequest,
        decision: Decision,
        reason: &'static str,
        message: &str,
    ) -> Result<(), WriteError> {
        let Some(patch) = certificate_decision(request, decision, reason, message) else { return Ok(()) };
        self.shell.patch::<CertificateRequest>(&request.name, &patch).await?;
        let (result, type_, event, reason) = match decision {
            Decision::Approved => ("approved", EventType::Normal, APPROVED, "Approved"),
            Decision::Denied => ("denied", EventType::Warning, decide::REFUSED, reason),
        };
        self.decided(result, reason);
        let (name, user) = (&request.name, &request.username);
        tracing::info!(request = name, user, result, reason, message, "serving certificate decided");
        if let Some(node) = self.node(request) {
            self.shell.recorder.record(
                node,
                type_,
                event,
                format!("{name} is {result}: {reason}: {message}"),
            );
        }
        Ok(())
    }

    /// The Node of the kubelet that asks, if there is one. The apiserver vouches for that name, not for those in the
    /// request.
    fn node(&self, request: &CertificateRequest) -> Option<Regarding> {
        request.node().and_then(|name| self.shell.parts.nodes.get(name)).map(|node| (&*node).into())
    }
}
