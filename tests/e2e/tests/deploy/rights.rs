//! The chart grants exactly the permissions that the host uses: none is missing, and none is unused.
//!
//! Each test lets one set of controllers do everything it can, and compares the grants with the requests to the
//! apiserver.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::deploy::rights::{Right, granted};
use e2e::{
    certificates, event, join, node, node_gone, nothing_was_forbidden, service, service_gone, volumes,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use test_cluster::{
    Cluster, Options,
    http::Caller,
    nodes::{as_registered, has_taint, register, set_ready},
    services::{FINALIZER, create, ingress, load_balancer},
    wait,
};

use crate::rendered::installed;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Permissions that the work of one controller alone does not use in a short time, and why it has them all the same.
/// All controllers together use these as well.
const RARE: [(&str, &str); 10] = [
    ("list nodes", "an apiserver that streams no lists"),
    ("list services", "an apiserver that streams no lists"),
    ("list certificatesigningrequests", "an apiserver that streams no lists"),
    (
        "get certificatesigningrequests",
        "a request that a list lacks is read by its name before it counts as gone",
    ),
    ("list persistentvolumes", "an apiserver that streams no lists"),
    ("get persistentvolumes", "a volume that a list lacks is read by its name before it counts as gone"),
    (
        "get nodes",
        "a node that a list lacks is read by its name before it counts as gone; so is one whose patch was refused",
    ),
    ("get services", "a Service that a list lacks is read by its name before it counts as gone"),
    ("patch events", "the same Event again"),
    ("watch leases in kube-system/cloud-controller-manager", "a replica that stands by"),
];

const SSH_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFsqWU4wHkw8EpgHE22FO+8zVScAca1APXoeDxK/VjGe";

/// The ServiceAccounts whose tokens the host may request.
const ACCOUNTS: [&str; 3] = ["node-controller", "service-controller", "route-controller"];

fn user(account: &str) -> String {
    format!("system:serviceaccount:kube-system:{account}")
}

/// A cluster with these controllers and no others.
struct Set {
    cluster: Cluster,
    granted: BTreeSet<Right>,
}

impl Set {
    async fn of(values: Value) -> Result<Self> {
        Self::on(Options::default(), values).await
    }

    /// The provider keeps no digests, so that the host has to.
    async fn on(mut options: Options, values: Value) -> Result<Self> {
        options.provider.push("--advertise=without=durable-digest".to_owned());
        let (cluster, objects) = installed(options, values).await?;
        Ok(Self { cluster, granted: granted(&objects) })
    }

    fn unused(&self, but: &[(&str, &str)]) -> Result<Vec<String>> {
        let requests = self.cluster.control_plane.audit_events()?;
        let unused = self.granted.iter().filter(|right| {
            let rare = but.iter().any(|(rare, _)| *rare == right.to_string());
            !rare && !requests.iter().any(|request| right.allows(request))
        });
        Ok(unused.map(|right| format!("{right} of {}", right.user)).collect())
    }

    /// Checks that this work was forbidden nothing, and used all grants.
    async fn is_just_enough(
        &self,
        but: &[(&str, &str)],
        work: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let worked = work.await;
        // Checked first, since a forbidden request explains why the work failed.
        nothing_was_forbidden(&self.cluster)?;
        worked?;
        let mut unused = Vec::new();
        let all_used = wait::until("each right is used", async || {
            unused = self.unused(but)?;
            Ok(unused.is_empty().then_some(()))
        });
        let all_used = all_used.await;
        nothing_was_forbidden(&self.cluster)?;
        all_used.with_context(|| format!("granted, and never used: {}", unused.join(", ")))
    }

    /// A node with its machine, as another replica initialised it.
    async fn initialised(&self, name: &str, ready: &str) -> Result<()> {
        self.cluster.cloud()?.create_instance(name, "zone-a").await?;
        let id = self.cluster.cloud()?.door().instance(name).await?.provider_id;
        let mut node = as_registered(name);
        node["spec"] = json!({ "providerID": id });
        register(&self.cluster.client, node).await?;
        set_ready(&self.cluster.client, name, ready).await
    }

    /// Every caller of the metrics is authenticated and authorised.
    async fn is_scraped(&self) -> Result<()> {
        let caller = Caller::of(&self.cluster.folder().join("cloud-controller-manager.kubeconfig"))?;
        let (status, body) = self.cluster.host_get_as(&caller, "/metrics").await?;
        ensure!(status == 403, "{status} {body}");
        Ok(())
    }

    /// A machine stops, others are terminated, and a provider that nobody confirms denies some.
    async fn nodes_lose_their_machines(&self) -> Result<()> {
        let (cluster, cloud) = (&self.cluster, self.cluster.cloud()?);
        cloud.stop_instance("stops").await?;
        set_ready(&cluster.client, "stops", "Unknown").await?;
        node(cluster, "stops", "the shutdown taint", |node| has_taint(node, SHUTDOWN)).await?;
        for name in ["goes", "follows"] {
            cloud.terminate_instance(name).await?;
            set_ready(&cluster.client, name, "Unknown").await?;
            node_gone(cluster, name).await?;
        }
        cloud.fault("absent,method=BatchGetInstances").await?;
        for name in ["denied-1", "denied-2", "stays"] {
            set_ready(&cluster.client, name, "Unknown").await?;
        }
        // Without a Ready node, one of them goes within a window.
        let nodes = Api::<Node>::all(cluster.client.clone());
        wait::until("a node is held back", async || {
            let all = nodes.list(&Default::default()).await?;
            let mut conditions = all
                .items
                .iter()
                .flat_map(|node| node.status.iter())
                .flat_map(|status| status.conditions.iter().flatten());
            Ok(conditions.any(|one| one.type_ == "CloudProviderDeletionBlocked").then_some(()))
        })
        .await?;
        cloud.clear_faults().await
    }

    async fn a_service_comes_changes_and_goes(&self) -> Result<()> {
        let cluster = &self.cluster;
        // As another replica left it.
        let mut taken_over = load_balancer("web");
        taken_over["metadata"]["finalizers"] = json!([FINALIZER]);
        create(&cluster.client, taken_over).await?;
        service(cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
        let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
        let body = json!({ "spec": { "ports": [{ "name": "http", "port": 81 }] } });
        services.patch("web", &PatchParams::default(), &Patch::Merge(body)).await?;
        event(cluster, "web", "EnsuredLoadBalancer").await?;
        let maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "kube-system");
        wait::until("what all balancers have is recorded", async || {
            let map = maps.get_opt("service-lb-backends").await?;
            Ok(map.and_then(|map| map.data?.remove("mock")).filter(|set| !set.is_empty()))
        })
        .await?;
        services.delete("web", &Default::default()).await?;
        service_gone(cluster, "web").await
    }
}

async fn has_pod_cidr(cluster: &Cluster, name: &str) -> Result<()> {
    node(cluster, name, "a pod CIDR", |node| node.spec.as_ref().is_some_and(|spec| spec.pod_cidr.is_some()))
        .await
        .map(drop)
}

async fn network_is_available(cluster: &Cluster, name: &str) -> Result<()> {
    node(cluster, name, "its network available", |node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "NetworkUnavailable" && one.status == "False")
    })
    .await
    .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_controllers_use_what_they_are_granted() -> Result<()> {
    let cidrs = json!({ "cidrs": ["10.244.0.0/16"] });
    let control_plane = control_plane::Options::default().apiserver_flag("--feature-gates=WatchList=false");
    let options = Options { control_plane, ..Options::default() };
    let set = Set::on(options, json!({ "cluster": cidrs, "nodeIpam": { "enabled": true } })).await?;
    set.is_just_enough(&[], async {
        join(&set.cluster, &["stays", "stops", "goes", "follows", "denied-1", "denied-2"]).await?;
        let standby = set.cluster.start_replica("standby", &["--leader-elect".to_owned()])?;
        standby.stands_by().await?;
        has_pod_cidr(&set.cluster, "stays").await?;
        network_is_available(&set.cluster, "stays").await?;
        set.a_service_comes_changes_and_goes().await?;
        set.nodes_lose_their_machines().await?;
        set.is_scraped().await
    })
    .await
}

