//! What each kind of fault does to a call: before its work, and to its answer.

use std::time::Duration;

use cloudprovider_sdk::{
    ProviderError,
    proto::{
        InProgress, InstanceResult, InstanceState, ItemError, LoadBalancer, LoadBalancerState,
        LoadBalancerUpdateResult, RouteDeletion, RouteResult, UnreachableLocation, UpdateOutcome,
        VolumeState, watch_instances_response::Frame,
    },
};
use tonic::Status;

use super::{Fault, FaultKind, Time};
use crate::{
    breach,
    provider::timestamp,
    wire::{Answer, Delivery, Reply, Request, Shot, Turn, code_named, instance_state_named, reason_named},
};

/// What the fault makes of a call before its work. Latency is not in here: it takes time.
pub(crate) fn before(fault: &Fault, request: &mut Request, shot: &Shot<'_>) -> Turn {
    match &fault.kind {
        FaultKind::Error { reason, message, retry_after, after_work: false } => {
            Turn::fail(&contract_error(reason, message, *retry_after))
        }
        FaultKind::Status { code, message, after_work: false } => Turn::status(bare(code, message)),
        FaultKind::Throttle { retry_after } => Turn::fail(&ProviderError::rate_limited(retry_after.0)),
        FaultKind::Hang => Turn::Hang,
        FaultKind::Crash { after_work: false } => Turn::Crash,
        FaultKind::InProgress { retry_after } => in_progress(request, retry_after.0),
        FaultKind::Breach { rule, .. } => {
            breach::named(rule).map_or(Turn::GoOn, |breach| (breach.before)(request, shot))
        }
        _ => Turn::GoOn,
    }
}

/// What the fault makes of an answer, or of one frame of a stream.
pub(crate) fn after(fault: &Fault, request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    match &fault.kind {
        FaultKind::Error { reason, message, retry_after, after_work: true } => {
            reply.outcome = Err(contract_error(reason, message, *retry_after).to_status());
        }
        FaultKind::Status { code, message, after_work: true } => reply.outcome = Err(bare(code, message)),
        FaultKind::LostAnswer { silent } => {
            reply.delivery = if *silent { Delivery::Silent } else { Delivery::Reset };
        }
        FaultKind::Crash { after_work: true } => reply.delivery = Delivery::Crash,
        FaultKind::Partial { location } => partial(reply, shot, location),
        FaultKind::Absent => absent(request, reply, shot),
        FaultKind::State { state } => lie(reply, shot, instance_state_named(state).unwrap_or_default()),
        FaultKind::NotAuthoritative => not_authoritative(reply, shot),
        FaultKind::MetadataNotReady { retry_after } => not_ready(reply, shot, retry_after.0),
        FaultKind::ItemError { reason, retry_after } => {
            item_errors(reply, shot, &contract_error(reason, "", *retry_after).to_item());
        }
        FaultKind::DropChanges => drop_changes(reply),
        FaultKind::CutWatch { frames } if shot.frame >= *frames => reply.delivery = Delivery::Reset,
        FaultKind::Breach { rule, .. } => {
            if let Some(breach) = breach::named(rule) {
                (breach.after)(request, reply, shot);
            }
        }
        _ => {}
    }
}

fn contract_error(reason: &str, message: &str, retry_after: Option<Time>) -> ProviderError {
    let message = if message.is_empty() { "a fault of the mock" } else { message };
    let error = ProviderError::new(reason_named(reason).unwrap_or_default(), message);
    match retry_after {
        Some(after) => error.with_retry_after(after.0),
        None => error,
    }
}

fn bare(code: &str, message: &str) -> Status {
    Status::new(code_named(code).unwrap_or(tonic::Code::Unknown), message)
}

fn in_progress(request: &Request, retry_after: Duration) -> Turn {
    let goes_on = || {
        Some(InProgress {
            retry_after: retry_after.try_into().ok(),
            reason: "PROVISIONING".to_owned(),
            message: "a fault of the mock".to_owned(),
        })
    };
    let mut answer = Answer::empty(request.method());
    match (request, &mut answer) {
        (Request::EnsureLoadBalancer(_), Answer::EnsureLoadBalancer(answer)) => {
            answer.in_progress = goes_on();
            answer.load_balancer = Some(LoadBalancer {
                service: request.service().cloned(),
                state: LoadBalancerState::Pending.into(),
                ownership: cloudprovider_sdk::proto::Ownership::ByUid.into(),
                ..LoadBalancer::default()
            });
        }
        (Request::DeleteLoadBalancer(_), Answer::DeleteLoadBalancer(answer)) => {
            answer.in_progress = goes_on();
        }
        (Request::AddSshKeyToAllInstances(_), Answer::AddSshKeyToAllInstances(answer)) => {
            answer.in_progress = goes_on();
        }
        (_, Answer::BatchUpdateLoadBalancers(answer)) => {
            answer.results = keys(request)
                .map(|service_uid| LoadBalancerUpdateResult {
                    service_uid,
                    outcome: UpdateOutcome::NotUpdated.into(),
                    in_progress: goes_on(),
                    ..LoadBalancerUpdateResult::default()
                })
                .collect();
        }
        (_, Answer::BatchEnsureRoutes(answer)) => {
            answer.results = keys(request)
                .map(|key| RouteResult { key, in_progress: goes_on(), ..RouteResult::default() })
                .collect();
        }
        (_, Answer::BatchDeleteRoutes(answer)) => {
            answer.results =
                keys(request).map(|key| RouteDeletion { key, in_progress: goes_on(), error: None }).collect();
        }
        _ => return Turn::GoOn,
    }
    Turn::Answer(Box::new(Ok(answer)))
}

