//! Large messages: requests at the advertised limit, and sets of as many instances as large clusters have.

use cloudprovider_proto::v1alpha1::{BatchGetInstancesRequest, NodeRef};
use prost::Message as _;

use crate::{
    case::{
        Case, Outcome,
        Profile::{Instances, LoadBalancers},
    },
    trial::{INSPECT, Trial, Wanted, expect, good},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "SIZE-01",
        Instances,
        "a request of nearly the advertised message size is taken",
        &["message-limit"],
        &at_the_limit,
    ),
    Case::new(
        "SIZE-02",
        LoadBalancers,
        "five thousand instances stand behind a balancer",
        &["built-as-asked"],
        &many_backends,
    )
    .words(&["The set grows with the cluster, up to `Limits.max_message_bytes`"])
    .hooks(&["create-instances", "terminate-instances", INSPECT])
    .extended(),
];

/// This much below the limit.
const ROOM: usize = 64 << 10;
const LABEL: usize = 4 << 10;
const MACHINES: usize = 5_000;

async fn at_the_limit(t: &Trial) -> Outcome {
    let limit = t.provider().max_message_bytes();
    let mut batch = t.batch(vec![t.stranger()]);
    let labels = |count: usize| (0..count).map(|number| (format!("l{number}"), "x".repeat(LABEL)));
    let fits = limit.saturating_sub(ROOM) / (LABEL + 32);
    for query in &mut batch.queries {
        let node = query.node.take().unwrap_or_default();
        query.node = Some(NodeRef { labels: labels(fits).collect(), ..node });
    }
    let bytes = BatchGetInstancesRequest::encoded_len(&batch);
    let answer = t.instances().batch_get_instances(t.ask(batch)).await;
    good(&format!("a request of {bytes} bytes, {limit} being advertised"), answer).map(drop)
}

async fn many_backends(t: &Trial) -> Outcome {
    let machines = t.machines_at_once(MACHINES).await?;
    let wanted = Wanted { nodes: machines, ..t.wanted().await? };
    let bytes = t.ensure_request(&wanted).encoded_len();
    expect(bytes < t.provider().max_message_bytes(), "a set that fits into a message", bytes)?;
    t.ensure(&wanted).await?;
    t.stands(&wanted).await
}
