//! Balancers that change behind the host's back, orphaned ones, and those of a former controller.

use anyhow::{Context as _, Result};
use e2e::{event, nothing_was_forbidden, service};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use provider_mock::cloud::{Balancer, NewLegacyBalancer};
use serde_json::json;
use test_cluster::{
    Cluster, Options, metrics,
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// A host with sweeps short enough for a test.
fn sweeping() -> Options {
    quick().host_flag("--load-balancer-resync-period=1s")
}

async fn with_web() -> Result<(Cluster, Balancer)> {
    let cluster = sweeping().start().await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    let balancer = the_only(&cluster).await?;
    Ok((cluster, balancer))
}

async fn the_only(cluster: &Cluster) -> Result<Balancer> {
    let mut balancers = cluster.cloud()?.balancers().await?;
    anyhow::ensure!(balancers.len() == 1, "{balancers:?}");
    balancers.pop().context("one")
}

/// SW-17.
#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_that_was_changed_behind_our_back_is_repaired() -> Result<()> {
    let (cluster, balancer) = with_web().await?;
    cluster.cloud()?.door().patch_balancer(&balancer.id, &json!({"ports": []})).await?;

    wait::until("the ports are back", async || {
        let now = the_only(&cluster).await?;
        Ok((!now.drifted && now.ports == balancer.ports).then_some(()))
    })
    .await?;
    assert_eq!(the_only(&cluster).await?.id, balancer.id, "the same balancer");
    Ok(())
}

/// SW-17.
#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_that_was_deleted_behind_our_back_comes_back() -> Result<()> {
    let (cluster, balancer) = with_web().await?;
    cluster.cloud()?.door().delete_balancer(&balancer.id).await?;

    wait::until("another balancer", async || {
        let balancers = cluster.cloud()?.balancers().await?;
        Ok((balancers.len() == 1 && balancers[0].id != balancer.id).then_some(()))
    })
    .await?;
    let address = the_only(&cluster).await?.ingress[0].ip.context("an address")?.to_string();
    service(&cluster, "web", "the new address", |service| ingress(service) == [address.clone()]).await?;
    Ok(())
}

/// Somebody removes the finalizer and deletes the Service while no host runs.
async fn orphaned() -> Result<(Cluster, Balancer)> {
    let (mut cluster, balancer) = with_web().await?;
    cluster.host()?.kill()?;
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    let torn = json!({ "metadata": { "finalizers": null } });
    api.patch("web", &PatchParams::default(), &Patch::Merge(torn)).await?;
    api.delete("web", &Default::default()).await?;
    Ok((cluster, balancer))
}

/// SW-2: several sweeps find it, and it stays.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphaned_balancer_is_reported_and_stays() -> Result<()> {
    let (mut cluster, balancer) = orphaned().await?;
    cluster.cloud()?.reset_calls().await?;
    cluster.start_host()?;

    let told = event(&cluster, "web", "OrphanedLoadBalancer").await?;
    let text = told.message.unwrap_or_default();
    assert!(text.contains(&balancer.id) && text.contains("--delete-orphaned-load-balancers"), "{text}");
    wait::until("three sweeps", async || {
        let (calls, _) = cluster.cloud()?.calls_and_items("ListLoadBalancers").await?;
        Ok((calls >= 3).then_some(()))
    })
    .await?;
    let text = cluster.host_metrics().await?;
    assert!((metrics::sum(&text, "ccm_service_orphaned_load_balancers", &[]) - 1.0).abs() < 0.1, "{text}");
    assert_eq!(the_only(&cluster).await?.id, balancer.id);
    Ok(())
}

