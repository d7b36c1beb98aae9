//! Balancers, as plain values.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use cloudprovider_sdk::proto;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Target;

/// Prefix of the annotations that this cloud reads.
pub const ANNOTATION_PREFIX: &str = "mock.cloudprovider.ccm/";

/// Prefix of the annotations that the provider writes on Services; a separate one, since no digest covers these.
pub const WRITTEN_PREFIX: &str = "status.mock.cloudprovider.ccm/";
/// The prefix of the node annotations that the provider owns.
pub const NODE_ANNOTATIONS: &str = "mock.example/";

/// State of a balancer, numbered as in the contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BalancerState {
    /// Being created.
    #[default]
    Provisioning = proto::LoadBalancerState::Pending as isize,
    /// Serves traffic.
    Active = proto::LoadBalancerState::Active as isize,
    /// Being deleted.
    Deleting = proto::LoadBalancerState::Deleting as isize,
}

/// Protocol of a port, numbered as in the contract. This cloud has no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp = proto::Protocol::Tcp as isize,
    /// UDP.
    Udp = proto::Protocol::Udp as isize,
}

/// One port of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Port on the balancer.
    pub port: i32,
    /// Port on the nodes.
    pub node_port: i32,
    /// Port of the pods, as a number or a name.
    #[serde(default)]
    pub target_port: String,
    /// Its application protocol.
    #[serde(default)]
    pub app_protocol: String,
}

impl From<&proto::ServicePort> for Port {
    fn from(port: &proto::ServicePort) -> Self {
        let is_udp = port.protocol() == proto::Protocol::Udp;
        let protocol = if is_udp { Protocol::Udp } else { Protocol::Tcp };
        let target_port = match &port.target_port {
            None => String::new(),
            Some(proto::service_port::TargetPort::TargetPortNumber(number)) => number.to_string(),
            Some(proto::service_port::TargetPort::TargetPortName(name)) => name.clone(),
        };
        Self {
            name: port.name.clone(),
            protocol,
            port: port.port,
            node_port: port.node_port,
            target_port,
            app_protocol: port.app_protocol.clone(),
        }
    }
}

/// An ingress of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ingress {
    /// The IP, unless the ingress has only a host name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ip: Option<IpAddr>,
    /// A host name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hostname: Option<String>,
    /// `ipMode` is `Proxy`: nodes must send traffic through the balancer.
    #[serde(default)]
    pub proxy: bool,
}

/// What a Service asks for and this cloud only keeps, in Kubernetes' words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceFields {
    /// Its labels, if they were wanted.
    pub labels: BTreeMap<String, String>,
    /// Its class.
    pub load_balancer_class: String,
    /// The address that it wants.
    pub load_balancer_ip: String,
    /// Its IP families.
    pub ip_families: Vec<String>,
    /// How many of them it wants.
    pub ip_family_policy: String,
    /// Its addresses in the cluster.
    pub cluster_ips: Vec<String>,
    /// Its other addresses outside.
    pub external_ips: Vec<String>,
    /// Which nodes serve traffic from outside.
    pub external_traffic_policy: String,
    /// Which nodes serve traffic from inside.
    pub internal_traffic_policy: String,
    /// Whether it has node ports.
    pub allocate_node_ports: Option<bool>,
}

impl From<&proto::Service> for ServiceFields {
    fn from(service: &proto::Service) -> Self {
        let families = service.ip_families().filter_map(|family| match family {
            proto::IpFamily::Unspecified => None,
            proto::IpFamily::Ipv4 => Some("IPv4".to_owned()),
            proto::IpFamily::Ipv6 => Some("IPv6".to_owned()),
        });
        let families_wanted = match service.ip_family_policy() {
            proto::IpFamilyPolicy::Unspecified => "",
            proto::IpFamilyPolicy::SingleStack => "SingleStack",
            proto::IpFamilyPolicy::PreferDualStack => "PreferDualStack",
            proto::IpFamilyPolicy::RequireDualStack => "RequireDualStack",
        };
        let policy = |policy| match policy {
            proto::TrafficPolicy::Unspecified => String::new(),
            proto::TrafficPolicy::Cluster => "Cluster".to_owned(),
            proto::TrafficPolicy::Local => "Local".to_owned(),
        };
        Self {
            labels: service.labels.clone().into_iter().collect(),
            load_balancer_class: service.load_balancer_class.clone(),
            load_balancer_ip: service.load_balancer_ip.clone(),
            ip_families: families.collect(),
            ip_family_policy: families_wanted.to_owned(),
            cluster_ips: service.cluster_ips.clone(),
            external_ips: service.external_ips.clone(),
            external_traffic_policy: policy(service.external_traffic_policy()),
            internal_traffic_policy: policy(service.internal_traffic_policy()),
            allocate_node_ports: service.allocate_node_ports,
        }
    }
}

