//! Beyond the main job: what else the host can do, in one chapter each, on the cluster that the story left.
//!
//! Each chapter does what a user would do, waits for the effect, and says where to read on. A chapter without its
//! effect ends the tour with the output of its parts.

use anyhow::{Context as _, Result, ensure};
use e2e::{certificates, event, node, service, volumes};
use kube::Api;
use serde_json::json;
use test_cluster::{
    Cluster, Neighbour, Options,
    nodes::{as_registered, has_taint, is_uninitialized, register, set_ready},
    services, wait,
};
use tokio::time::Instant;

use crate::screen::Screen;

/// Features that are off by default, and the second cloud.
const HOST_FLAGS: [&str; 6] = [
    "--controllers=*,ssh-keys,kubelet-serving-csr,persistent-volume-label",
    // The mock reads Nodes, and reports from its cloud alone.
    "--kubelet-serving-csr-trust-node-readers",
    "--ssh-keys-secret=kube-system/ssh-keys",
    "--node-shutdown-policy=out-of-service",
    "--node-shutdown-grace=1s",
    "--default-load-balancer-provider=mock",
];

const RIGHTS: [&str; 3] =
    [include_str!("../../../deploy/ssh-keys.yaml"), certificates::RIGHTS, volumes::RIGHTS];

const SSH_KEYS: &str = "
apiVersion: v1
kind: Secret
metadata: {name: ssh-keys, namespace: kube-system}
stringData:
  core: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFsqWU4wHkw8EpgHE22FO+8zVScAca1APXoeDxK/VjGe
";

/// A cluster with everything that the tour shows.
pub(crate) async fn prepare(mut options: Options) -> Result<(Cluster, Neighbour)> {
    options.host.extend(HOST_FLAGS.map(str::to_owned));
    let mut cluster = options.start_without_host().await?;
    for rights in RIGHTS {
        cluster.control_plane.apply_yaml(rights).await?;
    }
    certificates::may_ask(&cluster).await?;
    let edge = cluster.start_neighbour("edge", &[]).await?;
    cluster.add_host_flag(edge.host_flag());
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok((cluster, edge))
}

/// All chapters.
pub(crate) async fn guide(cluster: &Cluster, edge: &Neighbour, screen: &mut Screen) -> Result<()> {
    screen.say("The tour: what the host can do besides. It serves a second cloud, \"edge\", as well.");
    two_clouds(cluster, edge, screen).await?;
    a_stopped_instance(cluster, screen).await?;
    a_volume(cluster, screen).await?;
    a_kubelet(cluster, screen).await?;
    an_ssh_key(cluster, screen).await?;
    people_ask(cluster, screen).await
}

async fn two_clouds(cluster: &Cluster, edge: &Neighbour, screen: &mut Screen) -> Result<()> {
    screen.say("Several clouds: an instance boots at the edge, and a Service asks for a balancer there.");
    let begun = Instant::now();
    edge.cloud()?.create_instance("edge-1", "zone-a").await?;
    register(&cluster.client, as_registered("edge-1")).await?;
    set_ready(&cluster.client, "edge-1", "True").await?;
    let seen = node(cluster, "edge-1", "initialised", |node| !is_uninitialized(node)).await?;
    let id = seen.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    let mut shop = services::load_balancer("shop");
    shop["metadata"]["annotations"] = json!({"cloudprovider.ccm/load-balancer-provider": "edge"});
    services::create(&cluster.client, shop).await?;
    service(cluster, "shop", "an address", |service| !services::ingress(service).is_empty()).await?;
    let behind = edge.cloud()?.backends_of("shop").await?;
    ensure!(behind == ["edge-1"], "behind shop is {behind:?}");
    seen_after(screen, begun, &format!("edge-1 is {id}; behind \"shop\" are only the nodes of its cloud"));
    read(screen, "docs/several-clouds.md");
    Ok(())
}

