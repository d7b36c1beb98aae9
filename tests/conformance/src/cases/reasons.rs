//! Every reason that only a cloud under control shows, provoked one by one.

use cloudprovider_proto::v1alpha1::ErrorReason;
use futures::future::LocalBoxFuture;
use tonic::Status;

use crate::{
    case::{
        Case, Outcome,
        Profile::{self, Instances, LoadBalancers},
        Run,
    },
    provider::in_words,
    trial::{Trial, examine, expect, failed, read_error},
};

const RULES: &[&str] = &["error-info", "error-size", "error-no-secret"];
const HOOKS: &[&str] = &["provoke-error", "stop-errors"];

pub(super) const CASES: &[Case] = &[
    read(
        "REASON-01",
        "RATE_LIMITED is reported with its code and RetryInfo",
        &Read(ErrorReason::RateLimited),
    ),
    read("REASON-02", "RETRY_LATER is reported with its code and RetryInfo", &Read(ErrorReason::RetryLater)),
    read(
        "REASON-03",
        "PROVIDER_OVERLOADED is reported with its code and RetryInfo",
        &Read(ErrorReason::ProviderOverloaded),
    ),
    read(
        "REASON-04",
        "CLOUD_API_UNAVAILABLE is reported with its code",
        &Read(ErrorReason::CloudApiUnavailable),
    ),
    read(
        "REASON-05",
        "CLOUD_CREDENTIALS_INVALID is reported with its code",
        &Read(ErrorReason::CloudCredentialsInvalid),
    ),
    read(
        "REASON-06",
        "CLOUD_CREDENTIALS_EXPIRED is reported with its code",
        &Read(ErrorReason::CloudCredentialsExpired),
    ),
    read(
        "REASON-07",
        "CLOUD_PERMISSION_DENIED is reported with its code",
        &Read(ErrorReason::CloudPermissionDenied),
    ),
    read(
        "REASON-08",
        "INVALID_PROVIDER_CONFIG is reported with its code",
        &Read(ErrorReason::InvalidProviderConfig),
    ),
    read("REASON-09", "INTERNAL_ERROR is reported with its code", &Read(ErrorReason::InternalError)),
    read(
        "REASON-10",
        "LOCATION_UNREACHABLE is reported with its code",
        &Read(ErrorReason::LocationUnreachable),
    ),
    write("REASON-21", "QUOTA_EXCEEDED is reported with its code", &Write(ErrorReason::QuotaExceeded)),
    write(
        "REASON-22",
        "CAPACITY_UNAVAILABLE is reported with its code",
        &Write(ErrorReason::CapacityUnavailable),
    ),
    write(
        "REASON-23",
        "CONCURRENT_OPERATION is reported with its code",
        &Write(ErrorReason::ConcurrentOperation),
    ),
    write(
        "REASON-24",
        "IMPLEMENTED_ELSEWHERE is reported with its code",
        &Write(ErrorReason::ImplementedElsewhere),
    ),
    write(
        "REASON-25",
        "INVALID_CONFIGURATION is reported with its code",
        &Write(ErrorReason::InvalidConfiguration),
    ),
    write(
        "REASON-26",
        "OWNED_BY_OTHER_CLUSTER is reported with its code",
        &Write(ErrorReason::OwnedByOtherCluster),
    ),
    write(
        "REASON-27",
        "UNSUPPORTED_FEATURE is reported with its code",
        &Write(ErrorReason::UnsupportedFeature),
    ),
    write("REASON-28", "a throttled mutation is RATE_LIMITED", &Write(ErrorReason::RateLimited)),
];

const fn read(id: &'static str, title: &'static str, run: &'static dyn Run) -> Case {
    provoked(id, Instances, title, run)
}

const fn write(id: &'static str, title: &'static str, run: &'static dyn Run) -> Case {
    provoked(id, LoadBalancers, title, run)
}

const fn provoked(id: &'static str, profile: Profile, title: &'static str, run: &'static dyn Run) -> Case {
    Case::new(id, profile, title, RULES, run).hooks(HOOKS).extended()
}

/// The error of a read.
struct Read(ErrorReason);
/// The error of a mutation.
struct Write(ErrorReason);

impl Run for Read {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            t.provoke(self.0, "BatchGetInstances").await?;
            let answer = t.instances().batch_get_instances(t.ask(t.batch(vec![t.stranger()]))).await;
            let in_item = answer.as_ref().ok().and_then(|answer| {
                answer
                    .get_ref()
                    .results
                    .iter()
                    .find_map(|result| result.error.as_ref().map(|error| error.reason()))
            });
            match (answer, in_item) {
                // The error of a location accompanies the items.
                (Ok(_), Some(reason)) if reason == self.0 => Ok(()),
                (Ok(answer), _) => Err(failed(self.0.wire_name(), format!("OK: {:?}", answer.into_inner()))),
                (Err(status), _) => told(t, &status, self.0),
            }
        })
    }
}

impl Run for Write {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            t.provoke(self.0, "EnsureLoadBalancer").await?;
            match t.refusal(&t.unmade().await?).await? {
                Ok(answer) => Err(failed(self.0.wire_name(), format!("OK: {:?}", answer.into_inner()))),
                Err(status) => told(t, &status, self.0),
            }
        })
    }
}

/// Checks that the error has this reason, and everything that belongs to it.
fn told(t: &Trial, status: &Status, wanted: ErrorReason) -> Outcome {
    examine(t, status)?;
    let seen = read_error(status);
    expect(seen.reason == Some(wanted), wanted.wire_name(), in_words(status))?;
    let action = seen.info.as_ref().and_then(|info| info.metadata.get("action"));
    let names =
        wanted != ErrorReason::CloudPermissionDenied || action.is_some_and(|action| !action.is_empty());
    expect(names, "metadata \"action\": the permission that is missing", in_words(status))?;
    let waits = matches!(
        wanted,
        ErrorReason::RateLimited | ErrorReason::RetryLater | ErrorReason::ProviderOverloaded
    );
    let after = seen.retry.and_then(|retry| retry.retry_delay);
    expect(!waits || after.is_some_and(|after| !after.is_zero()), "a positive RetryInfo", in_words(status))
}
