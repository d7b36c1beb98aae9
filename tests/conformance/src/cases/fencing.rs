//! Former leaders.

use cloudprovider_proto::v1alpha1::{
    AddSshKeyToAllInstancesRequest, BatchDeleteRoutesRequest, BatchEnsureRoutesRequest,
    BatchUpdateLoadBalancersRequest, Capability, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest,
    ErrorReason, Fencing, Route, RouteToDelete,
};
use futures::future::LocalBoxFuture;
use tonic::{Response, Status};

use super::instances::stranger;
use crate::{
    case::{
        Case, Outcome,
        Profile::{self, LoadBalancers, Routes, SshKeys},
        Run, Stop,
    },
    trial::{Trial, Wanted, good, reason_of, refused},
};

const RULE: &[&str] = &["fencing"];

pub(super) const CASES: &[Case] = &[
    former(
        "FENCE-01",
        LoadBalancers,
        "EnsureLoadBalancer: a former leader is STALE_LEADER",
        &Former(Mutation::Ensure),
    ),
    former(
        "FENCE-02",
        LoadBalancers,
        "BatchUpdateLoadBalancers: a former leader is STALE_LEADER",
        &Former(Mutation::Update),
    ),
    former(
        "FENCE-03",
        LoadBalancers,
        "DeleteLoadBalancer: a former leader is STALE_LEADER",
        &Former(Mutation::Delete),
    ),
    former(
        "FENCE-04",
        Routes,
        "BatchEnsureRoutes: a former leader is STALE_LEADER",
        &Former(Mutation::EnsureRoutes),
    ),
    former(
        "FENCE-05",
        Routes,
        "BatchDeleteRoutes: a former leader is STALE_LEADER",
        &Former(Mutation::DeleteRoutes),
    ),
    former(
        "FENCE-06",
        SshKeys,
        "AddSshKeyToAllInstances: a former leader is STALE_LEADER",
        &Former(Mutation::SshKey),
    ),
    former("FENCE-07", LoadBalancers, "epochs of other scopes are not compared", &other_scope),
    former("FENCE-08", LoadBalancers, "epoch 0 is never refused", &zero),
    former("FENCE-09", LoadBalancers, "the same epoch again is not refused", &equal),
    Case::new(
        "FENCE-10",
        LoadBalancers,
        "the epoch is checked before the shape of the arguments",
        &["error-order"],
        &before_shape,
    )
    .capability(Capability::Fencing)
    .extended(),
];

const fn former(id: &'static str, profile: Profile, title: &'static str, run: &'static dyn Run) -> Case {
    Case::new(id, profile, title, RULE, run).capability(Capability::Fencing)
}

#[derive(Debug, Clone, Copy)]
enum Mutation {
    Ensure,
    Update,
    Delete,
    EnsureRoutes,
    DeleteRoutes,
    SshKey,
}

impl Mutation {
    /// A call by the leader of this epoch, about things that do not exist.
    async fn call(self, t: &Trial, wanted: &Wanted, fencing: Fencing) -> Result<(), Status> {
        let (cluster, fencing) = (t.cluster(), Some(fencing));
        match self {
            Self::Ensure => {
                let ensure = EnsureLoadBalancerRequest { fencing, ..t.ensure_request(wanted) };
                t.load_balancers().ensure_load_balancer(t.ask(ensure)).await.map(drop)
            }
            Self::Update => {
                let items = vec![cloudprovider_proto::v1alpha1::LoadBalancerUpdate {
                    service: Some(wanted.service.clone()),
                    backend_set: 0,
                    desired_digest: wanted.digest.clone(),
                    revision: 0,
                }];
                let backend_sets = vec![wanted.backends()];
                let update = BatchUpdateLoadBalancersRequest { cluster, fencing, backend_sets, items };
                t.load_balancers().batch_update_load_balancers(t.ask(update)).await.map(drop)
            }
            Self::Delete => {
                let delete = DeleteLoadBalancerRequest { fencing, ..t.delete_request(wanted) };
                t.load_balancers().delete_load_balancer(t.ask(delete)).await.map(drop)
            }
            Self::EnsureRoutes => {
                let batch = t.routes_to_ensure(vec![("198.19.255.240/28".to_owned(), stranger(t))]);
                t.routes()
                    .batch_ensure_routes(t.ask(BatchEnsureRoutesRequest { fencing, ..batch }))
                    .await
                    .map(drop)
            }
            Self::DeleteRoutes => {
                let destination_cidr = "198.19.255.240/28".to_owned();
                let route = Route { id: "no-such-route".to_owned(), destination_cidr, ..Route::default() };
                let items = vec![RouteToDelete { key: "k0".to_owned(), route: Some(route) }];
                let delete = BatchDeleteRoutesRequest { cluster, fencing, items };
                t.routes().batch_delete_routes(t.ask(delete)).await.map(drop)
            }
            Self::SshKey => {
                let (user, public_key) = ("conformance".to_owned(), "no key at all".to_owned());
                let add = AddSshKeyToAllInstancesRequest { cluster, fencing, user, public_key };
                t.instances().add_ssh_key_to_all_instances(t.ask(add)).await.map(drop)
            }
        }
    }
}

