//! What happens, in order, and what must be seen before the next step.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use test_cluster::{Cluster, nodes, services};
use tokio::time::Instant;

use crate::{screen::Screen, view::View};

const NODES: [&str; 4] = ["node-1", "node-2", "node-3", "node-4"];
const SERVICE: &str = "web";
const LEAVING: &str = "node-3";
const PATIENCE: Duration = Duration::from_secs(90);

/// The whole story.
pub(crate) async fn tell(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    nodes_come_alive(cluster, screen).await?;
    a_service_gets_its_address(cluster, screen).await?;
    an_instance_goes(cluster, screen).await?;
    the_service_goes(cluster, screen).await
}

async fn nodes_come_alive(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    screen
        .say("Four instances boot in the cloud; their kubelets register as nodes, tainted as uninitialized.");
    for (name, zone) in NODES.into_iter().zip(["zone-a", "zone-b", "zone-a", "zone-b"]) {
        cluster.cloud()?.create_instance(name, zone).await?;
        nodes::register(&cluster.client, nodes::as_registered(name)).await?;
        screen.draw(View::look(cluster).await?.lines());
    }
    for name in NODES {
        nodes::set_ready(&cluster.client, name, "True").await?;
    }
    see(cluster, screen, "all nodes initialised", |view| {
        NODES.iter().all(|name| view.node(name).is_some_and(is_initialised))
    })
    .await
}

fn is_initialised(node: &Node) -> bool {
    !nodes::is_uninitialized(node)
        && node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some())
        && !nodes::addresses(node, "InternalIP").is_empty()
        && nodes::label(node, "topology.kubernetes.io/zone").is_some()
}

async fn a_service_gets_its_address(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    screen.say("Somebody makes a Service of type LoadBalancer.");
    services::create(&cluster.client, services::load_balancer(SERVICE)).await?;
    see(cluster, screen, "the Service has its address and all nodes behind it", |view| {
        let service = view.service(SERVICE);
        service
            .is_some_and(|service| !services::ingress(service).is_empty() && services::has_finalizer(service))
            && view.backends_of(SERVICE).len() == NODES.len()
    })
    .await
}

async fn an_instance_goes(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    screen.say(&format!("The instance of {LEAVING} is terminated in the cloud; its kubelet falls silent."));
    cluster.cloud()?.terminate_instance(LEAVING).await?;
    nodes::set_ready(&cluster.client, LEAVING, "Unknown").await?;
    see(cluster, screen, "the node is gone and the balancer's backends have followed", |view| {
        view.node(LEAVING).is_none()
            && view.backends_of(SERVICE).len() == NODES.len() - 1
            && !view.backends_of(SERVICE).iter().any(|name| name == LEAVING)
    })
    .await
}

async fn the_service_goes(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    screen.say("The Service is deleted; its balancer goes first, then the finalizer.");
    Api::<Service>::namespaced(cluster.client.clone(), "default")
        .delete(SERVICE, &Default::default())
        .await?;
    see(cluster, screen, "Service and balancer are gone", |view| {
        view.service(SERVICE).is_none() && view.backends.is_empty()
    })
    .await
}

/// Draws until the condition holds. Restarts a part that exits meanwhile, as its kubelet would.
async fn see(
    cluster: &mut Cluster,
    screen: &mut Screen,
    what: &str,
    holds: impl Fn(&View) -> bool,
) -> Result<()> {
    let begun = Instant::now();
    loop {
        revive(cluster, screen).await?;
        let view = View::look(cluster).await?;
        screen.draw(view.lines());
        if holds(&view) {
            screen.note(&format!("seen after {:.1} s: {what}", begun.elapsed().as_secs_f32()));
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("waited {PATIENCE:?} in vain: {what}\n{:?}", cluster.parts());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Restarts host and provider if they have exited.
pub(crate) async fn revive(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    if !cluster.provider()?.is_running() {
        screen.note("provider-mock has ended: started again");
        cluster.start_provider().await.context("provider-mock cannot be started again")?;
    }
    if !cluster.host()?.is_running() {
        screen.note("ccm-host has ended: started again");
        cluster.start_host().context("ccm-host cannot be started again")?;
    }
    Ok(())
}