fn keys(request: &Request) -> impl Iterator<Item = String> {
    request.subjects().into_iter().map(|subject| subject.key)
}

fn partial(reply: &mut Reply, shot: &Shot<'_>, location: &str) {
    let error = ProviderError::location_unreachable(location).to_item();
    let part = UnreachableLocation { location: location.to_owned(), error: Some(error.clone()) };
    match &mut reply.outcome {
        Ok(Answer::BatchGetInstances(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                *result = unknown(&result.key, error.clone());
            }
        }
        Ok(Answer::ListInstances(answer)) => {
            answer.instances.truncate(answer.instances.len() / 2);
            answer.unreachable.push(part);
        }
        Ok(Answer::ListLoadBalancers(answer)) => {
            answer.load_balancers.truncate(answer.load_balancers.len() / 2);
            answer.unreachable.push(part);
        }
        Ok(Answer::ListRoutes(answer)) => {
            answer.routes.truncate(answer.routes.len() / 2);
            answer.unreachable.push(part);
        }
        _ => {}
    }
}

fn absent(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    match &mut reply.outcome {
        Ok(Answer::BatchGetInstances(_)) => lie(reply, shot, InstanceState::Absent.into()),
        Ok(Answer::ListInstances(answer)) => answer.instances.retain(|listed| {
            !shot.hits_named([&listed.node_name, &listed.instance.clone().unwrap_or_default().provider_id])
        }),
        Ok(Answer::ListRoutes(answer)) => answer.routes.retain(|route| {
            let target = route.target.clone().unwrap_or_default();
            !shot.hits_named([&route.destination_cidr, &route.id, &target.name, &target.provider_id])
        }),
        Ok(Answer::ListLoadBalancers(answer)) => answer.load_balancers.retain(|balancer| {
            let service = balancer.service.clone().unwrap_or_default();
            let path = format!("{}/{}", service.namespace, service.name);
            !shot.hits_named([&path, &service.uid, &balancer.id])
        }),
        Ok(Answer::GetLoadBalancer(answer)) => {
            answer.load_balancer = Some(LoadBalancer {
                service: request.service().cloned(),
                state: LoadBalancerState::Absent.into(),
                ..LoadBalancer::default()
            });
        }
        Ok(Answer::BatchGetVolumeLabels(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                result.state = VolumeState::Absent.into();
                result.labels.clear();
                result.error = Some(ProviderError::volume_not_found("mock").to_item());
            }
        }
        _ => {}
    }
}

/// States another than the true state, with all the authority of a true answer.
fn lie(reply: &mut Reply, shot: &Shot<'_>, state: i32) {
    let there = !matches!(
        InstanceState::try_from(state),
        Ok(InstanceState::Absent | InstanceState::NotOwned | InstanceState::Unspecified)
    );
    match &mut reply.outcome {
        Ok(Answer::BatchGetInstances(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                result.state = state;
                result.authoritative = true;
                result.observed_at = Some(timestamp(shot.world.now()));
                result.error = None;
                if !there {
                    result.instance = None;
                }
            }
        }
        Ok(Answer::ListInstances(answer)) => {
            for listed in answer.instances.iter_mut().filter(|listed| shot.hits_named([&listed.node_name])) {
                listed.state = state;
            }
        }
        _ => {}
    }
}

fn not_authoritative(reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::BatchGetInstances(answer)) = &mut reply.outcome {
        for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
            result.authoritative = false;
        }
    }
}

fn not_ready(reply: &mut Reply, shot: &Shot<'_>, retry_after: Duration) {
    if let Ok(Answer::BatchGetInstances(answer)) = &mut reply.outcome {
        for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
            if result.instance.take().is_some() {
                result.error = Some(ProviderError::metadata_not_ready(retry_after).to_item());
            }
        }
    }
}

/// Nothing is known of a machine but the error.
fn unknown(key: &str, error: ItemError) -> InstanceResult {
    InstanceResult { key: key.to_owned(), error: Some(error), ..InstanceResult::default() }
}

fn item_errors(reply: &mut Reply, shot: &Shot<'_>, error: &ItemError) {
    match &mut reply.outcome {
        Ok(Answer::BatchGetInstances(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                *result = unknown(&result.key, error.clone());
            }
        }
        Ok(Answer::BatchUpdateLoadBalancers(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.service_uid)) {
                result.outcome = UpdateOutcome::NotUpdated.into();
                result.in_progress = None;
                result.error = Some(error.clone());
            }
        }
        Ok(Answer::BatchEnsureRoutes(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                result.route = None;
                result.error = Some(error.clone());
            }
        }
        Ok(Answer::BatchDeleteRoutes(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                result.error = Some(error.clone());
            }
        }
        Ok(Answer::BatchGetVolumeLabels(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                result.state = VolumeState::Unspecified.into();
                result.labels.clear();
                result.error = Some(error.clone());
            }
        }
        _ => {}
    }
}

fn drop_changes(reply: &mut Reply) {
    if let Ok(Answer::WatchInstances(answer)) = &reply.outcome
        && matches!(answer.frame, Some(Frame::Changed(_)))
    {
        reply.delivery = Delivery::Drop;
    }
}
