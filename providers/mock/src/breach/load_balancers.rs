//! Breaches by what is done to balancers and said of them.

use cloudprovider_sdk::{
    ProviderError,
    proto::{InProgress, IngressIpMode, LoadBalancer, LoadBalancerIngress, UpdateOutcome},
};
use tonic::Status;

use super::{Breach, CHANGES, early, late};
use crate::{
    cloud::WRITTEN_PREFIX,
    provider::balancer_message,
    wire::{Answer, Delivery, Method, Reply, Request, Shot, Turn},
};

const ENSURE: &[Method] = &[Method::EnsureLoadBalancer];
const UPDATE: &[Method] = &[Method::BatchUpdateLoadBalancers];
const DELETE: &[Method] = &[Method::DeleteLoadBalancer];
const REMEMBERED: &[Method] = &[Method::EnsureLoadBalancer, Method::DeleteLoadBalancer];
const SHOWN: &[Method] = &[Method::GetLoadBalancer, Method::EnsureLoadBalancer, Method::ListLoadBalancers];

pub(super) const BREACHES: &[Breach] = &[
    late("ensure-idempotent", "each Ensure of one that is there makes another", ENSURE, double)
        .and_early(note_there),
    late(
        "ensure-after-lost-answer",
        "an Ensure loses its answer; the next one makes another balancer",
        ENSURE,
        lose,
    ),
    early("ensure-keeps-working", "an Ensure takes down what worked, then fails", ENSURE, take_down),
    late(
        "mutation-finishes",
        "an Ensure whose caller goes away leaves the balancer half made, or is given up",
        ENSURE,
        abandon,
    )
    .ways(&["half-made", "given-up"])
    .and_early(if_awaited),
    late("applied-digest", "another digest than the applied one, none, or that of what is not done yet", SHOWN, digest)
        .ways(&["wrong", "missing", "too-early"]),
    late("durable-digest", "a digest is known only to the process that applied it", SHOWN, forget_digest)
        .and_early(note_digest),
    late("ingress-valid", "a way in without IP and name, or with a text that is no IP", SHOWN, ingress)
        .ways(&["empty", "no-ip"]),
    late("ingress-required", "nothing says how a balancer that serves can be reached", SHOWN, no_ingress),
    late("annotation-prefix", "annotations outside of the advertised prefixes", ENSURE, annotations),
    late("in-progress-not-error", "work that goes on is told as an error", CHANGES, as_error),
    late(
        "retry-after-positive",
        "work that goes on says zero, less, or nothing about when to ask",
        CHANGES,
        when,
    )
    .ways(&["zero", "negative", "missing"]),
    late("update-backends-only", "new backends are a matter for Ensure", UPDATE, only_ensures),
    early("delete-absent-ok", "to delete what is absent is an error", DELETE, absent),
    early(
        "delete-by-key",
        "nothing is deleted without the last known Service: an error, or OK without the work; or without what memory holds",
        REMEMBERED,
        hint,
    )
    .ways(&["error", "ignored", "after-restart"]),
    early("delete-leaves-nothing", "the balancer's firewall stays", DELETE, leak),
    early("delete-not-elsewhere", "Delete says that another controller does it", DELETE, elsewhere),
];

/// The id of the balancer that the request is about, if it is there.
fn there(request: &Request, shot: &Shot<'_>) -> Option<String> {
    let uid = &request.service()?.uid;
    shot.world.cloud.read(shot.world.now(), |state| {
        let ours = |balancer: &&crate::cloud::Balancer| {
            balancer.cluster_uid == request.cluster_uid() && balancer.service_uid == *uid
        };
        state.balancers().find(ours).map(|balancer| balancer.id.clone())
    })
}

