//! The admin door from Rust, typed.

mod http;

use std::{net::SocketAddr, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::http::{Door, Verb};
use super::{Cleared, Info, Termination};
use crate::{
    calls::{Call, CallSummary},
    cloud::{
        Balancer, BalancerPatch, Conditions, ConditionsPatch, Held, HostedCluster, Instance, InstancePatch,
        ListedRoute, NewInstances, NewLegacyBalancer, NewRoute, Quota, Route, RoutePatch, SshKey, Volume,
    },
    duration,
    fault::{Fault, FaultStatus},
};

pub use self::http::ClientError;

type Result<T, E = ClientError> = std::result::Result<T, E>;

/// How often a file is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Which calls are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFilter {
    /// Name of the RPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Only calls with a higher sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The newest so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Speaks to the admin door of one mock. Cheap to clone.
///
/// References to things: instances by id, provider ID or name; balancers by id, name, Service uid or `namespace/name`;
/// routes by id or CIDR.
#[derive(Debug, Clone)]
pub struct Client {
    door: Door,
}

impl Client {
    /// A client of the door at this address.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { door: Door::new(address) }
    }

    /// A client of the door whose address is written to this file, once it is there: by then gRPC is served, too.
    ///
    /// # Errors
    ///
    /// When there is no address after `patience`.
    pub async fn from_address_file(path: impl AsRef<Path>, patience: Duration) -> Result<Self> {
        let path = path.as_ref();
        let end = Instant::now() + patience;
        loop {
            if let Some(address) =
                tokio::fs::read_to_string(path).await.ok().and_then(|text| text.trim().parse().ok())
            {
                return Ok(Self::new(address));
            }
            if Instant::now() > end {
                return Err(ClientError::NoAddress { path: path.to_owned() });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where the door is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Who answers.
    ///
    /// # Errors
    ///
    /// As every method here: when the door does not answer, or refuses.
    pub async fn info(&self) -> Result<Info> {
        self.door.get(&["info"]).await
    }
}

/// Machines.
#[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
impl Client {
    /// All machines.
    pub async fn instances(&self) -> Result<Vec<Instance>> {
        self.door.get(&["instances"]).await
    }

    /// One machine.
    pub async fn instance(&self, reference: &str) -> Result<Instance> {
        self.door.get(&["instances", reference]).await
    }

    /// Makes machines.
    pub async fn create_instances(&self, wish: &NewInstances) -> Result<Vec<Instance>> {
        self.door.send(Verb::Post, &["instances"], wish).await
    }

    /// Changes a machine.
    pub async fn patch_instance(&self, reference: &str, patch: &InstancePatch) -> Result<Instance> {
        self.door.send(Verb::Patch, &["instances", reference], patch).await
    }

    /// Stops a machine.
    pub async fn stop_instance(&self, reference: &str) -> Result<Instance> {
        self.door.send(Verb::Post, &["instances", reference, "stop"], &()).await
    }

    /// Starts a stopped machine.
    pub async fn start_instance(&self, reference: &str) -> Result<Instance> {
        self.door.send(Verb::Post, &["instances", reference, "start"], &()).await
    }

    /// Terminates a machine; it is seen going for `linger`, or the cloud's own time.
    pub async fn terminate_instance(&self, reference: &str, linger: Option<Duration>) -> Result<Instance> {
        let wish = Termination { linger_ms: linger.map(duration::millis) };
        self.door.send(Verb::Post, &["instances", reference, "terminate"], &wish).await
    }

    /// Takes away at once all machines whose name begins so.
    pub async fn delete_instances_named(&self, prefix: &str) -> Result<Vec<Instance>> {
        self.door.delete(&["instances-named", prefix]).await
    }

    /// Takes a machine away at once.
    pub async fn delete_instance(&self, reference: &str) -> Result<Instance> {
        self.door.delete(&["instances", reference]).await
    }
}

/// Balancers and routes.
#[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
impl Client {
    /// All balancers.
    pub async fn balancers(&self) -> Result<Vec<Balancer>> {
        self.door.get(&["balancers"]).await
    }

    /// One balancer.
    pub async fn balancer(&self, reference: &str) -> Result<Balancer> {
        self.door.get(&["balancers", reference]).await
    }

    /// Ids of the balancers that have the machine of this node behind them.
    pub async fn balancers_with(&self, node: &str) -> Result<Vec<String>> {
        self.door.get(&["balancers", "behind", node]).await
    }

    /// Makes a former controller's balancer, or another cluster's.
    pub async fn create_legacy_balancer(&self, wish: &NewLegacyBalancer) -> Result<Balancer> {
        self.door.send(Verb::Post, &["balancers", "legacy"], wish).await
    }

    /// Changes a balancer behind the provider's back: it drifts.
    pub async fn patch_balancer(&self, reference: &str, patch: &BalancerPatch) -> Result<Balancer> {
        self.door.send(Verb::Patch, &["balancers", reference], patch).await
    }

    /// Takes a balancer away behind the provider's back.
    pub async fn delete_balancer(&self, reference: &str) -> Result<Balancer> {
        self.door.delete(&["balancers", reference]).await
    }

    /// What the cloud holds for a cluster, beside its machines.
    pub async fn held(&self, cluster_uid: &str) -> Result<Vec<Held>> {
        self.door.get(&["held", cluster_uid]).await
    }

    /// All routes.
    pub async fn routes(&self) -> Result<Vec<ListedRoute>> {
        self.door.get(&["routes"]).await
    }

    /// Makes a route behind the provider's back.
    pub async fn create_route(&self, wish: &NewRoute) -> Result<ListedRoute> {
        self.door.send(Verb::Post, &["routes"], wish).await
    }

    /// Re-points a route behind the provider's back.
    pub async fn patch_route(&self, reference: &str, patch: &RoutePatch) -> Result<ListedRoute> {
        self.door.send(Verb::Patch, &["routes", reference], patch).await
    }

    /// Takes a route away behind the provider's back.
    pub async fn delete_route(&self, reference: &str) -> Result<Route> {
        self.door.delete(&["routes", reference]).await
    }
}

/// Volumes, hosted clusters, keys, quota, conditions.
#[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
impl Client {
    /// All volumes.
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.door.get(&["volumes"]).await
    }

    /// Makes or replaces a volume.
    pub async fn put_volume(&self, volume: &Volume) -> Result<Volume> {
        self.door.send(Verb::Post, &["volumes"], volume).await
    }

    /// Takes a volume away.
    pub async fn delete_volume(&self, id: &str) -> Result<Volume> {
        self.door.delete(&["volumes", id]).await
    }

    /// All hosted clusters.
    pub async fn clusters(&self) -> Result<Vec<HostedCluster>> {
        self.door.get(&["clusters"]).await
    }

    /// Makes or replaces a hosted cluster.
    pub async fn put_cluster(&self, cluster: &HostedCluster) -> Result<HostedCluster> {
        self.door.send(Verb::Post, &["clusters"], cluster).await
    }

    /// Takes a hosted cluster away.
    pub async fn delete_cluster(&self, name: &str) -> Result<HostedCluster> {
        self.door.delete(&["clusters", name]).await
    }

    /// All SSH keys.
    pub async fn ssh_keys(&self) -> Result<Vec<SshKey>> {
        self.door.get(&["ssh-keys"]).await
    }

    /// Upper bounds.
    pub async fn quota(&self) -> Result<Quota> {
        self.door.get(&["quota"]).await
    }

    /// Sets all upper bounds.
    pub async fn set_quota(&self, quota: &Quota) -> Result<Quota> {
        self.door.send(Verb::Put, &["quota"], quota).await
    }

    /// How things are.
    pub async fn conditions(&self) -> Result<Conditions> {
        self.door.get(&["conditions"]).await
    }

    /// Changes how things are.
    pub async fn patch_conditions(&self, patch: &ConditionsPatch) -> Result<Conditions> {
        self.door.send(Verb::Patch, &["conditions"], patch).await
    }
}

/// Calls and faults.
#[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
impl Client {
    /// Calls that came in, in their order.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<Call>> {
        self.door.ask(&["calls"], filter).await
    }

    /// What was seen of each RPC since the last reset, and of the cloud's own API.
    pub async fn call_summary(&self) -> Result<CallSummary> {
        self.door.get(&["calls", "summary"]).await
    }

    /// Forgets all calls.
    pub async fn reset_calls(&self) -> Result<()> {
        self.door.delete(&["calls"]).await
    }

    /// All faults, spent ones among them.
    pub async fn faults(&self) -> Result<Vec<FaultStatus>> {
        self.door.get(&["faults"]).await
    }

    /// Adds a fault.
    pub async fn add_fault(&self, fault: &Fault) -> Result<FaultStatus> {
        self.door.send(Verb::Post, &["faults"], fault).await
    }

    /// Takes a fault away.
    pub async fn remove_fault(&self, id: u64) -> Result<Cleared> {
        self.door.delete(&["faults", &id.to_string()]).await
    }

    /// Takes all faults away.
    pub async fn clear_faults(&self) -> Result<Cleared> {
        self.door.delete(&["faults"]).await
    }
}