/// A balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancer {
    /// The cloud's id, a running number.
    pub id: String,
    /// Its name: unique in the account, by default the one that in-tree providers derive from the Service's uid.
    pub name: String,
    /// Uid of the cluster; empty if a former controller created it.
    pub cluster_uid: String,
    /// Name of the cluster, if a former controller recorded it.
    pub cluster_name: String,
    /// Uid of the Service; empty if a former controller created it.
    pub service_uid: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service_name: String,
    /// Its state.
    pub state: BalancerState,
    /// Reachable only from within the network.
    pub internal: bool,
    /// Ports.
    pub ports: Vec<Port>,
    /// The annotations it was configured with.
    pub annotations: BTreeMap<String, String>,
    /// Allowed source ranges; empty allows everybody.
    pub source_ranges: Vec<String>,
    /// Health check port of the nodes; 0 if there is no check.
    #[serde(default)]
    pub health_check_port: i32,
    /// Timeout of the session affinity by client IP, in seconds; 0 if there is none.
    #[serde(default)]
    pub affinity_seconds: i64,
    /// What else its Service asks for.
    #[serde(flatten)]
    pub asked: ServiceFields,
    /// Why `--carry-traffic` carries nothing to it now; empty if it does, or was not asked to.
    #[serde(default)]
    pub traffic_error: String,
    /// Its backends.
    pub backends: Arc<Vec<Target>>,
    /// Digest of its backend set.
    pub backend_digest: String,
    /// Its ingresses.
    pub ingress: Vec<Ingress>,
    /// Digest of the configuration last applied in full.
    pub applied_digest: String,
    /// Digest that counts as applied once it is provisioned.
    pub pending_digest: String,
    /// It was changed behind the provider's back.
    pub drifted: bool,
    /// When it was created.
    pub created: Timestamp,
    /// When its state changes by itself.
    pub due: Option<Timestamp>,
}

impl Balancer {
    /// Whether a former controller created it: it has no uids.
    pub fn is_legacy(&self) -> bool {
        self.cluster_uid.is_empty()
    }

    /// Whether this node's instance is a backend.
    pub(crate) fn has_behind(&self, node: &str) -> bool {
        self.backends.iter().any(|backend| backend.node == node && !backend.provider_id.is_empty())
    }

    fn way(&self, way: &Ingress) -> proto::LoadBalancerIngress {
        let mode = match way.ip {
            None => proto::IngressIpMode::Unspecified,
            Some(_) if way.proxy => proto::IngressIpMode::Proxy,
            Some(_) => proto::IngressIpMode::Vip,
        };
        let port = |port: &Port| proto::PortStatus {
            port: port.port,
            protocol: port.protocol as i32,
            error: String::new(),
        };
        proto::LoadBalancerIngress {
            ip: way.ip.map(|ip| ip.to_string()).unwrap_or_default(),
            hostname: way.hostname.clone().unwrap_or_default(),
            ip_mode: mode.into(),
            ports: self.ports.iter().map(port).collect(),
        }
    }
}

/// As a message of the contract; one that is being created has no ingress yet.
impl From<&Balancer> for proto::LoadBalancer {
    fn from(balancer: &Balancer) -> Self {
        let ways = balancer.ingress.iter().filter(|_| balancer.state != BalancerState::Provisioning);
        let sync = if balancer.drifted { proto::SyncState::Drifted } else { proto::SyncState::InSync };
        let legacy = balancer.is_legacy();
        let ownership = if legacy { proto::Ownership::ByLegacyName } else { proto::Ownership::ByUid };
        Self {
            service: Some(proto::ServiceRef {
                namespace: balancer.namespace.clone(),
                name: balancer.service_name.clone(),
                uid: balancer.service_uid.clone(),
            }),
            id: balancer.id.clone(),
            name: balancer.name.clone(),
            state: balancer.state as i32,
            ingress: ways.map(|way| balancer.way(way)).collect(),
            applied_digest: balancer.applied_digest.clone(),
            sync_state: sync.into(),
            ownership: ownership.into(),
        }
    }
}
