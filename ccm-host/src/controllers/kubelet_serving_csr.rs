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
#[cfg(test)]
mod forge;
mod metrics;
mod observe;
mod request;
mod settings;
#[cfg(test)]
mod tests;
mod told;

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::Providers,
    controllers::{Kept, Parts, Registration, Run, node_scope::NodeScope},
    kube::{
        cache::Cache,
        certificate_request::CertificateRequest,
        events::Recorder,
        keep::Keep,
        metrics::QueueMetrics,
        node::Node,
        patch::Writer,
        queue::{self, Backoff, Outcome, WorkQueue},
        selector::LabelSelector,
    },
};
pub use metrics::CsrMetrics;
pub use settings::{Policy, Settings};
use told::Told;

/// The component that Events are recorded under.
pub const COMPONENT: &str = "kubelet-serving-csr-controller";

/// Maximum requests judged at once, so that questions to a provider share calls; only writes are limited.
const JUDGED_AT_ONCE: usize = 1024;

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
        ..Kept::of_nodes(keep(&settings.nodes.node_selector))
    },
    served_by: |_| Some(|provider| provider.instances),
    start: |parts, registry| Some(start(parts, registry)),
};

fn start(parts: &Parts, registry: &mut Registry) -> Run {
    let settings = &parts.settings;
    let controller = Controller::new(Context {
        requests: parts.certificate_requests.clone(),
        nodes: parts.nodes.clone(),
        writer: parts.writer(&REGISTRATION),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: CsrMetrics::register(registry),
        queue_metrics: parts.metrics.queue.clone(),
        settings: settings.kubelet_serving,
        workers: settings.nodes.concurrent_node_syncs,
        selector: settings.nodes.node_selector.clone(),
    });
    Box::new(|stop| controller.run(stop).boxed())
}

/// Everything the controller depends on.
#[derive(Debug, Clone)]
pub struct Context {
    /// All requests of the signer.
    pub requests: Cache<CertificateRequest>,
    /// All nodes; the cache keeps what [`REGISTRATION`] asks for.
    pub nodes: Cache<Node>,
    pub writer: Writer,
    pub providers: Providers,
    pub recorder: Recorder,
    pub metrics: CsrMetrics,
    pub queue_metrics: QueueMetrics,
    pub settings: Settings,
    /// Maximum requests written at once; at least one.
    pub workers: usize,
    /// Selects the nodes that this host manages.
    pub selector: LabelSelector,
}

/// The labels that the Node cache must keep for this controller.
fn keep(selector: &LabelSelector) -> Keep {
    NodeScope::new(selector.clone()).keep()
}

#[derive(Debug)]
pub struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    scope: NodeScope,
    queue: WorkQueue<String>,
    told: Mutex<Told>,
    /// One permit for each request being written.
    writing: Semaphore,
    context: Context,
}

impl Controller {
    /// A controller that does nothing until it runs.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self(Arc::new(Shared {
            scope: NodeScope::new(context.selector.clone()),
            queue: WorkQueue::new("kubelet_serving_csr", BACKOFF, &context.queue_metrics),
            told: Mutex::new(Told::new(context.metrics.clone())),
            writing: Semaphore::new(context.workers),
            context,
        }))
    }

    /// Runs until cancelled. Cancelling aborts calls and writes in flight.
    pub async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        let shared = self.0;
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = async { tokio::join!(shared.context.nodes.synced(), shared.context.requests.synced()); } => {}
        }
        shared.follow();
        queue::run(shared.queue.clone(), JUDGED_AT_ONCE, cancel.clone(), |name| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move { shared.reconcile(name, &cancel).await }
        })
        .await;
        Ok(())
    }
}

impl Shared {
    async fn reconcile(&self, name: String, cancel: &CancellationToken) -> Outcome {
        let Some(request) = self.context.requests.get(&name) else { return Outcome::Done };
        match Box::pin(self.judge(&request, cancel)).await {
            Some(verdict) => self.carry_out(&request, verdict, cancel).await,
            None => Outcome::Done,
        }
    }
}
