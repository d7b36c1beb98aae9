//! The document in which `ccm-host` shows its state.
//!
//! `ccm-host` serves it below `/state`; `ccmctl` and the status page read it. Field names and meanings of one
//! [`API_VERSION`] stay; new fields may come, so readers ignore those that they do not know. Nothing in here is a secret:
//! names, times, counts, and messages that already appear in Events, conditions or the log.
//!
//! [`inventory`] is what a provider reports about its cloud, [`shadow`] what a host that only watches would change.

pub mod inventory;
pub mod shadow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The version of every document.
pub const API_VERSION: &str = "state.cloudprovider.ccm/v1alpha1";

/// Everything that the host knows, at `/state`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostState {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `HostState`.
    pub kind: String,
    /// When it was computed.
    pub time: Timestamp,
    pub host: Host,
    /// In the order of the command line.
    pub providers: Vec<Provider>,
    /// By name.
    pub nodes: Vec<NodeSummary>,
    /// One for each provider, once the lifecycle controller has looked at its nodes.
    pub guard: Vec<Guard>,
    /// Services that have or want a balancer.
    pub services: Vec<Service>,
    /// One for each provider with routes.
    pub routes: Vec<RouteTable>,
    /// What objects of any kind wait for or are blocked by; by controller and key.
    #[serde(default)]
    pub reports: Vec<Report>,
    pub queues: Vec<Queue>,
}

/// The process that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub version: String,
    pub commit: String,
    pub started: Timestamp,
    /// Its readiness checks that fail, and why.
    pub not_ready: Vec<String>,
    pub leadership: Leadership,
    /// The controllers that this host was asked to run.
    pub controllers: Vec<String>,
}

/// Whether the host acts, or waits until another replica ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leadership {
    /// Leader election is off.
    Always,
    Leader,
    /// Another replica leads, or none does: this one changes nothing.
    Standby,
    /// Everything is decided and nothing changed.
    Shadow,
}

/// One provider of the command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// Its name on the command line.
    pub name: String,
    pub status: ProviderStatus,
    /// Why it is not serving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it said of itself, if it ever connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<ProviderInfo>,
    /// The last call that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<CallError>,
    /// By service and method.
    pub calls: Vec<Calls>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderStatus {
    Serving,
    /// Connected, but nothing destructive is done on its behalf.
    Frozen,
    Disconnected,
}

/// What a provider says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderInfo {
    /// Its own name, for example `aws`.
    pub name: String,
    pub version: String,
    pub provider_id_prefixes: Vec<String>,
    /// The services that it serves, each with the contract's version: `v1alpha1.Instances`.
    pub contract: Vec<String>,
    /// As the contract names them, without `CAPABILITY_`.
    pub capabilities: Vec<String>,
    pub load_balancer_classes: Vec<String>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallError {
    pub method: String,
    /// The gRPC code and, after a slash, the contract's reason.
    pub code: String,
    pub message: String,
    pub time: Timestamp,
}

/// The calls of one method since the host started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    pub method: String,
    pub count: u64,
    pub failed: u64,
    /// Of all calls together.
    pub seconds: f64,
    /// Half of the recent calls were at most as slow.
    pub recent_median_seconds: f64,
    pub recent_max_seconds: f64,
}

/// How a node, or one controller's work on it, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Standing {
    /// Nothing is to be done.
    Settled,
    /// The host leaves it alone on purpose.
    LeftAlone,
    /// The host is about to do something, or waits for something.
    Waiting,
    /// The guard, or a failure, keeps the host from doing it.
    Blocked,
}

/// A node, in the list of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    pub name: String,
    /// The provider that owns it, if that is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    pub ready: bool,
    /// The worst of its explanations.
    pub standing: Standing,
    /// The first sentence of that explanation; empty if it is settled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Why a node is as it is, at `/state/nodes/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `NodeState`.
    pub kind: String,
    pub time: Timestamp,
    #[serde(flatten)]
    pub summary: NodeSummary,
    pub uid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Worst first.
    pub explanations: Vec<Explanation>,
}

