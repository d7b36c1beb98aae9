//! Labels and node affinity of volumes on a real control plane.

use anyhow::Result;
use e2e::{
    event, nothing_was_forbidden, quick,
    volumes::{ZONE, create, disk, grant, make, of_disk, terms, zone, zone_of},
};
use serde_json::json;
use test_cluster::Cluster;

const REGION: &str = "topology.kubernetes.io/region";

/// With the rights for the controller, before the host runs.
async fn prepared() -> Result<Cluster> {
    let cluster = quick().host_flag("--controllers=*,persistent-volume-label").start_without_host().await?;
    grant(&cluster).await?;
    Ok(cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_labelled_whenever_they_were_made() -> Result<()> {
    let mut cluster = prepared().await?;
    disk(&cluster, "disk-1", &["b", "a"]).await?;
    make(&cluster, "before", "disk-1").await?;
    let csi = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "disk-1"});
    let mut other = of_disk("csi", "disk-1");
    other["spec"].as_object_mut().map(|spec| spec.remove("awsElasticBlockStore"));
    other["spec"]["csi"] = csi;
    create(&cluster, other).await?;
    cluster.start_host()?;
    cluster.host_ready().await?;

    let both = json!([{"matchExpressions": [
        {"key": REGION, "operator": "In", "values": ["mock-1"]},
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    ]}]);
    assert_eq!(terms(&zone(&cluster, "before", "a__b").await?), both);
    make(&cluster, "after", "disk-1").await?;
    assert_eq!(terms(&zone(&cluster, "after", "a__b").await?), both);
    event(&cluster, "after", "VolumeLabelled").await?;

    make(&cluster, "early", "disk-2").await?;
    event(&cluster, "early", "VolumeNotLabelled").await?;
    disk(&cluster, "disk-2", &["a"]).await?;
    zone(&cluster, "early", "a").await?;

    let mut own = of_disk("own", "disk-1");
    own["metadata"]["labels"] = json!({ ZONE: "c" });
    let rack = json!([{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["7"]}]}]);
    own["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": rack}});
    create(&cluster, own).await?;
    event(&cluster, "own", "VolumeLabelsDiffer").await?;
    let own = zone(&cluster, "own", "c").await?;
    assert_eq!(terms(&own), rack, "the apiserver would refuse a change");
    assert_eq!(json!(own.metadata.labels), json!({ZONE: "c", REGION: "mock-1"}));

    let csi = kube::Api::all(cluster.client.clone()).get("csi").await?;
    assert_eq!((zone_of(&csi), terms(&csi)), (None, json!(null)));
    nothing_was_forbidden(&cluster)
}
