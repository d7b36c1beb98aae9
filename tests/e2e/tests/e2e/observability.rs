//! What the host serves for monitoring.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use e2e::{certificates, event, join, node_gone, nothing_was_forbidden, quick, service, volumes};
use test_cluster::{
    nodes::{as_registered, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

/// Metrics that a run of a minute does not produce, and those of shadow mode.
const RARE: [&str; 11] = [
    "ccm_controller_skipped",
    "ccm_events_discarded_total",
    "ccm_shadow_agreed_total",
    "ccm_shadow_differences",
    "ccm_shadow_held_back_total",
    "cloudprovider_connect_failures_total",
    "cloudprovider_watch_missed_total",
    "cloudprovider_watch_streams_total",
    "leader_election_slowpath_total",
    "node_lifecycle_deletion_failures_total",
    "rest_client_request_retries_total",
];

const SSH_KEYS: &str = "
apiVersion: v1
kind: Secret
metadata: {name: ssh-keys, namespace: kube-system}
stringData:
  core: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFsqWU4wHkw8EpgHE22FO+8zVScAca1APXoeDxK/VjGe
";

/// The labels of each metric.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// `docs/metrics.md`, where a histogram is one metric.
fn page() -> Result<(Labels, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let (mut metrics, mut histograms) = (Labels::new(), BTreeSet::new());
    for row in fs::read_to_string(path)?.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, ..] = cells[..] else { anyhow::bail!("no row of metrics: {row}") };
        let name = words(name).pop_first().context("a metric without a name")?;
        if kind == "histogram" {
            histograms.insert(name.clone());
        }
        metrics.insert(name, words(labels));
    }
    Ok((metrics, histograms))
}

/// An exposition.
fn served(text: &str, histograms: &BTreeSet<String>) -> Labels {
    let mut found = Labels::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .filter(|name| histograms.contains(*name));
        let mut labels: BTreeSet<String> =
            labels.split("\",").filter_map(|label| Some(label.split_once("=\"")?.0.to_owned())).collect();
        if histogram.is_some() {
            labels.remove("le");
        }
        found.insert(histogram.unwrap_or(name).to_owned(), labels);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_is_what_the_page_of_metrics_says() -> Result<()> {
    let (page, histograms) = page()?;
    let port = control_plane::free_port()?;
    let mut cluster = quick()
        .host_flag("--leader-elect=true")
        .host_flag("--webhooks=*")
        .host_flag("--webhook-bind-address=127.0.0.1")
        .host_flag(format!("--webhook-secure-port={port}"))
        .host_flag("--controllers=*,nodeipam,kubelet-serving-csr,ssh-keys,persistent-volume-label")
        .host_flag("--kubelet-serving-csr-trust-node-readers=true")
        .host_flag("--ssh-keys-secret=kube-system/ssh-keys")
        .host_flag("--allocate-node-cidrs")
        .host_flag("--cluster-cidr=10.20.0.0/23")
        .host_flag("--load-balancer-resync-period=2s")
        .host_flag("--route-reconciliation-period=2s")
        .start_without_host()
        .await?;
    certificates::grant(&cluster).await?;
    volumes::grant(&cluster).await?;
    // The controller labels what was there before the webhook, which labels whatever comes later.
    volumes::disk(&cluster, "disk-1", &["a"]).await?;
    volumes::make(&cluster, "early", "disk-1").await?;
    volumes::lead_to(&cluster, port).await?;
    cluster.control_plane.apply_yaml(include_str!("../../../../deploy/ssh-keys.yaml")).await?;
    cluster.control_plane.apply_yaml(SSH_KEYS).await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    let cloud = cluster.cloud()?;
    join(&cluster, &["a", "b"]).await?;
    volumes::labelled_while_made(&cluster, "pv", "disk-1").await?;
    volumes::make(&cluster, "lost", "nowhere").await?;
    for name in ["b", "nobody"] {
        certificates::Ask::of(name, &[name])?.make(&cluster, name).await?;
    }
    register(&cluster.client, as_registered("without-a-block")).await?;
    event(&cluster, "without-a-block", "CIDRNotAvailable").await?;
    event(&cluster, "without-a-block", "InitializationFailed").await?;
    cloud.fault("error,reason=RATE_LIMITED,retry-after=100ms,method=EnsureLoadBalancer,times=1").await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;

    cloud.fault("breach,rule=batch-keys,variant=missing,method=BatchGetInstances,times=1").await?;
    cloud.fault("breach,rule=batch-keys,variant=reordered,method=BatchGetInstances,times=20").await?;
    // No Ready node vouches for the provider, so the deletion is held back at first.
    cloud.terminate_instance("a").await?;
    for name in ["a", "b"] {
        set_ready(&cluster.client, name, "Unknown").await?;
    }
    let mut seen = Labels::new();
    wait::until("a node is held back", async || {
        seen.extend(served(&cluster.host_metrics().await?, &histograms));
        Ok(seen.contains_key("node_lifecycle_deletions_blocked").then_some(()))
    })
    .await?;
    set_ready(&cluster.client, "b", "True").await?;
    node_gone(&cluster, "a").await?;
    cluster.restart_provider_with(&[]).await?;

    let mut missing = Vec::new();
    wait::until("all that is not rare was served", async || {
        seen.extend(served(&cluster.host_metrics().await?, &histograms));
        missing =
            page.keys().filter(|name| !seen.contains_key(*name) && !RARE.contains(&name.as_str())).collect();
        Ok(missing.is_empty().then_some(()))
    })
    .await
    .with_context(|| format!("not served: {missing:?}"))?;
    for (name, labels) in &seen {
        let said = page.get(name).with_context(|| format!("{name} is not on the page"))?;
        ensure!(labels == said, "{name} has the labels {labels:?}, and {said:?} on the page");
    }
    nothing_was_forbidden(&cluster)
}
