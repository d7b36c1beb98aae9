//! The kubelets of all machines, and the controller that notices when one of them is silent.

use std::{collections::BTreeMap, rc::Rc};

use apiserver::World as Objects;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, NodeCondition, Taint},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};
use provider_mock::cloud::{Instance, InstanceState};
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::plan::Setup;

/// A Lease is renewed this many times as often as it ends, as by kubelets.
const RENEWALS: u32 = 4;
/// What a machine shows that has lost its clock.
const FAR_FUTURE: i64 = 4_070_908_800;
/// After this silence the node controller gives a kubelet up, as in Kubernetes.
const GRACE: Duration = Duration::from_secs(50);
/// From the machine's start to the kubelet's.
const BOOT: Duration = Duration::from_secs(5);
/// From the deletion of its Node to the kubelet's restart, which registers it anew.
const RESTART: Duration = Duration::from_secs(20);

/// The taint that a kubelet puts on a node that no cloud controller has initialised yet.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const LEASES: &str = "kube-node-lease";
const LABELS: &str = "example.com/of-life-";

/// All of them, by node.
#[derive(Debug)]
pub struct Kubelets {
    all: BTreeMap<String, Kubelet>,
    /// How far their clocks may be from the true time, in seconds.
    skew: i64,
    /// The duration of their Leases, in seconds.
    lease: u16,
}

#[derive(Debug)]
struct Kubelet {
    /// The machine it runs on.
    provider_id: String,
    clock: Clock,
    lease: u16,
    /// When it starts; later again after its Node was deleted.
    up_from: Instant,
    silent_until: Instant,
    registered: bool,
    renewed: Option<Instant>,
    /// Since when it has reported without a gap.
    heard_since: Option<Instant>,
}

/// The clock of a machine.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// This many seconds from the true time.
    Off(i64),
    /// Since then in the year 2099.
    Lost(Instant),
}

impl Clock {
    fn read(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Off(seconds) => now + SignedDuration::from_secs(seconds),
            Self::Lost(since) => {
                let begin = Timestamp::from_second(FAR_FUTURE).unwrap_or(now);
                begin + SignedDuration::try_from(since.elapsed()).unwrap_or_default()
            }
        }
    }
}

impl Kubelets {
    /// None yet.
    pub fn new(setup: &Setup) -> Self {
        Self { all: BTreeMap::new(), skew: setup.skew, lease: setup.lease }
    }

    /// The clock of its machine is lost.
    pub fn lose_clock(&mut self, node: &str) {
        if let Some(kubelet) = self.all.get_mut(node) {
            kubelet.clock = Clock::Lost(Instant::now());
        }
    }

    /// A new machine boots.
    pub fn boot(&mut self, node: &str, provider_id: &str) {
        let now = Instant::now();
        // The Lease of a former node with this name stays until somebody finds it expired.
        let renewed = self.all.get(node).and_then(|before| before.renewed);
        self.all.insert(
            node.to_owned(),
            Kubelet {
                provider_id: provider_id.to_owned(),
                clock: Clock::Off(fastrand::i64(-self.skew..=self.skew)),
                lease: self.lease,
                up_from: now + BOOT,
                silent_until: now,
                registered: false,
                renewed,
                heard_since: None,
            },
        );
    }

    /// Silences it for a while.
    pub fn silence(&mut self, node: &str, time: Duration) {
        if let Some(kubelet) = self.all.get_mut(node) {
            kubelet.silent_until = Instant::now() + time;
        }
    }

    /// Lets all of them report again.
    pub fn speak(&mut self) {
        for kubelet in self.all.values_mut() {
            kubelet.silent_until = Instant::now();
        }
    }

    /// Since when this node's kubelet has renewed its Lease without a gap; none if it does not renew it.
    pub fn heard_since(&self, node: &str) -> Option<Instant> {
        self.all.get(node)?.heard_since
    }

