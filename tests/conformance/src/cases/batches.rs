//! Batches: keys, sizes and shapes, for each of the five alike.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider_proto::{
    defaults,
    v1alpha1::{
        BatchDeleteRoutesRequest, BatchEnsureRoutesRequest, BatchGetInstancesRequest,
        BatchGetVolumeLabelsRequest, BatchUpdateLoadBalancersRequest, ErrorReason, InstanceQuery,
        InstanceState, LoadBalancerUpdate, NodeRef, Route, RouteToDelete, RouteToEnsure, VolumeQuery,
    },
};
use futures::future::LocalBoxFuture;
use tonic::{Response, Status};

use super::instances::stranger;
use crate::{
    case::{
        Case, Outcome,
        Profile::{Instances, LoadBalancers, Routes, Volumes},
        Run, Stop,
    },
    provider::count,
    trial::{Trial, expect, failed, good, refused, same},
};

const KEYS: &[&str] = &["batch-keys"];
const LARGE: &[&str] = &["| too many queries | INVALID_ARGUMENT | BATCH_TOO_LARGE"];
const ITEMS: &[&str] = &["| too many items | INVALID_ARGUMENT | BATCH_TOO_LARGE"];
const DOUBLED: &[&str] = &["| a key is empty or doubled | INVALID_ARGUMENT | INVALID_ARGUMENT_SHAPE|"];
const SHAPE: &[&str] = &["a required field is missing, a key is doubled. Code INVALID_ARGUMENT."];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "BATCH-01",
        Instances,
        "BatchGetInstances: one key in, the same key out",
        KEYS,
        &Keys(Batch::Instances, Size::One),
    ),
    Case::new(
        "BATCH-02",
        Instances,
        "BatchGetInstances: as many keys as advertised",
        KEYS,
        &Keys(Batch::Instances, Size::Most),
    ),
    Case::new(
        "BATCH-03",
        Instances,
        "BatchGetInstances: one more is BATCH_TOO_LARGE",
        &[],
        &TooMany(Batch::Instances),
    )
    .words(LARGE),
    Case::new(
        "BATCH-04",
        Instances,
        "BatchGetInstances: a doubled key is refused",
        &[],
        &Doubled(Batch::Instances),
    )
    .words(DOUBLED),
    Case::new(
        "BATCH-05",
        Instances,
        "BatchGetInstances: an empty key is refused",
        &[],
        &Empty(Batch::Instances),
    )
    .words(DOUBLED),
    Case::new(
        "BATCH-06",
        Instances,
        "BatchGetInstances: no query at all is refused",
        &[],
        &Nothing(Batch::Instances),
    )
    .words(SHAPE),
    Case::new(
        "BATCH-07",
        Instances,
        "BatchGetInstances: the order of queries changes no answer",
        KEYS,
        &permuted,
    )
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new(
        "BATCH-08",
        Instances,
        "BatchGetInstances: unknown nodes cost known ones nothing",
        KEYS,
        &mixed,
    )
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new("BATCH-09", Instances, "BatchGetInstances: any text of up to 1 KiB is a key", KEYS, &odd_keys),
    Case::new(
        "BATCH-11",
        LoadBalancers,
        "BatchUpdateLoadBalancers: one key in, the same key out",
        KEYS,
        &Keys(Batch::Updates, Size::One),
    ),
    Case::new(
        "BATCH-12",
        LoadBalancers,
        "BatchUpdateLoadBalancers: as many as advertised",
        KEYS,
        &Keys(Batch::Updates, Size::Most),
    ),
    Case::new(
        "BATCH-13",
        LoadBalancers,
        "BatchUpdateLoadBalancers: one more is BATCH_TOO_LARGE",
        &[],
        &TooMany(Batch::Updates),
    )
    .words(ITEMS),
    Case::new(
        "BATCH-14",
        LoadBalancers,
        "BatchUpdateLoadBalancers: a doubled Service is refused",
        &[],
        &Doubled(Batch::Updates),
    )
    .words(SHAPE),
    Case::new(
        "BATCH-15",
        LoadBalancers,
        "BatchUpdateLoadBalancers: no item at all is refused",
        &[],
        &Nothing(Batch::Updates),
    )
    .words(SHAPE),
    Case::new(
        "BATCH-21",
        Routes,
        "BatchEnsureRoutes: one key in, the same key out",
        KEYS,
        &Keys(Batch::EnsureRoutes, Size::One),
    ),
    Case::new(
        "BATCH-22",
        Routes,
        "BatchEnsureRoutes: one more than advertised is BATCH_TOO_LARGE",
        &[],
        &TooMany(Batch::EnsureRoutes),
    )
    .words(ITEMS),
    Case::new(
        "BATCH-23",
        Routes,
        "BatchEnsureRoutes: a doubled key is refused",
        &[],
        &Doubled(Batch::EnsureRoutes),
    )
    .words(SHAPE),
    Case::new(
        "BATCH-24",
        Routes,
        "BatchEnsureRoutes: no item at all is refused",
        &[],
        &Nothing(Batch::EnsureRoutes),
    )
    .words(SHAPE),
    Case::new(
        "BATCH-25",
        Routes,
        "BatchDeleteRoutes: one key in, the same key out",
        KEYS,
        &Keys(Batch::DeleteRoutes, Size::One),
    ),
    Case::new(
        "BATCH-26",
        Routes,
        "BatchDeleteRoutes: as many as advertised",
        KEYS,
        &Keys(Batch::DeleteRoutes, Size::Most),
    ),
    Case::new(
        "BATCH-27",
        Routes,
        "BatchDeleteRoutes: one more is BATCH_TOO_LARGE",
        &[],
        &TooMany(Batch::DeleteRoutes),
    )
    .words(ITEMS),
    Case::new(
        "BATCH-28",
        Routes,
        "BatchDeleteRoutes: a doubled key is refused",
        &[],
        &Doubled(Batch::DeleteRoutes),
    )
    .words(SHAPE),
    Case::new(
        "BATCH-31",
        Volumes,
        "BatchGetVolumeLabels: one key in, the same key out",
        KEYS,
        &Keys(Batch::Volumes, Size::One),
    ),
    Case::new(
        "BATCH-32",
        Volumes,
        "BatchGetVolumeLabels: as many keys as advertised",
        KEYS,
        &Keys(Batch::Volumes, Size::Most),
    ),
    Case::new(
        "BATCH-33",
        Volumes,
        "BatchGetVolumeLabels: one more is BATCH_TOO_LARGE",
        &[],
        &TooMany(Batch::Volumes),
    )
    .words(LARGE),
    Case::new(
        "BATCH-34",
        Volumes,
        "BatchGetVolumeLabels: a doubled key is refused",
        &[],
        &Doubled(Batch::Volumes),
    )
    .words(SHAPE),
];

