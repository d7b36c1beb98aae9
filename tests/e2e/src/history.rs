//! One history of nodes and Services for any provider: the same steps, and so the same end state.
//!
//! In: a cluster whose host serves some provider, and that provider's cloud. Out: the end state. A provider in another
//! language needs only a few lines to run it, see `tests/e2e/tests/e2e/providers.rs`.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use test_cluster::{
    Cluster, Options, Steered,
    nodes::{as_registered, has_taint, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::{EndState, end_state::NodeState, node, node_gone, service, service_gone};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A host with intervals short enough for a test, set by flags as an operator would.
pub fn quick() -> Options {
    Options::default()
        .host_flag("--node-monitor-period=500ms")
        .host_flag("--node-deletion-grace=0s")
        .host_flag("--node-deletion-confirmations=2")
        .host_flag("--node-status-update-frequency=2s")
}

/// A running history.
#[derive(Debug)]
pub struct History<Door> {
    cluster: Cluster,
    provider: String,
    door: Door,
    balancers: bool,
}

impl<Door, Cloud> History<Door>
where
    Door: Fn(&Cluster) -> Result<Cloud>,
    Cloud: Steered,
{
    /// Starts in a cluster whose host is ready. `provider` is the scheme of its provider IDs; `door` returns its cloud,
    /// and is called again after each start of the provider.
    pub fn new(cluster: Cluster, provider: impl Into<String>, door: Door) -> Self {
        Self { cluster, provider: provider.into(), door, balancers: true }
    }

    /// For a provider that serves only instances: the same history without its Services.
    #[must_use]
    pub fn without_balancers(self) -> Self {
        Self { balancers: false, ..self }
    }

    /// Runs all steps, and checks the end state.
    pub async fn run(mut self) -> Result<()> {
        self.machines_become_nodes().await?;
        self.a_service_gets_a_balancer().await?;
        self.a_machine_stops_and_starts().await?;
        self.a_node_joins_and_another_goes().await?;
        self.the_host_is_killed().await?;
        self.the_provider_is_killed().await?;
        self.a_service_goes().await?;
        let left = EndState::of(&self.cluster, &self.provider, &self.cloud()?).await?;
        let wanted = what_must_be_left(self.balancers);
        ensure!(left == wanted, "left is\n{left:#?}\nbut should be\n{wanted:#?}\n{:?}", self.cluster.parts());
        crate::nothing_was_forbidden(&self.cluster)
    }

    fn cloud(&self) -> Result<Cloud> {
        (self.door)(&self.cluster)
    }

    async fn join(&self, name: &str, zone: &str, address: &str) -> Result<()> {
        self.cloud()?.create_machine(name, zone, address).await?;
        register(&self.cluster.client, as_registered(name)).await?;
        set_ready(&self.cluster.client, name, "True").await?;
        node(&self.cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
        Ok(())
    }

    /// Waits until these nodes are behind the Service's balancer.
    async fn behind(&self, service: &str, wanted: &[&str]) -> Result<()> {
        if !self.balancers {
            return Ok(());
        }
        wait::until(&format!("{wanted:?} behind {service}"), async || {
            let backends = self.cloud()?.backends().await?;
            Ok(backends.get(&format!("default/{service}")).is_some_and(|found| found == wanted).then_some(()))
        })
        .await
        .with_context(|| format!("{:?}", self.cluster.parts()))
    }

    async fn create_service(&self, name: &str) -> Result<()> {
        if self.balancers {
            create(&self.cluster.client, load_balancer(name)).await?;
        }
        Ok(())
    }

    async fn has_address(&self, name: &str) -> Result<()> {
        if self.balancers {
            service(&self.cluster, name, "an address", |service| !ingress(service).is_empty()).await?;
        }
        Ok(())
    }

    async fn machines_become_nodes(&self) -> Result<()> {
        self.join("node-a", "zone-a", "10.1.0.1").await?;
        self.join("node-b", "zone-b", "10.1.0.2").await
    }

    async fn a_service_gets_a_balancer(&self) -> Result<()> {
        self.create_service("web").await?;
        self.has_address("web").await?;
        self.behind("web", &["node-a", "node-b"]).await
    }

    async fn a_machine_stops_and_starts(&self) -> Result<()> {
        self.cloud()?.stop_machine("node-b").await?;
        set_ready(&self.cluster.client, "node-b", "Unknown").await?;
        node(&self.cluster, "node-b", "the shutdown taint", |node| has_taint(node, SHUTDOWN)).await?;
        self.cloud()?.start_machine("node-b").await?;
        node(&self.cluster, "node-b", "no shutdown taint", |node| !has_taint(node, SHUTDOWN)).await?;
        set_ready(&self.cluster.client, "node-b", "True").await
    }

    async fn a_node_joins_and_another_goes(&self) -> Result<()> {
        self.join("node-c", "zone-c", "10.1.0.3").await?;
        self.behind("web", &["node-a", "node-b", "node-c"]).await?;
        self.cloud()?.terminate_machine("node-b").await?;
        set_ready(&self.cluster.client, "node-b", "Unknown").await?;
        node_gone(&self.cluster, "node-b").await?;
        self.behind("web", &["node-a", "node-c"]).await
    }

    /// The host catches up with what happened meanwhile.
    async fn the_host_is_killed(&mut self) -> Result<()> {
        self.cluster.host()?.kill()?;
        self.create_service("shop").await?;
        self.cluster.start_host()?;
        self.cluster.host_ready().await?;
        self.has_address("shop").await?;
        self.behind("shop", &["node-a", "node-c"]).await?;
        self.behind("web", &["node-a", "node-c"]).await
    }

    async fn the_provider_is_killed(&mut self) -> Result<()> {
        self.cluster.provider()?.kill()?;
        self.cluster.start_provider().await?;
        self.cluster.host_ready().await?;
        self.join("node-d", "zone-a", "10.1.0.4").await?;
        self.behind("web", &["node-a", "node-c", "node-d"]).await?;
        self.behind("shop", &["node-a", "node-c", "node-d"]).await
    }

    async fn a_service_goes(&self) -> Result<()> {
        if !self.balancers {
            return Ok(());
        }
        let services = Api::<Service>::namespaced(self.cluster.client.clone(), "default");
        services.delete("web", &Default::default()).await?;
        service_gone(&self.cluster, "web").await
    }
}

fn what_must_be_left(balancers: bool) -> EndState {
    let node = |name: &str, zone: &str, address: &str| {
        let state = NodeState {
            taints: Vec::new(),
            provider_id: true,
            zones: vec![zone.to_owned(); 2],
            instance_type: true,
            addresses: vec![address.to_owned(), name.to_owned()],
        };
        (name.to_owned(), state)
    };
    EndState {
        nodes: [
            node("node-a", "zone-a", "10.1.0.1"),
            node("node-c", "zone-c", "10.1.0.3"),
            node("node-d", "zone-a", "10.1.0.4"),
        ]
        .into(),
        services: balancers.then(|| ("shop".to_owned(), (true, true))).into_iter().collect(),
        backends: balancers
            .then(|| ("default/shop".to_owned(), ["node-a", "node-c", "node-d"].map(str::to_owned).to_vec()))
            .into_iter()
            .collect(),
    }
}
