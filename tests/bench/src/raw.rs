//! What the apiserver itself can do: the yardstick.

use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, WatchParams},
};
use serde_json::json;
use test_cluster::Cluster;

use crate::realistic::name;

const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 2;

/// PATCHes a second, with 32 in flight and one Node watch open.
pub(crate) async fn measure(cluster: &Cluster, count: usize) -> Result<f64> {
    let api = Api::<Node>::all(cluster.client.clone());
    let mut events = api.watch(&WatchParams::default().timeout(290), "0").await?.boxed();
    let reader = tokio::spawn(async move { while events.next().await.is_some() {} });
    // Not counted: the first requests open connections.
    patch(&api, count.min(100), 0).await?;
    let begun = Instant::now();
    for round in 1..=ROUNDS {
        patch(&api, count, round).await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    reader.abort();
    Ok((count * ROUNDS) as f64 / seconds)
}

async fn patch(api: &Api<Node>, count: usize, round: usize) -> Result<()> {
    let body = json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } });
    let parameters = PatchParams::default();
    stream::iter(0..count)
        .map(|number| {
            let (body, parameters) = (Patch::Merge(&body), &parameters);
            async move { api.patch_metadata(&name(number), parameters, &body).await.map(drop) }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(())
}