/// Makes a second balancer and answers it in place of the first.
fn make_another(reply: &mut Reply, shot: &Shot<'_>) {
    let Ok(Answer::EnsureLoadBalancer(answer)) = &mut reply.outcome else { return };
    let Some(id) = answer.load_balancer.as_ref().map(|balancer| balancer.id.clone()) else { return };
    let double = shot.world.cloud.alter(shot.world.now(), |state| state.double_balancer(&id));
    if let Ok(double) = double {
        answer.load_balancer = Some(balancer_message(&double));
    }
}

fn note_there(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if let Some(id) = there(request, shot) {
        shot.world.memory.lost_answers.lock().insert(format!("double {id}"));
    }
    Turn::GoOn
}

fn double(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let Some(id) = there(request, shot) else { return };
    if shot.world.memory.lost_answers.lock().remove(&format!("double {id}")) {
        make_another(reply, shot);
    }
}

fn lose(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let Some(service) = request.service() else { return };
    let lost_before = !shot.world.memory.lost_answers.lock().insert(service.uid.clone());
    if lost_before {
        make_another(reply, shot);
    } else {
        reply.delivery = Delivery::Reset;
    }
}

fn take_down(request: &mut Request, shot: &Shot<'_>) -> Turn {
    let Some(id) = there(request, shot) else { return Turn::GoOn };
    match shot.world.cloud.alter(shot.world.now(), |state| state.halve_balancer(&id)) {
        Ok(_) => Turn::fail(&ProviderError::cloud_api_unavailable()),
        Err(_) => Turn::GoOn,
    }
}

fn if_awaited(_request: &mut Request, shot: &Shot<'_>) -> Turn {
    if shot.variant == "given-up" { Turn::IfAwaited } else { Turn::GoOn }
}

fn abandon(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if shot.variant == "given-up" {
        return;
    }
    if let Some(id) = there(request, shot) {
        reply.delivery = Delivery::OrHalve(id);
    }
}

/// The balancers that an answer shows.
fn shown(reply: &mut Reply) -> Vec<&mut LoadBalancer> {
    match &mut reply.outcome {
        Ok(Answer::GetLoadBalancer(answer)) => answer.load_balancer.as_mut().into_iter().collect(),
        Ok(Answer::EnsureLoadBalancer(answer)) => answer.load_balancer.as_mut().into_iter().collect(),
        Ok(Answer::ListLoadBalancers(answer)) => answer.load_balancers.iter_mut().collect(),
        _ => Vec::new(),
    }
}

fn digest(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    for balancer in shown(reply) {
        match shot.variant {
            "missing" => balancer.applied_digest.clear(),
            "too-early" => early_digest(balancer, shot),
            _ => "a-digest-of-something-else".clone_into(&mut balancer.applied_digest),
        }
    }
}

/// The digest of what is being made, as if it were there.
fn early_digest(balancer: &mut LoadBalancer, shot: &Shot<'_>) {
    let pending = shot.world.cloud.read(shot.world.now(), |state| {
        state.balancer(&balancer.id).map(|found| found.pending_digest.clone()).unwrap_or_default()
    });
    if !pending.is_empty() {
        balancer.applied_digest = pending;
    }
}

fn note_digest(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if let Request::EnsureLoadBalancer(request) = request {
        shot.world.memory.digests.lock().insert(request.desired_digest.clone());
    }
    Turn::GoOn
}

fn forget_digest(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let known = shot.world.memory.digests.lock();
    for balancer in shown(reply) {
        if !known.contains(&balancer.applied_digest) {
            balancer.applied_digest.clear();
        }
    }
}

fn ingress(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let ip = if shot.variant == "no-ip" { "300.300.300.300" } else { "" };
    for balancer in shown(reply) {
        let way = LoadBalancerIngress {
            ip: ip.to_owned(),
            ip_mode: IngressIpMode::Vip.into(),
            ..LoadBalancerIngress::default()
        };
        balancer.ingress.push(way);
    }
}

fn no_ingress(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    for balancer in shown(reply) {
        balancer.ingress.clear();
    }
}

