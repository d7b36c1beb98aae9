//! A host in shadow mode next to upstream's controllers, both over the same cloud.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{node, nothing_was_forbidden, quick, service, shadow_diff};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_cluster::{
    CloudFolder, Cluster, HOST_USER, Process, ProviderUnderTest, Steered as _, go,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

/// As in docs/shadow.md, and in the chart with `shadow: true`.
const READS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shadow}
rules:
  - {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
  - {apiGroups: [""], resources: [nodes, services], verbs: [get, list, watch]}
  - {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
  - {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shadow}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shadow}
subjects: [{kind: ServiceAccount, name: cloud-controller-manager, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shadow, namespace: kube-system}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shadow, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shadow}
subjects: [{kind: ServiceAccount, name: cloud-controller-manager, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shadow-client-ca, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: cloud-controller-manager, namespace: kube-system}]
"#;

const UPSTREAM: [&str; 4] =
    ["--cloud-provider=fake", "--leader-elect=false", "--secure-port=0", "--configure-cloud-routes=false"];

/// The parts of the cloud that both share; each has its own count of calls.
const PARTS: [&str; 6] = ["machines", "balancers", "standing", "routes", "disks", "clusters"];

/// Upstream's manager and, next to it, the host over the bridge.
struct World {
    cluster: Cluster,
    cloud: CloudFolder,
    upstream: Process,
    /// The shadow's view of the cloud.
    seen: TempDir,
    _cloud: TempDir,
}

impl World {
    async fn start() -> Result<Self> {
        let (folder, seen) = (tempfile::tempdir()?, tempfile::tempdir()?);
        for part in PARTS {
            fs::create_dir_all(folder.path().join(part))?;
            symlink(folder.path().join(part), seen.path().join(part))?;
        }
        fs::create_dir(seen.path().join("calls"))?;
        let dir = |folder: &TempDir| format!("--fake-cloud-dir={}", folder.path().display());
        let program = built("provider-sdk/go/bridge", "./examples/fake", "bridged-fake").await?;
        let flags = vec![dir(&seen), "--initialize-at-start".to_owned()];
        let provider = ProviderUnderTest { name: "fake".to_owned(), program, flags, environment: Vec::new() };
        let options = quick().without_rights().provider_under_test(provider);
        let options =
            options.host_flag("--shadow").host_flag("--shadow-grace=4s").host_flag("--adopt-load-balancers");
        let mut cluster = options.start_without_host().await?;
        cluster.control_plane.apply_yaml(READS).await?;

        let program = built("tests/bench/peer", ".", "upstream-manager").await?;
        let kubeconfig = cluster.control_plane.kubeconfig_for("upstream", &["system:masters"])?;
        let mut flags: Vec<String> = UPSTREAM.map(str::to_owned).to_vec();
        flags.extend([format!("--kubeconfig={}", kubeconfig.display()), dir(&folder)]);
        let log = cluster.folder().join("upstream.log");
        let upstream = Process::start("upstream", &program, &flags, &[], &log)?;
        cluster.start_host()?;
        cluster.host_ready().await?;
        let cloud = CloudFolder::new(folder.path())?;
        Ok(Self { cluster, cloud, upstream, seen, _cloud: folder })
    }

    /// Waits until the diff has this exit code and these rows; returns the report.
    async fn until(&self, code: i32, rows: &[(&str, &str, &str)]) -> Result<Value> {
        let mut seen = (0, Value::Null);
        let what = format!("exit code {code} and {rows:?}");
        let waited = wait::until(&what, async || {
            seen = shadow_diff(&self.cluster).await?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let shown = seen.1["rows"].as_array().into_iter().flatten();
            let shown: Vec<_> =
                shown.map(|row| (text(&row["standing"]), text(&row["name"]), text(&row["field"]))).collect();
            let same = shown.len() == rows.len()
                && shown.iter().zip(rows).all(|(one, other)| (&*one.0, &*one.1, &*one.2) == *other);
            Ok((seen.0 == code && same).then_some(()))
        });
        waited.await.with_context(|| {
            format!("{} {:#}\n{:?}\n{}", seen.0, seen.1, self.cluster.parts(), self.upstream.tail())
        })?;
        Ok(seen.1)
    }

    async fn set_address(&self, node: &str, address: &str) -> Result<()> {
        let patch = json!({"status": {"addresses": addresses(address)}});
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_upstreams_controllers_nothing_is_written_and_only_a_difference_is_shown() -> Result<()> {
    let world = World::start().await?;
    let cluster = &world.cluster;
    world.cloud.create_machine("node-a", "zone-a", "10.1.0.1").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    set_ready(&cluster.client, "node-a", "True").await?;
    create(&cluster.client, load_balancer("web")).await?;
    node(cluster, "node-a", "initialised by upstream", |node| !is_uninitialized(node)).await?;
    service(cluster, "web", "upstream's address", |service| !ingress(service).is_empty()).await?;

    // Upstream did everything that the shadow decided; one call would take over the balancer, and the host remembers
    // which labels are its own, and what is applied.
    let taken_over = ("Once", "web", "");
    let note = ("Once", "node-a", "/metadata/annotations/cloudprovider.ccm~1owned-labels");
    let record = ("Once", "web", "/status/conditions/cloudprovider.ccm/LoadBalancer");
    let report = world.until(0, &[taken_over, note, record]).await?;
    ensure!(report["verdict"] == "NothingWouldChange", "{report:#}");

    // A foreign write that this host would revert at once, and upstream in minutes.
    let nodes = Api::<Node>::all(cluster.client.clone());
    let before = nodes.get("node-a").await?.status.context("a status")?.addresses;
    world.set_address("node-a", "10.1.0.99").await?;
    let differs = ("Differs", "node-a", "/status/addresses");
    let report = world.until(1, &[taken_over, note, differs, record]).await?;
    let row = &report["rows"][2];
    ensure!(row["now"] == addresses("10.1.0.99") && row["would"] == addresses("10.1.0.1"), "{row:#}");
    let metrics = cluster.host_metrics().await?;
    ensure!(
        metrics.contains("ccm_shadow_differences{controller=\"cloud-node-controller\"} 1"),
        "the difference is not counted"
    );

    let patch = json!({"status": {"addresses": before}});
    nodes.patch_status("node-a", &PatchParams::default(), &Patch::Merge(patch)).await?;
    world.until(0, &[taken_over, note, record]).await?;
    only_reads(cluster, world.seen.path())?;
    nothing_was_forbidden(cluster)
}

fn addresses(address: &str) -> Value {
    json!([{"type": "InternalIP", "address": address}])
}

/// The shadow's requests to the apiserver and the cloud.
fn only_reads(cluster: &Cluster, cloud: &Path) -> Result<()> {
    let counts = cluster.control_plane.audit_counts(HOST_USER)?;
    let is_read = |verb: &str, resource: &str| {
        matches!(verb, "get" | "list" | "watch")
            || (verb == "create" && matches!(resource, "tokenreviews" | "subjectaccessreviews"))
    };
    let writes: Vec<_> = counts.keys().filter(|(verb, resource)| !is_read(verb, resource)).collect();
    ensure!(writes.is_empty() && !counts.is_empty(), "{writes:?} of {counts:?}");
    let calls = fs::read_dir(cloud.join("calls"))?;
    let mut calls: Vec<_> =
        calls.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    calls.sort();
    let reads = ["GetLoadBalancer", "InstanceExists", "InstanceMetadata", "InstanceShutdown", "ListRoutes"];
    ensure!(calls.iter().all(|call| reads.contains(&call.as_str())), "{calls:?}");
    ensure!(calls.iter().any(|call| call == "InstanceMetadata"), "the shadow looks: {calls:?}");
    Ok(())
}

async fn built(module: &'static str, package: &'static str, name: &'static str) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || go::built(module, package, name)).await?
}