    /// Runs each of them once, once a second. `reachable`: whether the apiserver answers.
    pub fn tick(
        &mut self,
        objects: &Objects,
        nodes: &[Rc<Node>],
        machines: &[Instance],
        now: Timestamp,
        reachable: bool,
    ) {
        if !reachable {
            return;
        }
        let runs = |machine: &Instance| machine.state == InstanceState::Running;
        let running: BTreeMap<&str, bool> =
            machines.iter().map(|machine| (machine.provider_id.as_str(), runs(machine))).collect();
        let there = |name: &str| nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
        for (name, kubelet) in &mut self.all {
            let runs = running.get(kubelet.provider_id.as_str()) == Some(&true);
            let at = Instant::now();
            if runs && at >= kubelet.up_from && at >= kubelet.silent_until {
                kubelet.speak(name, there(name), objects, now);
            } else {
                kubelet.heard_since = None;
            }
            if let Some(node) = there(name) {
                kubelet.judge(name, node, objects, now);
            }
        }
        self.all.retain(|name, kubelet| {
            running.contains_key(kubelet.provider_id.as_str()) || there(name).is_some()
        });
    }
}

impl Kubelet {
    fn speak(&mut self, name: &str, node: Option<&Rc<Node>>, objects: &Objects, now: Timestamp) {
        let Some(node) = node else {
            self.heard_since = None;
            if self.registered {
                // A kubelet registers once in its life.
                (self.registered, self.up_from) = (false, Instant::now() + RESTART);
            } else {
                let _refused_is_tried_again = objects.create_value(registration(name));
                self.registered = true;
            }
            return;
        };
        let machine = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
        if machine.is_some_and(|id| *id != self.provider_id) {
            // The Node of a former machine, which must be deleted first.
            self.heard_since = None;
            return;
        }
        self.registered = true;
        self.heard_since.get_or_insert_with(Instant::now);
        if self.renewed.is_none_or(|last| last.elapsed() >= Duration::from_secs(self.lease.into()) / RENEWALS)
        {
            self.renewed = Some(Instant::now());
            let here = self.clock.read(now);
            let _stored = objects.store(&lease(name, self.lease, here, now));
            set_ready(name, node, objects, here, "True");
        }
    }

    /// The node controller's reaction to its silence.
    fn judge(&self, name: &str, node: &Node, objects: &Objects, now: Timestamp) {
        let silent = self.renewed.is_none_or(|last| last.elapsed() >= GRACE);
        if silent && self.renewed.is_some() {
            set_ready(name, node, objects, now, "Unknown");
        }
    }
}

fn lease(name: &str, seconds: u16, renewed: Timestamp, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASES.to_owned()),
            // Nobody reads its age; without it, the apiserver reads the Lease before.
            creation_timestamp: Some(Time(now)),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(seconds.into()),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

/// Sets the condition, unless it is already set.
fn set_ready(name: &str, node: &Node, objects: &Objects, now: Timestamp, status: &str) {
    if ready(node).as_deref() == Some(status) {
        return;
    }
    let _there = objects.change::<Node>("", name, |node| {
        let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "Ready");
        conditions.push(NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
            ..NodeCondition::default()
        });
        let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
        taints.retain(|taint| taint.key != UNREACHABLE);
        if status == "Unknown" {
            let taint =
                Taint { key: UNREACHABLE.to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
            taints.push(taint);
        }
    });
}

/// The status of the condition `Ready`.
pub fn ready(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|ready| ready.status.clone())
}

/// A label that a provider may ask for in one of its lives.
pub fn label(life: u64) -> String {
    format!("{LABELS}{}", life % 4)
}

fn registration(name: &str) -> serde_json::Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            },
        },
        "spec": { "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
        "status": {
            "addresses": [{ "type": "Hostname", "address": name }],
            "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady" }],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "linux",
                "containerRuntimeVersion": "containerd://2", "kubeletVersion": "v1.37.2", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    });
    for life in 0..4 {
        node["metadata"]["labels"][label(life)] = json!(name);
    }
    node
}
