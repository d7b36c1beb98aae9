//! What must hold at every moment, whatever happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use apiserver::{Object, Verb, World as Objects, Write};
use cloudprovider_sdk::{contract::defaults, proto::Limits};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node, Service},
};
use parking_lot::Mutex;
use provider_mock::{
    calls::Call,
    cloud::{Balancer, Cloud, Route, Settings, State},
};
use tokio::time::{Duration, Instant};

use crate::{
    kubelets::{self, Kubelets, UNINITIALIZED},
    paces,
    record::Record,
    world::{OTHER_CLUSTER, World},
};

/// The finalizer that protects balancers.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The host's own taints.
const OWN_TAINTS: &str = "node.cloudprovider.kubernetes.io/";
/// A kubelet that came back this recently may be unknown to a host that had asked before.
const JUST_BACK: Duration = Duration::from_secs(5);
/// The prefix of hosts' names.
const HOST: &str = "host-";

/// The state of all checks.
#[derive(Debug)]
pub struct Invariants {
    foreign: (Vec<Balancer>, Vec<Route>),
    /// Of the first cloud, and of the second.
    calls_seen: [u64; 2],
    generation: (u64, u64),
    limits: Limits,
    /// Since when each leader has held the Lease, by its epoch.
    reigns: Arc<Mutex<BTreeMap<u64, Timestamp>>>,
    /// Services whose balancers a host began to delete and has not created anew.
    going: BTreeSet<String>,
    /// The last call before one host was alone and without faults, and the last one during that time.
    alone: Option<(u64, u64)>,
}

/// The inputs for judging a write.
struct Judge {
    record: Record,
    kubelets: Arc<Mutex<Kubelets>>,
    objects: Objects,
    clouds: Vec<Arc<Cloud>>,
    cluster: String,
    /// When the host sent its last request to delete a node.
    sent: Mutex<BTreeMap<String, Instant>>,
}

/// Checks every write from now on.
pub fn watch(world: &World) -> Invariants {
    let judge = Arc::new(Judge {
        record: world.record.clone(),
        kubelets: Arc::clone(&world.kubelets),
        objects: world.objects(),
        clouds: world.mocks().map(|mock| Arc::clone(&mock.cloud)).collect(),
        cluster: world.cluster(),
        sent: Mutex::default(),
    });
    let asked = Arc::clone(&judge);
    // Recorded before anything can delay the request.
    world
        .server
        .faults()
        .intercept(move |request| {
            if request.verb == Some(Verb::Delete) && request.resource == "nodes" {
                asked.sent.lock().insert(request.name.clone(), Instant::now());
            }
            None
        })
        .stay();
    world.server.on_write(move |write| judge.write(write));
    let reigns = Arc::<Mutex<BTreeMap<u64, Timestamp>>>::default();
    let begun = Arc::clone(&reigns);
    world.server.on_write(move |write| {
        if write.resource == "leases"
            && write.client.starts_with(HOST)
            && let Some(lease) = read::<Lease>(write.after.as_ref())
        {
            let former = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
            begun.lock().entry(former.unsigned_abs().into()).or_insert(write.at);
        }
    });
    Invariants {
        reigns,
        foreign: foreign(world),
        calls_seen: [0; 2],
        generation: (0, 0),
        limits: world.mock.advertised.answer(&Settings::default()).limits.unwrap_or_default(),
        going: BTreeSet::new(),
        alone: None,
    }
}

/// The maximum number of items in one call.
fn largest(limits: &Limits, method: &str) -> u64 {
    let most = match method {
        "BatchGetInstances" => limits.max_batch_instances,
        "BatchUpdateLoadBalancers" => limits.max_batch_load_balancers,
        "BatchEnsureRoutes" | "BatchDeleteRoutes" => limits.max_batch_routes,
        _ => return u64::MAX,
    };
    u64::from(if most == 0 { defaults::MAX_BATCH } else { most })
}

fn foreign(world: &World) -> (Vec<Balancer>, Vec<Route>) {
    world.look(|state| {
        let balancers = state.balancers().filter(|one| one.cluster_uid == OTHER_CLUSTER).cloned().collect();
        let routes = state.routes().map(|route| route.route).filter(|one| one.cluster_uid == OTHER_CLUSTER);
        (balancers, routes.collect())
    })
}

