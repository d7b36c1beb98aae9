//! The host's Kubernetes layer against a real apiserver: what no mock can prove.
//!
//! Whether a test against null passes for an absent field, which of two 422s means what, whether a Service's metadata
//! can be written through its status, whether lists stream: only a real apiserver can tell.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_kube::{
    Cache, Change, ClientOptions, EventType, Events, Ingress, Keep, KeySet, KubeMetrics, Node, NodeAddress,
    NodeChange, ObjectKey, Service, Taint, WriteError, WritePressure, Writer, client,
    patch::{
        WantedCondition, node_addresses, node_condition, node_main, service_annotations, service_condition,
        service_finalizer, service_ingress,
    },
};
use control_plane::ControlPlane;
use k8s_openapi::{api::core::v1 as core, jiff::Timestamp};
use kube::{Api, Client, ResourceExt, api::Patch, api::PatchParams};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn refused<T>(result: Result<T, WriteError>) -> Result<WriteError> {
    result.err().context("the apiserver took a write that it had to refuse")
}

struct Scene {
    cp: ControlPlane,
    /// The host's own client.
    client: Client,
    /// Another writer.
    other: Client,
    writer: Writer,
    metrics: KubeMetrics,
    cancel: CancellationToken,
}

fn keep() -> Keep {
    Keep { labels: KeySet::all(), annotations: KeySet::keys(["ours"]) }
}

#[tokio::test]
async fn the_apiserver_agrees() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let metrics = KubeMetrics::default();
    let options = ClientOptions { kubeconfig: Some(cp.admin_kubeconfig()), ..ClientOptions::default() };
    let client = client::build(&options, &metrics.client).await?;
    let writer = Writer::new(client.clone(), WritePressure::default());
    let scene =
        Scene { other: cp.admin_client()?, cp, client, writer, metrics, cancel: CancellationToken::new() };
    scene.node_is_initialised_in_one_write().await.context("node_is_initialised_in_one_write")?;
    scene.stale_writes_are_told_apart().await.context("stale_writes_are_told_apart")?;
    scene.status_of_a_node_is_written().await.context("status_of_a_node_is_written")?;
    scene.service_is_written_through_its_status().await.context("service_is_written_through_its_status")?;
    scene.recreated_objects_are_safe().await.context("recreated_objects_are_safe")?;
    scene.events_are_accepted().await.context("events_are_accepted")?;
    scene.cache_follows_through_a_restart().await.context("cache_follows_through_a_restart")?;
    Ok(())
}

impl Scene {
    fn nodes(&self) -> Api<core::Node> {
        Api::all(self.other.clone())
    }

    fn services(&self) -> Api<core::Service> {
        Api::namespaced(self.other.clone(), "default")
    }

    async fn create_node(&self, name: &str, spec: serde_json::Value) -> Result<Node> {
        let node = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.nodes().create(&Default::default(), &node).await?;
        self.node(name).await
    }

    async fn node(&self, name: &str) -> Result<Node> {
        self.writer.get(&name.to_owned(), &keep()).await?.context("the node exists")
    }

    async fn service(&self, name: &str) -> Result<Service> {
        let key = ObjectKey::new("default", name);
        self.writer.get(&key, &keep()).await?.context("the service exists")
    }

    async fn change_node(&self, before: &Node, change: &NodeChange) -> Result<(), WriteError> {
        match node_main(before, change) {
            Some(patch) => self.writer.patch::<Node>(&before.name, &patch).await.map(drop),
            None => Err(WriteError::Invalid("nothing differs".to_owned())),
        }
    }

