//! A cloud that lies, hangs or loses its credentials costs no more nodes than it may.

use anyhow::{Context as _, Result, ensure};
use e2e::{event, join, node, node_count, node_gone, nothing_was_forbidden};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, Patch},
};
use serde_json::json;
use test_cluster::{
    Cloud, Cluster, Options, metrics,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    wait,
};

use crate::quick;

const LIE: &str = "absent,method=BatchGetInstances";

/// Nodes whose instances run, but whose kubelets have never reported.
struct Silent {
    cluster: Cluster,
    count: usize,
}

fn name(number: usize) -> String {
    format!("node-{number:03}")
}

impl Silent {
    async fn nodes(count: usize) -> Result<Self> {
        let cluster = quick().host_flag("--node-status-update-frequency=1s").start().await?;
        for number in 0..count {
            cluster.cloud()?.create_instance(&name(number), "zone-a").await?;
            register(&cluster.client, as_registered(&name(number))).await?;
            set_ready(&cluster.client, &name(number), "Unknown").await?;
        }
        let api = Api::<Node>::all(cluster.client.clone());
        wait::until("all are initialised", async || {
            let nodes = api.list(&ListParams::default()).await?.items;
            Ok((nodes.len() == count && !nodes.iter().any(is_uninitialized)).then_some(()))
        })
        .await?;
        Ok(Self { cluster, count })
    }

    fn cloud(&self) -> Result<Cloud> {
        self.cluster.cloud()
    }

    async fn metric(&self, name: &str) -> Result<f64> {
        Ok(metrics::sum(&self.cluster.host_metrics().await?, name, &[]))
    }

    async fn until_metric(&self, name: &str, value: f64) -> Result<()> {
        wait::until(&format!("{name} is {value}"), async || {
            Ok((self.metric(name).await? == value).then_some(()))
        })
        .await
    }

    /// Waits until the share of a window is used up, and nodes are held back because of it.
    async fn until_held_back(&self) -> Result<()> {
        wait::until("nodes are held back by the share", async || {
            let metrics = self.cluster.host_metrics().await?;
            let held = metrics::sum(&metrics, "node_lifecycle_deletions_blocked", &["rule=\"share\""]);
            Ok((held > 0.0).then_some(()))
        })
        .await
    }

    /// The number of deleted nodes, after some more passes over all of them.
    async fn lost(&self) -> Result<usize> {
        passes(&self.cluster, 4).await?;
        Ok(self.count - node_count(&self.cluster).await?)
    }
}

/// D13, R7: no Ready node is left to check the provider against.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_denies_every_machine_costs_no_more_than_the_share() -> Result<()> {
    let silent = Silent::nodes(200).await?;
    silent.cloud()?.fault(LIE).await?;

    silent.until_held_back().await?;

    let lost = silent.lost().await?;
    ensure!(lost <= 200 / 20, "{lost} of 200 nodes were deleted");
    Ok(())
}

