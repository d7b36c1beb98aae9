//! What a controller sees of a provider.
//!
//! The trait is the seam: the host implements it over gRPC, tests with a few lines.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use ipnet::IpNet;
use tokio::sync::{broadcast, watch};

use super::{
    BackendSet, CloudError, DeleteLoadBalancer, Deleted, DeletedRoute, EnsureLoadBalancer, EnsureRoute,
    Ensured, EnsuredRoute, InstanceAnswer, InstanceQuery, LoadBalancer, LoadBalancerList, Route, RouteList,
    UpdateLoadBalancer, Updated,
};
use crate::kube::{EventType, Keep, KeySet, Node, Service};

/// One provider. Questions asked within a few milliseconds share a call.
#[async_trait]
pub trait Provider: Send + Sync + Debug {
    /// The name given to it on the command line.
    fn name(&self) -> &str;

    /// Whether it can be asked, and may be trusted with destructive work. Changes are seen at once.
    fn status(&self) -> watch::Receiver<ProviderStatus>;

    /// What it said of itself at the last handshake; `None` before the first.
    fn info(&self) -> Option<Arc<ProviderInfo>>;

    /// Keys (provider ID, or node name) of machines that changed, from the provider's watch. May miss any.
    fn instance_changes(&self) -> broadcast::Receiver<String>;

    /// A number that grows whenever all machines shall be looked at once: at each new connection and each new watch
    /// stream, since changes in between were not told. Only the newest value matters.
    fn sweeps(&self) -> watch::Receiver<u64>;

    /// The machine of a node. Coalesced with other callers' questions.
    async fn instance(&self, query: InstanceQuery) -> Result<InstanceAnswer, CloudError>;

    /// The set of these nodes, with a digest over the fields that this provider wants.
    fn backend_set(&self, nodes: Vec<Arc<Node>>) -> Arc<BackendSet>;

    /// Digest of the whole wanted state of a balancer: the wanted fields of the Service, and the backends.
    fn desired_digest(&self, service: &Service, backends: &BackendSet) -> String;

    async fn load_balancer(&self, service: &Service) -> Result<LoadBalancer, CloudError>;

    /// Makes or changes a balancer.
    async fn ensure_load_balancer(&self, wanted: EnsureLoadBalancer) -> Result<Ensured, CloudError>;

    /// Gives a balancer other backends. Coalesced with other callers' updates.
    async fn update_load_balancer(&self, wanted: UpdateLoadBalancer) -> Result<Updated, CloudError>;

    /// Removes a balancer. Absent is success.
    async fn delete_load_balancer(&self, wanted: DeleteLoadBalancer) -> Result<Deleted, CloudError>;

    /// All balancers of this cluster, page by page.
    async fn list_load_balancers(&self) -> Result<LoadBalancerList, CloudError>;

    /// All routes of this cluster, page by page; those outside of all these networks need not be among them.
    async fn list_routes(&self, within: &[IpNet]) -> Result<RouteList, CloudError>;

    /// Makes a destination lead to a node. Coalesced with other callers' wishes.
    async fn ensure_route(&self, wanted: EnsureRoute) -> Result<EnsuredRoute, CloudError>;

    /// Removes a route that is as it was listed; one that was re-pointed since is ROUTE_CHANGED, one that is gone is
    /// success. Coalesced with other callers' deletions.
    async fn delete_route(&self, listed: Route) -> Result<DeletedRoute, CloudError>;
}

/// Whether a provider can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderStatus {
    /// No handshake has succeeded yet, or the connection is lost. Holds why, for `/readyz` and logs.
    Disconnected(String),
    /// It can be asked, but nothing destructive may be done on its behalf. Holds why.
    Frozen(String),
    Serving,
}

impl ProviderStatus {
    /// It cannot be asked at all.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

/// What a provider said of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderInfo {
    /// Its own name, for example `aws`.
    pub name: String,
    /// Its vendor's version.
    pub vendor_version: String,
    /// Random per process start.
    pub epoch: String,
    /// How its provider IDs begin.
    pub provider_id_prefixes: Vec<String>,
    pub instances: bool,
    pub load_balancers: bool,
    pub routes: bool,
    /// Its routes hold addresses of nodes, and must be ensured again when these change.
    pub route_node_addresses: bool,
    /// Its instances may be watched.
    pub watch_instances: bool,
    /// The cloud's own key of an instance is its node's name: a node without a provider ID can be said to be absent.
    pub names_are_keys: bool,
    /// Its cloud allots pod CIDRs to instances.
    pub pod_cidrs: bool,
    /// `spec.loadBalancerClass` values that it looks after.
    pub load_balancer_classes: Vec<String>,
    /// It looks after Services without a class.
    pub default_load_balancer_class: bool,
    /// It can tell balancers that a former controller made.
    pub adoption: bool,
    /// It says whether a balancer has drifted.
    pub drift: bool,
    /// Routes say whose they are.
    pub route_ownership: bool,
    /// What was applied is known after a restart of the provider, too.
    pub durable_digest: bool,
    /// Label keys of nodes that it reads; a trailing `/` or `*` makes a prefix.
    pub node_labels: Vec<String>,
    /// Annotation keys of nodes that it reads.
    pub node_annotations: Vec<String>,
    /// Label keys of Services that it reads.
    pub service_labels: Vec<String>,
    /// Annotation keys of Services that it reads or writes.
    pub service_annotations: Vec<String>,
    /// How often it wants its instances swept.
    pub instance_sweep: Option<Duration>,
}

impl ProviderInfo {
    /// Whether it says that it looks after Services of this `spec.loadBalancerClass`.
    #[must_use]
    pub fn looks_after(&self, class: Option<&str>) -> bool {
        self.load_balancers
            && match class {
                Some(class) => self.load_balancer_classes.iter().any(|known| known == class),
                None => self.default_load_balancer_class,
            }
    }

    /// What the Node cache has to keep for its digests to be right.
    #[must_use]
    pub fn keep_of_nodes(&self) -> Keep {
        Keep {
            labels: KeySet::patterns(&self.node_labels),
            annotations: KeySet::patterns(&self.node_annotations),
        }
    }

    /// What the Service cache has to keep for its digests to be right.
    #[must_use]
    pub fn keep_of_services(&self) -> Keep {
        Keep {
            labels: KeySet::patterns(&self.service_labels),
            annotations: KeySet::patterns(&self.service_annotations),
        }
    }
}

/// Work that goes on in the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InProgress {
    /// When to ask again; positive.
    pub retry_after: Duration,
    /// For machines; may be empty.
    pub reason: String,
    /// For people; may be empty.
    pub message: String,
}

/// An Event that is written on a provider's behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEvent {
    pub kind: EventType,
    /// CamelCase.
    pub reason: String,
    pub message: String,
}