    /// Labels and annotations on an object without either map; a provider ID and a taint removed.
    async fn node_is_initialised_in_one_write(&self) -> Result<()> {
        let taints = json!([
            {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
            {"key": "keep", "effect": "NoExecute", "timeAdded": "2024-05-01T10:00:00Z"},
        ]);
        let before = self.create_node("init", json!({"taints": taints})).await?;
        ensure!(before.labels.total() == 0, "this node was to have no labels at all");
        let kept: Vec<Taint> = before.taints.iter().filter(|taint| taint.key == "keep").cloned().collect();
        let change = NodeChange {
            provider_id: Some("mock://1".to_owned()),
            labels: [("topology.kubernetes.io/zone".to_owned(), Some("z".to_owned()))].into(),
            annotations: [("ours".to_owned(), Some("1".to_owned()))].into(),
            taints: Some(kept.clone()),
        };
        // A heartbeat in between does not make it fail.
        self.other_patches_status("init", json!({"status": {"phase": "Running"}})).await?;
        self.change_node(&before, &change).await?;
        let after = self.node("init").await?;
        ensure!(after.provider_id.as_deref() == Some("mock://1") && after.taints == kept, "{after:?}");
        ensure!(after.labels.get("topology.kubernetes.io/zone") == Some("z"), "{after:?}");
        ensure!(node_main(&after, &change).is_none(), "nothing is left to do");
        let gone = NodeChange {
            labels: [("topology.kubernetes.io/zone".to_owned(), None)].into(),
            annotations: [("ours".to_owned(), None)].into(),
            taints: Some(Vec::new()),
            ..NodeChange::default()
        };
        self.change_node(&after, &gone).await?;
        let after = self.node("init").await?;
        ensure!(
            after.taints.is_empty() && after.labels.is_empty() && after.annotations.is_empty(),
            "{after:?}"
        );
        // And the first taint of a node without any.
        let taints =
            Some(vec![Taint { key: "s".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }]);
        self.change_node(&after, &NodeChange { taints, ..NodeChange::default() }).await?;
        ensure!(self.node("init").await?.has_taint("s"));
        Ok(())
    }

    async fn stale_writes_are_told_apart(&self) -> Result<()> {
        let before =
            self.create_node("stale", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})).await?;
        let other = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]}});
        self.nodes().patch("stale", &PatchParams::default(), &Patch::Merge(other)).await?;
        let untaint = NodeChange { taints: Some(Vec::new()), ..NodeChange::default() };
        let error = refused(self.change_node(&before, &untaint).await)?;
        ensure!(matches!(error, WriteError::Conflict), "somebody's taint would be lost: {error:?}");
        ensure!(self.node("stale").await?.has_taint("b"));
        let label = NodeChange {
            labels: [("k".to_owned(), Some("not a value!".to_owned()))].into(),
            ..NodeChange::default()
        };
        let error = refused(self.change_node(&before, &label).await)?;
        ensure!(matches!(&error, WriteError::Invalid(text) if text.contains("not a value!")), "{error:?}");
        let mut unnamed = before.clone();
        unnamed.name = "nobody".to_owned();
        let error = refused(self.change_node(&unnamed, &untaint).await)?;
        ensure!(matches!(error, WriteError::NotFound), "{error:?}");
        Ok(())
    }

    async fn other_patches_status(&self, name: &str, status: serde_json::Value) -> Result<()> {
        self.nodes().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    async fn status_of_a_node_is_written(&self) -> Result<()> {
        let before = self.create_node("status", json!({})).await?;
        let address =
            |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
        let dual =
            [address("InternalIP", "10.0.0.1"), address("InternalIP", "fd00::1"), address("Hostname", "h")];
        let patch = node_addresses(&before, &dual).context("differs")?;
        self.writer.patch::<Node>(&"status".to_owned(), &patch).await?;
        let after = self.node("status").await?;
        ensure!(after.addresses == dual, "two addresses of one type both stay: {after:?}");
        let error = refused(self.writer.patch::<Node>(&"status".to_owned(), &patch).await)?;
        ensure!(error.is_stale(), "NW-14: made from a list that is not there any more: {error:?}");
        for type_ in ["Ready", "NetworkUnavailable"] {
            let wanted = WantedCondition { type_, status: "False", reason: "R", message: "m".into() };
            let patch = node_condition(&after, &wanted, Timestamp::now()).context("differs")?;
            self.writer.patch::<Node>(&"status".to_owned(), &patch).await?;
        }
        let after = self.node("status").await?;
        ensure!(
            after.conditions.len() == 2 && after.addresses == dual,
            "conditions are merged by type: {after:?}"
        );
        Ok(())
    }

    async fn service_is_written_through_its_status(&self) -> Result<()> {
        let service =
            json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        self.services().create(&Default::default(), &serde_json::from_value(service)?).await?;
        let first = self.service("web").await?;
        let add = service_finalizer(&first, "lb.example/cleanup", true).context("differs")?;
        self.writer.patch::<Service>(&first.key, &add).await?;
        let stale = json!({"metadata": {"finalizers": ["other.example/keep", "lb.example/cleanup"]}});
        let both = self.service("web").await?;
        self.services().patch("web", &PatchParams::default(), &Patch::Merge(stale)).await?;
        let remove = service_finalizer(&both, "lb.example/cleanup", false).context("differs")?;
        let error = refused(self.writer.patch::<Service>(&first.key, &remove).await)?;
        ensure!(matches!(error, WriteError::Conflict), "another's finalizer would be wiped: {error:?}");

        let now = self.service("web").await?;
        let ingress = [Ingress { ip: "192.0.2.1".to_owned(), ..Ingress::default() }];
        let condition = WantedCondition { type_: "T", status: "True", reason: "R", message: "".into() };
        let annotations = [("ours".to_owned(), Some("1".to_owned()))].into();
        let patches = [
            service_ingress(&now, &ingress),
            service_condition(&now, &condition, Timestamp::now()),
            service_annotations(&now, &annotations),
            service_finalizer(&now, "lb.example/cleanup", false),
        ];
        for patch in patches {
            self.writer.patch::<Service>(&now.key, &patch.context("differs")?).await?;
        }
        let after = self.service("web").await?;
        ensure!(after.finalizers == ["other.example/keep"], "{after:?}");
        ensure!(
            after.ingress[0].ip_mode.as_deref() == Some("VIP") && after.condition("T").is_some(),
            "{after:?}"
        );
        ensure!(after.annotations.get("ours") == Some("1"), "{after:?}");
        let left = [
            service_ingress(&after, &ingress),
            service_condition(&after, &condition, Timestamp::now()),
            service_annotations(&after, &annotations),
        ];
        ensure!(left.iter().all(Option::is_none), "nothing is left to do: {left:?}");
        let clear = service_ingress(&after, &[]).context("differs")?;
        self.writer.patch::<Service>(&after.key, &clear).await?;
        ensure!(self.service("web").await?.ingress.is_empty());
        Ok(())
    }

    async fn recreated_objects_are_safe(&self) -> Result<()> {
        let old = self.create_node("again", json!({})).await?;
        self.nodes().delete("again", &Default::default()).await?;
        let new = self.create_node("again", json!({})).await?;
        let error = refused(self.writer.delete::<Node>(&"again".to_owned(), &old.uid).await)?;
        ensure!(matches!(error, WriteError::Gone), "{error:?}");
        let address = [NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.0.9".to_owned() }];
        let patch = node_addresses(&old, &address).context("differs")?;
        let error = refused(self.writer.patch::<Node>(&"again".to_owned(), &patch).await)?;
        ensure!(error.is_stale(), "{error:?}");
        let change = NodeChange { provider_id: Some("x".to_owned()), ..NodeChange::default() };
        let error = refused(self.change_node(&old, &change).await)?;
        ensure!(error.is_stale(), "{error:?}");
        self.writer.delete::<Node>(&"again".to_owned(), &new.uid).await?;
        let error = refused(self.writer.delete::<Node>(&"again".to_owned(), &new.uid).await)?;
        ensure!(matches!(error, WriteError::NotFound), "{error:?}");
        Ok(())
    }

    async fn events_are_accepted(&self) -> Result<()> {
        let (events, writer) =
            Events::new(self.client.clone(), WritePressure::default(), self.metrics.events.clone());
        let running = tokio::spawn(writer.run(self.cancel.child_token()));
        let recorder = events.recorder("cloud-node");
        let (node, service) = (self.node("init").await?, self.service("web").await?);
        for _ in 0..3 {
            recorder.record(&node, EventType::Normal, "Synced", "initialised");
        }
        recorder.record(&service, EventType::Warning, "SyncLoadBalancerFailed", "boom");
        ensure!(events.flush(LIMIT).await, "events were not written in time");
        running.abort();
        let written = Api::<core::Event>::all(self.other.clone()).list(&Default::default()).await?;
        let mut found: Vec<_> = written
            .items
            .iter()
            .filter(|event| event.reporting_component.as_deref() == Some("cloud-node"))
            .map(|event| {
                (event.reason.clone().unwrap_or_default(), event.count.unwrap_or_default(), event.namespace())
            })
            .collect();
        found.sort();
        let default = Some("default".to_owned());
        let want =
            [("SyncLoadBalancerFailed".to_owned(), 1, default.clone()), ("Synced".to_owned(), 3, default)];
        ensure!(found == want, "{found:?}");
        Ok(())
    }

    async fn cache_follows_through_a_restart(&self) -> Result<()> {
        let cache: Cache<Node> = Cache::new(keep(), &self.metrics.cache);
        let (changes, mut changed) = tokio::sync::mpsc::unbounded_channel();
        cache.subscribe(move |change: &Change<Node>| {
            let _unread =
                changes.send((matches!(change, Change::Deleted(_)), Arc::clone(change.object()))).is_err();
        });
        let (running, client, cancel) = (cache.clone(), self.client.clone(), self.cancel.clone());
        let task = tokio::spawn(async move { running.run(client, cancel).await });
        timeout(LIMIT, cache.synced()).await.context("first list")?;
        let known = self.nodes().list(&Default::default()).await?.items.len();
        ensure!(cache.list().len() == known && cache.by_index("mock://1").len() == 1, "{cache:?}");
        self.cp.stop_apiserver()?;
        self.cp.start_apiserver().await?;
        let mut next_of_later = async || loop {
            let (deleted, node) =
                timeout(LIMIT, changed.recv()).await.context("no change was seen")?.context("open")?;
            if node.name == "later" {
                return anyhow::Ok((deleted, node.provider_id.clone()));
            }
        };
        let id = Some("mock://later".to_owned());
        // A backup is restored: for the apiserver, a watch goes on in a future that it does not know.
        let lost = async {
            self.create_node("later", json!({"providerID": "mock://later"})).await?;
            ensure!(next_of_later().await? == (false, id.clone()));
            for round in 0..200 {
                let change = json!({"metadata": {"labels": {"round": round.to_string()}}});
                self.nodes().patch("known", &PatchParams::default(), &Patch::Merge(change)).await?;
            }
            Ok(())
        };
        self.create_node("known", json!({})).await?;
        self.cp.undone(lost).await?;
        ensure!(next_of_later().await? == (true, id.clone()), "what the backup lacks is gone");
        self.create_node("later", json!({"providerID": "mock://later"})).await?;
        ensure!(next_of_later().await? == (false, id.clone()));
        self.nodes().delete("later", &Default::default()).await?;
        ensure!(next_of_later().await? == (true, id));
        self.cancel.cancel();
        task.await?;
        Ok(())
    }
}