/// D13, D36: an unhealthy or partially blind provider is not believed at all. This is not the share, which would allow
/// one in twenty.
#[tokio::test(flavor = "multi_thread")]
async fn a_sick_or_half_blind_provider_that_denies_every_machine_costs_none() -> Result<()> {
    let silent = Silent::nodes(200).await?;
    let cloud = silent.cloud()?;
    let nobody_is_lost = async |what: &str| {
        let lost = silent.lost().await?;
        ensure!(lost == 0, "{what}: {lost} nodes lost");
        silent.cloud()?.clear_faults().await
    };

    cloud.set_serving(false).await?;
    silent.until_metric("cloudprovider_serving", 0.0).await?;
    cloud.fault(LIE).await?;
    nobody_is_lost("its health is NOT_SERVING").await?;
    cloud.set_serving(true).await?;
    silent.until_metric("cloudprovider_serving", 1.0).await?;

    cloud.set_reachable(false).await?;
    silent.until_metric("cloudprovider_serving", 0.0).await?;
    cloud.fault("breach,rule=absent-means-looked,method=BatchGetInstances").await?;
    nobody_is_lost("GetStatus says that the cloud does not answer").await?;
    cloud.set_reachable(true).await?;
    silent.until_metric("cloudprovider_serving", 1.0).await?;

    for blindness in ["not-authoritative", "partial,location=zone-a,method=BatchGetInstances"] {
        cloud.fault(LIE).await?;
        cloud.fault(blindness).await?;
        nobody_is_lost(blindness).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_can_confirm_what_the_guard_holds_back() -> Result<()> {
    let silent = Silent::nodes(40).await?;
    silent.cloud()?.fault(LIE).await?;
    silent.until_held_back().await?;
    let api = Api::<Node>::all(silent.cluster.client.clone());
    let held = api.list(&ListParams::default()).await?.items.pop().context("the guard kept some")?;
    let (name, uid) = (held.metadata.name.context("a name")?, held.metadata.uid.context("a uid")?);
    event(&silent.cluster, &name, "NodeDeletionBlocked").await?;

    let body = json!({ "metadata": { "annotations": { "cloudprovider.ccm/confirm-deletion": uid } } });
    api.patch(&name, &Default::default(), &Patch::Merge(body)).await?;

    node_gone(&silent.cluster, &name).await
}

/// D13: of forty nodes two may be deleted in ten minutes, across restarts of the host.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_host_remembers_what_was_deleted() -> Result<()> {
    let mut silent = Silent::nodes(40).await?;
    for number in [0, 1] {
        silent.cloud()?.terminate_instance(&name(number)).await?;
        node_gone(&silent.cluster, &name(number)).await?;
    }

    silent.cluster.host()?.terminate().await?;
    silent.cluster.start_host()?;
    silent.cluster.host_ready().await?;
    silent.cloud()?.terminate_instance(&name(2)).await?;

    silent.until_held_back().await?;
    event(&silent.cluster, &name(2), "NodeDeletionBlocked").await?;
    nothing_was_forbidden(&silent.cluster)
}

/// N1, E1, with the default flags except for the grace: an autoscaler terminates five instances of thirty, and
/// leaves the Nodes to us.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_scale_down_needs_no_person() -> Result<()> {
    let cluster = Options::default().host_flag("--node-deletion-grace=0s").start().await?;
    let names: Vec<_> = (0..30).map(name).collect();
    join(&cluster, &names).await?;
    for name in &names[..5] {
        cluster.cloud()?.terminate_instance(name).await?;
    }
    let began = std::time::Instant::now();
    for name in &names[..5] {
        set_ready(&cluster.client, name, "Unknown").await?;
    }
    for name in &names[..5] {
        node_gone(&cluster, name).await?;
    }
    println!("five of thirty were gone {:?} after the first fell silent", began.elapsed());
    ensure!(node_count(&cluster).await? == 25, "and no other one");
    nothing_was_forbidden(&cluster)
}

/// N9: if a cloud denies everybody, it is not believed about silent nodes either while one kubelet is alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_denies_living_nodes_costs_none() -> Result<()> {
    let cluster = quick().start().await?;
    let names: Vec<_> = (0..6).map(name).collect();
    join(&cluster, &names).await?;
    cluster.cloud()?.fault(LIE).await?;
    for name in &names[..2] {
        set_ready(&cluster.client, name, "Unknown").await?;
    }
    event(&cluster, &names[0], "NodeDeletionBlocked").await?;
    passes(&cluster, 8).await?;
    ensure!(node_count(&cluster).await? == 6, "a node was deleted");

    cluster.cloud()?.clear_faults().await?;
    cluster.cloud()?.terminate_instance(&names[0]).await?;
    node_gone(&cluster, &names[0]).await?;
    ensure!(node_count(&cluster).await? == 5, "the other one has its instance");
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_credentials_freeze_deletions() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    cluster.cloud()?.create_instance("node-b", "zone-a").await?;
    for name in ["node-a", "node-b"] {
        register(&cluster.client, as_registered(name)).await?;
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    cluster.cloud()?.fault("error,reason=CLOUD_CREDENTIALS_INVALID,method=BatchGetInstances").await?;
    cluster.cloud()?.terminate_instance("node-a").await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    passes(&cluster, 4).await?;
    node(&cluster, "node-a", "kept", |_| true).await?;

    cluster.cloud()?.clear_faults().await?;
    node_gone(&cluster, "node-a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_hangs_costs_no_node() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;

    cluster.provider()?.pause()?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    assert_eq!(cluster.host_get("/livez").await?.0, 200);
    cluster.provider()?.resume()?;

    // It answers again: the instance runs, the node stays.
    passes(&cluster, 3).await?;
    node(&cluster, "node-a", "kept", |_| true).await?;
    Ok(())
}

/// Waits until the provider has received this many more batches, or the host has counted as many failures: one per
/// pass.
async fn passes(cluster: &Cluster, count: usize) -> Result<()> {
    let asked = async || {
        let metrics = cluster.host_metrics().await?;
        anyhow::Ok(metrics::sum(
            &metrics,
            "cloudprovider_rpc_duration_seconds_count",
            &["method=\"BatchGetInstances\""],
        ))
    };
    let before = asked().await?;
    wait::until(&format!("{count} more passes"), async || {
        Ok((asked().await? >= before + count as f64).then_some(()))
    })
    .await
}
