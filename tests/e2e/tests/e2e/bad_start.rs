//! Errors before the host can work: it says what is wrong and what to do, and waits if waiting may help.

use std::{fs, net::TcpListener, time::Duration};

use anyhow::{Result, ensure};
use e2e::node;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use test_cluster::{
    Cluster, Process,
    nodes::{as_registered, is_uninitialized, register},
    wait,
};

use crate::quick;

/// Far longer than a start takes.
const LIMIT: Duration = Duration::from_secs(60);

async fn prints(process: &Process, text: &str) -> Result<()> {
    wait::until(&format!("{text:?} in the log"), async || Ok(process.output().contains(text).then_some(())))
        .await
}

/// The host's kubeconfig, changed.
fn kubeconfig(cluster: &Cluster, name: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
    let mut config = serde_json::from_str(&fs::read_to_string(cluster.host_kubeconfig())?)?;
    change(&mut config);
    let path = cluster.folder().join(name);
    fs::write(&path, config.to_string())?;
    Ok(format!("--kubeconfig={}", path.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_person_can_mend_ends_the_host_and_is_named() -> Result<()> {
    let cluster = quick().start_without_host().await?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let token = kubeconfig(&cluster, "token", |config| {
        config["users"][0]["user"] = json!({ "token": "of yesterday" });
    })?;
    let unreadable = kubeconfig(&cluster, "unreadable", |config| {
        config["users"][0]["user"] =
            json!({ "client-certificate": "/missing.crt", "client-key": "/missing.key" });
    })?;
    let stranger = kubeconfig(&cluster, "stranger", |config| {
        config["clusters"][0]["cluster"]["certificate-authority-data"] = Value::Null;
    })?;
    let port = format!("--secure-port={}", taken.local_addr()?.port());
    let tls = ["--tls-cert-file=/missing.crt".to_owned(), "--tls-private-key-file=/missing.key".to_owned()];
    for (name, flags, said) in [
        ("no-kubeconfig", &["--kubeconfig=/missing".to_owned()][..], "kubeconfig /missing"),
        ("an-expired-token", &[token], "the token or certificate of the kubeconfig has expired"),
        ("no-client-certificate", &[unreadable], "/missing.crt"),
        ("no-serving-certificate", &tls, "--tls-cert-file and --tls-private-key-file cannot be used"),
        ("a-port-in-use", &[port], "give another --secure-port"),
    ] {
        let mut host = cluster.start_replica(name, flags)?;
        let status = host.ended(LIMIT).await?;
        ensure!(!status.success() && host.output().contains(said), "{name}, {status}:\n{}", host.output());
    }
    // The next two may resolve themselves: a certificate is renewed, an apiserver comes back.
    let mut host = cluster.start_replica("an-unknown-ca", &[stranger])?;
    prints(&host, "the apiserver does not answer yet").await?;
    prints(&host, "UnknownIssuer").await?;
    ensure!(host.is_running());
    cluster.control_plane.stop_apiserver()?;
    let mut host = cluster.start_replica("no-apiserver", &[])?;
    prints(&host, "does it run where the kubeconfig, or --master, says?").await?;
    ensure!(host.is_running());
    cluster.control_plane.start_apiserver().await?;
    prints(&host, "provider is serving").await
}

/// After a former cloud controller manager: the host names it while it lives; once it is dead, its Lease expires.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_somebody_who_is_gone_is_named_and_taken() -> Result<()> {
    let mut cluster = quick().host_flag("--leader-elect").start_without_host().await?;
    let lease = json!({
        "metadata": { "name": "cloud-controller-manager" },
        "spec": { "holderIdentity": "former_7", "leaseDurationSeconds": 3, "renewTime": "2020-01-01T00:00:00.000000Z" },
    });
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    leases.create(&Default::default(), &serde_json::from_value(lease)?).await?;
    cluster.start_host()?;
    prints(cluster.host()?, r#"holder="former_7""#).await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await.map(drop)
}