impl Invariants {
    /// Checks the cloud, if something changed.
    pub fn check(&mut self, world: &World) {
        self.calls(world);
        let generation = world.generation();
        if std::mem::replace(&mut self.generation, generation) == generation {
            return;
        }
        let broken = |rule, what| world.record.broken(rule, what);
        if foreign(world) != self.foreign {
            broken("another cluster's", format!("{:?}", foreign(world)));
        }
        let balancers = world.balancers();
        let services = world.services();
        let services: BTreeMap<&str, &Rc<Service>> =
            services.iter().filter_map(|service| Some((service.metadata.uid.as_deref()?, service))).collect();
        let mut seen = BTreeSet::new();
        for (balancer, is_at_edge) in &balancers {
            let name = &balancer.service_name;
            if !seen.insert((&balancer.service_uid, is_at_edge)) {
                broken("one balancer for a Service", name.clone());
            }
            match services.get(balancer.service_uid.as_str()) {
                None => broken("no balancer leaks", format!("{} of {name} has no Service", balancer.id)),
                Some(service) if !finalizers(service).contains(FINALIZER) => {
                    broken("a finalizer guards each balancer", format!("{} of {name}", balancer.id));
                }
                Some(_) => {}
            }
        }
        let mut destinations = BTreeSet::new();
        for (route, is_at_edge) in world.routes() {
            if !destinations.insert((route.destination_cidr, is_at_edge)) {
                broken("one route to a destination", route.destination_cidr.to_string());
            }
        }
    }

    /// No call has more items than the provider accepts, and none updates a balancer that is being deleted.
    fn calls(&mut self, world: &World) {
        if !world.is_one_host_alone() {
            // The other host may not know yet what one of them deletes.
            self.going.clear();
        }
        for (at, mock) in world.mocks().enumerate() {
            for call in mock.calls.list(None, self.calls_seen[at], usize::MAX) {
                self.calls_seen[at] = self.calls_seen[at].max(call.sequence);
                let to = ["call", "call to edge"][at];
                world.record.note(to, &format!("{} {} {:?}", call.method, call.items, call.keys));
                if at == 0 {
                    self.call(world, &call);
                }
            }
        }
    }

    fn call(&mut self, world: &World, call: &Call) {
        if call.items > largest(&self.limits, &call.method) {
            let what = format!("{} with {} items", call.method, call.items);
            world.record.broken("calls keep the limits", what);
        }
        if world.is_one_host_alone()
            && let Some(service) = self.updates_what_goes(call)
        {
            world.record.broken("what was half removed is made anew, not updated", service);
        }
    }

    /// A list tells a host more than it remembers, and a new host remembers nothing.
    fn updates_what_goes(&mut self, call: &Call) -> Option<String> {
        match call.method.as_str() {
            "DeleteLoadBalancer" => self.going.extend(call.keys.iter().cloned()),
            "EnsureLoadBalancer" => call.keys.iter().for_each(|key| _ = self.going.remove(key)),
            "ListLoadBalancers" | "GetInfo" => self.going.clear(),
            "BatchUpdateLoadBalancers" => {
                return call.keys.iter().find(|key| self.going.contains(*key)).cloned();
            }
            _ => {}
        }
        None
    }

    /// No mutation is done for a leader whose Lease another host holds.
    pub fn reigns(&self, world: &World) {
        let reigns = self.reigns.lock();
        let calls: Vec<_> = world.mocks().flat_map(|mock| mock.calls.list(None, 0, usize::MAX)).collect();
        for call in calls.iter().filter(|call| paces::is_mutation(&call.method) && call.code == "OK") {
            // The first leader's Lease counts no transition yet, and its epoch is 1.
            let Some((epoch, since)) = reigns.range(call.epoch..).next().filter(|_| call.epoch != 0) else {
                continue;
            };
            let ended = call
                .took_ms
                .and_then(|took| call.at.checked_add(std::time::Duration::from_millis(took)).ok());
            if ended.is_none_or(|ended| ended > *since) {
                let what = format!(
                    "{} {:?} of epoch {} from {} to {ended:?}, epoch {} from {since}",
                    call.method,
                    call.keys,
                    call.epoch,
                    call.at,
                    epoch + 1
                );
                world.record.broken("mutations lie within the reign of their leader", what);
            }
        }
    }

    /// Whether one host is alone and without faults: its calls then keep to the provider's rates.
    pub fn alone(&mut self, world: &World, alone: bool) {
        if alone {
            let (after, _) = self.alone.unwrap_or((self.calls_seen[0], 0));
            self.alone = Some((after, self.calls_seen[0]));
            return;
        }
        let Some((after, until)) = self.alone.take() else { return };
        let mut calls = world.mock.calls.list(None, after, usize::MAX);
        calls.retain(|call| call.sequence <= until);
        if let Some(what) = paces::exceeded(&calls, &self.limits) {
            world.record.broken("calls keep the limits", what);
        }
    }
}

