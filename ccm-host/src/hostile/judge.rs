//! Checks what the host writes and requests, whatever the providers answer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use apiserver::{ApiServer, Write};
use cloudprovider_proto::v1alpha1 as pb;
use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};
use tokio::time::Instant;

use ccm_cloud::{
    fake::{Call, FakeProvider},
    hostile::Hostile,
};
use ccm_reconcile::taint;

/// At most one network per family, so that other routes can be told from ours.
pub(super) const CLUSTER_CIDR: &str = "10.0.0.0/16";

/// How long a decision made before a change of a Service may still take effect.
const ON_ITS_WAY: Duration = Duration::from_secs(900);
/// How long after a node lost its block a route to it may still be asked for.
const A_ROUTE_IS_MADE: Duration = Duration::from_secs(1);
/// The time within which an Ensure's answer is published.
const ITS_ANSWER: Duration = Duration::from_secs(10);

/// The Service whose balancer is the honest provider's.
pub(super) const HONEST: &str = "h0";
/// The Service of whoever means harm with it, and the Node of root on a worker.
pub(super) const TENANT: &str = "s0";
pub(super) const WORKER: &str = "w0";

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const OUR_CONDITIONS: [&str; 2] = ["CloudProviderDeletionBlocked", "NetworkUnavailable"];
/// Where the host keeps what is applied.
const RECORD: &str = "cloudprovider.ccm/LoadBalancer";
const WELL_KNOWN_LABELS: [&str; 6] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
];

/// The answers in which the provider lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lies {
    Everywhere,
    InLists,
}

/// Counts of actions that could have done harm.
#[derive(Debug, Clone, Default)]
pub(super) struct Deeds(BTreeMap<&'static str, u64>);

impl Deeds {
    pub(super) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(deed, times)| *self.0.entry(deed).or_default() += times);
    }

    /// Whether nodes were initialised and deleted, statuses set, routes made and removed, and so on.
    pub(super) fn are_of_every_kind(&self) -> bool {
        [
            "initialised",
            "deleted",
            "pod CIDRs",
            "labels",
            "status",
            "annotations",
            "EnsureLoadBalancer",
            "BatchUpdateLoadBalancers",
            "DeleteLoadBalancer",
            "BatchEnsureRoutes",
            "BatchDeleteRoutes",
        ]
        .iter()
        .all(|deed| self.0.contains_key(deed))
    }
}

pub(super) struct Judge {
    api: ApiServer,
    hostile: Arc<Hostile>,
    lies: Lies,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Services changed by others, and when.
    changed: HashMap<String, Instant>,
    /// Services whose balancers were ensured, and when.
    ensured: HashMap<String, Instant>,
    /// Nodes and blocks of pod CIDRs that they had, and when they lost them.
    lost: HashMap<(String, String), Instant>,
    breaches: Vec<String>,
    deeds: Deeds,
}

impl Judge {
    /// Observes every write of the host, and every request to the provider.
    pub(super) fn over(api: ApiServer, hostile: Arc<Hostile>, lies: Lies) -> Arc<Self> {
        let judge =
            Arc::new(Self { api: api.clone(), hostile: Arc::clone(&hostile), lies, state: Mutex::default() });
        let seeing = Arc::downgrade(&judge);
        api.on_write(move |write| {
            if let Some(judge) = seeing.upgrade() {
                judge.written(write);
            }
        });
        let hearing = Arc::downgrade(&judge);
        hostile.on_call(move |rpc, asked| {
            if let Some(judge) = hearing.upgrade() {
                judge.asked(rpc, asked);
            }
        });
        judge
    }

    /// Observes every request to the honest provider.
    pub(super) fn watch(self: &Arc<Self>, honest: &FakeProvider) {
        let judge = Arc::downgrade(self);
        honest.witness(move |call| {
            if let Some(judge) = judge.upgrade() {
                let is_harm = matches!(call, Call::Delete { service, .. } if service.contains(HONEST));
                judge.must(!is_harm, || format!("the honest provider's balancer was removed: {call:?}"));
            }
        });
    }

