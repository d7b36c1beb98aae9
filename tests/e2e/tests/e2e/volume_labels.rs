//! Labels and node affinity of volumes on a real control plane: by the controller, by the webhook, and under faults.

use anyhow::Result;
use e2e::{
    event, nothing_was_forbidden, quick,
    volumes::{
        SECRET, ZONE, create, disk, grant, labelled_while_made, lead_to, make, of_disk, terms, zone, zone_of,
    },
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use test_cluster::{Cluster, metrics, wait};

const REGION: &str = "topology.kubernetes.io/region";

/// With the controller's permissions, before the host runs.
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

    let csi = Api::all(cluster.client.clone()).get("csi").await?;
    assert_eq!((zone_of(&csi), terms(&csi)), (None, json!(null)));
    nothing_was_forbidden(&cluster)
}

/// A host that serves the webhook, and an apiserver that calls it. The port is free, and stays the same across
/// restarts.
async fn with_webhook() -> Result<(Cluster, u16)> {
    let port = control_plane::free_port()?;
    let mut cluster = quick()
        .host_flag("--controllers=*,persistent-volume-label")
        .host_flag("--webhooks=persistent-volume-label")
        .host_flag("--webhook-bind-address=127.0.0.1")
        .host_flag(format!("--webhook-secure-port={port}"))
        .start_without_host()
        .await?;
    grant(&cluster).await?;
    lead_to(&cluster, port).await?;
    disk(&cluster, "disk-1", &["b", "a"]).await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok((cluster, port))
}

async fn reviews(cluster: &Cluster) -> Result<f64> {
    let text = cluster.host_metrics().await?;
    Ok(metrics::sum(&text, "persistent_volume_label_webhook_reviews_total", &[]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_volume_is_labelled_before_anybody_sees_it() -> Result<()> {
    let (cluster, _) = with_webhook().await?;
    let made = labelled_while_made(&cluster, "pv", "disk-1").await?;
    assert_eq!(zone_of(&made), Some("a__b"));
    let wanted = json!([{"matchExpressions": [
        {"key": REGION, "operator": "In", "values": ["mock-1"]},
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    ]}]);
    assert_eq!(terms(&made), wanted);

    // The controller could no longer change this.
    let rack = json!({"key": "rack", "operator": "In", "values": ["7"]});
    let mut own = of_disk("own", "disk-1");
    own["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}});
    let own = create(&cluster, own).await?;
    let expressions = wanted[0]["matchExpressions"].as_array().into_iter().flatten().cloned();
    let expressions: Vec<_> = std::iter::once(rack).chain(expressions).collect();
    assert_eq!(terms(&own), json!([{"matchExpressions": expressions}]));

    let before = reviews(&cluster).await?;
    let mut csi = of_disk("csi", "disk-1");
    csi["spec"].as_object_mut().map(|spec| spec.remove("awsElasticBlockStore"));
    csi["spec"]["csi"] = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "disk-1"});
    create(&cluster, csi).await?;
    assert_eq!(reviews(&cluster).await?, before, "nobody is asked about volumes of CSI drivers");
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_volume_waits_for_us() -> Result<()> {
    let (mut cluster, _) = with_webhook().await?;
    labelled_while_made(&cluster, "first", "disk-1").await?;

    // A provider that does not answer.
    let cloud = cluster.cloud()?;
    cloud.fault("hang,method=BatchGetVolumeLabels").await?;
    assert_eq!(zone_of(&make(&cluster, "hanging", "disk-1").await?), None);
    cloud.clear_faults().await?;
    zone(&cluster, "hanging", "a__b").await?;

    // A host that hangs, and a dead one.
    cluster.host()?.pause()?;
    assert_eq!(zone_of(&make(&cluster, "paused", "disk-1").await?), None);
    cluster.host()?.resume()?;
    zone(&cluster, "paused", "a__b").await?;
    cluster.host()?.kill()?;
    assert_eq!(zone_of(&make(&cluster, "dead", "disk-1").await?), None);
    cluster.start_host()?;
    zone(&cluster, "dead", "a__b").await?;
    labelled_while_made(&cluster, "again", "disk-1").await?;

    nothing_was_forbidden(&cluster)?;

    // An apiserver that restarts with empty caches. It forbids everything until it has read its roles.
    cluster.control_plane.stop_apiserver()?;
    cluster.control_plane.start_apiserver().await?;
    labelled_while_made(&cluster, "after", "disk-1").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_costs_no_volume() -> Result<()> {
    let (mut cluster, _) = with_webhook().await?;
    labelled_while_made(&cluster, "first", "disk-1").await?;
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), "kube-system");
    let replace = async |secret: Value| -> Result<()> {
        secrets.delete(SECRET, &Default::default()).await?;
        secrets.create(&Default::default(), &serde_json::from_value(secret)?).await?;
        Ok(())
    };

    // A Secret that the leader cannot write.
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    params.not_after = rcgen::date_time_ymd(2024, 1, 1);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key)?.pem();
    let data = json!({"ca.crt": pem, "tls.crt": pem, "tls.key": key.serialize_pem()});
    replace(json!({"metadata": {"name": SECRET}, "immutable": true, "stringData": data})).await?;
    // The apiserver keeps its connection to the webhook, on which no certificate is checked again.
    cluster.restart_host_with(&[]).await?;
    wait::until("it is served", async || {
        let text = cluster.host_metrics().await?;
        let until = metrics::sum(&text, "webhook_certificate_expiry_timestamp_seconds", &[]);
        Ok((until > 0.0 && until < 1_750_000_000.0).then_some(()))
    })
    .await?;
    assert_eq!(zone_of(&make(&cluster, "expired", "disk-1").await?), None);
    zone(&cluster, "expired", "a__b").await?;

    replace(json!({"metadata": {"name": SECRET}})).await?;
    labelled_while_made(&cluster, "renewed", "disk-1").await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stands_by_serves_the_webhook_as_well() -> Result<()> {
    let (mut cluster, port) = with_webhook().await?;
    let elects = "--leader-elect=true".to_owned();
    cluster.restart_host_with(std::slice::from_ref(&elects)).await?;
    wait::until("the host leads", async || {
        let text = cluster.host_metrics().await?;
        Ok((metrics::sum(&text, "leader_election_master_status", &[]) == 1.0).then_some(()))
    })
    .await?;
    let other = control_plane::free_port()?;
    assert_ne!(other, port);
    let standby = cluster.start_replica("standby", &[elects, format!("--webhook-secure-port={other}")])?;
    lead_to(&cluster, other).await?;
    labelled_while_made(&cluster, "pv", "disk-1").await?;
    assert_eq!(reviews(&cluster).await?, 0.0, "the leader was not asked");
    drop(standby);
    nothing_was_forbidden(&cluster)
}
