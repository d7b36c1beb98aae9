//! The interface between controllers and a provider: what they ask and what it answers, as plain values.
//!
//! The host implements the trait over gRPC; tests implement it in a few lines.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
// An unspecified value is what the provider leaves open, and always the safe branch.
use cloudprovider_proto::v1alpha1 as pb;
pub use cloudprovider_proto::v1alpha1::{
    ClusterRef, InstanceState, InstanceView, LoadBalancerState, MaintenanceKind, Ownership, RouteState,
    SyncState, VolumeState,
};
use ipnet::IpNet;
use jiff::Timestamp;
use prost::bytes::Bytes;
use tokio::sync::{broadcast, watch};

use super::CloudError;
use ccm_kube::{EventType, Ingress, Keep, Node, ObjectKey, Service};

/// One provider. Calls made within a few milliseconds share a request.
#[async_trait]
pub trait Provider: Send + Sync + Debug {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// Whether it can be called, and trusted with destructive work by calls of this family. Changes show at once.
    fn status(&self, of: Family) -> watch::Receiver<ProviderStatus>;

    /// What the provider reported at the last handshake; `None` before the first.
    fn info(&self) -> Option<Arc<ProviderInfo>>;

    /// Keys of changed instances, from the provider's watch: for each the provider ID, the node's name, or one after the
    /// other. Changes may be missing.
    fn instance_changes(&self) -> broadcast::Receiver<String>;

    /// A number that grows whenever all instances should be checked: at each new connection and each new watch stream
    /// that does not resume the last, since changes in between were not reported. Only the latest value matters.
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
    async fn list_load_balancers(&self) -> Result<Listed<LoadBalancer>, CloudError>;

    /// All routes of this cluster, page by page; routes outside of all these networks may be left out.
    async fn list_routes(&self, within: &[IpNet]) -> Result<Listed<Route>, CloudError>;

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

/// The RPCs of a service of the contract that may destroy something: when the cloud fails one family, the others may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    Instances,
    LoadBalancers,
    Routes,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Instances, Self::LoadBalancers, Self::Routes];

    /// The name of the service.
    pub fn service(self) -> &'static str {
        match self {
            Self::Instances => "Instances",
            Self::LoadBalancers => "LoadBalancers",
            Self::Routes => "Routes",
        }
    }
}

/// Whether a provider can be called, and trusted with the destructive work of one [`Family`].
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
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }

    /// The same, with a reason that names the provider.
    #[must_use]
    pub fn told_of(&self, name: &str) -> Self {
        match self {
            Self::Disconnected(why) => {
                Self::Disconnected(format!("provider {name:?} cannot be asked: {why}"))
            }
            Self::Frozen(why) => Self::Frozen(format!("provider {name:?} is frozen: {why}")),
            Self::Serving => Self::Serving,
        }
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
    /// Its routes record their owner.
    pub route_ownership: bool,
    /// Applied digests survive a restart of the provider.
    pub durable_digest: bool,
    /// The labels and annotations of nodes that it reads: the Node cache must keep them for correct digests.
    pub keep_of_nodes: Keep,
    /// It receives node fields that a kubelet can write, and may echo them back: addresses, provided IPs, or an
    /// annotation.
    pub reads_kubelets_words: bool,
    /// Those of Services that it reads or writes, for the Service cache.
    pub keep_of_services: Keep,
    /// How many balancers may be created or changed at a time within its limits, and how many removed.
    pub balancers_at_once: usize,
    /// How often it wants its instances swept.
    pub instance_sweep: Option<Duration>,
}

impl ProviderInfo {
    /// Whether it claims Services of this `spec.loadBalancerClass`.
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

/// A query for the instance of one node.
#[derive(Debug, Clone)]
pub struct InstanceQuery {
    /// The node from the cache; only the fields that the provider wants are sent.
    pub node: Arc<Node>,
    pub view: InstanceView,
    /// Maximum age of the answer.
    pub freshness: Freshness,
}

/// The maximum age of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Freshness {
    /// Read from the cloud now: before anything is deleted, and at first initialisation.
    ReadThrough,
    /// No older than this.
    AtMost(Duration),
}

impl Freshness {
    /// As the cloud has it when it is asked. Waits for its turn behind no [`Freshness::ReadThrough`] and before none.
    pub const NOW: Self = Self::AtMost(Duration::ZERO);
}

/// The answer about one node.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceAnswer {
    pub state: InstanceState,
    /// It comes from the source of truth. Only an authoritative [`InstanceState::Absent`] is evidence.
    pub authoritative: bool,
    pub observed_at: Option<Timestamp>,
    /// Present whenever the provider could describe the instance.
    pub instance: Option<Instance>,
    /// Why the state is unknown or the instance has no description.
    pub error: Option<CloudError>,
    /// Events to write on the Node.
    pub events: Vec<ProviderEvent>,
}

