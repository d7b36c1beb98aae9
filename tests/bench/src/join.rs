//! One node joins a cluster with many Services of type LoadBalancer.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::ListParams};
use test_cluster::{Cluster, services, wait};

use crate::realistic;

/// Provider calls that the join may cost, whatever the number of Services.
const MAX_CALLS: u64 = 3;
/// Calls that go on whether or not anything happens.
const BACKGROUND: [&str; 4] = ["GetInfo", "GetCapabilities", "GetStatus", "WatchInstances"];
const NEWCOMER: usize = 99_999;

/// What the join cost.
#[derive(Debug)]
pub(crate) struct Join {
    seconds: f64,
    calls: Vec<(String, u64)>,
}

/// Makes the Services, then lets a node join.
pub(crate) async fn measure(cluster: &mut Cluster, count: usize) -> Result<Join> {
    stream::iter(0..count)
        .map(|number| {
            services::create(&cluster.client, services::load_balancer(&format!("service-{number:03}")))
        })
        .buffer_unordered(16)
        .try_for_each(async |_| Ok(()))
        .await?;
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    wait::until("all Services have their addresses", async || {
        let list = api.list(&ListParams::default()).await?;
        Ok((list.items.iter().filter(|service| !services::ingress(service).is_empty()).count() >= count)
            .then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;

    let cloud = cluster.cloud()?;
    cloud.reset_calls().await?;
    let begun = Instant::now();
    realistic::register_one(cluster, NEWCOMER).await?;
    let newcomer = realistic::name(NEWCOMER);
    wait::until("the node stands behind all balancers, with its provider ID", async || {
        let balancers = cloud.balancers().await?;
        let behind = balancers.iter().filter(|balancer| {
            balancer
                .backends
                .iter()
                .any(|backend| backend.node == newcomer && !backend.provider_id.is_empty())
        });
        Ok((behind.count() >= count).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    Ok(Join { seconds: begun.elapsed().as_secs_f64(), calls: cloud.call_counts().await? })
}

impl Join {
    /// Prints the figures.
    pub(crate) fn print(&self, services: usize) {
        println!("\na node joining {services} Services, until it stands behind all balancers");
        println!("  seconds                  {:>10.1}", self.seconds);
        println!("  provider calls           {:>10}", self.total());
        for (method, calls) in &self.calls {
            println!("    {method:<28} {calls:>6}");
        }
    }

    /// Fails when a count is too high.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.total() <= MAX_CALLS,
            "{} provider calls for the join, {MAX_CALLS} are allowed",
            self.total()
        );
        Ok(())
    }

    fn total(&self) -> u64 {
        self.calls
            .iter()
            .filter(|(method, _)| !BACKGROUND.contains(&method.as_str()))
            .map(|(_, calls)| calls)
            .sum()
    }
}
