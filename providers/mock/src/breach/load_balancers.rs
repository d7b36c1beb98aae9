//! Breaches by what is done to balancers and said of them.

use cloudprovider_sdk::{ProviderError, proto};
use tonic::Status;

use super::{Breach, asked, early, late};
use crate::{
    cloud::{Balancer, WRITTEN_PREFIX},
    provider::balancer_message,
    wire::{Answer, Delivery, Method, Reply, Request, Shot, Turn},
};

const ENSURE: &[Method] = &[Method::EnsureLoadBalancer];
const UPDATE: &[Method] = &[Method::BatchUpdateLoadBalancers];
const DELETE: &[Method] = &[Method::DeleteLoadBalancer];
const REMEMBERED: &[Method] = &[Method::EnsureLoadBalancer, Method::DeleteLoadBalancer];
const SHOWN: &[Method] = &[Method::GetLoadBalancer, Method::EnsureLoadBalancer, Method::ListLoadBalancers];

pub(super) const BREACHES: &[Breach] = &[
    late("ensure-idempotent", "each Ensure of one that is there makes another", ENSURE, |request, reply, shot| {
        if there(request, shot).is_some_and(|id| shot.memory.doubled.lock().remove(&id)) {
            make_another(reply, shot);
        }
    })
    .and_asked(|request, shot| shot.memory.doubled.lock().extend(there(request, shot))),
    late(
        "ensure-after-lost-answer",
        "an Ensure loses its answer; the next one makes another balancer",
        ENSURE,
        |request, reply, shot| {
            let Some(service) = request.service() else { return };
            if shot.memory.lost_answers.lock().insert(service.uid.clone()) {
                reply.delivery = Delivery::Reset;
            } else {
                make_another(reply, shot);
            }
        },
    ),
    early("ensure-keeps-working", "an Ensure takes down what worked, then fails", ENSURE, |request, shot| {
        let Some(id) = there(request, shot) else { return Turn::GoOn };
        match shot.mock.alter(|state| state.halve_balancer(&id)) {
            Ok(_) => Turn::fail(ProviderError::cloud_api_unavailable()),
            Err(_) => Turn::GoOn,
        }
    }),
    late(
        "mutation-finishes",
        "an Ensure whose caller goes away leaves the balancer half made, or is given up",
        ENSURE,
        |request, reply, shot| {
            if let Some(id) = there(request, shot).filter(|_| shot.variant != "given-up") {
                reply.delivery = Delivery::OrHalve(id);
            }
        },
    )
    .ways(&["half-made", "given-up"])
    .and_early(|_, shot| if shot.variant == "given-up" { Turn::IfAwaited } else { Turn::GoOn }),
    late(
        "applied-digest",
        "another digest than the applied one, none, or that of what is not done yet",
        SHOWN,
        |_, reply, shot| reply.balancers().into_iter().for_each(|balancer| wrong_digest(balancer, shot)),
    )
    .ways(&["wrong", "missing", "too-early"]),
    late("durable-digest", "a digest is known only to the process that applied it", SHOWN, |_, reply, shot| {
        let known = shot.memory.digests.lock();
        let forgotten = |balancer: &&mut proto::LoadBalancer| !known.contains(&balancer.applied_digest);
        let balancers = reply.balancers().into_iter().filter(forgotten);
        balancers.for_each(|balancer| balancer.applied_digest.clear());
    })
    .and_asked(|request, shot| {
        if let Request::EnsureLoadBalancer(request) = request {
            shot.memory.digests.lock().insert(request.desired_digest.clone());
        }
    }),
    late("ingress-valid", "a way in without IP and name, or with a text that is no IP", SHOWN, |_, reply, shot| {
        let ip = if shot.variant == "no-ip" { "300.300.300.300" } else { "" }.to_owned();
        let ip_mode = proto::IngressIpMode::Vip.into();
        let way = proto::LoadBalancerIngress { ip, ip_mode, ..proto::LoadBalancerIngress::default() };
        reply.balancers().into_iter().for_each(|balancer| balancer.ingress.push(way.clone()));
    })
    .ways(&["empty", "no-ip"]),
    late("ingress-required", "nothing says how a balancer that serves can be reached", SHOWN, |_, reply, _| {
        reply.balancers().into_iter().for_each(|balancer| balancer.ingress.clear());
    }),
    late("annotation-prefix", "annotations outside of the advertised prefixes", ENSURE, |_, reply, _| {
        reply.edit(|answer: &mut proto::EnsureLoadBalancerResponse| {
            answer.service_annotations.insert("elsewhere.example/owner".to_owned(), "mock".to_owned());
            let applied = "kubectl.kubernetes.io/last-applied-configuration".to_owned();
            answer.removed_service_annotations.extend([applied, format!("{WRITTEN_PREFIX}nothing")]);
        });
    }),
    late("in-progress-not-error", "work that goes on is told as an error", Method::CHANGES, |_, reply, _| {
        if reply.going_on().iter().any(|progress| progress.is_some()) {
            let after = std::time::Duration::from_secs(1);
            reply.outcome = Err(ProviderError::retry_later(after, "still being made").to_status());
        }
    }),
    late(
        "retry-after-positive",
        "work that goes on says zero, less, or nothing about when to ask",
        Method::CHANGES,
        |_, reply, shot| {
            let seconds = if shot.variant == "negative" { -5 } else { 0 };
            let after = prost_types::Duration { seconds, nanos: 0 };
            for progress in reply.going_on().into_iter().flatten() {
                progress.retry_after = (shot.variant != "missing").then_some(after);
            }
        },
    )
    .ways(&["zero", "negative", "missing"]),
    late("update-backends-only", "new backends are a matter for Ensure", UPDATE, |_, reply, shot| {
        reply.each(shot, |result: &mut proto::LoadBalancerUpdateResult| {
            result.set_outcome(proto::UpdateOutcome::NotUpdated);
            result.error = Some(ProviderError::needs_ensure(&result.service_uid).to_item());
        });
    }),
    early("delete-absent-ok", "to delete what is absent is an error", DELETE, |request, shot| {
        match there(request, shot) {
            Some(_) => Turn::GoOn,
            None => Turn::fail(Status::not_found("no such load balancer")),
        }
    }),
    early(
        "delete-by-key",
        "nothing is deleted without the last known Service: an error, or OK without the work; or without what memory holds",
        REMEMBERED,
        hint,
    )
    .ways(&["error", "ignored", "after-restart"]),
    asked("delete-leaves-nothing", "the balancer's firewall stays", DELETE, |request, shot| {
        if let Some(id) = there(request, shot) {
            // What is not there leaves nothing.
            let _gone_already = shot.mock.alter(|state| state.forget_firewall(&id));
        }
    }),
    early("delete-not-elsewhere", "Delete says that another controller does it", DELETE, |_, _| {
        Turn::fail(ProviderError::implemented_elsewhere("another controller"))
    }),
];

