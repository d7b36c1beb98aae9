//! Test fixtures: builders for objects, and an apiserver that is a function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_debug_implementations,
    reason = "only tests run it"
)]

mod apiserver;

pub use apiserver::{ApiServer, Call, Reply, Watch};

use std::sync::Arc;

use ::apiserver::{Cause, Refusal};

use crate::{
    events::{EventType, Events, Recorder},
    keep::Pairs,
    metrics::KubeMetrics,
    node::{Node, NodeAddress, Taint},
    service::{Ingress, ObjectKey, Service, ServicePort, ServiceSpec, TargetPort},
    wire::Condition,
};

/// The taint of a node that the cloud has not initialised.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A refusal of the apiserver, without details.
pub fn refusal(code: u16, reason: &'static str) -> Refusal {
    Refusal::new(code, reason, reason)
}

/// A 422 that names the refused fields.
pub fn invalid(message: &str, fields: &[&str]) -> Refusal {
    let cause = |field: &&str| Cause {
        reason: "FieldValueInvalid",
        field: (*field).to_owned(),
        message: message.to_owned(),
    };
    Refusal { causes: fields.iter().map(cause).collect(), ..Refusal::new(422, "Invalid", message) }
}

/// A registered node: no provider ID, no taint, uid `<name>-uid`.
pub fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        resource_version: "1".to_owned(),
        created: Some(jiff::Timestamp::UNIX_EPOCH),
        ..Node::default()
    }
}

impl Node {
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = uid.to_owned();
        self
    }

    pub fn version(mut self, version: &str) -> Self {
        self.resource_version = version.to_owned();
        self
    }

    pub fn created_at(mut self, at: jiff::Timestamp) -> Self {
        self.created = Some(at);
        self
    }

    pub fn deleting(mut self) -> Self {
        self.deletion_time = Some(jiff::Timestamp::UNIX_EPOCH);
        self
    }

    pub fn with_provider_id(mut self, id: &str) -> Self {
        self.provider_id = Some(id.to_owned());
        self
    }

    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels = extended(&self.labels, key, value);
        self
    }

    pub fn with_annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations = extended(&self.annotations, key, value);
        self
    }

    pub fn with_taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
            time_added: None,
        });
        self
    }

    pub fn tainted_uninitialized(self) -> Self {
        self.with_taint(UNINITIALIZED, "true", "NoSchedule")
    }

    pub fn with_address(mut self, type_: &str, address: &str) -> Self {
        self.addresses.push(NodeAddress { type_: type_.to_owned(), address: address.to_owned() });
        self
    }

    pub fn with_pod_cidr(mut self, cidr: &str) -> Self {
        self.pod_cidrs.push(cidr.to_owned());
        self
    }

    pub fn unschedulable(mut self) -> Self {
        self.unschedulable = true;
        self
    }

    pub fn with_condition(mut self, type_: &str, status: &str, reason: &str) -> Self {
        self.conditions.retain(|condition| condition.type_ != type_);
        self.conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            last_transition_time: Some(jiff::Timestamp::UNIX_EPOCH),
        });
        self
    }

    pub fn ready(self) -> Self {
        self.with_condition("Ready", "True", "KubeletReady")
    }

    pub fn not_ready(self) -> Self {
        self.with_condition("Ready", "Unknown", "NodeStatusUnknown")
    }
}

/// A Service of type ClusterIP in namespace `default`, without ports, uid `<name>-uid`.
pub fn service(name: &str) -> Service {
    Service {
        key: ObjectKey::new("default", name),
        uid: format!("{name}-uid"),
        resource_version: "1".to_owned(),
        created: Some(jiff::Timestamp::UNIX_EPOCH),
        deletion_time: None,
        labels: Default::default(),
        annotations: Default::default(),
        finalizers: Vec::new(),
        spec: ServiceSpec {
            type_: "ClusterIP".to_owned(),
            session_affinity: "None".to_owned(),
            ip_families: vec!["IPv4".to_owned()],
            ..ServiceSpec::default()
        },
        ingress: Vec::new(),
        conditions: Vec::new(),
    }
}

impl Service {
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = uid.to_owned();
        self
    }

    pub fn version(mut self, version: &str) -> Self {
        self.resource_version = version.to_owned();
        self
    }

    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.key = ObjectKey::new(namespace, self.key.name);
        self
    }

    pub fn load_balancer(mut self) -> Self {
        self.spec.type_ = "LoadBalancer".to_owned();
        self.spec.external_traffic_policy = "Cluster".to_owned();
        self
    }

    pub fn with_class(mut self, class: &str) -> Self {
        self.spec.load_balancer_class = Some(class.to_owned());
        self
    }

    /// A TCP port whose target has the same number and whose node port is 30000 more.
    pub fn with_port(mut self, name: &str, port: i32) -> Self {
        self.spec.ports.push(ServicePort {
            name: name.to_owned(),
            protocol: "TCP".to_owned(),
            app_protocol: None,
            port,
            target_port: TargetPort::Number(port),
            node_port: 30_000 + port,
        });
        self
    }

    pub fn with_finalizer(mut self, finalizer: &str) -> Self {
        self.finalizers.push(finalizer.to_owned());
        self
    }

    pub fn with_annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations = extended(&self.annotations, key, value);
        self
    }

    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels = extended(&self.labels, key, value);
        self
    }

    pub fn with_ingress_ip(mut self, ip: &str) -> Self {
        self.ingress.push(Ingress {
            ip: ip.to_owned(),
            ip_mode: Some("VIP".to_owned()),
            ..Ingress::default()
        });
        self
    }

    pub fn deleting(mut self) -> Self {
        self.deletion_time = Some(jiff::Timestamp::UNIX_EPOCH);
        self
    }
}

fn extended(pairs: &Pairs, key: &str, value: &str) -> Pairs {
    pairs.iter().filter(|(known, _)| *known != key).chain([(key, value)]).collect()
}

/// A queue whose events stay there, to be read with [`Recorded::take`].
pub fn events() -> (Arc<Events>, Recorded) {
    let events = Events::detached(KubeMetrics::default().events);
    (Arc::clone(&events), Recorded(events))
}

/// A recorder into such a queue.
pub fn recorder() -> (Recorder, Recorded) {
    let (events, recorded) = events();
    (events.recorder("test"), recorded)
}

/// The events of [`recorder`].
#[derive(Debug)]
pub struct Recorded(Arc<Events>);

impl Recorded {
    /// Everything recorded since the last call: type, reason and message.
    pub fn take(&self) -> Vec<(EventType, &'static str, String)> {
        self.0.take()
    }
}
