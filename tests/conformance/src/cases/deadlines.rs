//! Deadlines that are far too short, and callers that go away.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::{
    GetLoadBalancerRequest, GetStatusRequest, instances_client::InstancesClient,
};
use futures::future::{LocalBoxFuture, join_all};
use tonic::{Code, Status};

use super::instances::stranger;
use crate::{
    case::{
        Case, Outcome,
        Profile::{
            Clusters, Identity, Instances, InstancesList, LoadBalancers, LoadBalancersList, Routes, Volumes,
        },
        Run,
    },
    provider::{in_words, no_answer},
    trial::{Trial, failed, good, within},
};

const RULE: &[&str] = &["deadline-honoured"];

pub(super) const CASES: &[Case] = &[
    Case::new("DEAD-01", Identity, "GetStatus answers within any deadline", RULE, &Short(Call::Status)),
    Case::new(
        "DEAD-02",
        Instances,
        "BatchGetInstances answers within any deadline",
        RULE,
        &Short(Call::Instances),
    ),
    Case::new(
        "DEAD-03",
        InstancesList,
        "ListInstances answers within any deadline",
        RULE,
        &Short(Call::ListInstances),
    ),
    Case::new(
        "DEAD-04",
        LoadBalancers,
        "GetLoadBalancer answers within any deadline",
        RULE,
        &Short(Call::GetBalancer),
    ),
    Case::new(
        "DEAD-05",
        LoadBalancers,
        "EnsureLoadBalancer answers within any deadline",
        RULE,
        &Short(Call::Ensure),
    ),
    Case::new(
        "DEAD-06",
        LoadBalancers,
        "DeleteLoadBalancer answers within any deadline",
        RULE,
        &Short(Call::Delete),
    ),
    Case::new(
        "DEAD-07",
        LoadBalancersList,
        "ListLoadBalancers answers within any deadline",
        RULE,
        &Short(Call::ListBalancers),
    ),
    Case::new("DEAD-08", Routes, "ListRoutes answers within any deadline", RULE, &Short(Call::ListRoutes)),
    Case::new(
        "DEAD-09",
        Routes,
        "BatchEnsureRoutes answers within any deadline",
        RULE,
        &Short(Call::EnsureRoutes),
    ),
    Case::new(
        "DEAD-10",
        Volumes,
        "BatchGetVolumeLabels answers within any deadline",
        RULE,
        &Short(Call::Volumes),
    ),
    Case::new(
        "DEAD-11",
        Clusters,
        "ListClusters answers within any deadline",
        RULE,
        &Short(Call::ListClusters),
    ),
    Case::new(
        "DEAD-12",
        LoadBalancersList,
        "hurried Ensures leave one balancer, and the next one converges",
        &["deadline-honoured", "ensure-after-lost-answer"],
        &hurried_ensure,
    ),
    Case::new("DEAD-13", Instances, "calls that are given up in great number do no harm", RULE, &given_up)
        .words(&["| the caller went away | CANCELLED | none | as above |"]),
];

/// A call that does no lasting harm whenever it ends.
#[derive(Debug, Clone, Copy)]
enum Call {
    Status,
    Instances,
    ListInstances,
    GetBalancer,
    Ensure,
    Delete,
    ListBalancers,
    ListRoutes,
    EnsureRoutes,
    Volumes,
    ListClusters,
}