/// With `--use-service-account-credentials`, the host's own ServiceAccount may not write nodes or Services.
#[tokio::test(flavor = "multi_thread")]
async fn each_controller_writes_under_its_own_service_account() -> Result<()> {
    let values = json!({
        "cluster": { "cidrs": ["10.244.0.0/16"] },
        "nodeIpam": { "enabled": true },
        "useServiceAccountCredentials": true,
    });
    let control_plane = ACCOUNTS
        .iter()
        .fold(control_plane::Options::default(), |options, name| options.audit_user(user(name)));
    let set = Set::on(Options { control_plane, ..Options::default() }, values).await?;
    set.is_just_enough(&RARE, async {
        join(&set.cluster, &["stays", "stops", "goes", "follows", "denied-1", "denied-2"]).await?;
        has_pod_cidr(&set.cluster, "stays").await?;
        network_is_available(&set.cluster, "stays").await?;
        set.a_service_comes_changes_and_goes().await?;
        set.nodes_lose_their_machines().await?;
        set.is_scraped().await
    })
    .await?;
    let requests = set.cluster.control_plane.audit_events()?;
    for (verb, resource, writers) in [
        ("patch", "nodes", &["node-controller"][..]),
        ("delete", "nodes", &["node-controller"]),
        ("patch", "nodes/status", &["node-controller", "route-controller"]),
        ("patch", "services/status", &["service-controller"]),
        ("create", "events", &["cloud-controller-manager"]),
        ("create", "serviceaccounts", &["cloud-controller-manager"]),
        ("watch", "nodes", &["cloud-controller-manager"]),
    ] {
        let by = requests.iter().filter(|request| request.verb == verb && request.resource == resource);
        let by: BTreeSet<_> = by.map(|request| request.user.clone()).collect();
        let expected: BTreeSet<_> = writers.iter().map(|name| user(name)).collect();
        ensure!(by == expected, "{verb} {resource}: {by:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_node_alone_needs_no_services_and_deletes_nothing() -> Result<()> {
    let set = Set::of(json!({ "controllers": ["cloud-node"] })).await?;
    set.is_just_enough(&RARE, async {
        join(&set.cluster, &["node-a"]).await?;
        set.is_scraped().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_node_lifecycle_alone_needs_no_services() -> Result<()> {
    let set = Set::of(json!({ "controllers": ["cloud-node-lifecycle"] })).await?;
    set.is_just_enough(&RARE, async {
        for name in ["stays", "stops", "goes", "follows", "denied-1", "denied-2"] {
            set.initialised(name, "True").await?;
        }
        set.nodes_lose_their_machines().await?;
        set.is_scraped().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn service_lb_alone_writes_no_nodes() -> Result<()> {
    let set = Set::of(json!({ "controllers": ["service"] })).await?;
    set.is_just_enough(&RARE, async {
        set.initialised("node-a", "True").await?;
        set.a_service_comes_changes_and_goes().await?;
        set.is_scraped().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn node_ipam_alone_writes_no_status() -> Result<()> {
    // Room for one node only.
    let cidrs = json!({ "cidrs": ["10.244.0.0/24"] });
    let values = json!({ "controllers": [], "nodeIpam": { "enabled": true }, "cluster": cidrs });
    let set = Set::of(values).await?;
    set.is_just_enough(&RARE, async {
        register(&set.cluster.client, as_registered("node-a")).await?;
        has_pod_cidr(&set.cluster, "node-a").await?;
        register(&set.cluster.client, as_registered("node-b")).await?;
        event(&set.cluster, "node-b", "CIDRNotAvailable").await?;
        set.is_scraped().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_keys_alone_reads_one_secret() -> Result<()> {
    let secret = "kube-system/ssh-keys";
    let set = Set::of(json!({ "controllers": [], "sshKeys": { "secret": secret } })).await?;
    set.is_just_enough(&RARE, async {
        let data = json!({ "core": SSH_KEY, "Root": SSH_KEY });
        let secret = json!({ "metadata": { "name": "ssh-keys" }, "stringData": data });
        let secrets = Api::<Secret>::namespaced(set.cluster.client.clone(), "kube-system");
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        event(&set.cluster, "ssh-keys", "SshKeySpread").await?;
        event(&set.cluster, "ssh-keys", "SshKeyRefused").await?;
        let keys = set.cluster.cloud()?.door().ssh_keys().await?;
        let users: Vec<_> = keys.iter().map(|key| key.user.as_str()).collect();
        ensure!(users == ["core"], "the cloud has keys of {users:?}");
        set.is_scraped().await
    })
    .await
}

/// Even without leader election and without the apiserver's decision on who may scrape.
#[tokio::test(flavor = "multi_thread")]
async fn node_route_alone_writes_conditions_only() -> Result<()> {
    let set = Set::of(json!({
        "controllers": ["route"],
        "cluster": { "cidrs": ["10.244.0.0/16"] },
        "leaderElection": { "enabled": false }, "kind": "Deployment", "replicaCount": 1,
        "delegatedAuth": { "enabled": false },
    }))
    .await?;
    set.is_just_enough(&RARE, async {
        let cloud = set.cluster.cloud()?;
        let nodes = Api::<Node>::all(set.cluster.client.clone());
        let give = async |name: &str, cidr: &str| -> Result<()> {
            set.initialised(name, "True").await?;
            let body = json!({ "spec": { "podCIDR": cidr, "podCIDRs": [cidr] } });
            nodes.patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
            Ok(())
        };
        give("node-a", "10.244.0.0/24").await?;
        network_is_available(&set.cluster, "node-a").await?;
        cloud.fault("error,reason=QUOTA_EXCEEDED,method=BatchEnsureRoutes").await?;
        give("node-b", "10.244.1.0/24").await?;
        event(&set.cluster, "node-b", "FailedToCreateRoute").await?;
        nodes.delete("node-a", &Default::default()).await?;
        wait::until("the route is gone", async || Ok(cloud.door().routes().await?.is_empty().then_some(())))
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_serving_csr_alone_writes_no_nodes() -> Result<()> {
    let set = Set::of(json!({
        "controllers": ["kubelet-serving-csr"],
        "extraArgs": { "kubelet-serving-csr-trust-node-readers": true },
    }))
    .await?;
    certificates::may_ask(&set.cluster).await?;
    set.is_just_enough(&RARE, async {
        set.initialised("node-a", "True").await?;
        certificates::Ask::of("node-a", &["node-a"])?.make(&set.cluster, "good").await?;
        certificates::decided(&set.cluster, "good", "Approved").await?;
        event(&set.cluster, "node-a", "KubeletServingCertificateApproved").await?;
        set.is_scraped().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn persistent_volume_label_alone_writes_volumes_only() -> Result<()> {
    let set = Set::of(json!({ "controllers": ["persistent-volume-label"] })).await?;
    let work = Box::pin(async {
        volumes::disk(&set.cluster, "disk-1", &["a"]).await?;
        volumes::make(&set.cluster, "pv-1", "disk-1").await?;
        volumes::zone(&set.cluster, "pv-1", "a").await?;
        event(&set.cluster, "pv-1", "VolumeLabelled").await?;
        set.is_scraped().await
    });
    set.is_just_enough(&RARE, work).await
}

/// Nothing serves the webhook's Service here: a volume is created all the same, and labelled later.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_needs_its_own_certificate_and_configuration_only() -> Result<()> {
    let port = control_plane::free_port()?;
    let set = Set::of(json!({
        "controllers": ["persistent-volume-label"],
        "webhooks": ["persistent-volume-label"],
        "extraArgs": { "webhook-secure-port": port, "webhook-bind-address": "127.0.0.1" },
    }))
    .await?;
    let work = Box::pin(async {
        volumes::disk(&set.cluster, "disk-1", &["a"]).await?;
        volumes::make(&set.cluster, "pv-1", "disk-1").await?;
        volumes::zone(&set.cluster, "pv-1", "a").await?;
        event(&set.cluster, "pv-1", "VolumeLabelled").await?;
        set.is_scraped().await
    });
    set.is_just_enough(&RARE, work).await
}