/// The id of the balancer that the request is about, if it is there.
fn there(request: &Request, shot: &Shot<'_>) -> Option<String> {
    let uid = &request.service()?.uid;
    let ours =
        |balancer: &&Balancer| balancer.cluster_uid == request.cluster_uid() && balancer.service_uid == *uid;
    shot.mock.look(|state| state.balancers().find(ours).map(|balancer| balancer.id.clone()))
}

/// Makes a second balancer and answers it in place of the first.
fn make_another(reply: &mut Reply, shot: &Shot<'_>) {
    reply.edit(|answer: &mut proto::EnsureLoadBalancerResponse| {
        let Some(first) = &mut answer.load_balancer else { return };
        if let Ok(double) = shot.mock.alter(|state| state.double_balancer(&first.id)) {
            *first = balancer_message(&double);
        }
    });
}

/// Another digest, none, or that of what is being made, as if it were there.
fn wrong_digest(balancer: &mut proto::LoadBalancer, shot: &Shot<'_>) {
    let pending =
        || shot.mock.look(|state| state.balancer(&balancer.id).map(|found| found.pending_digest.clone()));
    match shot.variant {
        "missing" => balancer.applied_digest.clear(),
        "too-early" => {
            if let Some(digest) = pending().filter(|digest| !digest.is_empty()) {
                balancer.applied_digest = digest;
            }
        }
        _ => "a-digest-of-something-else".clone_into(&mut balancer.applied_digest),
    }
}

fn hint(request: &mut Request, shot: &Shot<'_>) -> Turn {
    let uid = request.service().map(|service| service.uid.clone()).unwrap_or_default();
    let nothing_done = || Turn::answer(Answer::empty(Method::DeleteLoadBalancer));
    let mut made_here = shot.memory.made_here.lock();
    match (&*request, shot.variant) {
        (Request::EnsureLoadBalancer(_), "after-restart") => {
            made_here.insert(uid);
            Turn::GoOn
        }
        (_, "after-restart") if !made_here.contains(&uid) => nothing_done(),
        (Request::DeleteLoadBalancer(delete), "ignored") if delete.last_known.is_none() => nothing_done(),
        (Request::DeleteLoadBalancer(delete), "error") if delete.last_known.is_none() => {
            Turn::fail(ProviderError::invalid_argument_shape("last_known", "is needed"))
        }
        _ => Turn::GoOn,
    }
}
