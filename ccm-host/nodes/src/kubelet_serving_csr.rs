//! Approves the serving certificates of kubelets, if the cloud confirms every name and address in the request.
//!
//! In: CertificateSigningRequests of the signer `kubernetes.io/kubelet-serving`, the Nodes, and what the provider reports
//! at that moment. Out: the condition Approved, or Denied if the policy says so. kube-controller-manager signs what is
//! approved; no other controller approves these requests. [`crate::cloud_node`] writes the addresses that a kubelet
//! asks for.
//!
//! ```text
//! request ──► queue ──► claim (pure) ──► standing (pure) ──► provider, now ──► of_answer (pure) ──► act: one patch
//!               ▲          │ flaws          │ not yet            │                  │
//! Node ─────────┴──────────┴────────────────┴── looks again ─────┴──────────────────┘
//! ```
//!
//! A doubt is never an approval: docs/kubelet-serving-certificates.md has the threats, and what stops each.

mod act;
mod decide;
mod observe;
mod request;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use ccm_base::metric::{Declare, MetricLabels};
use ccm_cloud::Provider;
use ccm_kube::{
    keep::Keep,
    queue::{Backoff, Outcome},
};
use ccm_reconcile::{Kept, Parts, Reconciler, Registration, Shell, pace::NodePaces, run};

/// Runs only if it is named: who approves certificates is for the cluster's administrator to say, and some have an
/// approver already.
pub const REGISTRATION: Registration = Registration {
    keep: |settings| Kept {
        certificate_requests: true,
        ..Kept::of_managed_nodes(settings, &Keep::default())
    },
    served_by: |_| Some(|provider| provider.instances),
    ..Registration::of::<Controller>("kubelet-serving-csr", |parts, registry| {
        Some(run(Controller::new(parts, registry)))
    })
};

#[derive(Debug)]
struct Controller {
    shell: Shell<String>,
    /// Those that were written. What open requests wait for is in `ccm_reports`.
    decisions: Family<MetricLabels<2>, Counter>,
    /// How often a node's changes may have the cloud asked.
    paces: NodePaces,
}

impl Controller {
    fn new(parts: Parts, registry: &mut Registry) -> Arc<Self> {
        let shell = Shell::of::<Self>(parts);
        let decisions = registry.metric(
            "kubelet_serving_csr_controller_requests",
            "Requests of kubelets for serving certificates that were approved or denied, by reason",
        );
        Arc::new(Self { shell, decisions, paces: NodePaces::default() })
    }

    fn decided(&self, result: &'static str, reason: &'static str) {
        self.decisions.get_or_create(&[("result", result), ("reason", reason)]).inc();
    }
}

impl Reconciler for Controller {
    /// The name of a request.
    type Key = String;
    const NAME: &'static str = "kubelet-serving-csr-controller";
    const QUEUE: &'static str = "kubelet_serving_csr";
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(30) };
    /// Questions to a provider share calls; only writes are limited.
    const AT_ONCE: usize = 1024;

    fn shell(&self) -> &Shell<String> {
        &self.shell
    }

    async fn begin(self: &Arc<Self>) {
        let parts = &self.shell.parts;
        tokio::join!(parts.nodes.synced(), parts.certificate_requests.synced());
        ccm_reconcile::follow(self, &parts.certificate_requests, Self::request_changed);
        ccm_reconcile::follow(self, &parts.nodes, Self::node_changed);
    }

    fn provider_of(&self, name: &String) -> Option<Arc<dyn Provider>> {
        let parts = &self.shell.parts;
        parts.provider_of_named(parts.certificate_requests.get(name)?.node()?)
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        let Some(request) = self.shell.parts.certificate_requests.get(name) else {
            return self.shell.reports.clear(name);
        };
        let verdict = Box::pin(self.judge(&request)).await;
        self.carry_out(&request, verdict).await
    }
}
