//! An apiserver with Services and Nodes that can be changed, watched and patched; it refuses what the real one refuses.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    cloud::fake::FakeProvider,
    controllers::service_lb::needs::FINALIZER,
    kube::fixtures::{ApiServer, Call, Reply, Watch},
};

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cluster(Arc<Mutex<State>>);

struct State {
    services: BTreeMap<String, Value>,
    /// Services that no watch shows.
    lost: HashSet<String>,
    nodes: BTreeMap<String, Value>,
    watches: HashMap<&'static str, Vec<Watch>>,
    /// The kind of which nothing can be listed.
    unlisted: Option<&'static str>,
    version: u64,
    refusals: VecDeque<(&'static str, Reply)>,
    writes: Vec<Write>,
    reads: usize,
    provider: Arc<FakeProvider>,
}

/// A patch, as a word, and how many calls the provider had got before it.
pub(super) struct Write {
    pub(super) word: String,
    pub(super) calls_before: usize,
}

/// A Service of type LoadBalancer with one port, as JSON.
pub(super) fn lb(name: &str) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "ipFamilies": ["IPv4"],
            "externalTrafficPolicy": "Cluster",
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30_080}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// A ready node with a provider ID, as JSON.
pub(super) fn node(name: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "uid": format!("{name}-uid")},
        "spec": {"providerID": format!("cloud://{name}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// With our finalizer.
pub(super) fn fin(mut service: Value) -> Value {
    service["metadata"]["finalizers"] = json!([FINALIZER]);
    service
}

/// With the status that the fake provider's balancers lead to.
pub(super) fn published(mut service: Value) -> Value {
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}});
    service
}

/// Being deleted.
pub(super) fn deleting(mut service: Value) -> Value {
    service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    service
}

impl Cluster {
    pub(super) fn new(provider: Arc<FakeProvider>) -> (Self, ApiServer) {
        let state = State {
            services: BTreeMap::new(),
            lost: HashSet::new(),
            nodes: BTreeMap::new(),
            watches: HashMap::new(),
            unlisted: None,
            version: 1,
            refusals: VecDeque::new(),
            writes: Vec::new(),
            reads: 0,
            provider,
        };
        let cluster = Self(Arc::new(Mutex::new(state)));
        let server = cluster.clone();
        let api = ApiServer::new(move |call| server.0.lock().answer(call));
        (cluster, api)
    }

    /// Creates or replaces an object.
    pub(super) fn put(&self, object: Value) {
        self.0.lock().put(object);
    }

    pub(super) fn change_service(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock();
        let mut service = state.services[name].clone();
        change(&mut service);
        if service["spec"]["type"] != "LoadBalancer" {
            service["status"] = json!({"loadBalancer": {}});
        }
        state.put(service);
    }

    pub(super) fn change_node(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock();
        let mut node = state.nodes[name].clone();
        change(&mut node);
        state.put(node);
    }

    /// As a person deletes it: finalizers hold it back.
    pub(super) fn delete_service(&self, name: &str) {
        let mut state = self.0.lock();
        let service = deleting(state.services[name].clone());
        state.put(service);
    }

    /// Gone, whatever its finalizers say.
    pub(super) fn remove_service(&self, name: &str) {
        let mut state = self.0.lock();
        let service = state.services.remove(name).unwrap();
        state.tell("services", "DELETED", &service);
    }

    /// The watch loses it although it is still there, until it is written.
    pub(super) fn lose_service(&self, name: &str) {
        let mut state = self.0.lock();
        state.lost.insert(name.to_owned());
        state.tell("services", "DELETED", &state.services[name]);
    }

    pub(super) fn remove_node(&self, name: &str) {
        let mut state = self.0.lock();
        let node = state.nodes.remove(name).unwrap();
        state.tell("nodes", "DELETED", &node);
    }

    pub(super) fn service(&self, name: &str) -> Option<Value> {
        self.0.lock().services.get(name).cloned()
    }

    pub(super) fn services(&self) -> BTreeMap<String, Value> {
        self.0.lock().services.clone()
    }

    pub(super) fn nodes(&self) -> BTreeMap<String, Value> {
        self.0.lock().nodes.clone()
    }

    pub(super) fn has_node(&self, name: &str) -> bool {
        self.0.lock().nodes.contains_key(name)
    }

    /// The next patch of that kind (`finalizers` or `status`) is answered so.
    pub(super) fn refuse_next(&self, what: &'static str, reply: Reply) {
        self.0.lock().refusals.push_back((what, reply));
    }

    /// Lists and watches of these fail, or of none any more.
    pub(super) fn fail_lists(&self, plural: Option<&'static str>) {
        self.0.lock().unlisted = plural;
    }