/// A leader of a Lease that is this case's own.
fn leader(t: &Trial, epoch: u64) -> Fencing {
    Fencing { scope: format!("lease-of-{}", t.uid()), epoch }
}

/// It was not refused for its leader, whatever else was wrong with it.
fn not_stale(what: &str, answer: Result<(), Status>) -> Outcome {
    match answer {
        Err(status) if reason_of(&status) == Some(ErrorReason::StaleLeader) => {
            good(what, Err::<Response<()>, _>(status)).map(drop)
        }
        _ => Ok(()),
    }
}

struct Former(Mutation);

impl Run for Former {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let (wanted, present) = (wanted(t)?, leader(t, 9));
            not_stale("the leader", self.0.call(t, &wanted, present.clone()).await)?;
            let former = Fencing { epoch: 8, ..present };
            let answer = self.0.call(t, &wanted, former).await;
            refused("a former leader", answer.map(Response::new), ErrorReason::StaleLeader).map(drop)
        })
    }
}

fn wanted(t: &Trial) -> Result<Wanted, Stop> {
    Ok(Wanted { revision: 0, ..t.wanted()? })
}

async fn ensure_by(t: &Trial, wanted: &Wanted, fencing: Fencing) -> Result<(), Status> {
    Mutation::Ensure.call(t, wanted, fencing).await
}

async fn other_scope(t: &Trial) -> Outcome {
    let wanted = wanted(t)?;
    good("epoch 9", ensure_by(t, &wanted, leader(t, 9)).await.map(Response::new))?;
    good("epoch 1 of another scope", ensure_by(t, &wanted, leader(t, 1)).await.map(Response::new))
}

async fn zero(t: &Trial) -> Outcome {
    let (wanted, present) = (wanted(t)?, leader(t, 9));
    good("epoch 9", ensure_by(t, &wanted, present.clone()).await.map(Response::new))?;
    let off = Fencing { epoch: 0, ..present };
    good("epoch 0", ensure_by(t, &wanted, off).await.map(Response::new))?;
    good("no scope, epoch 0", ensure_by(t, &wanted, Fencing::default()).await.map(Response::new))
}

async fn equal(t: &Trial) -> Outcome {
    let (wanted, present) = (wanted(t)?, leader(t, 9));
    for _time in 0..3 {
        good("epoch 9", ensure_by(t, &wanted, present.clone()).await.map(Response::new))?;
    }
    Ok(())
}

async fn before_shape(t: &Trial) -> Outcome {
    let (wanted, present) = (wanted(t)?, leader(t, 9));
    good("epoch 9", ensure_by(t, &wanted, present.clone()).await.map(Response::new))?;
    let former = Some(Fencing { epoch: 8, ..present });
    let shapeless = EnsureLoadBalancerRequest { fencing: former, service: None, ..t.ensure_request(&wanted) };
    let answer = t.load_balancers().ensure_load_balancer(t.ask(shapeless)).await;
    refused("a former leader without a Service", answer, ErrorReason::StaleLeader).map(drop)
}
