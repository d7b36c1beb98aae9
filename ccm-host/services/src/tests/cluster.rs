//! Services and Nodes in an in-memory apiserver, with helpers for these tests.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ::apiserver::{ApiServer, Asked, Fault, Faults, Object, Refusal, Verb, View};
use k8s_openapi::api::core::v1 as core;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{record::CONDITION, service::FINALIZER};
use ccm_cloud::fake::FakeProvider;
use ccm_kube::fixtures::refusal;

const HOST: &str = "host";
const NAMESPACE: &str = "default";

/// The test cluster. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cluster {
    api: ApiServer,
    pub(super) client: Client,
    faults: Faults,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The resource whose lists and watches fail.
    unlisted: Option<&'static str>,
    refusals: VecDeque<(&'static str, Refusal)>,
    /// What becomes of the next requests about the ConfigMap.
    records: VecDeque<Fault>,
    /// The patch in flight.
    patch: Option<Write>,
    writes: Vec<Write>,
}

/// A patch in words, and the number of calls that the provider had received before it.
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

/// The addresses that a Service publishes.
pub(super) fn addresses(service: &Value) -> Vec<String> {
    let entries = service["status"]["loadBalancer"]["ingress"].as_array();
    entries.into_iter().flatten().map(|entry| entry["ip"].as_str().unwrap_or("-").to_owned()).collect()
}

/// Adds our finalizer.
pub(super) fn fin(mut service: Value) -> Value {
    service["metadata"]["finalizers"] = json!([FINALIZER]);
    service
}

/// Sets the status that results from the fake provider's balancers.
pub(super) fn published(mut service: Value) -> Value {
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}});
    service
}

/// Marks the Service as being deleted.
pub(super) fn deleting(mut service: Value) -> Value {
    service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    service
}

impl Cluster {
    pub(super) fn new(provider: Arc<FakeProvider>) -> Self {
        let (api, state) = (ApiServer::default(), Arc::<Mutex<State>>::default());
        let (faults, asking, writing) = (api.faults_of(HOST), Arc::clone(&state), Arc::clone(&state));
        faults.intercept(move |asked| asking.lock().asked(asked, provider.calls().len())).stay();
        api.on_write(move |write| {
            if &*write.client == HOST {
                let mut state = writing.lock();
                // The record alone is no news to anybody.
                let patch = state.patch.take().filter(|patch| !patch.word.is_empty());
                state.writes.extend(patch);
            }
        });
        Self { client: api.client(HOST), api, faults, state }
    }

    /// Creates or replaces an object.
    pub(super) fn put(&self, object: Value) {
        self.faults.view(View::Current);
        self.api.world().put_value(object).unwrap();
    }

    pub(super) fn change_service(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut service = self.service(name).unwrap();
        change(&mut service);
        if service["spec"]["type"] != "LoadBalancer" {
            service["status"]["loadBalancer"] = json!({});
        }
        self.put(service);
    }

    /// Delays what watches report, from the last change on, until the next `put`.
    pub(super) fn late(&self, behind: Duration) {
        self.faults.view(View::Late(behind));
    }

    pub(super) fn change_node(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.api.world().object::<core::Node>("", name).unwrap().value();
        change(&mut node);
        self.put(node);
    }

    /// Deletes the Service as a user would: finalizers hold it back.
    pub(super) fn delete_service(&self, name: &str) {
        self.api.world().delete::<core::Service>(NAMESPACE, name).unwrap();
    }

    /// Removes the Service despite its finalizers.
    pub(super) fn remove_service(&self, name: &str) {
        self.api.world().remove::<core::Service>(NAMESPACE, name).unwrap();
    }

    /// Makes the watch report the Service as deleted although it still exists, until the next write.
    pub(super) fn lose_service(&self, name: &str) {
        let service = self.service(name).unwrap();
        self.remove_service(name);
        self.faults.view(View::StoppedAt(self.api.version()));
        self.api.world().put_value(service).unwrap();
    }

    pub(super) fn remove_node(&self, name: &str) {
        self.api.world().remove::<core::Node>("", name).unwrap();
    }

    pub(super) fn service(&self, name: &str) -> Option<Value> {
        self.api.world().object::<core::Service>(NAMESPACE, name).map(|service| service.value())
    }

