//! Former leaders.

use cloudprovider_proto::v1alpha1::{Capability, EnsureLoadBalancerRequest, ErrorReason, Fencing};
use futures::future::LocalBoxFuture;
use tonic::{Response, Status};

use crate::{
    case::{
        Case, Outcome,
        Profile::{self, LoadBalancers, Routes, SshKeys},
        Run, Stop,
    },
    trial::{By, Rpc, Trial, Wanted, good, reason_of, refused},
};

const RULE: &[&str] = &["fencing"];

pub(super) const CASES: &[Case] = &[
    former(
        "FENCE-01",
        LoadBalancers,
        "EnsureLoadBalancer: a former leader is STALE_LEADER",
        &Former(Rpc::EnsureLoadBalancer),
    ),
    former(
        "FENCE-02",
        LoadBalancers,
        "BatchUpdateLoadBalancers: a former leader is STALE_LEADER",
        &Former(Rpc::BatchUpdateLoadBalancers),
    ),
    former(
        "FENCE-03",
        LoadBalancers,
        "DeleteLoadBalancer: a former leader is STALE_LEADER",
        &Former(Rpc::DeleteLoadBalancer),
    ),
    former(
        "FENCE-04",
        Routes,
        "BatchEnsureRoutes: a former leader is STALE_LEADER",
        &Former(Rpc::BatchEnsureRoutes),
    ),
    former(
        "FENCE-05",
        Routes,
        "BatchDeleteRoutes: a former leader is STALE_LEADER",
        &Former(Rpc::BatchDeleteRoutes),
    ),
    former(
        "FENCE-06",
        SshKeys,
        "AddSshKeyToAllInstances: a former leader is STALE_LEADER",
        &Former(Rpc::AddSshKeyToAllInstances),
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

/// A call by this leader.
async fn call(t: &Trial, rpc: Rpc, wanted: &Wanted, fencing: Fencing) -> Result<(), Status> {
    rpc.call_about(t, wanted, By { fencing: Some(fencing), ..By::usual(t) }).await
}

/// A leader of this case's own Lease.
fn leader(t: &Trial, epoch: u64) -> Fencing {
    Fencing { scope: format!("lease-of-{}", t.uid()), epoch }
}

/// It was not refused because of its leader, whatever else was wrong with it.
fn not_stale(what: &str, answer: Result<(), Status>) -> Outcome {
    match answer {
        Err(status) if reason_of(&status) == Some(ErrorReason::StaleLeader) => {
            good(what, Err::<Response<()>, _>(status)).map(drop)
        }
        _ => Ok(()),
    }
}

struct Former(Rpc);

impl Run for Former {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let (wanted, present) = (wanted(t)?, leader(t, 9));
            not_stale("the leader", call(t, self.0, &wanted, present.clone()).await)?;
            let former = Fencing { epoch: 8, ..present };
            let answer = call(t, self.0, &wanted, former).await;
            refused("a former leader", answer.map(Response::new), ErrorReason::StaleLeader).map(drop)
        })
    }
}

fn wanted(t: &Trial) -> Result<Wanted, Stop> {
    Ok(Wanted { revision: 0, ..t.wanted()? })
}

async fn ensure_by(t: &Trial, wanted: &Wanted, fencing: Fencing) -> Result<(), Status> {
    call(t, Rpc::EnsureLoadBalancer, wanted, fencing).await
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
