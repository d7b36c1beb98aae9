//! What each kind of fault does to a call: before its work, and to its answer.

use std::time::Duration;

use cloudprovider_sdk::{ProviderError, proto::*};
use tonic::Status;

use super::{
    kind::{Fault, FaultKind},
    text::{code_named, instance_state_named, reason_named},
};
use crate::{
    breach,
    contract::{Message, Method},
    duration::Time,
    scene::{Delivery, Reply, Shot, Turn},
};

/// Applies the fault before the call's work. Latency is not here, since it takes time.
pub(crate) fn before(fault: &Fault, request: &mut Message, shot: &Shot<'_>) -> Turn {
    match &fault.kind {
        FaultKind::Error { reason, message, retry_after, after_work: false } => {
            Turn::fail(contract_error(reason, message, *retry_after))
        }
        FaultKind::Status { code, message, after_work: false } => Turn::fail(bare(code, message)),
        FaultKind::Throttle { retry_after } => Turn::fail(ProviderError::rate_limited(retry_after.0)),
        FaultKind::Hang => Turn::Hang,
        FaultKind::Crash { after_work: false } => Turn::Crash,
        FaultKind::InProgress { retry_after } => in_progress(request, shot, retry_after.0),
        FaultKind::Breach { rule, .. } => {
            let Some(breach) = breach::named(rule) else { return Turn::GoOn };
            (breach.ask)(request, shot);
            (breach.before)(request, shot)
        }
        _ => Turn::GoOn,
    }
}

/// Applies the fault to an answer, or to one frame of a stream.
pub(crate) fn after(fault: &Fault, request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
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
        FaultKind::NotAuthoritative => {
            reply.each(shot, |result: &mut InstanceResult| result.authoritative = false);
        }
        FaultKind::MetadataNotReady { retry_after } => reply.each(shot, |result: &mut InstanceResult| {
            if result.instance.take().is_some() {
                result.error = Some(ProviderError::metadata_not_ready(retry_after.0).to_item());
            }
        }),
        FaultKind::ItemError { reason, retry_after } => {
            item_errors(reply, shot, &contract_error(reason, "", *retry_after).to_item());
        }
        FaultKind::DropChanges => breach::leave_out(reply, "changed"),
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

/// The answer to a mutation that was not started: everything is in progress.
fn in_progress(request: &Message, shot: &Shot<'_>, retry_after: Duration) -> Turn {
    let going_on = Some(InProgress {
        retry_after: retry_after.try_into().ok(),
        reason: "PROVISIONING".to_owned(),
        message: "a fault of the mock".to_owned(),
    });
    let Ok(mut answer) = shot.blank() else { return Turn::GoOn };
    answer.each(|answer: &mut EnsureLoadBalancerResponse| {
        answer.load_balancer = Some(LoadBalancer {
            service: request.service(),
            state: LoadBalancerState::Pending.into(),
            ownership: Ownership::ByUid.into(),
            ..LoadBalancer::default()
        });
        answer.in_progress.clone_from(&going_on);
    });
    answer.each(|answer: &mut DeleteLoadBalancerResponse| answer.in_progress.clone_from(&going_on));
    answer.each(|answer: &mut AddSshKeyToAllInstancesResponse| answer.in_progress.clone_from(&going_on));
    answer.each(|result: &mut LoadBalancerUpdateResult| {
        result.set_outcome(UpdateOutcome::NotUpdated);
        result.in_progress.clone_from(&going_on);
    });
    answer.each(|result: &mut RouteResult| result.in_progress.clone_from(&going_on));
    answer.each(|result: &mut RouteDeletion| result.in_progress.clone_from(&going_on));
    Turn::answer(Ok(answer))
}

fn partial(reply: &mut Reply, shot: &Shot<'_>, location: &str) {
    let error = ProviderError::location_unreachable(location).to_item();
    reply.each(shot, |result| unknown(result, &error));
    breach::halve(reply);
    let part = UnreachableLocation { location: location.to_owned(), error: Some(error) };
    reply.each(shot, |list: &mut ListInstancesResponse| list.unreachable.push(part.clone()));
    reply.each(shot, |list: &mut ListLoadBalancersResponse| list.unreachable.push(part.clone()));
    reply.each(shot, |list: &mut ListRoutesResponse| list.unreachable.push(part.clone()));
}

fn absent(request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    if shot.method == Method::BatchGetInstances {
        lie(reply, shot, InstanceState::Absent.into());
    }
    reply.each(shot, |list: &mut ListInstancesResponse| {
        list.instances.retain(|listed| {
            let instance = listed.instance.clone().unwrap_or_default();
            !shot.hits_named([&listed.node_name, &instance.provider_id])
        });
    });
    reply.each(shot, |list: &mut ListRoutesResponse| {
        list.routes.retain(|route| {
            let target = route.target.clone().unwrap_or_default();
            !shot.hits_named([&route.destination_cidr, &route.id, &target.name, &target.provider_id])
        });
    });
    reply.each(shot, |list: &mut ListLoadBalancersResponse| {
        list.load_balancers.retain(|balancer| {
            let service = balancer.service.clone().unwrap_or_default();
            let path = format!("{}/{}", service.namespace, service.name);
            !shot.hits_named([&path, &service.uid, &balancer.id])
        });
    });
    if shot.method == Method::GetLoadBalancer && reply.outcome.is_ok() {
        reply.outcome = breach::all_absent(request, shot);
    }
    reply.each(shot, |result: &mut VolumeResult| {
        result.set_state(VolumeState::Absent);
        result.labels.clear();
        result.error = Some(ProviderError::volume_not_found("mock").to_item());
    });
}

/// Reports a wrong state, as authoritatively as a true one.
fn lie(reply: &mut Reply, shot: &Shot<'_>, state: i32) {
    let there = !matches!(
        InstanceState::try_from(state),
        Ok(InstanceState::Absent | InstanceState::NotOwned | InstanceState::Unspecified)
    );
    reply.each(shot, |result: &mut InstanceResult| {
        result.state = state;
        result.authoritative = true;
        result.observed_at = shot.timestamp();
        result.error = None;
        result.instance.take_if(|_| !there);
    });
    reply.each(shot, |listed: &mut ListedInstance| listed.state = state);
}

/// Leaves only the error of an instance.
fn unknown(result: &mut InstanceResult, error: &ItemError) {
    let (key, error) = (std::mem::take(&mut result.key), Some(error.clone()));
    *result = InstanceResult { key, error, ..InstanceResult::default() };
}

fn item_errors(reply: &mut Reply, shot: &Shot<'_>, error: &ItemError) {
    reply.each(shot, |result| unknown(result, error));
    reply.each(shot, |result: &mut LoadBalancerUpdateResult| {
        result.set_outcome(UpdateOutcome::NotUpdated);
        result.in_progress = None;
        result.error = Some(error.clone());
    });
    reply.each(shot, |result: &mut RouteResult| {
        (result.route, result.error) = (None, Some(error.clone()));
    });
    reply.each(shot, |result: &mut RouteDeletion| result.error = Some(error.clone()));
    reply.each(shot, |result: &mut VolumeResult| {
        result.set_state(VolumeState::Unspecified);
        result.labels.clear();
        result.error = Some(error.clone());
    });
}