async fn a_stopped_instance(cluster: &Cluster, screen: &mut Screen) -> Result<()> {
    screen
        .say("A stopped instance: node-4 is stopped and stays so; its volumes detach, until it runs again.");
    let (begun, out) = (Instant::now(), "node.kubernetes.io/out-of-service");
    cluster.cloud()?.stop_instance("node-4").await?;
    set_ready(&cluster.client, "node-4", "Unknown").await?;
    node(cluster, "node-4", "out of service", |node| has_taint(node, out)).await?;
    seen_after(screen, begun, &format!("node-4 has the taint {out}"));
    let begun = Instant::now();
    cluster.cloud()?.start_instance("node-4").await?;
    set_ready(&cluster.client, "node-4", "True").await?;
    node(cluster, "node-4", "back in service", |node| !has_taint(node, out)).await?;
    seen_after(screen, begun, "it runs again, and the taint is gone");
    read(screen, "docs/node-shutdown.md");
    Ok(())
}

async fn a_volume(cluster: &Cluster, screen: &mut Screen) -> Result<()> {
    screen.say("A volume: a PersistentVolume is made of a disk that two zones can reach.");
    volumes::disk(cluster, "disk-1", &["zone-b", "zone-a"]).await?;
    let begun = Instant::now();
    volumes::make(cluster, "data", "disk-1").await?;
    let seen = volumes::zone(cluster, "data", "zone-a__zone-b").await?;
    ensure!(!volumes::terms(&seen).is_null(), "it has no node affinity");
    seen_after(screen, begun, "it has the label of its zones, and the node affinity that follows");
    read(screen, "docs/volume-labels.md");
    Ok(())
}

async fn a_kubelet(cluster: &Cluster, screen: &mut Screen) -> Result<()> {
    screen.say(
        "Serving certificates: the kubelet of node-1 asks for its own, and then for the name of node-2.",
    );
    let begun = Instant::now();
    certificates::Ask::of("node-1", &["node-1"])?.make(cluster, "honest").await?;
    certificates::Ask::of("node-1", &["node-2"])?.make(cluster, "greedy").await?;
    certificates::decided(cluster, "honest", "Approved").await?;
    event(cluster, "node-1", "KubeletServingCertificateRefused").await?;
    ensure!(certificates::decision(cluster, "greedy").await?.is_none(), "somebody decided about the second");
    seen_after(
        screen,
        begun,
        "the first is approved: the cloud knows that name of it. The second is left alone",
    );
    read(screen, "docs/kubelet-serving-certificates.md");
    Ok(())
}

async fn an_ssh_key(cluster: &Cluster, screen: &mut Screen) -> Result<()> {
    screen.say("SSH keys: a Secret gets the public key of the user core.");
    let begun = Instant::now();
    cluster.control_plane.apply_yaml(SSH_KEYS).await?;
    wait::until("the key at the cloud", async || {
        Ok((!cluster.cloud()?.door().ssh_keys().await?.is_empty()).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    seen_after(screen, begun, "the cloud has made it valid on all instances");
    read(screen, "docs/ssh-keys.md");
    Ok(())
}

async fn people_ask(cluster: &Cluster, screen: &mut Screen) -> Result<()> {
    screen.say("People ask: a node registers, and no cloud has an instance for it.");
    register(&cluster.client, as_registered("lost")).await?;
    event(cluster, "lost", "InitializationFailed").await?;
    ask(cluster, screen, "explain node lost").await?;
    ask(cluster, screen, "provider status").await?;
    ask(cluster, screen, "guard show").await?;
    Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client.clone())
        .delete("lost", &Default::default())
        .await?;
    screen.note(&format!("the status page: https://{}/status", cluster.host_address()?));
    read(screen, "docs/ccmctl.md");
    Ok(())
}

/// Prints the output of `ccmctl`.
async fn ask(cluster: &Cluster, screen: &mut Screen, words: &str) -> Result<()> {
    let way = cluster.ccmctl_way()?;
    let arguments: Vec<_> = words.split(' ').chain(way.iter().map(String::as_str)).collect();
    let output = cluster.ccmctl(&cluster.control_plane.admin_kubeconfig(), &arguments).await?;
    // 3 means that something needs a person.
    ensure!(
        matches!(output.status.code(), Some(0 | 3)),
        "ccmctl {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    screen.note(&format!("$ ccmctl {words}"));
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        screen.note(&format!("  {line}"));
    }
    Ok(())
}

fn seen_after(screen: &mut Screen, begun: Instant, what: &str) {
    screen.note(&format!("seen after {:.1} s: {what}", begun.elapsed().as_secs_f32()));
}

fn read(screen: &mut Screen, page: &str) {
    screen.note(&format!("read on: {page}"));
}
