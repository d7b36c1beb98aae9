//! An apiserver that holds Nodes, for component tests: it applies patches as the real one does, and tells watches.
//!
//! It knows JSON patches with `test`, merge patches guarded by a uid, and conditions. What it does not know fails the test.

#![allow(dead_code, reason = "words for the tests of every controller, used or not yet")]

mod apply;
mod leases;
mod records;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kube::{
    cache::Cache,
    fixtures::{ApiServer, Call, Reply, Watch},
    keep::Keep,
    metrics::CacheMetrics,
    node::Node,
    pairs::Pairs,
    patch::Writer,
    pressure::WritePressure,
};

const NODES: &str = "/api/v1/nodes";

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct NodeServer {
    api: ApiServer,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Value>,
    records: records::Records,
    leases: leases::Leases,
    version: u64,
    watches: Vec<Watch>,
    held: Option<VecDeque<(&'static str, Value)>>,
    /// What a list of any age shows, while it lags.
    lagging: Option<Vec<Value>>,
    replies: VecDeque<Reply>,
    silent: bool,
    lost_answer: bool,
    before_next_read: Option<Box<dyn FnOnce() + Send>>,
}

impl NodeServer {
    /// A server with these nodes.
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        for node in nodes {
            state.lock().put(to_json(&node));
        }
        let answering = Arc::clone(&state);
        Self { api: ApiServer::new(move |call| answering.lock().answer(call)), state }
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer::new(self.api.client.clone(), WritePressure::default())
    }

    /// A cache that has seen everything, and follows until cancelled.
    pub(crate) async fn cache(&self, keep: Keep, cancel: &CancellationToken) -> Cache<Node> {
        let cache = Cache::new(keep, &CacheMetrics::default());
        self.fill(&cache, cancel).await;
        cache
    }

    /// Fills a cache, and lets it follow until cancelled.
    pub(crate) async fn fill(&self, cache: &Cache<Node>, cancel: &CancellationToken) {
        let (running, client, cancel) = (cache.clone(), self.api.client.clone(), cancel.clone());
        tokio::spawn(async move { running.run(client, cancel).await });
        cache.synced().await;
    }

    /// The node as it stands here.
    pub(crate) fn node(&self, name: &str) -> Option<Value> {
        self.state.lock().nodes.get(name).cloned()
    }

    /// A part of the node, null if there is no such part.
    pub(crate) fn part(&self, name: &str, pointer: &str) -> Value {
        self.node(name).and_then(|node| node.pointer(pointer).cloned()).unwrap_or_default()
    }

    /// Somebody else adds a node, or replaces it.
    pub(crate) fn put(&self, node: &Node) {
        self.state.lock().put(to_json(node));
    }

    /// Somebody else writes.
    pub(crate) fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock();
        let mut node = state.nodes.get(name).cloned().unwrap();
        edit(&mut node);
        state.put(node);
    }

    /// Somebody else deletes.
    pub(crate) fn delete(&self, name: &str) {
        self.state.lock().delete(name);
    }

    /// From now on watches are told nothing: caches grow stale.
    pub(crate) fn hold_watches(&self) {
        self.state.lock().held = Some(VecDeque::new());
    }

    /// Tells so many of the changes that were held back.
    pub(crate) fn release(&self, count: usize) {
        let mut state = self.state.lock();
        let mut held = state.held.take().unwrap_or_default();
        for (kind, object) in held.drain(..count.min(held.len())).collect::<Vec<_>>() {
            state.tell(kind, object);
        }
        state.held = Some(held);
    }

    /// Tells everything that was held back, and holds nothing back any more.
    pub(crate) fn release_all(&self) {
        let mut state = self.state.lock();
        for (kind, object) in state.held.take().unwrap_or_default() {
            state.tell(kind, object);
        }
    }

    /// From now on lists that may be of any age show what there is now.
    pub(crate) fn lag(&self) {
        let mut state = self.state.lock();
        state.lagging = Some(state.nodes.values().cloned().collect());
    }

    /// The next write is answered so, and not done.
    pub(crate) fn answer_next_write(&self, reply: Reply) {
        self.state.lock().replies.push_back(reply);
    }

    /// The next write is done, and answered with a timeout.
    pub(crate) fn lose_next_answer(&self) {
        self.state.lock().lost_answer = true;
    }

    /// Writes are never answered, and not done, until this is taken back.
    pub(crate) fn silence_writes(&self, silent: bool) {
        self.state.lock().silent = silent;
    }

    /// Something happens just before a single node is read the next time.
    pub(crate) fn before_next_read(&self, event: impl FnOnce() + Send + 'static) {
        self.state.lock().before_next_read = Some(Box::new(event));
    }

    /// Everything that was asked since the last time, without watches: method and what follows `/api/v1/nodes/`.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        self.take_calls().iter().map(|call| call.line().replace(&format!("{NODES}/"), "")).collect()
    }

    /// Likewise, as they came.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        let calls = self.api.take_calls().into_iter();
        calls
            .filter(|call| !call.is_watch() && !records::is_record(call) && !leases::is_lease(call))
            .collect()
    }

    /// The ConfigMap of this name; null if there is none.
    pub(crate) fn record(&self, name: &str) -> Value {
        self.state.lock().records.get(name)
    }

    /// Somebody else writes the ConfigMap of this name.
    pub(crate) fn put_record(&self, name: &str, data: Value) {
        self.state.lock().records.put(name, data);
    }

    /// The kubelet of this node is alive, and renews its Lease.
    pub(crate) fn renew_lease(&self, node: &str) {
        self.state.lock().leases.renewed.insert(node.to_owned(), None);
    }

    /// The kubelet of this node renewed its Lease so long ago, and falls silent.
    pub(crate) fn stop_lease(&self, node: &str, ago: SignedDuration) {
        self.state.lock().leases.renewed.insert(node.to_owned(), Some(Timestamp::now() - ago));
    }

    /// From now on Leases cannot be read, or again they can.
    pub(crate) fn refuse_leases(&self, refused: bool) {
        self.state.lock().leases.refused = refused;
    }

    /// From now on ConfigMaps can neither be read nor written, or again they can.
    pub(crate) fn refuse_records(&self, refused: bool) {
        self.state.lock().records.refused = refused;
    }
}

