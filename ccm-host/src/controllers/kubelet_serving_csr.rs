//! Approves the serving certificates of kubelets, if the cloud bears out every name and address in the request.
//!
//! In: CertificateSigningRequests of the signer `kubernetes.io/kubelet-serving`, the Nodes, and what the provider reports
//! at that moment. Out: the condition Approved, or Denied if the policy says so. kube-controller-manager signs what is
//! approved; nobody else approves these requests. [`crate::controllers::cloud_node`] writes the addresses that a kubelet
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
mod metrics;
mod observe;
mod request;
mod settings;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::{
    controllers::{Kept, Parts, Registration},
    kube::{
        events::Recorder,
        keep::Keep,
        queue::{Backoff, Outcome, WorkQueue},
    },
    reconcile::{self, Reconciler},
};
use act::Told;
use metrics::CsrMetrics;
pub use settings::{Policy, Settings};

/// The component that Events are recorded under.
const COMPONENT: &str = "kubelet-serving-csr-controller";

const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(30) };

/// Runs only if it is named: who approves certificates is for the cluster's administrator to say, and some have an
/// approver already.
pub const REGISTRATION: Registration = Registration {
    name: "kubelet-serving-csr-controller",
    short_name: "kubelet-serving-csr",
    alias: None,
    account: Some("kubelet-serving-csr-controller"),
    by_default: false,
    admit: None,
    keep: |settings| Kept {
        certificate_requests: true,
        ..Kept::of_managed_nodes(settings, &Keep::default())
    },
    served_by: |_| Some(|provider| provider.instances),
    start: |parts, registry| Some(reconcile::run(Arc::new(Controller::new(parts, registry)))),
};

#[derive(Debug)]
struct Controller {
    parts: Parts,
    recorder: Recorder,
    metrics: CsrMetrics,
    queue: WorkQueue<String>,
    told: Mutex<Told>,
    /// One permit for each request being written.
    writing: Semaphore,
}

impl Controller {
    fn new(parts: Parts, registry: &mut Registry) -> Self {
        let metrics = CsrMetrics::register(registry);
        Self {
            recorder: parts.events.recorder(COMPONENT),
            queue: WorkQueue::new("kubelet_serving_csr", BACKOFF, &parts.metrics.queue),
            told: Mutex::new(Told::new(metrics.clone())),
            writing: Semaphore::new(parts.settings.nodes.concurrent_node_syncs),
            metrics,
            parts,
        }
    }
}

impl Reconciler for Controller {
    type Key = String;
    /// Questions to a provider share calls; only writes are limited.
    const AT_ONCE: usize = 1024;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    async fn begin(self: &Arc<Self>) {
        tokio::join!(self.parts.nodes.synced(), self.parts.certificate_requests.synced());
        reconcile::follow(self, &self.parts.certificate_requests, Self::request_changed);
        reconcile::follow(self, &self.parts.nodes, Self::node_changed);
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        let Some(request) = self.parts.certificate_requests.get(name) else { return Outcome::Done };
        let (Ok(verdict) | Err(verdict)) = Box::pin(self.judge(&request)).await;
        self.carry_out(&request, verdict).await
    }
}