    pub(super) fn changed(&self, service: &str) {
        self.state.lock().changed.insert(service.to_owned(), Instant::now());
    }

    pub(super) fn breaches(&self) -> Vec<String> {
        self.state.lock().breaches.clone()
    }

    pub(super) fn deeds(&self) -> Deeds {
        self.state.lock().deeds.clone()
    }

    fn done(&self, deed: &'static str) {
        *self.state.lock().deeds.0.entry(deed).or_default() += 1;
    }

    fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.state.lock().breaches.push(what());
        }
    }

    fn is_on_its_way(&self, service: &str) -> bool {
        self.state.lock().changed.get(service).is_some_and(|at| at.elapsed() < ON_ITS_WAY)
    }

    fn written(&self, write: &Write) {
        let name = write.key.name();
        let value = |object: &Option<Arc<apiserver::Object>>| object.as_ref().map(|object| object.value());
        if write.resource == "nodes" {
            let blocks = |node: Option<Value>| strings(&node.unwrap_or_default()["spec"]["podCIDRs"]);
            for block in blocks(value(&write.before)).difference(&blocks(value(&write.after))) {
                self.state.lock().lost.insert((name.to_owned(), block.clone()), Instant::now());
            }
        }
        if &*write.client != "host" {
            return;
        }
        match (write.resource, value(&write.before), value(&write.after)) {
            ("nodes", Some(before), Some(after)) => self.node(name, &before, &after),
            ("nodes", Some(before), None) => self.deletion(name, &before),
            ("services", Some(before), Some(after)) => self.service(name, &before, &after),
            // Its finalizers were removed while it was being deleted.
            ("services", Some(before), None) => self
                .must(!before["metadata"]["deletionTimestamp"].is_null(), || {
                    format!("deleted Service {name}")
                }),
            ("configmaps", ..) => {}
            (resource, ..) => self.must(false, || format!("wrote {resource} {name}")),
        }
    }

    fn deletion(&self, name: &str, before: &Value) {
        self.done("deleted");
        if name == WORKER {
            return;
        }
        let is_candidate = name == "x9" || name.starts_with('d') || name.starts_with('n');
        self.must(is_candidate, || {
            format!("deleted {name}, whose kubelet is alive, which is young, or which nobody denies")
        });
        let is_ready = conditions(before).get("Ready").is_some_and(|ready| ready["status"] == "True");
        self.must(!is_ready, || format!("deleted {name}, which is Ready"));
        let denials = self.hostile.denials(name);
        self.must(name == "x9" || denials >= 2, || {
            format!("deleted {name}, which was denied {denials} times")
        });
    }

    fn node(&self, name: &str, before: &Value, after: &Value) {
        self.must(name != "o0", || format!("wrote {name}, which is nobody's: {after}"));
        self.labels(name, before, after);
        let foreign = |key: &str| !key.starts_with("cloudprovider.ccm/");
        for key in differing(&before["metadata"]["annotations"], &after["metadata"]["annotations"]) {
            self.must(!foreign(&key), || format!("annotation {key} of {name}"));
        }
        self.spec(name, &before["spec"], &after["spec"]);
        self.node_status(name, &before["status"], &after["status"]);
        let tainted = |node: &Value| taints(node).contains(taint::UNINITIALIZED);
        if tainted(before) && !tainted(after) {
            self.done("initialised");
            let addresses = after["status"]["addresses"].as_array().map_or(0, Vec::len);
            self.must(addresses > 0, || format!("{name} is schedulable without addresses"));
        }
        self.rest(
            "node",
            name,
            before,
            after,
            &[
                "/metadata/labels",
                "/metadata/annotations",
                "/spec/providerID",
                "/spec/podCIDR",
                "/spec/podCIDRs",
                "/spec/taints",
                "/status/addresses",
                "/status/conditions",
            ],
        );
    }

    fn labels(&self, name: &str, before: &Value, after: &Value) {
        let (before, after) = (&before["metadata"]["labels"], &after["metadata"]["labels"]);
        for key in differing(before, after) {
            self.done("labels");
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            let is_reserved = ["kubernetes.io", "k8s.io", "cloudprovider.ccm"]
                .iter()
                .any(|space| domain == *space || domain.ends_with(&format!(".{space}")));
            let is_allowed = WELL_KNOWN_LABELS.contains(&key.as_str()) || !is_reserved;
            // The worker's node has it from a provider.
            let is_anothers = key == "mine" && name != WORKER;
            self.must(is_allowed && !is_anothers, || format!("label {key} of {name}: {before} to {after}"));
            let value = after[&key].as_str().unwrap_or_default();
            let is_value =
                value.len() <= 63 && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            self.must(is_value, || format!("label {key}={value} of {name}"));
        }
    }

    fn spec(&self, name: &str, before: &Value, after: &Value) {
        let id = &after["providerID"];
        let is_kept = before["providerID"] == *id;
        let is_id = id.as_str().is_some_and(|id| !id.is_empty() && id.len() <= 1024);
        self.must(is_kept || (before["providerID"].is_null() && is_id), || {
            format!("provider ID of {name}: {before} to {after}")
        });
        if before["podCIDRs"] != after["podCIDRs"] {
            self.done("pod CIDRs");
            let cidrs: Vec<IpNet> = after["podCIDRs"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|cidr| cidr.as_str()?.parse().ok())
                .collect();
            let all = after["podCIDRs"].as_array().map_or(0, Vec::len);
            let families: BTreeSet<_> = cidrs.iter().map(|cidr| cidr.addr().is_ipv4()).collect();
            let are_networks = cidrs.len() == all
                && families.len() == all
                && all > 0
                && cidrs.iter().all(|cidr| cidr.trunc() == *cidr);
            self.must(before["podCIDRs"].is_null() && are_networks, || {
                format!("pod CIDRs of {name}: {before} to {after}")
            });
            self.must(after["podCIDR"] == after["podCIDRs"][0], || {
                format!("the first pod CIDR of {name}: {after}")
            });
        }
        let (before, after) = (json!({"spec": before}), json!({"spec": after}));
        let (before, after) = (taints(&before), taints(&after));
        for key in before.symmetric_difference(&after) {
            self.must([taint::UNINITIALIZED, taint::SHUTDOWN].contains(&key.as_str()), || {
                format!("taint {key} of {name}")
            });
        }
    }

    fn node_status(&self, name: &str, before: &Value, after: &Value) {
        let known = before["addresses"].as_array().cloned().unwrap_or_default();
        let all = after["addresses"].as_array().into_iter().flatten();
        for address in all.filter(|address| !known.contains(address)) {
            let (kind, text) = (
                address["type"].as_str().unwrap_or_default(),
                address["address"].as_str().unwrap_or_default(),
            );
            let is_one = !text.is_empty()
                && text.len() <= 253
                && (!kind.ends_with("IP") || text.parse::<IpAddr>().is_ok());
            self.must(is_one, || format!("address of {name}: {address}"));
        }
        let lost = after["addresses"].as_array().is_none_or(Vec::is_empty);
        let had = before["addresses"].as_array().is_some_and(|all| !all.is_empty());
        self.must(!(had && lost), || format!("{name} lost all its addresses: {before}"));
        let (before, after) = (conditions(&json!({"status": before})), conditions(&json!({"status": after})));
        for type_ in before.keys().chain(after.keys()) {
            let is_ours = OUR_CONDITIONS.contains(&type_.as_str());
            self.must(is_ours || before.get(type_) == after.get(type_), || {
                format!("condition {type_} of {name}")
            });
        }
    }

    fn service(&self, name: &str, before: &Value, after: &Value) {
        self.must(name != "f0", || format!("wrote Service {name}, which is another implementation's"));
        let finalizers =
            |service: &Value| -> BTreeSet<String> { strings(&service["metadata"]["finalizers"]) };
        for finalizer in finalizers(before).symmetric_difference(&finalizers(after)) {
            self.must(finalizer == FINALIZER, || format!("finalizer {finalizer} of {name}"));
        }
        let (old, new) = (&before["metadata"]["annotations"], &after["metadata"]["annotations"]);
        for key in differing(old, new) {
            self.done("annotations");
            let may = self.hostile.writes(&key) && !key.starts_with("cloudprovider.ccm/");
            self.must(may, || format!("annotation {key} of {name}"));
        }
        let ways = |service: &Value| -> Vec<Value> {
            service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default()
        };
        let (old, new) = (ways(before), ways(after));
        if old != new {
            self.done("status");
        }
        self.must(name != HONEST || old.is_empty() || old == new, || {
            format!("the honest provider's balancer is told as {new:?}, not as {old:?}")
        });
        for way in &new {
            let is_ip = way["ip"].as_str().is_none_or(|ip| ip.parse::<IpAddr>().is_ok());
            self.must(is_ip && (way["ip"].is_string() || way["hostname"].is_string()), || {
                format!("status of {name}: {way}")
            });
        }
        let is_wanted =
            before["spec"]["type"] == "LoadBalancer" && before["metadata"]["deletionTimestamp"].is_null();
        let shrinks = new.len() < old.len() && new.iter().all(|way| old.contains(way));
        // An Ensure takes back what a lying list added.
        let is_truth = self.state.lock().ensured.get(name).is_some_and(|at| at.elapsed() < ITS_ANSWER);
        let may_not = self.lies == Lies::InLists && is_wanted && !is_truth && !self.is_on_its_way(name);
        self.must(!(may_not && shrinks), || {
            format!("status of {name} shrunk on a list's word: {old:?} to {new:?}")
        });
        let (had, has) = (conditions(before), conditions(after));
        for type_ in had.keys().chain(has.keys()) {
            let may = type_ == RECORD || self.hostile.sets(type_) && !type_.starts_with("cloudprovider.ccm/");
            self.must(may || had.get(type_) == has.get(type_), || format!("condition {type_} of {name}"));
        }
        let ours =
            ["/metadata/finalizers", "/metadata/annotations", "/status/loadBalancer", "/status/conditions"];
        self.rest("Service", name, before, after, &ours);
    }

    /// Requires that nothing else differs.
    fn rest(&self, kind: &str, name: &str, before: &Value, after: &Value, but: &[&str]) {
        let rest = |value: &Value| {
            let mut value = value.clone();
            for pointer in but.iter().chain(&[
                "/metadata/resourceVersion",
                "/metadata/managedFields",
                "/metadata/generation",
            ]) {
                if let Some((parent, last)) = pointer.rsplit_once('/')
                    && let Some(Value::Object(parent)) = value.pointer_mut(parent)
                {
                    parent.remove(last);
                }
            }
            value
        };
        let (before, after) = (rest(before), rest(after));
        self.must(before == after, || format!("{kind} {name}: {before} to {after}"));
    }

    fn asked(&self, rpc: &str, asked: &[u8]) {
        match rpc {
            "EnsureLoadBalancer" => {
                self.done("EnsureLoadBalancer");
                let service = read::<pb::EnsureLoadBalancerRequest>(asked).service;
                let about = service.and_then(|service| service.r#ref);
                if let Some(about) = &about {
                    self.state.lock().ensured.insert(about.name.clone(), Instant::now());
                }
                self.is_for_a_balancer(rpc, about);
            }
            "BatchUpdateLoadBalancers" => {
                self.done("BatchUpdateLoadBalancers");
                for item in read::<pb::BatchUpdateLoadBalancersRequest>(asked).items {
                    self.is_for_a_balancer(rpc, item.service.and_then(|service| service.r#ref));
                }
            }
            "DeleteLoadBalancer" => {
                self.done("DeleteLoadBalancer");
                let about = read::<pb::DeleteLoadBalancerRequest>(asked).service.unwrap_or_default();
                let is_wanted = self.live(&about).is_some_and(|service| is_wanted(&service));
                let is_at_rest = !self.is_on_its_way(&about.name);
                // What it claims to have of the honest one's, it may be asked to delete.
                let is_anothers = about.name == HONEST;
                let may_not = self.lies == Lies::InLists && is_wanted && is_at_rest && !is_anothers;
                self.must(!may_not, || format!("{rpc} of {about:?}, which is wanted"));
            }
            "BatchEnsureRoutes" => {
                self.done("BatchEnsureRoutes");
                for item in read::<pb::BatchEnsureRoutesRequest>(asked).items {
                    let name = item.target.map(|target| target.name).unwrap_or_default();
                    self.is_for_its_holder(&name, &item.destination_cidr);
                }
            }
            "BatchDeleteRoutes" => {
                self.done("BatchDeleteRoutes");
                for item in read::<pb::BatchDeleteRoutesRequest>(asked).items {
                    let destination = item.route.map(|route| route.destination_cidr).unwrap_or_default();
                    self.must(is_inside(&destination), || {
                        format!("the route to {destination} removed, which is somebody else's")
                    });
                }
            }
            _ => {}
        }
    }

    /// Requires that the Service exists, wants a balancer, and has our finalizer before anything is made for it.
    fn is_for_a_balancer(&self, rpc: &str, about: Option<pb::ServiceRef>) {
        let about = about.unwrap_or_default();
        if self.is_on_its_way(&about.name) {
            return;
        }
        let service = self.live(&about);
        let holds = service.as_ref().is_some_and(|service| {
            is_wanted(service) && strings(&service["metadata"]["finalizers"]).contains(FINALIZER)
        });
        self.must(holds && about.name != "f0", || format!("{rpc} for {about:?}: {service:?}"));
    }

    /// Requires that the route leads to the oldest node that has the block, or lost it while the call was on its way.
    fn is_for_its_holder(&self, name: &str, block: &str) {
        if name == WORKER {
            self.done("routes of the worker");
        }
        self.must(is_inside(block), || format!("a route to {block}"));
        let key = (name.to_owned(), block.to_owned());
        let has = self.blocks(name).contains(block);
        let lost = self.state.lock().lost.get(&key).map(Instant::elapsed);
        let had = lost.is_some_and(|since| since < A_ROUTE_IS_MADE);
        self.must(has || had, || {
            format!("a route to {block}, which is not {name}'s, who lost it {lost:?} ago")
        });
        // r0 is older than all the others.
        let is_taken = name != "r0" && self.blocks("r0").contains(block);
        self.must(!is_taken, || format!("the route of r0's block leads to {name}"));
    }

    fn blocks(&self, node: &str) -> BTreeSet<String> {
        let node = self.api.world().object::<core::Node>("", node);
        node.map(|node| strings(&node.value()["spec"]["podCIDRs"])).unwrap_or_default()
    }

    fn live(&self, about: &pb::ServiceRef) -> Option<Value> {
        let service = self.api.world().object::<core::Service>(&about.namespace, &about.name)?;
        (service.uid() == about.uid).then(|| service.value())
    }
}

fn read<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).unwrap_or_default()
}

fn is_wanted(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["metadata"]["deletionTimestamp"].is_null()
}

fn is_inside(destination: &str) -> bool {
    let cluster: IpNet = CLUSTER_CIDR.parse().unwrap();
    destination.parse::<IpNet>().is_ok_and(|destination| cluster.contains(&destination))
}

fn taints(node: &Value) -> BTreeSet<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter_map(|taint| taint["key"].as_str().map(str::to_owned)).collect()
}

fn conditions(node: &Value) -> BTreeMap<String, Value> {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter_map(|one| Some((one["type"].as_str()?.to_owned(), one.clone()))).collect()
}

fn strings(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// The keys of two maps whose values differ.
fn differing(before: &Value, after: &Value) -> BTreeSet<String> {
    let keys = |map: &Value| {
        map.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect::<BTreeSet<_>>()
    };
    keys(before).union(&keys(after)).filter(|key| before[*key] != after[*key]).cloned().collect()
}