/// An instance. Invalid values from the provider (an address, a label) are already removed; `rejected` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Never empty.
    pub provider_id: String,
    /// The cloud's name.
    pub name: String,
    /// A valid label value.
    pub instance_type: Option<String>,
    /// In the provider's order, without duplicates.
    pub addresses: Vec<InstanceAddress>,
    /// A valid label value.
    pub zone: Option<String>,
    /// A valid label value.
    pub region: Option<String>,
    /// Canonical; at most one per family.
    pub pod_cidrs: Vec<IpNet>,
    /// All its valid labels outside of reserved namespaces.
    pub labels: BTreeMap<String, String>,
    /// All its annotations under the prefixes that its provider owns.
    pub annotations: BTreeMap<String, String>,
    /// Those prefixes: any other annotation under them goes.
    pub annotation_prefixes: Vec<String>,
    /// What the cloud plans to do to it.
    pub maintenance: Option<Maintenance>,
    /// One sentence for each thing dropped from the answer, for an Event on the node.
    pub rejected: Vec<String>,
}

/// What a cloud plans to do to an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Maintenance {
    pub kind: MaintenanceKind,
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// For people; may be empty.
    pub message: String,
}

/// The type of an address, one that the contract knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum AddressType {
    /// The instance's own host name.
    Hostname = pb::NodeAddressType::Hostname as i32,
    /// Reachable within the cluster's network.
    InternalIp = pb::NodeAddressType::InternalIp as i32,
    /// Reachable from outside.
    ExternalIp = pb::NodeAddressType::ExternalIp as i32,
    /// A name that resolves within the cluster's network.
    InternalDns = pb::NodeAddressType::InternalDns as i32,
    /// A name that resolves from outside.
    ExternalDns = pb::NodeAddressType::ExternalDns as i32,
}

impl AddressType {
    pub(super) const ALL: [Self; 5] =
        [Self::Hostname, Self::InternalIp, Self::ExternalIp, Self::InternalDns, Self::ExternalDns];

    /// The value of `status.addresses[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
        }
    }

    /// The type with this value; `None` if it is known only to whoever wrote it.
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InstanceAddress {
    pub kind: AddressType,
    /// In the cloud's own spelling.
    pub address: String,
}

/// The nodes behind balancers. Equal digests mean equal sets, whatever the order. Made by
/// [`Provider::backend_set`], since a digest covers only the fields that a provider
/// wants.
#[derive(Debug, Clone)]
pub struct BackendSet {
    /// Over the wanted fields of all nodes.
    pub digest: String,
    /// Sorted by name.
    pub nodes: Vec<Arc<Node>>,
    /// Encoded for the wire, with the fields that the digest covers: all calls share it.
    pub encoded: Bytes,
    /// What the provider wanted to know when it was made.
    pub(super) wants: Arc<pb::Wants>,
}

/// A request to create a balancer or bring it to its desired state.
#[derive(Debug, Clone)]
pub struct EnsureLoadBalancer {
    /// The Service it is for.
    pub service: Arc<Service>,
    /// May be empty.
    pub backends: Arc<BackendSet>,
    /// From [`Provider::desired_digest`].
    pub desired_digest: String,
    /// Grows with every change of the desired state, also across restarts.
    pub revision: u64,
    /// Take over a balancer that carries only a former controller's name.
    pub adopt: bool,
}

/// The result of an [`EnsureLoadBalancer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Ensured {
    /// The current balancer, possibly unfinished.
    pub load_balancer: LoadBalancer,
    /// Set while the balancer has not reached its desired state.
    pub in_progress: Option<InProgress>,
    pub effects: Effects,
}

/// What an answer about a balancer does to its Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Events to write.
    pub events: Vec<ProviderEvent>,
    /// Annotations to set, or to remove (`None`); only under prefixes that the provider advertised.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Conditions to set, by type; only of types that the provider advertised.
    pub conditions: BTreeMap<String, ServiceCondition>,
}

/// A condition that a provider sets on a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCondition {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// CamelCase.
    pub reason: String,
    /// For people; may be empty.
    pub message: String,
}

/// A request to replace the backends of an existing balancer. Batched with those of other Services.
#[derive(Debug, Clone)]
pub struct UpdateLoadBalancer {
    /// The Service it is for.
    pub service: Arc<Service>,
    /// May be empty.
    pub backends: Arc<BackendSet>,
    /// As for Ensure.
    pub desired_digest: String,
    /// As for Ensure.
    pub revision: u64,
    /// It had this digest before something else was asked for, which may come yet: a list with it proves nothing.
    pub had_it_before: bool,
}