impl Call {
    async fn call(self, t: &Trial, deadline: Duration) -> Result<(), Status> {
        let cluster = t.cluster();
        let wanted = t.wanted().map_err(|_| Status::internal("the ledger cannot be written"))?;
        match self {
            Self::Status => t.base().get_status(within(GetStatusRequest {}, deadline)).await.map(drop),
            Self::Instances => {
                let batch = within(t.batch(vec![stranger(t)]), deadline);
                t.instances().batch_get_instances(batch).await.map(drop)
            }
            Self::ListInstances => {
                let list =
                    cloudprovider_proto::v1alpha1::ListInstancesRequest { cluster, ..Default::default() };
                t.instances().list_instances(within(list, deadline)).await.map(drop)
            }
            Self::GetBalancer => {
                let get = GetLoadBalancerRequest { cluster, service: Some(wanted.service_ref()) };
                t.load_balancers().get_load_balancer(within(get, deadline)).await.map(drop)
            }
            Self::Ensure => {
                let ensure = within(t.ensure_request(&wanted), deadline);
                t.load_balancers().ensure_load_balancer(ensure).await.map(drop)
            }
            Self::Delete => {
                let delete = within(t.delete_request(&wanted), deadline);
                t.load_balancers().delete_load_balancer(delete).await.map(drop)
            }
            Self::ListBalancers => {
                let list =
                    cloudprovider_proto::v1alpha1::ListLoadBalancersRequest { cluster, ..Default::default() };
                t.load_balancers().list_load_balancers(within(list, deadline)).await.map(drop)
            }
            Self::ListRoutes => {
                let list = cloudprovider_proto::v1alpha1::ListRoutesRequest { cluster, ..Default::default() };
                t.routes().list_routes(within(list, deadline)).await.map(drop)
            }
            Self::EnsureRoutes => {
                let batch = t.routes_to_ensure(vec![("198.19.255.224/28".to_owned(), stranger(t))]);
                t.routes().batch_ensure_routes(within(batch, deadline)).await.map(drop)
            }
            Self::Volumes => {
                let queries = vec![super::volumes::query("k0", "kubernetes.io/aws-ebs", "no-such-volume")];
                let get = cloudprovider_proto::v1alpha1::BatchGetVolumeLabelsRequest { cluster, queries };
                t.volumes().batch_get_volume_labels(within(get, deadline)).await.map(drop)
            }
            Self::ListClusters => {
                let list =
                    cloudprovider_proto::v1alpha1::ListClustersRequest { cluster, ..Default::default() };
                t.clusters().list_clusters(within(list, deadline)).await.map(drop)
            }
        }
    }
}

/// Answered in time: with whatever came of it, or with the words that a deadline has.
fn in_time(what: Call, deadline: Duration, answer: Result<(), Status>) -> Outcome {
    match answer {
        Ok(()) => Ok(()),
        Err(status) if no_answer(&status).is_some() => {
            Err(failed(format!("{what:?}: an answer of its own within {deadline:?}"), in_words(&status)))
        }
        Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => Ok(()),
        Err(status) => {
            Err(failed(format!("{what:?}: OK, DEADLINE_EXCEEDED or CANCELLED"), in_words(&status)))
        }
    }
}

struct Short(Call);

impl Run for Short {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            for deadline in [1, 10, 100].map(Duration::from_millis) {
                in_time(self.0, deadline, self.0.call(t, deadline).await)?;
            }
            // And nothing is stuck behind them.
            let usual = t.scenario().call_deadline;
            good("the next call", self.0.call(t, usual).await.map(tonic::Response::new))
        })
    }
}

async fn hurried_ensure(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    for deadline in [1, 5, 20, 100].map(Duration::from_millis) {
        let ensure = within(t.ensure_request(&wanted), deadline);
        let answer = t.load_balancers().ensure_load_balancer(ensure).await.map(drop);
        in_time(Call::Ensure, deadline, answer)?;
    }
    t.ensure(&wanted).await?;
    super::balancers::only_one(t, &wanted).await.map(drop)
}

async fn given_up(t: &Trial) -> Outcome {
    // A server may close a connection on which calls are given up in a storm; another one must go on.
    let theirs = t.wire().another();
    let given_up = (0..64).map(async |number| {
        let batch = t.ask(t.batch(vec![stranger(t)]));
        let mut client = InstancesClient::new(theirs.clone());
        let call = client.batch_get_instances(batch);
        // Dropped after no time, or nearly none: the caller is gone.
        drop(tokio::time::timeout(Duration::from_micros(number * 20), call).await);
    });
    join_all(given_up).await;
    let answer = t.instances().batch_get_instances(t.ask(t.batch(vec![stranger(t)]))).await;
    good("the next call", answer).map(drop)
}
