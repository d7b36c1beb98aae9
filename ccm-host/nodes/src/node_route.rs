//! Keeps the cloud's routes in step with the pod CIDRs of nodes, and shows on each node whether its network is
//! available.
//!
//! In: Nodes, and the routes that providers list. Out: routes created and removed, the condition
//! `NetworkUnavailable`, Events on Nodes. Other controllers assign pod CIDRs; [`ccm_cloud`] batches changes.
//!
//! ```text
//! Nodes ─► claims ──────────┐
//!                           ├─► queue ─► observe ─► decide (pure) ─► act ─► provider, condition
//! provider's list ─► sweep ─┘               ▲                        │
//!                                           └──────── table ◄────────┘
//! ```
//!
//! One list, and every answer since, tell what the cloud has; so a changed node costs no call unless its routes must
//! change. Each node waits only for its own routes.

mod act;
mod claims;
mod condition;
mod decide;
mod metrics;
mod observe;
mod state;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, Semaphore};

use ccm_cloud::Provider;
use ccm_kube::{
    keep::Keep,
    queue::{Backoff, Outcome},
};
use ccm_reconcile::{
    Kept, Registration,
    shell::{self, Shell},
};
use claims::{Claims, Runs};
use condition::Overwritten;
use metrics::RouteMetrics;
use table::Table;

/// Maximum concurrent reads and writes of Nodes.
const NODES_AT_ONCE: usize = 32;

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    alias: Some("route-controller"),
    account: Some("route-controller"),
    by_default: true,
    keep: |settings| Kept::of_managed_nodes(settings, &Keep::default()),
    served_by: |_| Some(|provider| provider.routes),
    ..Registration::of::<Controller>("route")
};

#[derive(Debug)]
pub struct Controller {
    shell: Shell<RouteKey>,
    metrics: RouteMetrics,
    claims: Mutex<Claims>,
    runs: Runs,
    clouds: Vec<Cloud>,
    shown: Overwritten,
    /// One permit for each read or write of a Node.
    nodes_at_once: Semaphore,
}

/// A key of the work queue: a node with all its routes, or a route that leads to none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteKey {
    /// By name, whether it exists or not.
    Node(String),
    /// A route that cannot be traced to a node.
    Stray {
        /// The provider that listed it.
        provider: String,
        id: String,
    },
}

impl fmt::Display for RouteKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(out, "node {name}"),
            Self::Stray { provider, id } => write!(out, "route {id} of {provider}"),
        }
    }
}

/// A provider, and its known routes.
#[derive(Debug)]
struct Cloud {
    provider: Arc<dyn Provider>,
    table: Mutex<Table>,
    /// The table is in doubt: something else changed a route. Triggers a new list.
    doubted: Notify,
}

impl shell::Controller for Controller {
    type Key = RouteKey;
    const NAME: &'static str = "node-route-controller";
    /// Upstream's, underscore included.
    const COMPONENT: &'static str = "route_controller";
    const QUEUE: &'static str = "Routes";
    /// The maximum bounds the wait, however long a route fails.
    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };
    /// Enough for a whole cluster, so that their calls can be batched.
    const AT_ONCE: usize = 8192;

    /// Unlike upstream, a missing cluster CIDR disables only this controller, not the whole process.
    fn new(shell: Shell<RouteKey>, registry: &mut Registry) -> Option<Self> {
        let (settings, controller) = (&shell.parts.settings, Self::NAME);
        if !settings.routes.configure_cloud_routes {
            tracing::info!(controller, "not started: --configure-cloud-routes=false");
            return None;
        }
        if settings.cidrs.cluster.is_empty() {
            tracing::warn!(
                controller,
                "not started: --cluster-cidr is empty; give the networks of the pods, or --configure-cloud-routes=false"
            );
            return None;
        }
        let providers = shell.parts.providers.all().iter();
        Some(Self {
            metrics: RouteMetrics::register(&shell.queue, registry),
            claims: Mutex::default(),
            runs: Runs::default(),
            clouds: providers.map(|provider| Cloud::new(Arc::clone(provider))).collect(),
            shown: Overwritten::default(),
            nodes_at_once: Semaphore::new(NODES_AT_ONCE),
            shell,
        })
    }

    fn shell(&self) -> &Shell<RouteKey> {
        &self.shell
    }

    async fn begin(self: &Arc<Self>) {
        let parts = &self.shell.parts;
        parts.views.explains(Arc::<Self>::clone(self));
        parts.nodes.synced().await;
        ccm_reconcile::follow(self, &parts.nodes, Self::node_changed);
    }

    async fn background(&self) {
        tokio::join!(
            join_all(self.clouds.iter().map(|cloud| self.sweep_for_ever(cloud))),
            join_all(self.clouds.iter().map(|cloud| self.follow_status(cloud))),
        );
    }

    async fn look(&self, subject: &RouteKey) -> Outcome {
        match subject {
            RouteKey::Node(name) => {
                let outdated = self.runs.begin(name);
                let outcome = Box::pin(self.look_at_node(name, outdated)).await;
                self.runs.end(name);
                outcome
            }
            RouteKey::Stray { provider, id } => self.look_at_stray(provider, id).await,
        }
    }
}

impl Cloud {
    fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, table: Mutex::default(), doubted: Notify::new() }
    }

    fn name(&self) -> &str {
        self.provider.name()
    }
}