/// A batch of the contract.
#[derive(Debug, Clone, Copy)]
enum Batch {
    Instances,
    Updates,
    EnsureRoutes,
    DeleteRoutes,
    Volumes,
}

#[derive(Debug, Clone, Copy)]
enum Size {
    One,
    Most,
}

impl Batch {
    fn rpc(self) -> &'static str {
        match self {
            Self::Instances => "BatchGetInstances",
            Self::Updates => "BatchUpdateLoadBalancers",
            Self::EnsureRoutes => "BatchEnsureRoutes",
            Self::DeleteRoutes => "BatchDeleteRoutes",
            Self::Volumes => "BatchGetVolumeLabels",
        }
    }

    fn most(self, t: &Trial) -> usize {
        let limits = t.provider().limits();
        let advertised = match self {
            Self::Instances => limits.max_batch_instances,
            Self::Updates => limits.max_batch_load_balancers,
            Self::EnsureRoutes | Self::DeleteRoutes => limits.max_batch_routes,
            Self::Volumes => limits.max_batch_volumes,
        };
        count(advertised, defaults::MAX_BATCH)
    }

    /// A batch about things that do not exist, so that nothing is ever made. Answers the keys of the answer.
    async fn call(self, t: &Trial, keys: &[String]) -> Result<Response<Vec<String>>, Status> {
        let (cluster, fencing) = (t.cluster(), t.fencing());
        let keys_out = match self {
            Self::Instances => {
                let query = |key: &String| InstanceQuery { key: key.clone(), node: Some(nobody(key)) };
                let queries = keys.iter().map(query).collect();
                let request = t.ask(BatchGetInstancesRequest { cluster, queries, ..Default::default() });
                let answer = t.instances().batch_get_instances(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
            Self::Updates => {
                let items = keys.iter().map(|key| update(key)).collect();
                let backend_sets = vec![Default::default()];
                let request =
                    t.ask(BatchUpdateLoadBalancersRequest { cluster, fencing, backend_sets, items });
                let answer = t.load_balancers().batch_update_load_balancers(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.service_uid).collect()
            }
            Self::EnsureRoutes => {
                let items = keys.iter().enumerate().map(|(at, key)| route_to_nobody(at, key)).collect();
                let request = t.ask(BatchEnsureRoutesRequest { cluster, fencing, items });
                let answer = t.routes().batch_ensure_routes(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
            Self::DeleteRoutes => {
                let items = keys.iter().enumerate().map(|(at, key)| route_that_is_gone(at, key)).collect();
                let request = t.ask(BatchDeleteRoutesRequest { cluster, fencing, items });
                let answer = t.routes().batch_delete_routes(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
            Self::Volumes => {
                let queries = keys.iter().map(|key| no_volume(key)).collect();
                let request = t.ask(BatchGetVolumeLabelsRequest { cluster, queries });
                let answer = t.volumes().batch_get_volume_labels(request).await?.into_inner();
                answer.results.into_iter().map(|result| result.key).collect()
            }
        };
        Ok(Response::new(keys_out))
    }
}

fn nobody(key: &str) -> NodeRef {
    let name = format!("no-such-node-{}", if key.len() > 60 { "long" } else { key });
    NodeRef { uid: format!("uid-{name}"), name, ..NodeRef::default() }
}

fn update(uid: &str) -> LoadBalancerUpdate {
    let reference = cloudprovider_proto::v1alpha1::ServiceRef {
        namespace: "conformance".to_owned(),
        name: "no-such-service".to_owned(),
        uid: uid.to_owned(),
    };
    let service = cloudprovider_proto::v1alpha1::Service { r#ref: Some(reference), ..Default::default() };
    LoadBalancerUpdate {
        service: Some(service),
        backend_set: 0,
        desired_digest: "digest".to_owned(),
        revision: 0,
    }
}

fn destination(at: usize) -> String {
    format!("198.18.{}.{}/32", (at >> 8) & 0xff, at & 0xff)
}

fn route_to_nobody(at: usize, key: &str) -> RouteToEnsure {
    RouteToEnsure { key: key.to_owned(), destination_cidr: destination(at), target: Some(nobody("target")) }
}

fn route_that_is_gone(at: usize, key: &str) -> RouteToDelete {
    let id = format!("no-such-route-{at}");
    let route = Route { id, destination_cidr: destination(at), target: Some(nobody("target")), state: 1 };
    RouteToDelete { key: key.to_owned(), route: Some(route) }
}

fn no_volume(key: &str) -> VolumeQuery {
    VolumeQuery {
        key: key.to_owned(),
        name: format!("pv-{key}"),
        plugin: "kubernetes.io/no-such-plugin".to_owned(),
        volume_id: format!("no-such-volume-{key}"),
        ..VolumeQuery::default()
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key-{number}")).collect()
}

/// Each key is answered exactly once, and no other.
fn each_once(rpc: &str, asked: &[String], answered: &[String]) -> Outcome {
    let (asked_set, answered_set): (BTreeSet<_>, BTreeSet<_>) =
        (asked.iter().collect(), answered.iter().collect());
    let fits = asked_set == answered_set && answered.len() == asked.len();
    let strange: Vec<_> = asked_set.symmetric_difference(&answered_set).take(5).collect();
    let seen = format!("{} keys; missing or strange: {strange:?}", answered.len());
    if fits { Ok(()) } else { Err(failed(format!("{rpc}: each of {} keys exactly once", asked.len()), seen)) }
}

struct Keys(Batch, Size);
struct TooMany(Batch);
struct Doubled(Batch);
struct Empty(Batch);
struct Nothing(Batch);

impl Run for Keys {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Self(batch, size) = *self;
            let mut asked = keys(match size {
                Size::One => 1,
                Size::Most => batch.most(t),
            });
            t.shuffle(&mut asked);
            let answered = good(batch.rpc(), batch.call(t, &asked).await)?;
            each_once(batch.rpc(), &asked, &answered)
        })
    }
}

impl Run for TooMany {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let most = self.0.most(t);
            let answer = self.0.call(t, &keys(most + 1)).await;
            let seen = refused(self.0.rpc(), answer, ErrorReason::BatchTooLarge)?;
            let told = seen.info.and_then(|info| info.metadata.get("max").cloned());
            same("metadata \"max\"", &told, &Some(most.to_string()))
        })
    }
}

impl Run for Doubled {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let twice = vec!["twice".to_owned(), "twice".to_owned()];
            refused(self.0.rpc(), self.0.call(t, &twice).await, ErrorReason::InvalidArgumentShape).map(drop)
        })
    }
}

