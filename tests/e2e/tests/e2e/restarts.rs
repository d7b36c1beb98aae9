//! Parts that die, hang or start late: the end state is the same.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{node, service, service_gone, warnings};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::Request,
};
use test_cluster::{
    Cluster,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_host_goes_on_where_it_was_and_makes_no_second_balancer() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    create(&cluster.client, load_balancer("web")).await?;
    // At some moment during the work.
    cluster.host()?.kill()?;
    cluster.cloud()?.create_instance("node-b", "zone-a").await?;
    register(&cluster.client, as_registered("node-b")).await?;
    cluster.start_host()?;

    for name in ["node-a", "node-b"] {
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    assert_eq!(cluster.cloud()?.balancers().await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_host_changes_nothing_that_is_as_it_should_be() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    set_ready(&cluster.client, "node-a", "True").await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    wait::until("node-a behind web", async || {
        Ok((cluster.cloud()?.backends_of("web").await? == ["node-a"]).then_some(()))
    })
    .await?;

    let status = cluster.host()?.terminate().await?;
    assert!(status.success(), "{status} after SIGTERM");
    cluster.cloud()?.reset_calls().await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    // A change that needs work: once it is done, the start is complete as well.
    create(&cluster.client, load_balancer("shop")).await?;
    service(&cluster, "shop", "an address", |service| !ingress(service).is_empty()).await?;

    let calls = cluster.cloud()?.call_counts().await?;
    let count = |method: &str| calls.iter().find(|(name, _)| name == method).map_or(0, |(_, count)| *count);
    assert_eq!(count("ListLoadBalancers"), 1, "{calls:?}");
    assert_eq!(
        count("EnsureLoadBalancer"),
        1,
        "only the new Service: {:#?}",
        cluster.cloud()?.all_calls().await?
    );
    assert_eq!(count("BatchUpdateLoadBalancers"), 0, "{calls:?}");
    Ok(())
}

/// H2: root on one machine may write any condition of its own Node, at a time that Go can read and this host cannot.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_time_at_the_end_of_all_time_holds_up_no_other() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
    let conditions = serde_json::json!([
        {"type": "example.com/Own", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59-12:00"},
    ]);
    let patch = Patch::Strategic(serde_json::json!({"status": {"conditions": conditions}}));
    let request = Request::new("/api/v1/nodes").patch_subresource(
        "status",
        "node-a",
        &PatchParams::default(),
        &patch,
    )?;
    // This client cannot read the answer either.
    let answer = cluster.client.request_text(request).await?;
    assert!(answer.contains("9999-12-31T23:59:59Z"), "the apiserver takes it: {answer}");

    cluster.host()?.terminate().await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    cluster.cloud()?.create_instance("node-b", "zone-a").await?;
    register(&cluster.client, as_registered("node-b")).await?;
    node(&cluster, "node-b", "initialised", |node| !is_uninitialized(node)).await?;
    let metrics = cluster.host_metrics().await?;
    assert!(metrics.contains("ccm_cache_objects{kind=\"Node\"} 2"), "{metrics}");
    assert!(metrics.contains("ccm_cache_unreadable_objects{kind=\"Node\"} 0"), "{metrics}");
    Ok(())
}

/// As in an upgrade of its image: the next process answers what the provider was asked meanwhile, and users notice
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_replaced_under_load_fails_nothing_that_a_user_sees() -> Result<()> {
    let mut cluster = quick().start().await?;
    let names = ["a", "b", "c", "d", "e", "f"];
    for (turn, name) in names.into_iter().enumerate() {
        cluster.cloud()?.create_instance(name, "zone-a").await?;
        register(&cluster.client, as_registered(name)).await?;
        create(&cluster.client, load_balancer(&format!("web-{name}"))).await?;
        // Terminated or killed at some moment during the work.
        match turn % 2 {
            0 => drop(cluster.provider()?.terminate().await?),
            _ => cluster.provider()?.kill()?,
        }
        cluster.start_provider().await?;
    }
    for name in names {
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
        service(&cluster, &format!("web-{name}"), "an address", |service| !ingress(service).is_empty())
            .await?;
    }
    let warnings = warnings(&mut cluster).await?;
    assert!(warnings.is_empty(), "{warnings:#?}");
    Ok(())
}

/// SW-18, and the digest shows that only the backends differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joined_while_no_host_ran_costs_an_update_of_each_balancer_and_no_ensure() -> Result<()> {
    let mut cluster = quick().start().await?;
    for name in ["web", "shop"] {
        create(&cluster.client, load_balancer(name)).await?;
        service(&cluster, name, "an address", |service| !ingress(service).is_empty()).await?;
    }
    cluster.host()?.terminate().await?;
    cluster.cloud()?.reset_calls().await?;
    register(&cluster.client, as_registered("node-a")).await?;
    cluster.start_host()?;

    for name in ["web", "shop"] {
        wait::until(&format!("node-a behind {name}"), async || {
            Ok((cluster.cloud()?.backends_of(name).await? == ["node-a"]).then_some(()))
        })
        .await?;
    }
    let cloud = cluster.cloud()?;
    assert_eq!(cloud.calls_and_items("EnsureLoadBalancer").await?.0, 0);
    // One batch, unless the machine is so busy that the two are asked for more than a few milliseconds apart.
    assert_eq!(cloud.calls_and_items("BatchUpdateLoadBalancers").await?.1, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_provider_is_found_again() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    set_ready(&cluster.client, "node-a", "True").await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;

    cluster.provider()?.kill()?;
    // The provider cannot be queried, so nothing may happen to a node that is not ready.
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    wait::until("the host is not ready", async || {
        Ok(matches!(cluster.host_get("/readyz").await, Ok((500, _))).then_some(()))
    })
    .await?;
    create(&cluster.client, load_balancer("web")).await?;
    cluster.start_provider().await?;

    cluster.host_ready().await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    node(&cluster, "node-a", "still there", |node| !is_uninitialized(node)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_provider_waits_and_does_nothing() -> Result<()> {
    let mut cluster = quick().start_control_plane().await?;
    register(&cluster.client, as_registered("node-a")).await?;
    set_ready(&cluster.client, "node-a", "False").await?;
    cluster.start_host()?;
    wait::until("/readyz that says what is waited for", async || match cluster.host_get("/readyz").await {
        Ok((500, body)) if body.contains("mock") => Ok(Some(())),
        _ => Ok(None),
    })
    .await?;
    assert_eq!(cluster.host_get("/livez").await?.0, 200, "waiting is no reason to be killed");
    node(&cluster, "node-a", "untouched", is_uninitialized).await?;

    cluster.start_provider().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    cluster.host_ready().await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
    Ok(())
}

/// N10: work that needs no provider does not wait for one.
#[tokio::test(flavor = "multi_thread")]
async fn pod_cidrs_are_given_while_the_provider_is_away() -> Result<()> {
    let options = quick()
        .host_flag("--controllers=*,nodeipam")
        .host_flag("--allocate-node-cidrs")
        .host_flag("--cluster-cidr=10.244.0.0/16");
    let mut cluster = options.start_control_plane().await?;
    register(&cluster.client, as_registered("node-a")).await?;
    cluster.start_host()?;
    let is_given = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.pod_cidr.is_some());
    node(&cluster, "node-a", "a pod CIDR", is_given).await?;

    cluster.start_provider().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_whose_service_is_deleted_while_the_host_is_down_is_not_leaked() -> Result<()> {
    let mut cluster = quick().start().await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;

    cluster.host()?.kill()?;
    Api::<Service>::namespaced(cluster.client.clone(), "default").delete("web", &Default::default()).await?;
    cluster.start_host()?;

    service_gone(&cluster, "web").await?;
    assert!(cluster.cloud()?.balancers().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apiserver_that_restarts_costs_nothing() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    cluster.control_plane.stop_apiserver()?;
    cluster.control_plane.start_apiserver().await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
    Ok(())
}

/// Nodes and Services are created, and the apiserver fails while they are worked on; one process does all the work.
#[tokio::test(flavor = "multi_thread")]
async fn an_apiserver_that_restarts_under_load_ends_nobody_and_loses_nothing() -> Result<()> {
    // On a loaded machine four restarts take longer than a leader may be without the apiserver.
    let electing = quick()
        .host_flag("--leader-elect")
        .host_flag("--leader-elect-lease-duration=90s")
        .host_flag("--leader-elect-renew-deadline=80s");
    let mut cluster = electing.start().await?;
    let process = cluster.host()?.id();
    cluster.cloud()?.fault("latency,time=500ms,method=EnsureLoadBalancer").await?;
    cluster.cloud()?.fault("latency,time=200ms,method=BatchGetInstances").await?;
    for round in 0..4 {
        arrive(&cluster, round).await?;
        cluster.control_plane.stop_apiserver()?;
        cluster.control_plane.start_apiserver().await?;
    }
    for round in 0..4 {
        all_is_done(&cluster, round).await?;
    }
    assert_eq!(cluster.cloud()?.balancers().await?.len(), 4);
    assert!(cluster.host()?.is_running() && cluster.host()?.id() == process);
    Ok(())
}

async fn arrive(cluster: &Cluster, round: usize) -> Result<()> {
    let name = format!("node-{round}");
    cluster.cloud()?.create_instance(&name, "zone-a").await?;
    register(&cluster.client, as_registered(&name)).await?;
    set_ready(&cluster.client, &name, "True").await?;
    create(&cluster.client, load_balancer(&format!("web-{round}"))).await.map(drop)
}

async fn all_is_done(cluster: &Cluster, round: usize) -> Result<()> {
    node(cluster, &format!("node-{round}"), "initialised", |node| !is_uninitialized(node)).await?;
    service(cluster, &format!("web-{round}"), "an address", |service| !ingress(service).is_empty())
        .await
        .map(drop)
}

/// N2: as when an apiserver is upgraded, or downgraded, in place to a version without streaming lists.
#[tokio::test(flavor = "multi_thread")]
async fn streaming_lists_that_go_while_the_host_runs_hold_up_no_node() -> Result<()> {
    let cluster = quick().start().await?;
    let metrics = cluster.host_metrics().await?;
    let is_lost = |line: &&str| line.starts_with("ccm_cache_watching{") && line.ends_with(" 0");
    assert_eq!(metrics.lines().find(is_lost), None, "kinds that no controller needs are not missed");
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    // The host does not watch it, so its watches are at a version that the restarted apiserver does not have.
    cluster
        .control_plane
        .apply_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: unwatched}}")
        .await?;
    cluster.control_plane.stop_apiserver()?;
    wait::until("/readyz that tells of the lost watch", async || {
        let (code, body) = cluster.host_get("/readyz").await?;
        Ok((code == 500 && body.contains("[-]cache-nodes failed: changes are not seen since")).then_some(()))
    })
    .await?;

    cluster.control_plane.start_apiserver_with(&["--feature-gates=WatchList=false"]).await?;
    register(&cluster.client, as_registered("node-a")).await?;
    let nodes = Api::<Node>::all(cluster.client.clone());
    wait::until_within(Duration::from_secs(30), "node-a initialised", async || {
        Ok((!is_uninitialized(&nodes.get("node-a").await?)).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    assert!(cluster.host_metrics().await?.contains("ccm_cache_watching{kind=\"Node\"} 1"));
    Ok(())
}