    pub(super) fn services(&self) -> BTreeMap<String, Value> {
        by_name(&self.api.world().objects::<core::Service>())
    }

    pub(super) fn nodes(&self) -> BTreeMap<String, Value> {
        by_name(&self.api.world().objects::<core::Node>())
    }

    pub(super) fn has_node(&self, name: &str) -> bool {
        self.api.world().object::<core::Node>("", name).is_some()
    }

    /// Refuses the next patch of `finalizers`, of the `status`, or with `annotations`.
    pub(super) fn refuse_next(&self, what: &'static str, refusal: Refusal) {
        self.state.lock().refusals.push_back((what, refusal));
    }

    /// What becomes of the next requests about the ConfigMap that keeps the sets of nodes.
    pub(super) fn trouble_records(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().records = faults.into_iter().collect();
    }

    /// The set of nodes that all balancers of that provider had, as a restart finds it.
    pub(super) fn recorded_set(&self, provider: &str) -> Option<String> {
        let map = self.api.world().object::<core::ConfigMap>("kube-system", "service-lb-backends")?.value();
        map["data"][provider].as_str().filter(|set| !set.is_empty()).map(str::to_owned)
    }

    /// Makes lists and watches of one resource fail; `None` ends that.
    pub(super) fn fail_lists(&self, plural: Option<&'static str>) {
        self.state.lock().unlisted = plural;
    }

    pub(super) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.state.lock().writes)
    }

    /// Shows each write of the host to a Service that stays: before and after.
    pub(super) fn on_service_written(&self, see: impl Fn(&Value, &Value) + Send + Sync + 'static) {
        self.api.on_write(move |write| {
            if &*write.client == HOST
                && write.resource == "services"
                && let (Some(before), Some(after)) = (&write.before, &write.after)
            {
                see(&before.value(), &after.value());
            }
        });
    }

    /// The number of live reads of single Services so far.
    pub(super) fn reads(&self) -> u64 {
        self.api.counts(HOST).get("get services").copied().unwrap_or_default()
    }
}

impl State {
    fn asked(&mut self, asked: &Asked, calls_before: usize) -> Option<Fault> {
        match asked.verb? {
            Verb::List | Verb::Watch if self.unlisted == Some(asked.resource.as_str()) => {
                Some(Fault::Refuse(refusal(500, "InternalError")))
            }
            _ if asked.resource == "configmaps" => self.records.pop_front(),
            Verb::Patch if asked.resource == "services" => {
                let body = asked.json();
                let is_hit = |what| match what {
                    "finalizers" => body.is_array(),
                    "annotations" => !body["metadata"]["annotations"].is_null(),
                    _ => !body.is_array(),
                };
                let at = self.refusals.iter().position(|(refused, _)| is_hit(*refused));
                let refused = at.and_then(|at| self.refusals.remove(at));
                self.patch = Some(Write { word: word(&body), calls_before });
                refused.map(|(_, refusal)| Fault::Refuse(refusal))
            }
            _ => None,
        }
    }
}

fn by_name(objects: &[Arc<Object>]) -> BTreeMap<String, Value> {
    objects.iter().map(|object| (object.key().name().to_owned(), object.value())).collect()
}

/// A patch in words.
fn word(body: &Value) -> String {
    if let Some(operations) = body.as_array() {
        let wanted = &operations.last().unwrap()["value"];
        let present = wanted.as_array().is_some_and(|list| list.contains(&json!(FINALIZER)));
        return if present { "finalizer added" } else { "finalizer removed" }.to_owned();
    }
    let mut words = Vec::new();
    match body["status"]["loadBalancer"].get("ingress") {
        Some(Value::Array(entries)) => {
            let ips: Vec<_> = entries.iter().map(|entry| entry["ip"].as_str().unwrap_or("-")).collect();
            words.push(format!("status {}", ips.join(",")));
        }
        Some(_) => words.push("status cleared".to_owned()),
        None => {}
    }
    if let Some(annotations) = body["metadata"].get("annotations") {
        words.push(format!("annotations {annotations}"));
    }
    let told = |one: &Value| format!("condition {}={}", one["type"], one["status"]).replace('"', "");
    let conditions = body["status"]["conditions"].as_array().into_iter().flatten();
    words.extend(conditions.filter(|one| one["type"] != CONDITION).map(told));
    words.join("; ")
}
