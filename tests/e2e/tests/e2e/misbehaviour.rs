//! A provider that breaks the contract in every way that the mock can, one after the other on one control plane: the
//! host stays calm, loses nothing, and names the broken rule.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use e2e::skew::{Proxy, Skew};
use e2e::{join, node, node_count, node_gone, service, start_behind_a_proxy};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use provider_mock::breach;
use serde_json::json;
use test_cluster::{
    Cluster,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// How many calls a breach affects before the next one begins. A handshake is one call.
fn times(rule: &str) -> u32 {
    if rule.starts_with("discovery") { 1 } else { 2 }
}

/// Rules that apply only to a new connection: what the host requests once, at its beginning.
const AT_A_HANDSHAKE: [&str; 6] = ["advertised", "capabilities", "discovery", "list", "page", "watch"];
/// How many rounds of calls to make for an occasion that never comes.
const ROUNDS: u64 = 2;
const NODES: usize = 6;

/// What the host can detect. Other breaches show only inside the cloud: those are for the conformance suite.
const SEEN_BY_THE_HOST: [&str; 14] = [
    "address-unique",
    "address-valid",
    "annotation-prefix",
    "batch-keys",
    "capabilities-constant",
    "discovery-epoch",
    "discovery-name",
    "discovery-prefix",
    "ingress-valid",
    "label-reserved",
    "label-valid",
    "observed-at",
    "provider-id-prefix",
    "unknown-enum",
];

struct Scene {
    cluster: Cluster,
    proxy: Option<Proxy>,
    changes: u32,
}

impl Scene {
    async fn start() -> Result<Self> {
        let options = quick().host_flag("--node-status-update-frequency=200ms");
        let (cluster, proxy) = start_behind_a_proxy(options, Skew::None).await?;
        let names: Vec<String> = (0..NODES).map(|index| format!("node-{index}")).collect();
        join(&cluster, &names).await?;
        create(&cluster.client, load_balancer("web")).await?;
        service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
        Ok(Self { cluster, proxy: Some(proxy), changes: 0 })
    }

    /// Breaks the connection, so that host and provider repeat the handshake.
    fn connect_anew(&mut self) -> Result<()> {
        self.proxy = None;
        self.proxy = Some(Proxy::in_front_of(&self.cluster.socket(), Skew::None)?);
        Ok(())
    }

    /// Uses every part of the contract while one rule is broken.
    async fn while_broken(&mut self, rule: &str, variant: &str) -> Result<()> {
        let cloud = self.cluster.cloud()?;
        let variant = if variant.is_empty() { String::new() } else { format!(",variant={variant}") };
        cloud.fault(&format!("breach,rule={rule}{variant},times={}", times(rule))).await?;
        if AT_A_HANDSHAKE.iter().any(|subject| rule.starts_with(subject)) {
            self.connect_anew()?;
        }
        // Calls over another connection before this do not count.
        cloud.reset_calls().await?;
        self.change_the_service().await?;
        self.touch_a_node().await?;
        wait::until(&format!("an occasion for {rule}{variant}"), async || {
            let spent = cloud.door().faults().await?.iter().all(|fault| fault.spent);
            let (rounds, _) = cloud.calls_and_items("BatchGetInstances").await?;
            Ok((spent || rounds >= ROUNDS).then_some(()))
        })
        .await?;
        cloud.clear_faults().await?;
        anyhow::ensure!(
            node_count(&self.cluster).await? == NODES,
            "a living node went while {rule} was broken"
        );
        anyhow::ensure!(self.cluster.host()?.is_running(), "the host ended while {rule} was broken");
        Ok(())
    }

    /// Changes the port, which takes an Ensure.
    async fn change_the_service(&mut self) -> Result<()> {
        self.changes += 1;
        let port = json!({ "spec": { "ports": [{ "port": 1000 + self.changes, "protocol": "TCP" }] } });
        Api::<Service>::namespaced(self.cluster.client.clone(), "default")
            .patch("web", &PatchParams::default(), &Patch::Merge(&port))
            .await?;
        Ok(())
    }

    /// Takes the node out of the balancer and back: an update of its backends, and a query of its instance.
    async fn touch_a_node(&self) -> Result<()> {
        let cordoned = json!({ "spec": { "unschedulable": self.changes.is_multiple_of(2) } });
        Api::<Node>::all(self.cluster.client.clone())
            .patch("node-0", &PatchParams::default(), &Patch::Merge(&cordoned))
            .await?;
        Ok(())
    }

    async fn rules_told(&self) -> Result<BTreeSet<String>> {
        let metrics = self.cluster.host_metrics().await?;
        let told = metrics
            .lines()
            .filter(|line| line.starts_with("cloudprovider_contract_violations_total{"))
            .filter_map(|line| Some(line.split_once("rule=\"")?.1.split_once('"')?.0.to_owned()));
        Ok(told.collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_broken_rule_is_survived_and_those_that_show_are_named() -> Result<()> {
    let mut scene = Scene::start().await?;
    for breach in breach::all() {
        let ways: &[&str] = if breach.choices.is_empty() { &[""] } else { breach.choices };
        for variant in ways {
            scene
                .while_broken(breach.name, variant)
                .await
                .with_context(|| format!("{} {variant}\n{:?}", breach.name, scene.cluster.parts()))?;
        }
    }
    let told = scene.rules_told().await?;
    let silent: Vec<&&str> = SEEN_BY_THE_HOST.iter().filter(|rule| !told.contains(**rule)).collect();
    assert!(silent.is_empty(), "broken, and not told: {silent:?}; told: {told:?}");

    // As if nothing had happened: the usual end state.
    scene.connect_anew()?;
    scene.change_the_service().await?;
    let cluster = scene.cluster;
    let cloud = cluster.cloud()?;
    let port = i64::from(1000 + scene.changes);
    wait::until("web as wanted", async || {
        let balancers = cloud.balancers().await?;
        Ok(balancers.iter().any(|one| one.ports.iter().any(|p| i64::from(p.port) == port)).then_some(()))
    })
    .await?;
    cloud.create_instance("late", "zone-a").await?;
    register(&cluster.client, as_registered("late")).await?;
    node(&cluster, "late", "initialised", |node| !is_uninitialized(node)).await?;
    set_ready(&cluster.client, "node-1", "Unknown").await?;
    cloud.terminate_instance("node-1").await?;
    node_gone(&cluster, "node-1").await
}

/// The chart's limit is 1 GiB; a provider that answers as large as it may takes a fourth of it at most.
#[tokio::test(flavor = "multi_thread")]
async fn answers_as_large_as_they_may_be_do_not_fill_the_memory() -> Result<()> {
    let mut scene = Scene::start().await?;
    let before = scene.cluster.host()?.peak_mib()?;
    let methods = [
        "GetInfo",
        "GetCapabilities",
        "GetStatus",
        "ListLoadBalancers",
        "EnsureLoadBalancer",
        "BatchGetInstances",
    ];
    let answers = methods.iter().flat_map(|method| [("flat", *method), ("deep", *method)]);
    for (variant, method) in answers {
        let cloud = scene.cluster.cloud()?;
        cloud.fault(&format!("breach,rule=answer-parts,variant={variant},method={method},times=1")).await?;
        scene.cluster.host()?.terminate().await?;
        scene.cluster.start_host()?;
        scene.change_the_service().await?;
        // Its first answer in the life of this host was the large one.
        let answered = format!("method=\"{method}\"");
        wait::until(&format!("{method} answered large ({variant})"), async || {
            let metrics = scene.cluster.host_metrics().await.unwrap_or_default();
            let mut counts =
                metrics.lines().filter(|line| line.starts_with("cloudprovider_rpc_duration_seconds_count"));
            Ok(counts.any(|line| line.contains(&answered)).then_some(()))
        })
        .await?;
        cloud.clear_faults().await?;
        // As if nothing had happened.
        let name = format!("{variant}-{}", method.to_lowercase());
        cloud.create_instance(&name, "zone-a").await?;
        register(&scene.cluster.client, as_registered(&name)).await?;
        node(&scene.cluster, &name, "initialised", |node| !is_uninitialized(node)).await?;
        let peak = scene.cluster.host()?.peak_mib()?;
        println!("{variant} {method}: {peak:.0} MiB, without {before:.0}");
        anyhow::ensure!(peak < 256.0, "{variant} {method}: {peak:.0} MiB, without {before:.0}");
    }
    anyhow::ensure!(node_count(&scene.cluster).await? == NODES + 2 * methods.len(), "a living node went");
    Ok(())
}
