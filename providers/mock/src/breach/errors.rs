//! Breaches in the form of errors. They need an error: combine them with one.

use std::{collections::HashMap, io::Write as _, time::Duration};

use cloudprovider_sdk::{
    ProviderError,
    contract::{ERROR_DOMAIN, defaults},
    proto::*,
};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{
    contract::{Message, method},
    effect::{Effect, Outcome, Reply, Shot, effect},
};

/// Looks like a secret to those who search for one.
pub const CANARY: &str = "mock-canary-secret-5f0c1d";

pub(super) const BREACHES: &[Effect] = &[
    effect("error-info", "ErrorInfo is missing, has a wrong domain or an unknown reason, or appears twice")
        .ways(&["missing", "domain", "reason", "doubled"])
        .late(|_, reply, shot| change(reply, |status| info(status, shot.variant))),
    effect("error-size", "error details exceed 4 KiB").late(|_, reply, _| {
        change(reply, |status| {
            let padding = "x".repeat(defaults::MAX_ERROR_DETAIL_BYTES + 1);
            let mut details = status.get_error_details();
            let inside = details.error_info();
            let (reason, domain) = inside.map_or(("INTERNAL_ERROR".into(), ERROR_DOMAIN.into()), |info| {
                (info.reason.clone(), info.domain.clone())
            });
            details.set_error_info(reason, domain, HashMap::from([("padding".to_owned(), padding)]));
            Status::with_error_details(status.code(), status.message(), details)
        });
    }),
    effect("error-no-secret", "an error or a log line contains a secret").ways(&["told", "logged"]).late(
        |_, reply, shot| {
            if shot.variant == "logged" {
                // Bypasses the SDK's log, which removes secrets.
                let _nobody_may_read =
                    writeln!(std::io::stderr().lock(), "calling the cloud with password={CANARY}");
            } else {
                change(reply, tell_a_secret);
            }
        },
    ),
    effect("error-order", "missing rights are reported as absence, or as temporary")
        .ways(&["absence", "temporary"])
        .late(|request, reply, shot| {
            let Err(status) = &reply.outcome else { return };
            if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) {
                reply.outcome = match shot.method {
                    _ if shot.variant == "temporary" => {
                        Err(ProviderError::retry_later(Duration::from_secs(1), "try again").to_status())
                    }
                    &method::BATCH_GET_INSTANCES | &method::GET_LOAD_BALANCER => all_absent(request, shot),
                    _ => Err(Status::not_found("not found")),
                };
            }
        }),
];

fn change(reply: &mut Reply, change: impl FnOnce(&Status) -> Status) {
    if let Err(status) = &mut reply.outcome {
        *status = change(status);
    }
}

fn info(status: &Status, variant: &str) -> Status {
    let with = |reason: &str, domain: &str| {
        let details = ErrorDetails::with_error_info(reason, domain, HashMap::new());
        Status::with_error_details(status.code(), status.message(), details)
    };
    match variant {
        "domain" => with("RETRY_LATER", "elsewhere.example"),
        "reason" => with("SOMETHING_FROM_THE_FUTURE", ERROR_DOMAIN),
        "doubled" => doubled(status),
        _ => Status::new(status.code(), status.message()),
    }
}

/// The same status, with every detail duplicated.
fn doubled(status: &Status) -> Status {
    let Ok(mut inside) = tonic_types::pb::Status::decode(status.details()) else { return status.clone() };
    inside.details.extend_from_within(..);
    Status::with_details(status.code(), status.message(), inside.encode_to_vec().into())
}

fn tell_a_secret(status: &Status) -> Status {
    let mut details = status.get_error_details();
    if let Some(mut info) = details.error_info().cloned() {
        info.metadata.insert("password".to_owned(), CANARY.to_owned());
        details.set_error_info(info.reason, info.domain, info.metadata);
    }
    let message = format!("{}: password={CANARY}", status.message());
    Status::with_error_details(status.code(), message, details)
}

/// Answers that the requested balancer or instances are absent, instances authoritatively.
pub(crate) fn all_absent(request: &Message, shot: &Shot<'_>) -> Outcome {
    let mut answer = shot.blank()?;
    answer.each(|result: &mut InstanceResult| {
        result.set_state(InstanceState::Absent);
        result.authoritative = true;
        result.observed_at = shot.timestamp();
    });
    answer.each(|answer: &mut GetLoadBalancerResponse| {
        answer.load_balancer = Some(LoadBalancer {
            service: request.service(),
            state: LoadBalancerState::Absent.into(),
            ..LoadBalancer::default()
        });
    });
    Ok(answer)
}