#[derive(Debug, Clone)]
pub struct DeleteLoadBalancer {
    /// Namespace and name of the Service.
    pub key: ObjectKey,
    /// Uid of the Service: the natural key.
    pub uid: String,
    /// The Service as last seen: a hint.
    pub last_known: Option<Arc<Service>>,
    /// As for Ensure.
    pub revision: u64,
    /// Also delete a balancer that carries only a former controller's name.
    pub adopt: bool,
}

/// The result of a successful [`UpdateLoadBalancer`] or [`DeleteLoadBalancer`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted {
    /// Set until all is done.
    pub in_progress: Option<InProgress>,
    pub effects: Effects,
    /// The balancer's addresses, if the update changed them.
    pub ingress: Vec<Ingress>,
}

/// A balancer as the cloud has it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancer {
    /// Namespace and name of the Service, as recorded.
    pub key: ObjectKey,
    pub service_uid: String,
    /// The cloud's id; empty when unknown.
    pub id: String,
    /// The cloud's name; empty when unknown.
    pub name: String,
    pub state: LoadBalancerState,
    /// Valid entries; invalid ones from the provider are removed and named in `rejected`.
    pub ingress: Vec<Ingress>,
    /// The digest last applied in full; `None` means unknown.
    pub applied_digest: Option<String>,
    /// Whether the cloud still matches what was applied.
    pub sync_state: SyncState,
    /// How its owner was recognised.
    pub ownership: Ownership,
    /// One sentence for each thing dropped from the answer.
    pub rejected: Vec<String>,
}

impl LoadBalancer {
    /// The digest of the state that the cloud shows to be completely applied.
    pub(super) fn whole_digest(&self) -> Option<&str> {
        let is_whole = self.state == LoadBalancerState::Active && self.sync_state != SyncState::Drifted;
        self.applied_digest.as_deref().filter(|_| is_whole)
    }
}

/// What a list of this cluster's objects showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<I> {
    /// In order of arrival, without duplicates.
    pub items: Vec<I>,
    /// Everything was listed: no unreachable location, no restarted list, one process epoch, nothing dropped.
    pub complete: bool,
    /// Locations that could not be listed, and why.
    pub unreachable: Vec<(String, CloudError)>,
    /// One sentence for each thing dropped or corrected, unless the item holds it.
    pub rejected: Vec<String>,
}

/// A route as the cloud has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The cloud's id; never empty.
    pub id: String,
    /// Canonical, whatever the provider's spelling.
    pub destination: IpNet,
    /// The node it leads to; `None` means unknown.
    pub target: Option<RouteTarget>,
    /// Whether it carries traffic.
    pub state: RouteState,
    /// It belongs to this cluster, by its own record or because routes cannot record an owner.
    pub ours: bool,
}

/// The node that a route leads to, as the cloud knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTarget {
    /// Name of the node; may be empty.
    pub name: String,
    /// Uid of the node; may be empty.
    pub uid: String,
    /// Provider ID of its instance; may be empty.
    pub provider_id: String,
    /// The addresses that the route holds, if the provider's routes hold any.
    pub addresses: Vec<InstanceAddress>,
}

impl RouteTarget {
    /// Whether it identifies no node.
    pub(super) fn is_nothing(&self) -> bool {
        self.name.is_empty() && self.provider_id.is_empty()
    }
}

/// A request that a destination lead to a node. A wrong target is replaced.
#[derive(Debug, Clone)]
pub struct EnsureRoute {
    /// Canonical.
    pub destination: IpNet,
    /// Only the fields that the provider wants are sent.
    pub node: Arc<Node>,
}

/// The result of a successful [`EnsureRoute`].
#[derive(Debug, Clone, PartialEq)]
pub struct EnsuredRoute {
    /// The current route; its target is the requested one. `None` only while in progress.
    pub route: Option<Route>,
    /// Set while the change is in progress.
    pub in_progress: Option<InProgress>,
    /// Events to write on the Node.
    pub events: Vec<ProviderEvent>,
}

/// A query for the labels of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeQuery {
    /// Name of the PersistentVolume.
    pub name: String,
    /// Its uid; empty while it is being admitted.
    pub uid: String,
    /// The volume plugin as Kubernetes names it.
    pub plugin: &'static str,
    /// The volume's id as its source says it.
    pub volume_id: String,
    /// Labels that the volume has already.
    pub labels: BTreeMap<String, String>,
}

/// The answer about one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAnswer {
    pub state: VolumeState,
    /// Valid labels; of reserved namespaces those of zone and region only.
    pub labels: BTreeMap<String, String>,
    /// Why the state is unknown.
    pub error: Option<CloudError>,
    /// One sentence for each thing dropped from the answer, for an Event on the volume.
    pub rejected: Vec<String>,
}