impl State {
    fn answer(&mut self, call: &Call) -> Reply {
        if call.is_watch() {
            return self.watch(call);
        }
        if records::is_record(call) {
            return self.records.answer(call);
        }
        if leases::is_lease(call) {
            return self.leases.answer(call);
        }
        let Some((name, subresource)) =
            call.path.strip_prefix(&format!("{NODES}/")).map(|rest| match rest.split_once('/') {
                Some((name, subresource)) => (name.to_owned(), subresource.to_owned()),
                None => (rest.to_owned(), String::new()),
            })
        else {
            panic!("not known here: {}", call.line());
        };
        if call.method == "GET" {
            if let Some(event) = self.before_next_read.take() {
                event();
            }
        } else {
            if self.silent {
                return Reply::Silence;
            }
            if let Some(reply) = self.replies.pop_front() {
                return reply;
            }
        }
        let Some(node) = self.nodes.get(&name).cloned() else { return Reply::status(404, "NotFound") };
        match (call.method.as_str(), subresource.as_str()) {
            ("GET", "") => Reply::ok(node),
            ("PATCH", "" | "status") => match apply::patch(node, call) {
                Ok(node) => {
                    let node = self.put(node);
                    if std::mem::take(&mut self.lost_answer) {
                        return Reply::status(504, "Timeout");
                    }
                    Reply::ok(json!({"kind": "PartialObjectMetadata", "metadata": node["metadata"]}))
                }
                Err(reply) => reply,
            },
            ("DELETE", "") => {
                let wanted = &call.body["preconditions"]["uid"];
                if *wanted != node["metadata"]["uid"] {
                    return Reply::status(409, "Conflict");
                }
                self.delete(&name);
                Reply::ok(json!({"kind": "Status", "status": "Success"}))
            }
            other => panic!("not known here: {other:?}"),
        }
    }

    fn watch(&mut self, call: &Call) -> Reply {
        let (watch, reply) = Watch::new();
        let any_age = call.query.split('&').any(|pair| pair == "resourceVersion=0");
        let listed = match &self.lagging {
            Some(before) if any_age => before.clone(),
            _ => self.nodes.values().cloned().collect(),
        };
        listed.into_iter().for_each(|node| watch.send("ADDED", node));
        watch.end_of_list("Node", &self.version.to_string());
        self.watches.push(watch);
        reply
    }

    fn put(&mut self, mut node: Value) -> Value {
        self.version += 1;
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        let known = self.nodes.insert(name, node.clone()).is_some();
        self.tell(if known { "MODIFIED" } else { "ADDED" }, node.clone());
        node
    }

    fn delete(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.tell("DELETED", node);
        }
    }

    fn tell(&mut self, kind: &'static str, object: Value) {
        match &mut self.held {
            Some(held) => held.push_back((kind, object)),
            None => self.watches.iter().for_each(|watch| watch.send(kind, object.clone())),
        }
    }
}

fn to_json(node: &Node) -> Value {
    let pairs = |pairs: &Pairs| match pairs.is_empty() {
        true => Value::Null,
        false => json!(pairs.iter().collect::<BTreeMap<_, _>>()),
    };
    let conditions: Vec<_> = node
        .conditions
        .iter()
        .map(|condition| json!({"type": condition.type_, "status": condition.status, "reason": condition.reason}))
        .collect();
    let mut json = json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": node.name,
            "uid": node.uid,
            "creationTimestamp": node.created,
            "deletionTimestamp": node.created.filter(|_| node.deleting),
            "labels": pairs(&node.labels),
            "annotations": pairs(&node.annotations),
        },
        "spec": {
            "providerID": node.provider_id,
            "podCIDR": node.pod_cidrs.first(),
            "podCIDRs": (!node.pod_cidrs.is_empty()).then_some(&node.pod_cidrs),
            "taints": (!node.taints.is_empty()).then_some(&node.taints),
        },
        "status": {
            "addresses": (!node.addresses.is_empty()).then_some(&node.addresses),
            "conditions": conditions,
        },
    });
    apply::drop_nulls(&mut json);
    json
}