impl Judge {
    fn write(&self, write: &Write) {
        let who = &*write.client;
        if write.resource == "events" {
            if let Some(event) = read::<Event>(write.after.as_ref()) {
                let about = event.involved_object.name.unwrap_or_default();
                let [reason, message] = [event.reason, event.message].map(Option::unwrap_or_default);
                self.record.note(who, &format!("tells {about} {reason}: {message}"));
            }
            return;
        }
        if write.resource != "leases" {
            let slash = if write.subresource.is_empty() { "" } else { "/" };
            let what = if write.is_deletion() { "gone" } else { "" };
            let line =
                format!("{} {}{slash}{} {} {what}", write.verb, write.resource, write.subresource, write.key);
            self.record.note(who, &line);
        }
        let by_host = write.client.starts_with(HOST);
        match write.resource {
            "nodes" if by_host => self.node(write),
            "services" => self.service(write, by_host),
            _ => {}
        }
    }

    fn node(&self, write: &Write) {
        let name = write.key.name();
        if write.verb == Verb::Delete {
            let sent = self.sent.lock().get(name).copied().unwrap_or_else(Instant::now);
            let heard = self.kubelets.lock().heard_since(name);
            let ready = write.before.as_ref().and_then(|node| kubelets::ready(&node.read().ok()?));
            if heard.is_some_and(|since| since + JUST_BACK < sent) {
                let what = format!("{name}, Ready={ready:?}, renews its Lease since {heard:?}");
                self.record.broken("no Node of a living machine is deleted", what);
            }
            return;
        }
        let (Some(before), Some(after)) =
            (read::<Node>(write.before.as_ref()), read::<Node>(write.after.as_ref()))
        else {
            return;
        };
        if others_taints(&before) != others_taints(&after) {
            self.record.broken("taints of others stay", name.to_owned());
        }
        let is_new = |node: &Node| taints(node).contains(UNINITIALIZED);
        if is_new(&before) && !is_new(&after) && !has_internal_ip(&after) {
            self.record.broken("no node is schedulable without addresses", name.to_owned());
        }
        if before.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref()).is_none() {
            self.cidrs(name, &after);
        }
    }

    fn cidrs(&self, name: &str, after: &Node) {
        let ours = cidrs(after);
        for other in self.objects.list::<Node>() {
            let other_name = other.metadata.name.clone().unwrap_or_default();
            let shared = |cidr: &IpNet| ours.iter().any(|one| overlap(one, cidr));
            if other_name != name && cidrs(&other).iter().any(shared) {
                self.record.broken("no two nodes share a CIDR", format!("{name} and {other_name}: {ours:?}"));
            }
        }
    }

    fn service(&self, write: &Write, by_host: bool) {
        let before = read::<Service>(write.before.as_ref());
        let name = write.key.name();
        if write.is_deletion() {
            if self.has_balancer(&write.uid) {
                self.record.broken("no balancer leaks", format!("{name} is gone, its balancer is there"));
            }
            return;
        }
        let (true, Some(before), Some(after)) = (by_host, before, read::<Service>(write.after.as_ref()))
        else {
            return;
        };
        if others_finalizers(&before) != others_finalizers(&after) {
            self.record.broken("finalizers of others stay", name.to_owned());
        }
        let ours = |service: &Service| finalizers(service).contains(FINALIZER);
        if ours(&before) && !ours(&after) && self.has_balancer(&write.uid) {
            self.record.broken("no finalizer is lost", format!("{name}: its balancer is there"));
        }
        if before.spec != after.spec {
            self.record.broken("nobody else writes what users want", name.to_owned());
        }
    }

    fn has_balancer(&self, uid: &str) -> bool {
        let now = ccm_base::clock::now();
        let has = |state: &State| {
            state.balancers().any(|one| one.cluster_uid == self.cluster && one.service_uid == uid)
        };
        self.clouds.iter().any(|cloud| cloud.read(now, has))
    }
}

fn read<T: serde::de::DeserializeOwned>(object: Option<&Arc<Object>>) -> Option<T> {
    object?.read().ok()
}

fn finalizers(service: &Service) -> BTreeSet<&str> {
    service.metadata.finalizers.iter().flatten().map(String::as_str).collect()
}

fn others_finalizers(service: &Service) -> BTreeSet<&str> {
    finalizers(service).into_iter().filter(|one| *one != FINALIZER).collect()
}

fn taints(node: &Node) -> BTreeSet<&str> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).map(|taint| taint.key.as_str()).collect()
}

fn others_taints(node: &Node) -> BTreeSet<&str> {
    taints(node).into_iter().filter(|key| !key.starts_with(OWN_TAINTS)).collect()
}

fn has_internal_ip(node: &Node) -> bool {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.into_iter().any(|address| address.type_ == "InternalIP")
}

fn cidrs(node: &Node) -> Vec<IpNet> {
    let texts = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}
