//! Breaches by whose a thing is, who leads, and when.

use std::time::Duration;

use cloudprovider_sdk::proto::{Fencing, LeadResponse};

use super::{Breach, CHANGES, early, late};
use crate::wire::{Answer, Method, Reply, Request, Shot, Turn};

const LED: &[Method] = &[
    Method::Lead,
    Method::EnsureLoadBalancer,
    Method::BatchUpdateLoadBalancers,
    Method::DeleteLoadBalancer,
    Method::BatchEnsureRoutes,
    Method::BatchDeleteRoutes,
    Method::AddSshKeyToAllInstances,
];
const REVISED: &[Method] =
    &[Method::EnsureLoadBalancer, Method::BatchUpdateLoadBalancers, Method::DeleteLoadBalancer];
const OWNED: &[Method] = &[
    Method::GetLoadBalancer,
    Method::EnsureLoadBalancer,
    Method::BatchUpdateLoadBalancers,
    Method::DeleteLoadBalancer,
    Method::BatchEnsureRoutes,
    Method::BatchDeleteRoutes,
];
const CLOUD_FACING: &[Method] = &[
    Method::BatchGetInstances,
    Method::WatchInstances,
    Method::ListInstances,
    Method::AddSshKeyToAllInstances,
    Method::GetLoadBalancer,
    Method::EnsureLoadBalancer,
    Method::BatchUpdateLoadBalancers,
    Method::DeleteLoadBalancer,
    Method::ListLoadBalancers,
    Method::ListRoutes,
    Method::BatchEnsureRoutes,
    Method::BatchDeleteRoutes,
    Method::BatchGetVolumeLabels,
    Method::ListClusters,
    Method::GetControlPlaneEndpoint,
];

pub(super) const BREACHES: &[Breach] = &[
    early("cluster-owns-by-uid", "what belongs to another cluster is changed and deleted", OWNED, as_owner),
    early("cluster-uid-required", "a call without a cluster uid is taken", CLOUD_FACING, any_cluster),
    early("fencing", "a former leader is obeyed", CHANGES, any_leader),
    early("lead-needed", "whoever calls is obeyed", LED, nobody_leads),
    late("lead-takes-over", "a former leader leads again", &[Method::Lead], leads_again),
    early(
        "lead-ends",
        "who once led leads for ever, or a mutation that was given up goes on in the cloud",
        &[Method::Lead, Method::EnsureLoadBalancer],
        leads_for_ever,
    )
    .ways(&["leads-on", "work-goes-on"])
    .and_late(works_on),
    late("lead-background", "background work writes to the cloud, led or not", &[Method::Lead], background),
    early("stale-revision", "a former revision is accepted", REVISED, any_revision),
    early("deadline-honoured", "the work is done long after the deadline", CLOUD_FACING, too_late)
        .ways(&["unanswered", "answered"]),
];

/// The call is made in the name of whoever owns the thing.
fn as_owner(request: &mut Request, shot: &Shot<'_>) -> Turn {
    let subjects = request.subjects();
    let owner = shot.world.cloud.read(shot.world.now(), |state| {
        let named = |name: &String| subjects.iter().any(|subject| subject.names.contains(name));
        let balancer = state
            .balancers()
            .find(|balancer| !balancer.is_legacy() && named(&balancer.service_uid))
            .map(|balancer| balancer.cluster_uid.clone());
        let route = || {
            let routes = state.routes().map(|listed| listed.route);
            let mut found =
                routes.filter(|route| named(&route.id) || named(&route.destination_cidr.to_string()));
            found.next().map(|route| route.cluster_uid)
        };
        balancer.or_else(route)
    });
    if let (Some(owner), Some(cluster)) = (owner, request.cluster_mut()) {
        cluster.uid = owner;
    }
    Turn::GoOn
}

fn any_cluster(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    if let Some(cluster) = request.cluster_mut().filter(|cluster| cluster.uid.is_empty()) {
        "nobody".clone_into(&mut cluster.uid);
    }
    Turn::GoOn
}

fn any_leader(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    if let Some(fencing) = request.fencing_mut() {
        *fencing = Fencing::default();
    }
    Turn::GoOn
}

/// No leader is ever heard of, so that everybody may call.
fn nobody_leads(request: &mut Request, shot: &Shot<'_>) -> Turn {
    match request {
        Request::Lead(_) => Turn::Answer(Box::new(Ok(Answer::Lead(LeadResponse {})))),
        _ => any_leader(request, shot),
    }
}

fn leads_again(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if reply.outcome.is_err() {
        reply.outcome = Ok(Answer::Lead(LeadResponse {}));
    }
}

fn leads_for_ever(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if let Request::Lead(request) = request
        && shot.variant != "work-goes-on"
    {
        request.valid_for = None;
    }
    Turn::GoOn
}

fn works_on(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let given_up = matches!(request, Request::EnsureLoadBalancer(_)) && reply.outcome.is_err();
    if given_up && shot.variant == "work-goes-on" {
        write_for_a_while(shot);
    }
}

fn background(_request: &Request, _reply: &mut Reply, shot: &Shot<'_>) {
    write_for_a_while(shot);
}

/// Writes to the cloud again and again, as a loop does that nobody stops.
fn write_for_a_while(shot: &Shot<'_>) {
    let (cloud, clock) = (shot.world.cloud.clone(), std::sync::Arc::clone(&shot.world.clock));
    tokio::spawn(async move {
        for _time in 0..50 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cloud.read(clock(), |state| state.count_call("balancers:write"));
        }
    });
}

fn any_revision(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    match request {
        Request::EnsureLoadBalancer(request) => request.revision = 0,
        Request::DeleteLoadBalancer(request) => request.revision = 0,
        Request::BatchUpdateLoadBalancers(request) => {
            request.items.iter_mut().for_each(|item| item.revision = 0);
        }
        _ => {}
    }
    Turn::GoOn
}

fn too_late(_request: &mut Request, shot: &Shot<'_>) -> Turn {
    let told = shot.variant == "answered";
    let is_slow = || shot.world.cloud.read(shot.world.now(), |state| state.conditions().latency_ms > 0);
    // Who tells in time that the deadline passed shows only in what the cloud is asked afterwards.
    if told && !is_slow() { Turn::GoOn } else { Turn::TooLate { told } }
}