fn annotations(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if let Ok(Answer::EnsureLoadBalancer(answer)) = &mut reply.outcome {
        answer.service_annotations.insert("elsewhere.example/owner".to_owned(), "mock".to_owned());
        answer
            .removed_service_annotations
            .push("kubectl.kubernetes.io/last-applied-configuration".to_owned());
        answer.removed_service_annotations.push(format!("{WRITTEN_PREFIX}nothing"));
    }
}

/// The parts of an answer that say that work goes on.
fn going_on(reply: &mut Reply) -> Vec<&mut Option<InProgress>> {
    match &mut reply.outcome {
        Ok(Answer::EnsureLoadBalancer(answer)) => vec![&mut answer.in_progress],
        Ok(Answer::DeleteLoadBalancer(answer)) => vec![&mut answer.in_progress],
        Ok(Answer::AddSshKeyToAllInstances(answer)) => vec![&mut answer.in_progress],
        Ok(Answer::BatchUpdateLoadBalancers(answer)) => {
            answer.results.iter_mut().map(|result| &mut result.in_progress).collect()
        }
        Ok(Answer::BatchEnsureRoutes(answer)) => {
            answer.results.iter_mut().map(|result| &mut result.in_progress).collect()
        }
        Ok(Answer::BatchDeleteRoutes(answer)) => {
            answer.results.iter_mut().map(|result| &mut result.in_progress).collect()
        }
        _ => Vec::new(),
    }
}

fn as_error(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if going_on(reply).iter().any(|progress| progress.is_some()) {
        let after = std::time::Duration::from_secs(1);
        reply.outcome = Err(ProviderError::retry_later(after, "still being made").to_status());
    }
}

fn when(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let after = match shot.variant {
        "missing" => None,
        "negative" => Some(prost_types::Duration { seconds: -5, nanos: 0 }),
        _ => Some(prost_types::Duration::default()),
    };
    for progress in going_on(reply).into_iter().flatten() {
        progress.retry_after = after;
    }
}

fn only_ensures(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::BatchUpdateLoadBalancers(answer)) = &mut reply.outcome {
        for result in answer.results.iter_mut().filter(|result| shot.hits(&result.service_uid)) {
            result.outcome = UpdateOutcome::NotUpdated.into();
            result.error = Some(ProviderError::needs_ensure(&result.service_uid).to_item());
        }
    }
}

fn absent(request: &mut Request, shot: &Shot<'_>) -> Turn {
    match there(request, shot) {
        Some(_) => Turn::GoOn,
        None => Turn::status(Status::not_found("no such load balancer")),
    }
}

fn hint(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if shot.variant == "after-restart" {
        return from_memory(request, shot);
    }
    match request {
        Request::DeleteLoadBalancer(delete) if delete.last_known.is_none() => match shot.variant {
            "ignored" => Turn::Answer(Box::new(Ok(Answer::empty(Method::DeleteLoadBalancer)))),
            _ => Turn::fail(&ProviderError::invalid_argument_shape("last_known", "is needed")),
        },
        _ => Turn::GoOn,
    }
}

fn from_memory(request: &Request, shot: &Shot<'_>) -> Turn {
    let uid = request.service().map(|service| service.uid.clone()).unwrap_or_default();
    let mut made_here = shot.world.memory.made_here.lock();
    match request {
        Request::EnsureLoadBalancer(_) => {
            made_here.insert(uid);
            Turn::GoOn
        }
        _ if made_here.contains(&uid) => Turn::GoOn,
        _ => Turn::Answer(Box::new(Ok(Answer::empty(Method::DeleteLoadBalancer)))),
    }
}

fn leak(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if let Some(id) = there(request, shot) {
        // What is not there leaves nothing.
        let _gone_already = shot.world.cloud.alter(shot.world.now(), |state| state.forget_firewall(&id));
    }
    Turn::GoOn
}

fn elsewhere(_request: &mut Request, _shot: &Shot<'_>) -> Turn {
    Turn::fail(&ProviderError::implemented_elsewhere("another controller"))
}
