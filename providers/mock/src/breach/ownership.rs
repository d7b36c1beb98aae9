//! Breaches by whose a thing is, who leads, and when.

use std::time::Duration;

use cloudprovider_sdk::proto::Fencing;

use super::{Breach, asked, early, late};
use crate::wire::{Answer, Method, Request, Shot, Turn};

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
pub(super) const BREACHES: &[Breach] = &[
    asked("cluster-owns-by-uid", "what belongs to another cluster is changed and deleted", OWNED, as_owner),
    asked(
        "cluster-uid-required",
        "a call without a cluster uid is taken",
        Method::CLOUD_FACING,
        |request, _| {
            if let Some(cluster) = request.cluster_mut().filter(|cluster| cluster.uid.is_empty()) {
                "nobody".clone_into(&mut cluster.uid);
            }
        },
    ),
    asked("fencing", "a former leader is obeyed", Method::CHANGES, any_leader),
    early("lead-needed", "whoever calls is obeyed", LED, |request, _| match request {
        // No leader is ever heard of, so that everybody may call.
        Request::Lead(_) => Turn::answer(Answer::empty(Method::Lead)),
        _ => Turn::GoOn,
    })
    .and_asked(any_leader),
    late("lead-takes-over", "a former leader leads again", &[Method::Lead], |_, reply, _| {
        if reply.outcome.is_err() {
            reply.outcome = Ok(Answer::empty(Method::Lead));
        }
    }),
    asked(
        "lead-ends",
        "who once led leads for ever, or a mutation that was given up goes on in the cloud",
        &[Method::Lead, Method::EnsureLoadBalancer],
        |request, shot| match request {
            Request::Lead(request) if shot.variant == "leads-on" => request.valid_for = None,
            _ => {}
        },
    )
    .ways(&["leads-on", "work-goes-on"])
    .and_late(|request, reply, shot| {
        let given_up = matches!(request, Request::EnsureLoadBalancer(_)) && reply.outcome.is_err();
        if given_up && shot.variant == "work-goes-on" {
            write_for_a_while(shot);
        }
    }),
    late(
        "lead-background",
        "background work writes to the cloud, led or not",
        &[Method::Lead],
        |_, _, shot| {
            write_for_a_while(shot);
        },
    ),
    asked("stale-revision", "a former revision is accepted", REVISED, |request, _| match request {
        Request::EnsureLoadBalancer(request) => request.revision = 0,
        Request::DeleteLoadBalancer(request) => request.revision = 0,
        Request::BatchUpdateLoadBalancers(request) => {
            request.items.iter_mut().for_each(|item| item.revision = 0);
        }
        _ => {}
    }),
    early(
        "deadline-honoured",
        "the work is done long after the deadline",
        Method::CLOUD_FACING,
        |_, shot| {
            let told = shot.variant == "answered";
            let is_slow = || shot.mock.look(|state| state.conditions.latency_ms > 0);
            // Who tells in time that the deadline passed shows only in what the cloud is asked afterwards.
            if told && !is_slow() { Turn::GoOn } else { Turn::TooLate { told } }
        },
    )
    .ways(&["unanswered", "answered"]),
];

/// The call is made in the name of whoever owns the thing.
fn as_owner(request: &mut Request, shot: &Shot<'_>) {
    let subjects = request.subjects();
    let owner = shot.mock.look(|state| {
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
}

fn any_leader(request: &mut Request, _shot: &Shot<'_>) {
    if let Some(fencing) = request.fencing_mut() {
        *fencing = Fencing::default();
    }
}

/// Writes to the cloud again and again, as a loop does that nobody stops.
fn write_for_a_while(shot: &Shot<'_>) {
    let mock = shot.mock.clone();
    tokio::spawn(async move {
        for _time in 0..50 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            mock.look(|state| state.count_call("balancers:write"));
        }
    });
}
