//! The interface between controllers and a provider.
//!
//! The host implements the trait over gRPC; tests implement it in a few lines.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use ipnet::IpNet;
use tokio::sync::{broadcast, watch};

use super::{
    Accepted, BackendSet, CloudError, DeleteLoadBalancer, EnsureLoadBalancer, EnsureRoute, Ensured,
    EnsuredRoute, InstanceAnswer, InstanceQuery, LoadBalancer, LoadBalancerList, Route, RouteList,
    UpdateLoadBalancer, VolumeAnswer, VolumeQuery,
};
use crate::kube::{EventType, Keep, Node, Service};

/// One provider. Calls made within a few milliseconds share a request.
#[async_trait]
pub trait Provider: Send + Sync + Debug {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// Whether it can be called, and trusted with destructive work. Changes show at once.
    fn status(&self) -> watch::Receiver<ProviderStatus>;

    /// What the provider reported at the last handshake; `None` before the first.
    fn info(&self) -> Option<Arc<ProviderInfo>>;

    /// Keys (provider ID, or node name) of changed instances, from the provider's watch. Changes may be missing.
    fn instance_changes(&self) -> broadcast::Receiver<String>;

    /// A number that grows whenever all instances should be checked: at each new connection and each new watch stream,
    /// since changes in between were not reported. Only the latest value matters.
    fn sweeps(&self) -> watch::Receiver<u64>;

    /// The instance of a node. Batched with other callers' reads.
    async fn instance(&self, query: InstanceQuery) -> Result<InstanceAnswer, CloudError>;

    /// The set of these nodes, with a digest over the fields that this provider wants.
    fn backend_set(&self, nodes: Vec<Arc<Node>>) -> Arc<BackendSet>;

    /// Digest of a balancer's whole desired state: the wanted fields of the Service, and the backends.
    fn desired_digest(&self, service: &Service, backends: &BackendSet) -> String;

    async fn load_balancer(&self, service: &Service) -> Result<LoadBalancer, CloudError>;

    /// Creates or changes a balancer.
    async fn ensure_load_balancer(&self, wanted: EnsureLoadBalancer) -> Result<Ensured, CloudError>;

    /// Replaces the backends of a balancer. Batched with other callers' updates.
    async fn update_load_balancer(&self, wanted: UpdateLoadBalancer) -> Result<Accepted, CloudError>;

    /// Deletes a balancer. An absent balancer is success.
    async fn delete_load_balancer(&self, wanted: DeleteLoadBalancer) -> Result<Accepted, CloudError>;

    /// All balancers of this cluster, page by page.
    async fn list_load_balancers(&self) -> Result<LoadBalancerList, CloudError>;

    /// All routes of this cluster, page by page; routes outside of all these networks may be left out.
    async fn list_routes(&self, within: &[IpNet]) -> Result<RouteList, CloudError>;

    /// Makes a destination lead to a node. Batched with other callers' requests.
    async fn ensure_route(&self, wanted: EnsureRoute) -> Result<EnsuredRoute, CloudError>;

    /// Deletes a route that is still as listed. One that was re-pointed since fails with ROUTE_CHANGED, one that is
    /// gone is success. The answer holds what is still in progress. Batched with other callers' deletions.
    async fn delete_route(&self, listed: Route) -> Result<Option<InProgress>, CloudError>;

    /// Makes a public key, one line in OpenSSH form, valid for a user on all instances of this cluster. The answer holds
    /// what is still in progress.
    async fn add_ssh_key(&self, user: &str, public_key: &str) -> Result<Option<InProgress>, CloudError>;

    /// The topology labels of a volume. Batched with other callers' reads.
    async fn volume_labels(&self, query: VolumeQuery) -> Result<VolumeAnswer, CloudError>;
}

/// Whether a provider can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderStatus {
    /// No handshake has succeeded yet, or the connection is lost. Holds the reason, for `/readyz` and logs.
    Disconnected(String),
    /// It can be called, but not for destructive work. Holds the reason.
    Frozen(String),
    Serving,
}

impl ProviderStatus {
    /// Whether it cannot be called at all.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

/// A provider's description of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderInfo {
    /// Its own name, for example `aws`.
    pub name: String,
    pub vendor_version: String,
    /// Random per process start.
    pub epoch: String,
    /// The prefixes of its provider IDs.
    pub provider_id_prefixes: Vec<String>,
    pub instances: bool,
    pub load_balancers: bool,
    pub routes: bool,
    /// Its routes hold node addresses and must be ensured again when these change.
    pub route_node_addresses: bool,
    /// It serves a watch of instances.
    pub watch_instances: bool,
    /// The cloud's own key of an instance is the node's name: a node without a provider ID can be reported absent.
    pub names_are_keys: bool,
    /// Its cloud allocates pod CIDRs to instances.
    pub pod_cidrs: bool,
    /// It can add an SSH key to all instances.
    pub ssh_keys: bool,
    /// It knows the labels of volumes.
    pub volumes: bool,
    /// The `spec.loadBalancerClass` values that it owns.
    pub load_balancer_classes: Vec<String>,
    /// It owns Services without a class.
    pub default_load_balancer_class: bool,
    /// It recognises balancers made by a former controller.
    pub adoption: bool,
    /// It reports whether a balancer has drifted.
    pub drift: bool,
    /// Its routes record their owner.
    pub route_ownership: bool,
    /// Applied digests survive a restart of the provider.
    pub durable_digest: bool,
    /// The labels and annotations of nodes that it reads: the Node cache must keep them for correct digests.
    pub keep_of_nodes: Keep,
    /// It is told of a node what the kubelet may have written, and may report that back: the addresses, the provided IPs,
    /// or an annotation.
    pub reads_kubelets_words: bool,
    /// Those of Services that it reads or writes, for the Service cache.
    pub keep_of_services: Keep,
    /// How often it wants its instances swept.
    pub instance_sweep: Option<Duration>,
}

impl ProviderInfo {
    /// Whether it claims Services of this `spec.loadBalancerClass`.
    #[must_use]
    pub fn looks_after(&self, class: Option<&str>) -> bool {
        self.load_balancers
            && match class {
                Some(class) => self.load_balancer_classes.iter().any(|known| known == class),
                None => self.default_load_balancer_class,
            }
    }
}

/// Work still in progress in the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InProgress {
    /// When to ask again; positive.
    pub retry_after: Duration,
    /// Machine-readable; may be empty.
    pub reason: String,
    /// For people; may be empty.
    pub message: String,
}

/// An Event to write on a provider's behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEvent {
    pub kind: EventType,
    /// CamelCase.
    pub reason: String,
    pub message: String,
}