/// What one controller, or the host as a whole, says about a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The controller's name; `ccm-host` for the host as a whole.
    pub from: String,
    pub standing: Standing,
    /// For machines: CamelCase, or a reason of the contract.
    pub reason: String,
    /// Why, in a sentence.
    pub why: String,
    /// What the host does next, in a sentence.
    pub next: String,
    /// Failures in a row.
    #[serde(default)]
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Timestamp>,
}

/// What a controller reports about one of its objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What the controller works on, for example the name of a request.
    pub key: String,
    /// The object on which its Events are recorded: `Node a`, `Service shop/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    #[serde(flatten)]
    pub explanation: Explanation,
}

/// The deletion guard of one provider's nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    pub provider: String,
    /// The last pass over the provider's nodes.
    pub last_pass: Timestamp,
    /// Why that pass believed nothing that the provider says; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrust: Option<String>,
    /// The provider denies instances whose kubelets are alive: nodes of their zones are kept, or all.
    pub contradicted: bool,
    /// Nodes of this provider.
    pub nodes: usize,
    /// Nodes that are not ready and of which nothing certain is known.
    pub uncertain: usize,
    /// Nodes that are not ready and whose instance is reported absent.
    pub absent: Vec<AbsentNode>,
}

/// A node whose instance is reported absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbsentNode {
    pub name: String,
    pub uid: String,
    /// Checks in a row that reported it absent, of `needed`.
    pub confirmations: u32,
    pub needed: u32,
    /// The reason of its condition, if a rule holds it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// A person confirmed the deletion.
    pub confirmed: bool,
    /// What holds it back or happens next, in a sentence.
    pub why: String,
}

/// A Service and its balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The provider that has the balancer, or will make it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    pub standing: Standing,
    /// Of its status.
    pub addresses: Vec<String>,
    /// The last failure, or what it waits for; empty if it is settled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    #[serde(default)]
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Timestamp>,
}

/// Why a Service is as it is, at `/state/services/NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceState {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `ServiceState`.
    pub kind: String,
    pub time: Timestamp,
    #[serde(flatten)]
    pub summary: Service,
    pub uid: String,
    /// All that are known under its name, those of former Services among them.
    pub balancers: Vec<Balancer>,
    /// How many nodes are to be behind its balancer.
    pub backends: usize,
    /// The nodes that are not, by reason.
    pub left_out: Vec<LeftOut>,
    /// Worst first.
    pub explanations: Vec<Explanation>,
}

/// A balancer, as far as the host knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Balancer {
    pub provider: String,
    /// Uid of its Service.
    pub uid: String,
    /// What is known of it, and whether it is to go, in a phrase.
    pub known: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_call: Option<LastCall>,
}

/// The last call about a balancer that creates, changes or deletes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastCall {
    /// `ensure`, `update` or `delete`.
    pub call: String,
    /// When it ended; when it began, if there is no answer yet.
    pub time: Timestamp,
    /// What the provider said, in a phrase.
    pub answer: String,
}

/// Nodes that are not behind a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// What they are, for example `being deleted`.
    pub why: String,
    pub count: usize,
    /// The first of them, by name.
    pub nodes: Vec<String>,
}

/// The answer to `POST /resync`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resync {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `Resync`.
    pub kind: String,
    /// How many balancers are ensured again.
    pub balancers: usize,
}

/// The routes that a provider is known to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTable {
    pub provider: String,
    pub list: RouteListing,
    /// By destination.
    pub routes: Vec<inventory::Route>,
}

/// How much of the cloud's routes the last list had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteListing {
    #[default]
    NotYet,
    InPart,
    Whole,
}

/// A work queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub name: String,
    /// Keys ready to run.
    pub depth: usize,
    /// Keys that wait for a retry.
    pub delayed: usize,
    pub adds: u64,
    pub retries: u64,
    /// How long the runs under way have taken together.
    #[serde(default)]
    pub unfinished_seconds: f64,
    /// How long the longest run under way has taken.
    pub longest_seconds: f64,
}

/// Whether a document of this version can be read.
#[must_use]
pub fn is_known(api_version: &str) -> bool {
    api_version == API_VERSION
}
