//! Nodes, and the host's ConfigMaps, in an in-memory apiserver, with helpers for the controllers' tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_debug_implementations,
    reason = "only tests run it"
)]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use ::apiserver::{ApiServer, Asked, Fault, Faults, Refusal, Verb, View};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use ccm_kube::{
    cache::Cache,
    fixtures::refusal,
    keep::{Keep, Pairs},
    metrics::KubeMetrics,
    node::Node,
    patch::{WritePressure, Writer},
    shadow::Shadow,
};

const HOST: &str = "host";

/// The test server. Cheap to clone.
#[derive(Clone)]
pub struct NodeServer {
    api: ApiServer,
    client: Client,
    faults: Faults,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The resource versions of all changes of nodes.
    changes: Vec<u64>,
    /// While watches are held back: the last version they may show.
    told: u64,
    held: bool,
    /// The version that lists of any age show, while the server lags.
    lags_at: Option<u64>,
    answers: VecDeque<Fault>,
    silent: bool,
    records_refused: bool,
    /// The Leases of kubelets: the time of the last renewal of each, or `None` if it is alive.
    renewed: BTreeMap<String, Option<String>>,
    leases_refused: bool,
    before_next_read: Option<Box<dyn FnOnce() + Send>>,
    shadow: Option<Shadow>,
}

impl NodeServer {
    /// A server with these nodes.
    pub fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let (api, state) = (ApiServer::default(), Arc::<Mutex<State>>::default());
        let changing = Arc::clone(&state);
        api.on_write(move |write| {
            if write.resource == "nodes" {
                changing.lock().changes.push(write.version);
            }
        });
        let faults = api.faults_of(HOST);
        let (asking, lagging) = (Arc::clone(&state), faults.clone());
        faults.intercept(move |asked| State::asked(&asking, &lagging, asked)).stay();
        let server = Self { client: api.client(HOST), api, faults, state };
        nodes.into_iter().for_each(|node| server.put(&node));
        server
    }

    /// The underlying apiserver, for other kinds of objects.
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn writer(&self) -> Writer {
        Writer::new(self.client.clone(), WritePressure::default()).in_shadow(self.state.lock().shadow.clone())
    }

    /// The controllers that start from now on run in shadow mode.
    pub fn shadowed(self, shadow: &Shadow) -> Self {
        self.state.lock().shadow = Some(shadow.clone());
        self
    }

    /// A cache that has synced, and follows until cancelled.
    pub async fn cache(&self, keep: Keep, cancel: &CancellationToken) -> Cache<Node> {
        let cache = Cache::new(keep, &KubeMetrics::default().cache);
        self.fill(&cache, cancel).await;
        cache
    }

    /// Syncs a cache, and lets it follow until cancelled.
    pub async fn fill(&self, cache: &Cache<Node>, cancel: &CancellationToken) {
        let (running, client, cancel) = (cache.clone(), self.client.clone(), cancel.clone());
        tokio::spawn(async move { running.run(client, cancel).await });
        cache.synced().await;
    }

    /// The node as stored.
    pub fn node(&self, name: &str) -> Option<Value> {
        self.api.world().object::<core::Node>("", name).map(|node| node.value())
    }

    /// A part of the node; null if there is none.
    pub fn part(&self, name: &str, pointer: &str) -> Value {
        self.node(name).and_then(|node| node.pointer(pointer).cloned()).unwrap_or_default()
    }

    /// One condition of the node; null if it has none of that type.
    pub fn condition(&self, name: &str, type_: &str) -> Value {
        let conditions = self.part(name, "/status/conditions");
        let mut all = conditions.as_array().into_iter().flatten();
        all.find(|condition| condition["type"] == type_).cloned().unwrap_or_default()
    }

    /// Another client adds or replaces a node.
    pub fn put(&self, node: &Node) {
        self.api.world().put_value(to_json(node)).unwrap();
    }

    /// Another client edits a node.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut node = self.node(name).unwrap();
        edit(&mut node);
        self.api.world().put_value(node).unwrap();
    }

    /// Another client deletes a node.
    pub fn delete(&self, name: &str) {
        let _gone_already = self.api.world().remove::<core::Node>("", name).is_err();
    }

    /// Holds open watches back from now on: caches grow stale until they list again.
    pub fn hold_watches(&self) {
        self.tell_up_to(self.api.version());
    }

    /// Releases that many of the changes held back.
    pub fn release(&self, count: usize) {
        let version = {
            let state = self.state.lock();
            let held = state.changes.iter().filter(|version| **version > state.told);
            held.take(count).last().copied().unwrap_or(state.told)
        };
        self.tell_up_to(version);
    }

    fn tell_up_to(&self, version: u64) {
        let mut state = self.state.lock();
        (state.told, state.held) = (version, true);
        drop(state);
        self.faults.view(View::StoppedAt(version));
    }

    /// Releases everything that was held back, and stops holding back.
    pub fn release_all(&self) {
        self.state.lock().held = false;
        self.faults.view(View::Current);
    }

    /// From now on lists of any age, and the watches that follow them, keep showing the state as of this call.
    pub fn lag(&self) {
        self.state.lock().lags_at = Some(self.api.version());
    }

    /// Refuses the next write.
    pub fn answer_next_write(&self, refusal: Refusal) {
        self.state.lock().answers.push_back(Fault::Refuse(refusal));
    }

    /// Does the next write, but answers with a timeout.
    pub fn lose_next_answer(&self) {
        self.state.lock().answers.push_back(Fault::RefuseAfter(refusal(504, "Timeout")));
    }

    /// Neither does nor answers writes, until switched off again.
    pub fn silence_writes(&self, silent: bool) {
        self.state.lock().silent = silent;
    }

    /// Runs `event` just before the next read of a single node.
    pub fn before_next_read(&self, event: impl FnOnce() + Send + 'static) {
        self.state.lock().before_next_read = Some(Box::new(event));
    }

    /// All requests for Nodes since the last call, without watches: method and name.
    pub fn take_lines(&self) -> Vec<String> {
        self.take_calls().iter().map(|call| call.line().replace("/api/v1/nodes/", "")).collect()
    }

    /// The same, as received.
    pub fn take_calls(&self) -> Vec<Asked> {
        let calls = self.api.take_requests().into_iter();
        calls.filter(|call| call.resource == "nodes" && call.verb != Some(Verb::Watch)).collect()
    }

    /// The ConfigMap of this name; null if there is none.
    pub fn record(&self, name: &str) -> Value {
        let record = self.api.world().object::<core::ConfigMap>("kube-system", name);
        record.map(|record| record.value()).unwrap_or_default()
    }

    /// Another client writes the ConfigMap of this name.
    pub fn put_record(&self, name: &str, data: Value) {
        let metadata = json!({"name": name, "namespace": "kube-system"});
        self.put_object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}));
    }

    /// Another client writes this object.
    pub fn put_object(&self, object: Value) {
        self.api.world().put_value(object).unwrap();
    }

    /// The node's kubelet is alive, and renews its Lease.
    pub fn renew_lease(&self, node: &str) {
        self.state.lock().renewed.insert(node.to_owned(), None);
    }

    /// The node's kubelet renewed its Lease that long ago, and has been silent since.
    pub fn stop_lease(&self, node: &str, ago: SignedDuration) {
        self.write_lease(node, &format!("{:.6}", Timestamp::now() - ago));
    }

    /// The node's Lease has this time of a renewal, whatever it is.
    pub fn write_lease(&self, node: &str, renewed: &str) {
        self.state.lock().renewed.insert(node.to_owned(), Some(renewed.to_owned()));
    }

    /// Refuses reads of Leases, or allows them again.
    pub fn refuse_leases(&self, refused: bool) {
        self.state.lock().leases_refused = refused;
    }

    /// Refuses reads and writes of ConfigMaps, or allows them again.
    pub fn refuse_records(&self, refused: bool) {
        self.state.lock().records_refused = refused;
    }
}

