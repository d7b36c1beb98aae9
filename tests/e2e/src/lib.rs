//! Shared by the end-to-end tests: watches one object until it is as expected; a peer of another version ([`skew`]); the
//! providers of AWS on an emulated AWS ([`aws`]); what is in `deploy/`, rendered and installed ([`mod@deploy`]).
//!
//! The tests themselves are one binary, `tests/e2e`, with a module per topic; those of AWS, of `deploy/` and of clusters of machines
//! are others. Each test has its own control plane.

pub mod aws;
pub mod certificates;
pub mod deploy;
mod end_state;
mod history;
pub mod skew;
pub mod volumes;

pub use end_state::EndState;
pub use history::{History, quick};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::{Api, api::ListParams};
use serde_json::Value;
use test_cluster::{
    Cluster, Options,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    wait,
};

use skew::{Proxy, Skew};

/// Starts a host whose provider is behind a proxy that speaks another version.
pub async fn start_behind_a_proxy(options: Options, skew: Skew) -> Result<(Cluster, Proxy)> {
    let mut cluster = options.start_without_host().await?;
    let proxy = Proxy::in_front_of(&cluster.socket(), skew)?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok((cluster, proxy))
}

/// Creates machines in zone-a of the mock, and their nodes, ready and initialised.
pub async fn join(cluster: &Cluster, names: &[impl AsRef<str>]) -> Result<()> {
    for name in names.iter().map(AsRef::as_ref) {
        cluster.cloud()?.create_instance(name, "zone-a").await?;
        register(&cluster.client, as_registered(name)).await?;
        set_ready(&cluster.client, name, "True").await?;
        node(cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    Ok(())
}

/// Waits until the condition holds for the node.
pub async fn node(cluster: &Cluster, name: &str, what: &str, is: impl Fn(&Node) -> bool) -> Result<Node> {
    let api = Api::<Node>::all(cluster.client.clone());
    wait::until(&format!("{name}: {what}"), async || Ok(api.get_opt(name).await?.filter(|node| is(node))))
        .await
        .with_context(|| format!("{:?}", cluster.parts()))
}

/// Waits until the node is gone.
pub async fn node_gone(cluster: &Cluster, name: &str) -> Result<()> {
    let api = Api::<Node>::all(cluster.client.clone());
    wait::until(&format!("{name} gone"), async || Ok(api.get_opt(name).await?.is_none().then_some(())))
        .await
        .with_context(|| format!("{:?}", cluster.parts()))
}

/// Waits until the condition holds for the Service in `default`.
pub async fn service(
    cluster: &Cluster,
    name: &str,
    what: &str,
    is: impl Fn(&Service) -> bool,
) -> Result<Service> {
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    wait::until(&format!("{name}: {what}"), async || {
        Ok(api.get_opt(name).await?.filter(|service| is(service)))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))
}

/// Waits until the Service in `default` is gone.
pub async fn service_gone(cluster: &Cluster, name: &str) -> Result<()> {
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    wait::until(&format!("{name} gone"), async || Ok(api.get_opt(name).await?.is_none().then_some(())))
        .await
        .with_context(|| format!("{:?}", cluster.parts()))
}

/// Waits for an Event with this reason on the object with this name.
pub async fn event(cluster: &Cluster, object: &str, reason: &str) -> Result<Event> {
    let api = Api::<Event>::all(cluster.client.clone());
    wait::until(&format!("an Event {reason} on {object}"), async || {
        let events = api.list(&ListParams::default()).await?.items;
        Ok(events.into_iter().find(|event| {
            event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(object)
        }))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))
}

/// The host's Warnings, each with its object and its reason. Ends the host first, so that its last Events are
/// written.
///
/// The apiserver writes its own Warnings when its allocators lag behind the Services; these are not the host's.
pub async fn warnings(cluster: &mut Cluster) -> Result<Vec<String>> {
    cluster.host()?.terminate().await?;
    let events = Api::<Event>::all(cluster.client.clone()).list(&ListParams::default()).await?;
    Ok(events
        .into_iter()
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .filter(|event| {
            !event.reporting_component.as_deref().is_some_and(|it| it.ends_with("-repair-controller"))
        })
        .map(|event| format!("{:?} {:?} {:?}", event.involved_object.name, event.reason, event.message))
        .collect())
}

/// The exit code of `ccmctl shadow diff`, and its report.
pub async fn shadow_diff(cluster: &Cluster) -> Result<(i32, Value)> {
    let way = cluster.ccmctl_way()?;
    let words = ["shadow", "diff", "-o", "json"].into_iter().chain(way.iter().map(String::as_str));
    let administrator = cluster.control_plane.admin_kubeconfig();
    let output = cluster.ccmctl(&administrator, &words.collect::<Vec<_>>()).await?;
    let code = output.status.code().context("no exit code")?;
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((code, report))
}

/// The number of nodes.
pub async fn node_count(cluster: &Cluster) -> Result<usize> {
    Ok(Api::<Node>::all(cluster.client.clone()).list_metadata(&ListParams::default()).await?.items.len())
}

/// Checks that the apiserver forbade none of the host's requests: the shipped permissions are enough.
pub fn nothing_was_forbidden(cluster: &Cluster) -> Result<()> {
    let forbidden: Vec<String> = cluster
        .control_plane
        .audit_events()?
        .into_iter()
        .filter(|event| event.code == 403)
        .map(|event| format!("{} {}", event.verb, event.resource))
        .collect();
    anyhow::ensure!(forbidden.is_empty(), "deploy/rbac.yaml does not allow: {}", forbidden.join(", "));
    Ok(())
}
