//! The rendered manifests on a real apiserver, and the host with exactly the rendered arguments and permissions.

use anyhow::{Context as _, Result, ensure};
use e2e::deploy::{Helm, objects};
use e2e::{join, node, nothing_was_forbidden, service};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Node, Secret, Service},
    rbac::v1::ClusterRoleBinding,
};
use kube::Api;
use serde_json::{Value, json};
use test_cluster::{
    Cluster, Options,
    services::{create, ingress, load_balancer},
    wait,
};

const ACCOUNT: &str = "cloud-controller-manager";
/// The chart's socket, which a test replaces with its own.
const SOCKET: &str = "/run/cloudprovider/mock/private/ccm.sock";

/// A cluster with the chart installed, and the chart's objects. The mock is the provider, and the host
/// runs as rendered, with a token of the rendered ServiceAccount.
pub(crate) async fn installed(options: Options, mut values: Value) -> Result<(Cluster, Vec<Value>)> {
    let mut cluster = options.without_rights().start_without_host().await?;
    let folder = cluster.folder();
    let path = |name: &str| json!(folder.join(name).display().to_string());
    values["providers"]["mock"]["image"] = json!({ "repository": "provider-mock", "tag": "of-tests" });
    let mut arguments = json!({
        "kubeconfig": path(&format!("{ACCOUNT}.kubeconfig")),
        "bind-address": "127.0.0.1",
        "secure-port": "auto",
        "cert-dir": path("host-certificate"),
        "serving-address-file": path("host-address"),
        "node-monitor-period": "500ms",
        "node-deletion-grace": "0s",
        "node-status-update-frequency": "2s",
    });
    if let (Some(ours), Value::Object(more)) = (arguments.as_object_mut(), values["extraArgs"].take()) {
        ours.extend(more);
    }
    values["extraArgs"] = arguments;
    // Nobody could scrape a port that is not known beforehand.
    values["metrics"]["service"]["enabled"] = json!(false);
    let rendered = tokio::task::spawn_blocking(move || Helm::built()?.render(&values)).await??;
    cluster.control_plane.apply_yaml(&rendered).await?;
    without_bootstrap_rights(&cluster).await?;
    cluster.service_account(ACCOUNT).await?;
    let objects = objects(&rendered)?;
    cluster.start_host_as(&host_arguments(&objects, &cluster)?)?;
    cluster.host_ready().await?;
    Ok((cluster, objects))
}

/// Removes from upstream's ServiceAccounts what the apiserver itself grants them: the chart's grants remain.
async fn without_bootstrap_rights(cluster: &Cluster) -> Result<()> {
    let bindings = Api::<ClusterRoleBinding>::all(cluster.client.clone());
    for account in ["node-controller", "service-controller", "route-controller"] {
        bindings.delete(&format!("system:controller:{account}"), &Default::default()).await?;
    }
    Ok(())
}

/// The container's arguments, with the test's socket.
fn host_arguments(objects: &[Value], cluster: &Cluster) -> Result<Vec<String>> {
    let workload =
        objects.iter().find(|object| object["kind"] == "DaemonSet" || object["kind"] == "Deployment");
    let containers =
        workload.and_then(|workload| workload["spec"]["template"]["spec"]["containers"].as_array());
    let host = containers.into_iter().flatten().find(|container| container["name"] == "ccm-host");
    let arguments = host.and_then(|host| host["args"].as_array()).context("the host has no arguments")?;
    let socket = cluster.socket().display().to_string();
    let arguments: Vec<String> =
        arguments.iter().filter_map(|one| Some(one.as_str()?.replace(SOCKET, &socket))).collect();
    ensure!(arguments.iter().any(|one| one.contains(&socket)), "no argument names {SOCKET}: {arguments:?}");
    Ok(arguments)
}

async fn does_its_main_job(values: Value) -> Result<()> {
    let (cluster, _) = installed(Options::default(), values).await?;
    join(&cluster, &["node-a"]).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    node(&cluster, "node-a", "its provider ID", |node| {
        node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some())
    })
    .await?;
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    wait::until("the Lease of the leader", async || {
        Ok(leases.get_opt(ACCOUNT).await?.and_then(|lease| lease.spec?.holder_identity))
    })
    .await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_set_does_its_main_job() -> Result<()> {
    does_its_main_job(json!({})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_with_much_else_does_its_main_job() -> Result<()> {
    does_its_main_job(json!({
        "kind": "Deployment",
        "cluster": { "name": "prod", "cidrs": ["10.244.0.0/16", "fd00:10::/48"] },
        "nodeIpam": { "enabled": true },
        "logFormat": "json",
        "commonLabels": { "team": "cloud" },
        "podDisruptionBudget": { "enabled": true },
        "metrics": { "service": { "enabled": true }, "readers": [{ "name": "prometheus", "namespace": "monitoring" }] },
    }))
    .await
}

/// A provider that needs Kubernetes, as a bridged one does, gets an account of its own: with its rights, and not the host's.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_has_the_rights_that_it_is_given_and_no_others() -> Result<()> {
    let rule = |resource: &str, verbs: &[&str]| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs });
    let rights = json!({
        "rules": [rule("services", &["get", "list"])],
        "namespacedRules": { "kube-system": [rule("configmaps", &["get"])] },
    });
    let (cluster, _) =
        installed(Options::default(), json!({ "providers": { "mock": { "kubernetes": rights } } })).await?;
    let account = format!("{ACCOUNT}-mock");
    let secret = Api::<Secret>::namespaced(cluster.client.clone(), "kube-system").get(&account).await?;
    ensure!(secret.type_.as_deref() == Some("kubernetes.io/service-account-token"), "{:?}", secret.type_);
    // The account exists, or it could get no token.
    cluster.service_account(&account).await?;

    let user = format!("system:serviceaccount:kube-system:{account}");
    let client = cluster.control_plane.client_for(&user, &["system:serviceaccounts"])?;
    let forbidden = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    Api::<Service>::all(client.clone()).list(&Default::default()).await?;
    let configmaps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
    configmaps("kube-system").get_opt("any").await?;
    for (what, denied) in [
        ("another namespace", configmaps("default").get_opt("any").await.err()),
        ("the host's rights", Api::<Node>::all(client.clone()).list(&Default::default()).await.err()),
    ] {
        ensure!(denied.as_ref().is_some_and(forbidden), "{what}: {denied:?}");
    }
    Ok(())
}