impl State {
    fn asked(state: &Mutex<Self>, faults: &Faults, asked: &Asked) -> Option<Fault> {
        let any_age = asked.parameter("resourceVersion").is_some_and(|version| version == "0");
        let newest = asked.parameter("resourceVersion").is_none();
        match (asked.resource.as_str(), asked.verb?) {
            ("nodes", Verb::List | Verb::Watch) if newest && state.lock().held => {
                state.lock().held = false;
                faults.view(View::Current);
                None
            }
            ("nodes", Verb::List | Verb::Watch) if any_age => {
                if let Some(version) = state.lock().lags_at {
                    faults.view(View::StoppedAt(version));
                }
                None
            }
            ("leases", Verb::Get) => {
                let state = state.lock();
                let refused = || Fault::Refuse(refusal(403, "Forbidden"));
                let renewed =
                    state.renewed.get(&asked.name).map(|renewed| lease(&asked.name, renewed.as_deref()));
                if state.leases_refused { Some(refused()) } else { renewed }
            }
            ("configmaps", _) => {
                state.lock().records_refused.then(|| Fault::Refuse(refusal(403, "Forbidden")))
            }
            ("nodes", Verb::Get) => {
                let event = state.lock().before_next_read.take();
                event.into_iter().for_each(|event| event());
                None
            }
            ("nodes", Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) => {
                let mut state = state.lock();
                if state.silent { Some(Fault::Hang) } else { state.answers.pop_front() }
            }
            _ => None,
        }
    }
}

/// A living kubelet's Lease is fresh at every read.
fn lease(name: &str, renewed: Option<&str>) -> Fault {
    let fresh = || format!("{:.6}", Timestamp::now() + SignedDuration::from_millis(1));
    let renewed = renewed.map_or_else(fresh, str::to_owned);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 40},
    });
    Fault::Answer { code: 200, body: lease.to_string().into() }
}

fn to_json(node: &Node) -> Value {
    let pairs = |pairs: &Pairs| json!(pairs.iter().collect::<BTreeMap<_, _>>());
    let conditions: Vec<_> = node
        .conditions
        .iter()
        .map(|condition| json!({"type": condition.type_, "status": condition.status, "reason": condition.reason}))
        .collect();
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": node.name,
            "uid": node.uid,
            "creationTimestamp": node.created,
            "deletionTimestamp": node.deletion_time,
            "finalizers": node.is_deleting().then_some(["test/holds-it"]),
            "labels": pairs(&node.labels),
            "annotations": pairs(&node.annotations),
        },
        "spec": {
            "providerID": node.provider_id,
            "podCIDR": node.pod_cidrs.first(),
            "podCIDRs": node.pod_cidrs,
            "taints": node.taints,
        },
        "status": {"addresses": node.addresses, "conditions": conditions},
    })
}