    pub(super) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.lock().writes)
    }

    /// Live reads of single Services so far.
    pub(super) fn reads(&self) -> usize {
        self.0.lock().reads
    }
}

impl State {
    fn put(&mut self, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (kind, objects) = match object["kind"].as_str() {
            Some("Node") => ("nodes", &mut self.nodes),
            _ => ("services", &mut self.services),
        };
        self.lost.remove(&name);
        let finalizers = object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        if finalizers == 0 {
            // An empty list is never stored.
            object["metadata"].as_object_mut().unwrap().remove("finalizers");
        }
        let gone = !object["metadata"]["deletionTimestamp"].is_null() && finalizers == 0;
        let type_ = match objects.insert(name.clone(), object.clone()) {
            _ if gone => "DELETED",
            None => "ADDED",
            Some(_) => "MODIFIED",
        };
        if gone {
            objects.remove(&name);
        }
        self.tell(kind, type_, &object);
    }

    fn tell(&self, kind: &'static str, type_: &str, object: &Value) {
        for watch in self.watches.get(kind).into_iter().flatten() {
            watch.send(type_, object.clone());
        }
    }

    fn answer(&mut self, call: &Call) -> Reply {
        let parts: Vec<&str> = call.path.trim_start_matches("/api/v1/").split('/').collect();
        match (call.method.as_str(), parts.as_slice()) {
            ("GET", ["services"]) => self.watch("services", "Service"),
            ("GET", ["nodes"]) => self.watch("nodes", "Node"),
            ("GET", ["namespaces", _, "services", name]) => {
                self.reads += 1;
                self.services
                    .get(*name)
                    .map_or_else(|| Reply::status(404, "NotFound"), |one| Reply::ok(one.clone()))
            }
            ("PATCH", ["namespaces", _, "services", name, "status"]) => self.patch(name, &call.body),
            _ => panic!("nobody needs {}", call.line()),
        }
    }

    fn watch(&mut self, plural: &'static str, kind: &str) -> Reply {
        if self.unlisted == Some(plural) {
            return Reply::status(500, "InternalError");
        }
        let (watch, reply) = Watch::new();
        let objects = if plural == "nodes" { &self.nodes } else { &self.services };
        for (_, object) in objects.iter().filter(|(name, _)| !self.lost.contains(*name)) {
            watch.send("ADDED", object.clone());
        }
        watch.end_of_list(kind, &self.version.to_string());
        self.watches.entry(plural).or_default().push(watch);
        reply
    }

    fn patch(&mut self, name: &str, body: &Value) -> Reply {
        let what = if body.is_array() { "finalizers" } else { "status" };
        if let Some(at) = self.refusals.iter().position(|(refused, _)| *refused == what)
            && let Some((_, reply)) = self.refusals.remove(at)
        {
            return reply;
        }
        let Some(mut service) = self.services.get(name).cloned() else {
            return Reply::status(404, "NotFound");
        };
        if body.is_array() {
            if !apply_json_patch(&mut service, body) {
                return Reply::invalid("the server rejected our request due to an error in our request", &[]);
            }
        } else {
            if body["metadata"]["uid"] != service["metadata"]["uid"] {
                return Reply::invalid("field is immutable", &["metadata.uid"]);
            }
            merge(&mut service, body);
        }
        let calls_before = self.provider.calls().len();
        self.writes.push(Write { word: word(body), calls_before });
        self.put(service.clone());
        Reply::ok(service)
    }
}

/// Whether all tests held.
fn apply_json_patch(object: &mut Value, patch: &Value) -> bool {
    for operation in patch.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap();
        match operation["op"].as_str().unwrap() {
            "test" if parent[key] != operation["value"] => return false,
            "test" => {}
            "add" => parent[key] = operation["value"].clone(),
            "remove" => _ = parent.as_object_mut().unwrap().remove(key),
            other => panic!("unexpected operation {other}"),
        }
    }
    true
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    let object = into.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// A patch in a word.
fn word(body: &Value) -> String {
    if let Some(operations) = body.as_array() {
        let wanted = &operations.last().unwrap()["value"];
        let present = wanted.as_array().is_some_and(|list| list.contains(&json!(FINALIZER)));
        return if present { "finalizer added" } else { "finalizer removed" }.to_owned();
    }
    if let Some(annotations) = body["metadata"].get("annotations") {
        return format!("annotations {annotations}");
    }
    match &body["status"]["loadBalancer"]["ingress"] {
        Value::Array(entries) => {
            let ips: Vec<_> = entries.iter().map(|entry| entry["ip"].as_str().unwrap_or("-")).collect();
            format!("status {}", ips.join(","))
        }
        _ => "status cleared".to_owned(),
    }
}
