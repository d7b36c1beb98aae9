//! A node's life on a real control plane.

use anyhow::Result;
use e2e::{event, join, node, node_gone, nothing_was_forbidden};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PostParams},
    core::Request,
};
use serde_json::json;
use test_cluster::nodes::{
    addresses, as_registered, has_taint, is_uninitialized, label, register, set_ready,
};

use crate::quick;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// NODE-2, NODE-15, NODE-25.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_initialised_with_two_writes() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-b").await?;
    register(&cluster.client, as_registered("node-a")).await?;

    let node = node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;

    assert!(
        node.spec
            .as_ref()
            .and_then(|spec| spec.provider_id.as_deref())
            .is_some_and(|id| id.starts_with("mock://"))
    );
    assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-b"));
    assert_eq!(label(&node, "failure-domain.beta.kubernetes.io/zone"), Some("zone-b"));
    assert_eq!(addresses(&node, "InternalIP").len(), 1);
    assert_eq!(addresses(&node, "Hostname"), ["node-a"], "the kubelet's host name stays");
    event(&cluster, "node-a", "Synced").await?;
    let counts = cluster.control_plane.audit_counts(test_cluster::HOST_USER)?;
    let count = |verb: &str, resource: &str| counts.get(&(verb.to_owned(), resource.to_owned())).copied();
    assert_eq!(count("patch", "nodes"), Some(1), "{counts:?}");
    assert_eq!(count("patch", "nodes/status"), Some(1), "{counts:?}");
    assert_eq!(count("get", "nodes"), None, "{counts:?}");
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_change_in_the_cloud_reach_the_node() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;

    cluster.cloud()?.set_internal_ip("node-a", "10.99.0.1").await?;

    node(&cluster, "node-a", "the new address", |node| addresses(node, "InternalIP") == ["10.99.0.1"])
        .await?;
    Ok(())
}

/// NW-11, LBL-3: the provider's labels follow the cloud; a user's labels always stay.
#[tokio::test(flavor = "multi_thread")]
async fn labels_follow_the_cloud_and_a_users_stay() -> Result<()> {
    let (ours, users, later) = ("example.com/tier", "example.com/owner", "example.com/rack");
    let cluster = quick().start().await?;
    let cloud = cluster.cloud()?;
    cloud.create_instance("node-a", "zone-a").await?;
    cloud.set_labels("node-a", &[(ours, "bronze"), (users, "cloud"), (later, "r1")]).await?;
    let mut registered = as_registered("node-a");
    registered["metadata"]["labels"][users] = "team".into();
    register(&cluster.client, registered).await?;
    let labels = async |what: &str, wanted: &[(&str, Option<&str>)]| {
        node(&cluster, "node-a", what, |node| wanted.iter().all(|(key, value)| label(node, key) == *value))
            .await
    };
    let (zone, beta_zone) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    let (type_, beta_type) = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type");
    labels("labels of the start", &[(ours, Some("bronze")), (users, Some("team")), (later, Some("r1"))])
        .await?;

    cloud.move_instance("node-a", "zone-b", "mock.large").await?;
    cloud.set_labels("node-a", &[(ours, "gold"), (users, "cloud-2")]).await?;
    labels(
        "the new labels",
        &[
            (zone, Some("zone-b")),
            (beta_zone, Some("zone-b")),
            (type_, Some("mock.large")),
            (beta_type, Some("mock.large")),
            (ours, Some("gold")),
            (users, Some("team")),
        ],
    )
    .await?;

    let body = json!({ "metadata": { "labels": { (later): "mine", (zone): "mine" } } });
    Api::<Node>::all(cluster.client.clone())
        .patch("node-a", &Default::default(), &Patch::Merge(body))
        .await?;
    cloud.move_instance("node-a", "zone-c", "mock.huge").await?;
    cloud.set_labels("node-a", &[(later, "r2")]).await?;
    cloud.remove_labels("node-a", &[ours, users]).await?;
    labels(
        "ours gone, a user's untouched",
        &[
            (ours, None),
            (users, Some("team")),
            (later, Some("mine")),
            (zone, Some("mine")),
            (beta_zone, Some("mine")),
            (type_, Some("mock.huge")),
        ],
    )
    .await?;
    nothing_was_forbidden(&cluster)
}

