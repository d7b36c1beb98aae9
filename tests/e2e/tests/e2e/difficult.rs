//! A provider with the habits of published ones, each switched on separately: behind the bridge without and with
//! permissions in the cluster, and in the process of upstream's own controllers, which must leave the same state
//! (findings P1 to P8, V2, V3).
//!
//! All habits share one control plane, one after the other. The tests need Go; `.ci/run` runs them.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::{event, nothing_was_forbidden, service};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use test_cluster::{
    services::{create, ingress, load_balancer},
    wait,
};

use crate::bridged::{Left, Manager, Subject, World};

const DIFFICULT: Subject = Subject {
    sidecar: ("provider-sdk/go/bridge", "./examples/difficult", "bridged-difficult"),
    scheme: "fake",
    registered: "difficult",
    folder: "--fake-cloud-dir",
    flags: &[],
};

/// Habits that need no more of Kubernetes than the host sends. Upstream's controllers cannot show those of the second
/// row: they exit on a panic, and stand still while a call hangs.
const ANYWHERE: [&str; 8] = [
    "refuses-empty-id",
    "lists-services",
    "wants-node-lister",
    "runs-loops",
    "retries",
    "own-metrics",
    "writes-nodes",
    "tells-events",
];
const OURS_ALONE: [&str; 2] = ["panics", "hangs"];
/// Habits that need permissions in the cluster.
const WITH_RIGHTS: [&str; 6] =
    ["patches-late", "patches-id", "own-finalizer", "reads-configmap", "reads-secrets", "locks-lease"];

