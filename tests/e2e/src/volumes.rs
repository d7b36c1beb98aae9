//! PersistentVolumes whose source is a cloud's disk.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::PostParams};
use provider_mock::cloud::Volume;
use serde_json::{Value, json};
use test_cluster::{Cluster, wait};

/// The permissions of the labelling controller, which `deploy/rbac.yaml` omits.
pub const RIGHTS: &str = include_str!("../../../deploy/persistent-volume-label.yaml");

/// The zone label.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The plugin of the volumes in these tests.
pub const PLUGIN: &str = "kubernetes.io/aws-ebs";

/// Allows the host to label.
pub async fn grant(cluster: &Cluster) -> Result<()> {
    cluster.control_plane.apply_yaml(RIGHTS).await.map(drop)
}

/// Creates a disk in the cloud that is accessible from these zones.
pub async fn disk(cluster: &Cluster, id: &str, zones: &[&str]) -> Result<()> {
    let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
    let volume = Volume { id: id.to_owned(), plugin: PLUGIN.to_owned(), zones, ..Volume::default() };
    cluster.cloud()?.door().put_volume(&volume).await?;
    Ok(())
}

/// A volume with that disk, before it is created.
pub fn of_disk(name: &str, id: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "awsElasticBlockStore": {"volumeID": id},
        },
    })
}

/// Creates a volume; returns it as the apiserver stored it.
pub async fn create(cluster: &Cluster, volume: Value) -> Result<PersistentVolume> {
    let api = Api::all(cluster.client.clone());
    Ok(api.create(&PostParams::default(), &serde_json::from_value(volume)?).await?)
}

/// Creates a volume with that disk.
pub async fn make(cluster: &Cluster, name: &str, id: &str) -> Result<PersistentVolume> {
    create(cluster, of_disk(name, id)).await
}

/// Waits until the volume has that zone; returns it.
pub async fn zone(cluster: &Cluster, name: &str, zone: &str) -> Result<PersistentVolume> {
    let api = Api::<PersistentVolume>::all(cluster.client.clone());
    wait::until(&format!("{name} in {zone}"), async || {
        let volume = api.get(name).await?;
        Ok((zone_of(&volume) == Some(zone)).then_some(volume))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))
}

/// The value of the zone label.
pub fn zone_of(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.labels.as_ref()?.get(ZONE).map(String::as_str)
}

/// The terms of the node affinity.
pub fn terms(volume: &PersistentVolume) -> Value {
    json!(volume.spec)["nodeAffinity"]["required"]["nodeSelectorTerms"].take()
}

/// The webhook's objects and permissions, as installed.
const WEBHOOKS: &str = include_str!("../../../deploy/webhooks.yaml");

/// The Secret with the webhook's certificate.
pub const SECRET: &str = "cloud-controller-manager-webhook";

/// Makes the apiserver call a webhook at this loopback port: a test cluster has no proxy for Services.
pub async fn lead_to(cluster: &Cluster, port: u16) -> Result<()> {
    let (before, service) = WEBHOOKS.split_once("      service:\n").context("the webhook is no Service's")?;
    let (path, after) = service.split_once("        port: 443\n").context("the Service has no port")?;
    let path = path.lines().find_map(|line| line.trim().strip_prefix("path: ")).context("no path")?;
    let url = format!("      url: https://127.0.0.1:{port}{path}\n");
    cluster.control_plane.apply_yaml(&format!("{before}{url}{after}")).await.map(drop)
}

/// Creates volumes with that disk until one has its zone from the beginning: then the webhook works.
pub async fn labelled_while_made(cluster: &Cluster, prefix: &str, id: &str) -> Result<PersistentVolume> {
    let mut number = 0;
    wait::until(&format!("{prefix}-N is labelled while it is made"), async || {
        number += 1;
        let made = make(cluster, &format!("{prefix}-{number}"), id).await?;
        Ok(zone_of(&made).is_some().then_some(made))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))
}