/// The provider's annotations are the whole truth under its prefix, a user's stay; what the cloud plans is a condition.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_and_planned_maintenance_follow_the_cloud() -> Result<()> {
    let cluster = quick().host_flag("--planned-maintenance-condition=true").start().await?;
    let cloud = cluster.cloud()?;
    let door = cloud.door();
    cloud.create_instance("node-a", "zone-a").await?;
    let planned = json!({"kind": "reboot", "from": "2026-12-01T02:00:00Z", "message": "kernel"});
    let annotations = json!({"mock.example/bgp-peer": "65000", "elsewhere.example/id": "1"});
    door.patch_instance("node-a", &json!({"annotations": annotations, "maintenance": planned})).await?;
    let mut registered = as_registered("node-a");
    registered["metadata"]["annotations"] = json!({"mock.example/stale": "1", "users.example/note": "mine"});
    register(&cluster.client, registered).await?;
    let is = |node: &Node, wanted: &[(&str, Option<&str>)], reason: &str| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let said = conditions.into_iter().flatten().find(|one| one.type_ == "MaintenancePlanned");
        let has =
            |key: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        wanted.iter().all(|(key, value)| has(key) == *value)
            && said.and_then(|said| said.reason.as_deref()) == Some(reason)
    };
    let first = [
        ("mock.example/bgp-peer", Some("65000")),
        ("mock.example/stale", None),
        ("users.example/note", Some("mine")),
        ("elsewhere.example/id", None),
    ];
    node(&cluster, "node-a", "what the cloud says", |node| {
        !is_uninitialized(node) && is(node, &first, "RebootPlanned")
    })
    .await?;

    door.patch_instance(
        "node-a",
        &json!({"annotations": {"mock.example/bgp-peer": null}, "maintenance": null}),
    )
    .await?;
    let later = [("mock.example/bgp-peer", None), ("users.example/note", Some("mine"))];
    node(&cluster, "node-a", "nothing more", |node| is(node, &later, "NothingPlanned")).await?;
    nothing_was_forbidden(&cluster)
}

/// LIFE-28.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_machine_taints_its_node_until_it_runs_again() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;

    cluster.cloud()?.stop_instance("node-a").await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    node(&cluster, "node-a", "the shutdown taint", |node| has_taint(node, SHUTDOWN)).await?;

    cluster.cloud()?.start_instance("node-a").await?;
    node(&cluster, "node-a", "no shutdown taint", |node| !has_taint(node, SHUTDOWN)).await?;
    nothing_was_forbidden(&cluster)
}

/// `--node-shutdown-policy`: volumes detach from a node whose instance stays stopped, until it runs again; a person's
/// changes stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_instance_stays_stopped_is_out_of_service_until_it_runs_again() -> Result<()> {
    let flags = ["--node-shutdown-policy=out-of-service", "--node-shutdown-grace=2s"];
    let cluster = flags.into_iter().fold(quick(), test_cluster::Options::host_flag).start().await?;
    for name in ["witness", "node-a"] {
        cluster.cloud()?.create_instance(name, "zone-a").await?;
        register(&cluster.client, as_registered(name)).await?;
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    set_ready(&cluster.client, "witness", "True").await?;

    cluster.cloud()?.stop_instance("node-a").await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    node(&cluster, "node-a", "out of service", |node| {
        has_taint(node, OUT_OF_SERVICE) && has_taint(node, SHUTDOWN)
    })
    .await?;
    event(&cluster, "node-a", "NodeGivenUp").await?;

    cluster.cloud()?.start_instance("node-a").await?;
    node(&cluster, "node-a", "back in service", |node| {
        !has_taint(node, OUT_OF_SERVICE) && !has_taint(node, SHUTDOWN)
    })
    .await?;
    nothing_was_forbidden(&cluster)
}

/// LIFE-4, LIFE-25.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_a_terminated_machine_goes() -> Result<()> {
    let cluster = quick().start().await?;
    join(&cluster, &["node-a", "node-b"]).await?;
    // As root on the machine may have left it: Go can read this time, and this host cannot.
    let spec = json!({"renewTime": "9999-12-31T23:59:59.999999Z", "leaseDurationSeconds": 40});
    let lease = serde_json::to_vec(&json!({"metadata": {"name": "node-a"}, "spec": spec}))?;
    let leases = Request::new("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    cluster.client.request_text(leases.create(&PostParams::default(), lease)?).await?;

    cluster.cloud()?.terminate_instance("node-a").await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;

    node_gone(&cluster, "node-a").await?;
    let told = event(&cluster, "node-a", "DeletingNode").await?;
    assert_eq!(told.involved_object.api_version.as_deref(), Some("v1"));
    node(&cluster, "node-b", "still there", |_| true).await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_no_cloud_knows_waits_and_says_why() -> Result<()> {
    let cluster = quick().start().await?;
    register(&cluster.client, as_registered("stranger")).await?;
    set_ready(&cluster.client, "stranger", "True").await?;

    let told = event(&cluster, "stranger", "InitializationFailed").await?;

    assert_eq!(told.type_.as_deref(), Some("Warning"));
    node(&cluster, "stranger", "still tainted", is_uninitialized).await?;
    Ok(())
}
