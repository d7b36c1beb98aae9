//! What the host serves, to whom, and with which certificate.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use e2e::nothing_was_forbidden;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::RoleBinding,
};
use kube::{Api, api::PostParams};
use rcgen::{CertificateParams, KeyPair};
use test_cluster::{
    Cluster,
    http::{self, Caller},
    wait,
};

use tokio::{net::TcpSocket, time::timeout};

use crate::quick;

/// The chart's `timeoutSeconds`.
const PROBE: Duration = Duration::from_secs(5);

const SCRAPER: &str =
    "{apiVersion: v1, kind: ServiceAccount, metadata: {name: scraper, namespace: kube-system}}";

/// As in a chart with a ServiceMonitor.
const MAY_SCRAPE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: kube-system}]
"#;

/// A token like a pod's.
async fn scraper(cluster: &Cluster) -> Result<Caller> {
    cluster.control_plane.apply_yaml(SCRAPER).await?;
    let api = Api::<ServiceAccount>::namespaced(cluster.client.clone(), "kube-system");
    let spec = TokenRequestSpec { expiration_seconds: Some(600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let granted = api.create_token_request("scraper", &PostParams::default(), &request).await?;
    Ok(Caller::Token(granted.status.context("no token was granted")?.token))
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_shown_to_whom_the_apiserver_allows() -> Result<()> {
    let cluster = quick().host_flag("--authorization-webhook-cache-unauthorized-ttl=0s").start().await?;
    let scraper = scraper(&cluster).await?;

    let (status, body) = cluster.host_get_as(&Caller::Nobody, "/metrics").await?;
    ensure!(status == 403 && body.contains("system:anonymous"), "without a token: {status} {body}");
    let forged = Caller::Token("forged".to_owned());
    let (status, body) = cluster.host_get_as(&forged, "/metrics").await?;
    ensure!(status == 401 && body.contains(r#""reason":"Unauthorized""#), "a forged token: {status} {body}");
    let (status, body) = cluster.host_get_as(&scraper, "/metrics").await?;
    ensure!(
        status == 403
            && body.contains("system:serviceaccount:kube-system:scraper")
            && body.contains("nonResourceURLs"),
        "without the right: {status} {body}"
    );
    cluster.control_plane.apply_yaml(MAY_SCRAPE).await?;
    wait::until("the apiserver knows of the new right", async || {
        Ok((cluster.host_get_as(&scraper, "/metrics").await?.0 == 200).then_some(()))
    })
    .await?;
    ensure!(cluster.host_get_as(&scraper, "/configz").await?.0 == 403, "the right is for metrics only");

    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose"] {
        for caller in [&Caller::Nobody, &forged] {
            let (status, body) = cluster.host_get_as(caller, path).await?;
            ensure!(status == 200, "{path} is open: {status} {body}");
        }
    }
    for path in ["/configz", "/flagz", "/statusz", "/livez/ping"] {
        let (status, body) = cluster.host_get(path).await?;
        ensure!(status == 200, "{path} to the administrator: {status} {body}");
    }
    nothing_was_forbidden(&cluster)
}

/// The cluster's CA comes from the ConfigMap `extension-apiserver-authentication`.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_of_the_cluster_says_who_asks() -> Result<()> {
    let mut cluster = quick().start().await?;
    let of = |user: &str, groups: &[&str]| Caller::of(&cluster.control_plane.kubeconfig_for(user, groups)?);
    let (root, jane) = (of("root", &["system:masters"])?, of("jane", &[])?);
    wait::until("the CA is known", async || {
        Ok((cluster.host_get_as(&root, "/metrics").await?.0 == 200).then_some(()))
    })
    .await?;
    let (status, body) = cluster.host_get_as(&jane, "/metrics").await?;
    ensure!(status == 403 && body.contains("jane"), "{status} {body}");

    let (certificate, key) = self_signed()?;
    let (status, body) = cluster.host_get_as(&Caller::Certificate(certificate, key), "/metrics").await?;
    ensure!(status == 401, "a stranger's certificate: {status} {body}");
    let printed = cluster.host()?.output();
    ensure!(!printed.contains("client certificates are accepted from nobody"), "{printed}");
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_shown_without_a_restart() -> Result<()> {
    let mut cluster = quick().start_without_host().await?;
    let folder = cluster.folder().join("tls");
    fs::create_dir(&folder)?;
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let first = replace(&certificate, &key)?;
    cluster.add_host_flag(format!("--tls-cert-file={}", certificate.display()));
    cluster.add_host_flag(format!("--tls-private-key-file={}", key.display()));
    cluster.start_host()?;
    let trusted = folder.join("trusted.crt");
    fs::write(&trusted, &first)?;
    let healthy = async |cluster: &Cluster, trusted: &Path| match cluster.host_address() {
        Ok(address) => {
            http::get(&address, trusted, "/healthz", &Caller::Nobody).await.is_ok_and(|(code, _)| code == 200)
        }
        Err(_) => false,
    };
    wait::until("the first certificate", async || Ok(healthy(&cluster, &trusted).await.then_some(())))
        .await?;
    let process = cluster.host()?.id();

    let second = replace(&certificate, &key)?;
    let newer = folder.join("newer.crt");
    fs::write(&newer, &second)?;
    wait::until("the second certificate", async || Ok(healthy(&cluster, &newer).await.then_some(()))).await?;
    ensure!(!healthy(&cluster, &trusted).await, "the first one is shown no more");
    ensure!(cluster.host()?.is_running() && cluster.host()?.id() == process);
    Ok(())
}

/// A cluster whose permissions are older than the host.
#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_may_not_be_read_ends_the_host_unless_that_is_tolerated() -> Result<()> {
    let mut cluster = quick().start_without_host().await?;
    let bindings = Api::<RoleBinding>::namespaced(cluster.client.clone(), "kube-system");
    bindings
        .delete("system:cloud-controller-manager:apiserver-authentication-reader", &Default::default())
        .await?;
    wait::until_within(Duration::from_secs(120), "the apiserver forgets the right", async || {
        cluster.start_host()?;
        // A refusal counts only if it lasts.
        let Ok(status) = cluster.host()?.ended(Duration::from_secs(20)).await else {
            cluster.host()?.kill()?;
            return Ok(None);
        };
        Ok((!status.success()).then_some(()))
    })
    .await?;
    let printed = cluster.host()?.output();
    ensure!(printed.contains("--authentication-tolerate-lookup-failure"), "{printed}");

    cluster.add_host_flag("--authentication-tolerate-lookup-failure");
    cluster.start_host()?;
    cluster.host_ready().await?;
    ensure!(cluster.host_get("/metrics").await?.0 == 200, "tokens are reviewed all the same");
    Ok(())
}

/// Writes a new pair, each file atomically; returns the certificate in PEM.
fn replace(certificate: &Path, key: &Path) -> Result<String> {
    let (pem, key_pem) = self_signed()?;
    for (path, text) in [(certificate, &pem), (key, &key_pem)] {
        let beside = path.with_extension("new");
        fs::write(&beside, text)?;
        fs::rename(&beside, path)?;
    }
    Ok(pem)
}

fn self_signed() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Pods of a node may reach the port. 127.0.0.1 is the kubelet, the other addresses of the loopback network are pods.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_pods_keep_no_probe_waiting() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.host_ready().await?;
    let host = cluster.host_address()?.parse()?;
    for pods in [1, 16_u8] {
        let mut idle = Vec::new();
        for number in 0..512 {
            let pod = Ipv4Addr::new(127, 0, 1, 1 + u8::try_from(number % u16::from(pods))?);
            let socket = TcpSocket::new_v4()?;
            socket.bind((pod, 0).into())?;
            idle.push(socket.connect(host).await?);
        }
        let asked = Instant::now();
        let probe = cluster.host_get_as(&Caller::Nobody, "/livez");
        let (status, _) = timeout(PROBE, probe).await.context("the kubelet would restart the host")??;
        ensure!(status == 200, "{status}");
        println!("512 idle connections of {pods} pods: the probe took {:?}", asked.elapsed());
    }
    Ok(())
}