/// SW-2.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphaned_balancer_is_removed_if_asked_for_and_others_stay() -> Result<()> {
    let (mut cluster, balancer) = orphaned().await?;
    let of_another = NewLegacyBalancer {
        service_uid: "another-uid".to_owned(),
        cluster_uid: "another-cluster".to_owned(),
        ..NewLegacyBalancer::default()
    };
    let legacy = NewLegacyBalancer { service_uid: "legacy-uid".to_owned(), ..NewLegacyBalancer::default() };
    let mut stay = Vec::new();
    for wish in [of_another, legacy] {
        stay.push(cluster.cloud()?.door().create_legacy_balancer(&wish).await?.id);
    }
    cluster.add_host_flag("--delete-orphaned-load-balancers");
    cluster.start_host()?;

    wait::until("the orphan gone", async || {
        let balancers = cluster.cloud()?.balancers().await?;
        Ok(balancers.iter().all(|one| one.id != balancer.id).then_some(()))
    })
    .await?;
    event(&cluster, "web", "DeletedLoadBalancer").await?;
    let left: Vec<String> = cluster.cloud()?.balancers().await?.into_iter().map(|one| one.id).collect();
    assert_eq!(left, stay);
    nothing_was_forbidden(&cluster)
}

/// A Service of a former controller, whose balancer has a name, but no uids.
async fn with_a_former_controllers_balancer(options: Options) -> Result<(Cluster, Balancer)> {
    let mut cluster = options.start_without_host().await?;
    let uid = create(&cluster.client, load_balancer("web")).await?.metadata.uid.context("a uid")?;
    let wish = NewLegacyBalancer {
        service_uid: uid,
        namespace: "default".to_owned(),
        service_name: "web".to_owned(),
        cluster_name: "kubernetes".to_owned(),
        ..NewLegacyBalancer::default()
    };
    let balancer = cluster.cloud()?.door().create_legacy_balancer(&wish).await?;
    cluster.start_host()?;
    Ok((cluster, balancer))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_controllers_balancer_is_left_alone_and_the_flag_is_named() -> Result<()> {
    let (mut cluster, before) = with_a_former_controllers_balancer(sweeping()).await?;

    let told = event(&cluster, "web", "SyncLoadBalancerFailed").await?;
    assert!(told.message.as_deref().unwrap_or_default().contains("--adopt-load-balancers"), "{told:?}");
    assert_eq!(the_only(&cluster).await?, before, "untouched, and no second one");

    // The remedy works.
    cluster.host()?.terminate().await?;
    cluster.add_host_flag("--adopt-load-balancers");
    cluster.start_host()?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    assert_eq!(the_only(&cluster).await?.id, before.id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_controllers_balancer_is_adopted_with_its_address_if_asked_for() -> Result<()> {
    let (cluster, before) =
        with_a_former_controllers_balancer(sweeping().host_flag("--adopt-load-balancers")).await?;

    let address = before.ingress[0].ip.context("an address")?.to_string();
    service(&cluster, "web", "the address it always had", |service| ingress(service) == [address.clone()])
        .await?;
    let after = the_only(&cluster).await?;
    assert_eq!(after.id, before.id);
    assert!(
        !after.cluster_uid.is_empty() && !after.service_uid.is_empty(),
        "tagged with both uids: {after:?}"
    );
    event(&cluster, "web", "AdoptedLoadBalancer").await?;
    Ok(())
}

/// A former controller's balancer that nobody adopts does not blind the sweeps: they still notice absence.
#[tokio::test(flavor = "multi_thread")]
async fn sweeps_see_what_is_gone_beside_a_former_controllers_balancer() -> Result<()> {
    let (cluster, balancer) = with_web().await?;
    let legacy = NewLegacyBalancer { service_uid: "legacy-uid".to_owned(), ..NewLegacyBalancer::default() };
    let legacy = cluster.cloud()?.door().create_legacy_balancer(&legacy).await?;
    cluster.cloud()?.door().delete_balancer(&balancer.id).await?;

    wait::until("another balancer", async || {
        let balancers = cluster.cloud()?.balancers().await?;
        Ok(balancers.iter().any(|one| ![&legacy.id, &balancer.id].contains(&&one.id)).then_some(()))
    })
    .await?;
    let text = cluster.host_metrics().await?;
    assert!(metrics::sum(&text, "cloudprovider_contract_violations_total", &[]) < 0.5, "{text}");
    Ok(())
}
