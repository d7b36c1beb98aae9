//! The kinds of faults, and what each does: before the work of a call, and to its answer.

use std::time::Duration;

use cloudprovider_sdk::{ProviderError, proto::*};
use tonic::{Code, Status};

use super::text::{code_named, instance_state_named, reason_named};
use crate::{
    breach,
    contract::{Message, Method, method},
    effect::{Delivery, Effect, Reply, Shot, Turn, effect},
};

const BATCH: &[&Method] = &[&method::BATCH_GET_INSTANCES];
const WATCH: &[&Method] = &[&method::WATCH_INSTANCES];
const STATES: &[&Method] = &[&method::BATCH_GET_INSTANCES, &method::LIST_INSTANCES];
const PARTS: &[&Method] = &[
    &method::BATCH_GET_INSTANCES,
    &method::LIST_INSTANCES,
    &method::LIST_LOAD_BALANCERS,
    &method::LIST_ROUTES,
];
const ABSENCES: &[&Method] = &[
    &method::BATCH_GET_INSTANCES,
    &method::LIST_INSTANCES,
    &method::LIST_LOAD_BALANCERS,
    &method::LIST_ROUTES,
    &method::GET_LOAD_BALANCER,
    &method::BATCH_GET_VOLUME_LABELS,
];

/// All kinds of faults. `latency` and `breach` are done elsewhere: one takes time, the other is a table of its own.
pub const KINDS: &[Effect] = &[
    effect("latency", "the call is delayed").ways(&["time", "jitter"]),
    effect("error", "an error of the contract")
        .ways(&["reason", "message", "retry_after", "after_work"])
        .early(|_, shot| Turn::fail(contract_error(shot))),
    effect("status", "a bare status without ErrorInfo")
        .ways(&["code", "message", "after_work"])
        .early(|_, shot| Turn::fail(bare(shot))),
    effect("throttle", "RATE_LIMITED with RetryInfo")
        .ways(&["retry_after"])
        .early(|_, shot| Turn::fail(ProviderError::rate_limited(retry_after(shot)))),
    effect("hang", "no work and no answer before the deadline").early(|_, _| Turn::Hang),
    effect(
        "lost-answer",
        "the work is done, but the answer is lost: the stream is reset, or nothing is sent",
    )
    .ways(&["silent"])
    .late(|_, reply, shot| {
        reply.delivery = if shot.options.flag("silent") { Delivery::Silent } else { Delivery::Reset };
    }),
    effect("partial", "a part of the cloud is unreachable: half of a list, or the named nodes of a batch")
        .ways(&["location"])
        .to(PARTS)
        .late(partial),
    effect("absent", "a lie: living instances are authoritatively ABSENT, and lists omit them")
        .to(ABSENCES)
        .late(absent),
    effect("state", "a lie about the state of instances, by name or number")
        .ways(&["state"])
        .to(STATES)
        .late(|_, reply, shot| {
            lie(reply, shot, instance_state_named(shot.options.text("state")).unwrap_or_default());
        }),
    effect("not-authoritative", "answers about instances are not authoritative")
        .to(BATCH)
        .late(|_, reply, shot| reply.each(shot, |result: &mut InstanceResult| result.authoritative = false)),
    effect("item-error", "an error for each item of a batch")
        .ways(&["reason", "retry_after"])
        .to(method::BATCHES)
        .late(item_errors),
    effect("in-progress", "the work is not started but reported as in progress")
        .ways(&["retry_after"])
        .to(method::CHANGES)
        .early(in_progress),
    effect("metadata-not-ready", "instances run but cannot be described yet")
        .ways(&["retry_after"])
        .to(BATCH)
        .late(|_, reply, shot| {
            reply.each(shot, |result: &mut InstanceResult| {
                if result.instance.take().is_some() {
                    result.error = Some(ProviderError::metadata_not_ready(retry_after(shot)).to_item());
                }
            });
        }),
    effect("crash", "the process aborts during the call").ways(&["after_work"]).early(|_, shot| {
        tracing::error!(method = shot.method.name, "aborting, as a fault asks");
        std::process::abort()
    }),
    effect("drop-changes", "a watch omits changes")
        .to(WATCH)
        .late(|_, reply, _| breach::leave_out(reply, "changed")),
    effect("cut-watch", "a watch ends after this many frames").ways(&["frames"]).to(WATCH).late(
        |_, reply, shot| {
            if shot.frame >= shot.options.number("frames") {
                reply.delivery = Delivery::Reset;
            }
        },
    ),
    effect("breach", "a rule of the contract is broken").ways(&["rule", "variant"]),
];

fn retry_after(shot: &Shot<'_>) -> Duration {
    shot.options.time("retry_after").unwrap_or(Duration::from_secs(1))
}

fn contract_error(shot: &Shot<'_>) -> ProviderError {
    let message = Some(shot.options.text("message")).filter(|message| !message.is_empty());
    let reason = reason_named(shot.options.text("reason")).unwrap_or_default();
    let mut error = ProviderError::new(reason, message.unwrap_or("a fault of the mock"));
    if reason == ErrorReason::CloudPermissionDenied {
        error = error.with_metadata("action", "mock:anything");
    }
    match shot.options.time("retry_after") {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}

fn bare(shot: &Shot<'_>) -> Status {
    let code = code_named(shot.options.text("code")).unwrap_or(Code::Unknown);
    Status::new(code, shot.options.text("message"))
}

/// The answer to a mutation that was not started: everything is in progress.
fn in_progress(request: &mut Message, shot: &Shot<'_>) -> Turn {
    let going_on = Some(InProgress {
        retry_after: retry_after(shot).try_into().ok(),
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

fn partial(_request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    let location = Some(shot.options.text("location")).filter(|location| !location.is_empty());
    let location = location.unwrap_or("mock-unreachable");
    let error = ProviderError::location_unreachable(location).to_item();
    reply.each(shot, |result| unknown(result, &error));
    breach::halve(reply);
    let part = UnreachableLocation { location: location.to_owned(), error: Some(error) };
    reply.each(shot, |list: &mut ListInstancesResponse| list.unreachable.push(part.clone()));
    reply.each(shot, |list: &mut ListLoadBalancersResponse| list.unreachable.push(part.clone()));
    reply.each(shot, |list: &mut ListRoutesResponse| list.unreachable.push(part.clone()));
}

fn absent(request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    if shot.method == &method::BATCH_GET_INSTANCES {
        lie(reply, shot, InstanceState::Absent.into());
    }
    if let Some(entries) = reply.entries() {
        entries.retain(|entry| entry.as_message().is_none_or(|entry| !shot.names(entry)));
    }
    if shot.method == &method::GET_LOAD_BALANCER && reply.outcome.is_ok() {
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

fn item_errors(_request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    let error = contract_error(shot).to_item();
    reply.each(shot, |result| unknown(result, &error));
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