impl Run for Empty {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            refused(self.0.rpc(), self.0.call(t, &[String::new()]).await, ErrorReason::InvalidArgumentShape)
                .map(drop)
        })
    }
}

impl Run for Nothing {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            refused(self.0.rpc(), self.0.call(t, &[]).await, ErrorReason::InvalidArgumentShape).map(drop)
        })
    }
}

/// State and provider ID by the name of the node.
async fn by_node(t: &Trial, nodes: &[NodeRef]) -> Result<BTreeMap<String, (InstanceState, String)>, Stop> {
    let request = t.batch(nodes.to_vec());
    let results = good("BatchGetInstances", t.instances().batch_get_instances(t.ask(request)).await)?.results;
    let mut by_node = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let key = format!("k{at}");
        let mut of = results.iter().filter(|result| result.key == key);
        match (of.next(), of.next()) {
            (Some(result), None) => {
                let id =
                    result.instance.as_ref().map(|instance| instance.provider_id.clone()).unwrap_or_default();
                by_node.insert(node.name.clone(), (result.state(), id));
            }
            other => return Err(failed(format!("one result for key {key}"), format!("{other:?}"))),
        }
    }
    Ok(by_node)
}

async fn permuted(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let mut nodes = vec![stranger(t), stranger(t)];
    for machine in &machines {
        t.look_until(&machine.node(), &[InstanceState::Running]).await?;
        nodes.push(machine.node());
    }
    let first = by_node(t, &nodes).await?;
    for _order in 0..3 {
        t.shuffle(&mut nodes);
        same("the same answers:", &by_node(t, &nodes).await?, &first)?;
    }
    Ok(())
}

async fn mixed(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    let nodes = [stranger(t), machine.node(), stranger(t)];
    let answers = by_node(t, &nodes).await?;
    let known = answers.get(&machine.name).map(|(state, _)| *state);
    expect(known == Some(InstanceState::Running), "RUNNING beside strangers", &answers)
}

async fn odd_keys(t: &Trial) -> Outcome {
    let asked = vec![
        "k".repeat(1 << 10),
        "blank and /slash".to_owned(),
        "Schlüssel-☃".to_owned(),
        "\u{1}\n\t".to_owned(),
    ];
    let answered = good("BatchGetInstances", Batch::Instances.call(t, &asked).await)?;
    each_once("BatchGetInstances", &asked, &answered)
}
