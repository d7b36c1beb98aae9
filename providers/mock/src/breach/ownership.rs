//! Breaches in ownership, leadership and deadlines.

use std::{sync::Arc, time::Duration};

use cloudprovider_sdk::proto::*;

use crate::{
    contract::{Message, Method, method},
    effect::{Effect, Shot, Turn, effect},
};

const REVISED: &[&Method] =
    &[&method::ENSURE_LOAD_BALANCER, &method::BATCH_UPDATE_LOAD_BALANCERS, &method::DELETE_LOAD_BALANCER];
const OWNED: &[&Method] = &[
    &method::GET_LOAD_BALANCER,
    &method::ENSURE_LOAD_BALANCER,
    &method::BATCH_UPDATE_LOAD_BALANCERS,
    &method::DELETE_LOAD_BALANCER,
    &method::BATCH_ENSURE_ROUTES,
    &method::BATCH_DELETE_ROUTES,
];
pub(super) const BREACHES: &[Effect] = &[
    effect("cluster-owns-by-uid", "resources of other clusters are changed and deleted")
        .to(OWNED)
        .asked(as_owner),
    effect("cluster-uid-required", "a call without a cluster uid is accepted")
        .to(method::CLOUD_FACING)
        .asked(|request, _| {
            if request.cluster_uid().is_empty() {
                request.set_cluster_uid("nobody");
            }
        }),
    effect("lead-needed", "every caller is obeyed, leader or not, by all mutations or by some")
        .to(method::LED)
        .ways(&["everywhere", "updates", "routes", "keys"])
        .early(|_, shot| match (shot.variant, shot.method) {
            // The provider never hears of a leader, so everybody may call.
            ("everywhere", &method::LEAD)
            | ("updates", &method::BATCH_UPDATE_LOAD_BALANCERS)
            | ("routes", &method::BATCH_ENSURE_ROUTES | &method::BATCH_DELETE_ROUTES)
            | ("keys", &method::ADD_SSH_KEY_TO_ALL_INSTANCES) => Turn::answer(shot.blank()),
            _ => Turn::GoOn,
        })
        .asked(|request, shot| {
            if shot.variant == "everywhere" {
                request.each(|fencing: &mut Fencing| *fencing = Fencing::default());
            }
        }),
    effect("lead-takes-over", "a former leader may lead again").to(&[&method::LEAD]).late(
        |_, reply, shot| {
            if reply.outcome.is_err() {
                reply.outcome = shot.blank();
            }
        },
    ),
    effect(
        "lead-ends",
        "a term never ends, or does too early, or an abandoned mutation continues in the cloud",
    )
    .to(&[&method::LEAD, &method::ENSURE_LOAD_BALANCER])
    .ways(&["leads-on", "work-goes-on", "finishes", "counts-from-arrival", "never-extended", "cut-off"])
    .asked(|request, shot| match shot.variant {
        "leads-on" => request.each(|lead: &mut LeadRequest| lead.valid_for = None),
        "counts-from-arrival" => request.each(|lead: &mut LeadRequest| lead.valid_until = None),
        "cut-off" if leads_already(request, shot) => {
            request.each(|lead: &mut LeadRequest| lead.valid_for = Some(prost_types::Duration::default()));
        }
        _ => {}
    })
    .early(|request, shot| match shot.variant {
        "never-extended" if leads_already(request, shot) => Turn::answer(shot.blank()),
        "finishes" if shot.method == &method::ENSURE_LOAD_BALANCER && shot.is_slow() => {
            write(shot, 10);
            Turn::IfAwaited
        }
        _ => Turn::GoOn,
    })
    .late(|_, reply, shot| {
        if shot.method == &method::ENSURE_LOAD_BALANCER && reply.outcome.is_err() {
            match shot.variant {
                "work-goes-on" => write(shot, 50),
                "finishes" => reply.outcome = shot.blank(),
                _ => {}
            }
        }
    }),
    effect(
        "lead-background",
        "background work writes to the cloud without a leader, or once there is a balancer",
    )
    .to(&[&method::LEAD, &method::ENSURE_LOAD_BALANCER])
    .ways(&["always", "once-made"])
    .late(|_, _, shot| {
        if (shot.method == &method::LEAD) == (shot.variant == "always") {
            write(shot, 50);
        }
    }),
    effect("stale-revision", "an older revision is accepted").to(REVISED).asked(|request, _| {
        request.each(|ensure: &mut EnsureLoadBalancerRequest| ensure.revision = 0);
        request.each(|delete: &mut DeleteLoadBalancerRequest| delete.revision = 0);
        request.each(|update: &mut LoadBalancerUpdate| update.revision = 0);
    }),
    effect("deadline-honoured", "work is done long after its deadline, or a thread goes on waiting for it")
        .to(method::CLOUD_FACING)
        .ways(&["unanswered", "answered", "threads"])
        .early(|_, shot| {
            if shot.variant == "threads" {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(30)));
                return Turn::GoOn;
            }
            let told = shot.variant == "answered";
            // A timely DEADLINE_EXCEEDED hides the late work: it shows only in the calls to a slow cloud.
            if told && !shot.is_slow() { Turn::GoOn } else { Turn::TooLate { told } }
        }),
];

/// Makes the call on behalf of the resource's owner.
fn as_owner(request: &mut Message, shot: &Shot<'_>) {
    let owner = shot.look(|state| {
        let named = |name: &String| shot.subjects.iter().any(|subject| subject.names.contains(name));
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
    if let Some(owner) = owner {
        request.set_cluster_uid(&owner);
    }
}

/// Whether this Lead repeats one of the same leader.
fn leads_already(request: &mut Message, shot: &Shot<'_>) -> bool {
    let Some(LeadRequest { cluster: Some(cluster), fencing: Some(fencing), .. }) = request.first() else {
        return false;
    };
    !shot.memory.leaders.lock().insert((cluster.uid, fencing.scope, fencing.epoch))
}

/// Writes to the cloud again and again, like a loop that nobody stops.
fn write(shot: &Shot<'_>, times: u32) {
    let (cloud, now) = (Arc::clone(shot.cloud), shot.now);
    tokio::spawn(async move {
        for _time in 0..times {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cloud.read(now, |state| state.count_call("balancers:write"));
        }
    });
}