/// Runs all lives; the error names each failed one.
async fn lives(
    world: &mut World,
    habits: impl Iterator<Item = &'static str>,
) -> Result<BTreeMap<&'static str, Left>> {
    let (mut all, mut failed) = (BTreeMap::new(), Vec::new());
    for habit in habits {
        match world.life(habit, load_balancer(habit), &[format!("--habits={habit}")]).await {
            Ok(left) => drop(all.insert(habit, left)),
            Err(error) => failed.push(format!("{habit}: {error:#}\n{}", world.tail())),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(all)
}

/// The expected state, as far as it does not depend on the manager.
fn wanted(habit: &'static str, rights: bool) -> Left {
    let has = |one: &str| usize::from(habit == one);
    let written = match habit {
        "patches-late" => "difficult.example/address",
        "patches-id" => "difficult.example/load-balancer-id",
        _ => "",
    };
    let finalizer = "service.kubernetes.io/load-balancer-cleanup";
    let writes_nodes = habit == "writes-nodes" && rights;
    Left::from([
        ("provider ID", format!("Some(\"fake://{habit}-a\")")),
        ("addresses", "[\"10.1.0.1\"]".to_owned()),
        ("label", format!("{:?}", writes_nodes.then_some("host-1"))),
        ("zone", "Some(\"zone-a\")".to_owned()),
        ("taints", if writes_nodes { "difficult.example/slow" } else { "" }.to_owned()),
        ("ingress", "[\"192.0.2.1\"]".to_owned()),
        ("annotations", written.to_owned()),
        (
            "finalizers",
            if habit == "own-finalizer" {
                format!("difficult.example/balancer {finalizer}")
            } else {
                finalizer.to_owned()
            },
        ),
        ("cloud", format!("{:?}", [1, has("patches-id"), has("lists-services"), 1])),
        ("at last", "[[], [], [], []]".to_owned()),
    ])
}

fn checked(all: &BTreeMap<&'static str, Left>, rights: bool) -> Result<()> {
    for (habit, left) in all {
        let wanted = wanted(habit, rights);
        ensure!(*left == wanted, "{habit} leaves\n{left:#?}\nbut should leave\n{wanted:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn a_difficult_provider_lives_without_rights_in_the_cluster() -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Host { kubeconfig: false }, &[]).await?;
    let all = lives(&mut world, ANYWHERE.into_iter().chain(OURS_ALONE)).await?;
    checked(&all, false)?;
    nothing_was_forbidden(&world.cluster)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn a_difficult_provider_lives_with_rights_of_its_own() -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Host { kubeconfig: true }, &[]).await?;
    let all = lives(&mut world, ANYWHERE.into_iter().chain(OURS_ALONE).chain(WITH_RIGHTS)).await?;
    checked(&all, true)?;
    nothing_was_forbidden(&world.cluster)
}

/// The yardstick: the bridge must leave what upstream's controllers leave with the same provider.
async fn upstream_leaves(habits: &[&'static str]) -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Upstream, &[]).await?;
    let all = lives(&mut world, habits.iter().copied()).await?;
    checked(&all, true)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn a_difficult_provider_leaves_the_same_in_upstreams_process() -> Result<()> {
    upstream_leaves(&ANYWHERE).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn one_that_writes_and_reads_more_leaves_the_same_in_upstreams_process() -> Result<()> {
    upstream_leaves(&WITH_RIGHTS).await
}

/// P4: without permissions, one Event says what it lacks, however often it retries, and it continues by itself once it
/// has them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn what_a_difficult_provider_lacks_is_said_and_can_be_given() -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Host { kubeconfig: false }, &[]).await?;
    let rights = format!("--kubeconfig={}", world.kubeconfig.display());
    for (habit, kind) in [
        ("reads-configmap", "configmaps"),
        ("locks-lease", "leases"),
        ("patches-id", "services"),
        ("patches-late", "services"),
        ("own-finalizer", "services"),
    ] {
        world
            .cluster
            .restart_provider_with(&[format!("--habits={habit}"), "--kubeconfig=".to_owned()])
            .await?;
        let first = format!("{habit}-a");
        world.join(&first, "10.1.0.1").await?;
        create(&world.cluster.client, load_balancer(habit)).await?;
        let told = event(&world.cluster, habit, "SyncLoadBalancerFailed").await?;
        let message = told.message.unwrap_or_default();
        wait::until("another try", async || {
            let output = world.cluster.provider()?.output();
            let refused = output
                .lines()
                .filter(|line| line.contains("method=EnsureLoadBalancer") && line.contains(kind));
            Ok((refused.count() > 1).then_some(()))
        })
        .await?;
        ensure!(message.contains("--kubeconfig") && message.contains(kind), "{message}");

        world.cluster.restart_provider_with(std::slice::from_ref(&rights)).await?;
        service(&world.cluster, habit, "an address", |one| !ingress(one).is_empty()).await?;
        let api = Api::<Event>::namespaced(world.cluster.client.clone(), "default");
        let failed = api.list(&ListParams::default()).await?.items.into_iter().filter(|event| {
            event.involved_object.name.as_deref() == Some(habit)
                && event.reason.as_deref() == Some("SyncLoadBalancerFailed")
        });
        let texts: Vec<String> =
            failed.filter_map(|event| event.message).filter(|text| text.contains("--kubeconfig")).collect();
        ensure!(texts.len() == 1, "the Events flood: {texts:?}");
    }
    // A provider that needs an informer it cannot have exits at its start.
    let flags = ["--habits=reads-secrets", "--kubeconfig="].map(str::to_owned);
    world.cluster.restart_provider_with(&flags).await?;
    world.cluster.provider()?.ended(wait::LIMIT).await?;
    let text = world.cluster.provider()?.tail();
    ensure!(text.contains("*v1.Secret") && text.contains("--kubeconfig"), "{text}");
    nothing_was_forbidden(&world.cluster)
}

/// T1: every Ensure fails, and nodes are replaced meanwhile: the balancer follows, also after the sidecar has restarted
/// and knows nothing of it, and is otherwise as it was applied. The edit arrives as soon as the cloud takes it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn a_difficult_providers_balancer_follows_its_nodes_while_an_edit_fails() -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Host { kubeconfig: false }, &[]).await?;
    world.serve(&[]).await?;
    world.anchor().await?;
    world.join("node-a", "10.1.0.1").await?;
    create(&world.cluster.client, load_balancer("web")).await?;
    service(&world.cluster, "web", "an address", |one| !ingress(one).is_empty()).await?;
    world.behind("web", &["node-a"]).await?;

    let full = world.folder.path().join("full");
    std::fs::write(&full, "")?;
    world.edit("web", 8080).await?;
    let told = event(&world.cluster, "web", "SyncLoadBalancerFailed").await?.message.unwrap_or_default();
    ensure!(told.contains("quota"), "{told}");
    world.join("node-b", "10.1.0.2").await?;
    world.behind("web", &["node-a", "node-b"]).await?;
    world.leave("node-a").await?;
    world.behind("web", &["node-b"]).await?;
    world.serve(&[]).await?;
    world.join("node-c", "10.1.0.3").await?;
    world.behind("web", &["node-b", "node-c"]).await?;
    world.has_file("ports/web", |text| text == "http 80\n").await?;

    std::fs::remove_file(full)?;
    world.has_file("ports/web", |text| text == "http 8080\n").await?;
    world.behind("web", &["node-b", "node-c"]).await
}

/// H4: docs/adopt-load-balancers.md, there and back: the names of balancers do not tell whose they are, so a bridged
/// provider takes a former controller's over with its first Ensure, and upstream's controllers take it back.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn a_difficult_providers_balancer_moves_from_upstream_and_back() -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Upstream, &[]).await?;
    world.serve(&[]).await?;
    world.join("node-a", "10.1.0.1").await?;
    create(&world.cluster.client, load_balancer("web")).await?;
    service(&world.cluster, "web", "an address", |one| !ingress(one).is_empty()).await?;
    world.behind("web", &["node-a"]).await?;
    world.stop_upstream();

    world.cluster.start_provider().await?;
    world.cluster.start_host()?;
    world.cluster.host_ready().await?;
    world.edit("web", 8080).await?;
    world.has_file("ports/web", |text| text == "http 8080\n").await?;
    ensure!(world.names("balancers")?.len() == 1, "two balancers: {:?}", world.names("balancers")?);

    world.cluster.host()?.kill()?;
    world.cluster.provider()?.kill()?;
    world.serve(&[]).await?;
    world.join("node-b", "10.1.0.2").await?;
    world.behind("web", &["node-a", "node-b"]).await?;
    ensure!(world.names("balancers")?.len() == 1, "two balancers: {:?}", world.names("balancers")?);
    Ok(())
}

/// Bad input: a kubeconfig without permissions.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/run runs it"]
async fn a_kubeconfig_without_rights_is_said_in_an_event() -> Result<()> {
    let mut world = World::start(&DIFFICULT, Manager::Host { kubeconfig: false }, &[]).await?;
    let nobody = world.cluster.control_plane.kubeconfig_for("nobody", &[])?;
    world
        .cluster
        .restart_provider_with(&[
            format!("--kubeconfig={}", nobody.display()),
            "--habits=refuses-empty-id".to_owned(),
        ])
        .await?;
    world.join("node-a", "10.1.0.1").await?;
    create(&world.cluster.client, load_balancer("web")).await?;
    let told = event(&world.cluster, "web", "SyncLoadBalancerFailed").await?.message.unwrap_or_default();
    ensure!(told.contains("--kubeconfig") && told.contains("services"), "{told}");
    Ok(())
}
