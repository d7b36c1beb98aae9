//! Deadlines that are far too short, and callers that disconnect.

use std::time::Duration;

use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient},
    method::Method,
    v1alpha1::{ErrorReason, GetStatusRequest, instances_client::InstancesClient},
};
use futures::future::{LocalBoxFuture, join_all};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    case::{
        Case, Outcome,
        Profile::{
            Clusters, Identity, Instances, InstancesList, LoadBalancers, LoadBalancersList, Routes, Volumes,
        },
        Run, Stop,
    },
    provider::{in_words, no_answer},
    scenario::Variables,
    target::WireError,
    trial::{By, Rpc, Trial, failed, good, reason_of, within},
};

const RULE: &[&str] = &["deadline-honoured"];

pub(super) const CASES: &[Case] = &[
    Case::new("DEAD-01", Identity, "GetStatus answers within any deadline", RULE, &hurried_status),
    Case::new(
        "DEAD-02",
        Instances,
        "BatchGetInstances answers within any deadline",
        RULE,
        &Short(Rpc::BatchGetInstances),
    ),
    Case::new(
        "DEAD-03",
        InstancesList,
        "ListInstances answers within any deadline",
        RULE,
        &Short(Rpc::ListInstances),
    ),
    Case::new(
        "DEAD-04",
        LoadBalancers,
        "GetLoadBalancer answers within any deadline",
        RULE,
        &Short(Rpc::GetLoadBalancer),
    ),
    Case::new(
        "DEAD-05",
        LoadBalancers,
        "EnsureLoadBalancer answers within any deadline",
        RULE,
        &Short(Rpc::EnsureLoadBalancer),
    ),
    Case::new(
        "DEAD-06",
        LoadBalancers,
        "DeleteLoadBalancer answers within any deadline",
        RULE,
        &Short(Rpc::DeleteLoadBalancer),
    ),
    Case::new(
        "DEAD-07",
        LoadBalancersList,
        "ListLoadBalancers answers within any deadline",
        RULE,
        &Short(Rpc::ListLoadBalancers),
    ),
    Case::new("DEAD-08", Routes, "ListRoutes answers within any deadline", RULE, &Short(Rpc::ListRoutes)),
    Case::new(
        "DEAD-09",
        Routes,
        "BatchEnsureRoutes answers within any deadline",
        RULE,
        &Short(Rpc::BatchEnsureRoutes),
    ),
    Case::new(
        "DEAD-10",
        Volumes,
        "BatchGetVolumeLabels answers within any deadline",
        RULE,
        &Short(Rpc::BatchGetVolumeLabels),
    ),
    Case::new(
        "DEAD-11",
        Clusters,
        "ListClusters answers within any deadline",
        RULE,
        &Short(Rpc::ListClusters),
    ),
    Case::new(
        "DEAD-12",
        LoadBalancersList,
        "hurried Ensures leave one balancer, and the next one converges",
        &["deadline-honoured", "ensure-after-lost-answer"],
        &hurried_ensure,
    ),
    Case::new("DEAD-13", Instances, "calls that are given up in great number do no harm", RULE, &given_up)
        .words(&["| the caller cancelled | CANCELLED | none | as above |"]),
    Case::new("DEAD-14", Instances, "calls that are given up keep no threads", RULE, &threads_end)
        .hooks(&["measure-provider", "slow-cloud", "restore-cloud-speed"])
        .extended(),
];

/// Answered in time: with any result, or as the contract wants at a deadline.
fn in_time(what: &str, deadline: Duration, answer: Result<(), Status>) -> Outcome {
    let Err(status) = answer else { return Ok(()) };
    // What a cloud throttles can be refused as soon as its turn is known to come too late.
    if ends_there(&status) || reason_of(&status) == Some(ErrorReason::RateLimited) {
        return Ok(());
    }
    let layer = match no_answer(&status) {
        Some(WireError::Reset(_)) => "HTTP/2, no gRPC status",
        Some(WireError::NoAnswer(_)) => "HTTP/2: neither a status nor a reset of the stream",
        Some(_) => "the connection",
        None => "gRPC status",
    };
    let ways = "OK, DEADLINE_EXCEEDED, CANCELLED or RATE_LIMITED as gRPC status, or a reset of the stream with CANCEL";
    let expected = format!("{what} with deadline {deadline:?}: {ways}");
    Err(failed(expected, format!("{layer}: {}", in_words(&status))))
}

/// Whether a call ended as one does at its deadline.
fn ends_there(status: &Status) -> bool {
    match no_answer(status) {
        // Stock servers reset the stream by themselves when `grpc-timeout` expires.
        Some(WireError::Reset(reason)) => *reason == h2::Reason::CANCEL,
        Some(_) => false,
        None => matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
    }
}

/// Providers end a call a little before its deadline, so that the caller hears of it.
const AHEAD: Duration = Duration::from_secs(1);

/// The end of a call at its deadline, and not before.
pub(super) fn is_of_deadline(t: &Trial, method: &Method, begun: Instant, status: &Status) -> bool {
    begun.elapsed() + AHEAD >= t.deadline(method) && ends_there(status)
}

/// How often a call is made again that got no answer in time: a busy machine is late now and then, and whoever ignores deadlines is
/// each time.
const AGAIN: u32 = 2;

/// A call with a deadline that is far too short, answered in time.
async fn hurried(
    what: &str,
    deadline: Duration,
    call: impl AsyncFn() -> Result<Result<(), Status>, Stop>,
) -> Outcome {
    let mut answer = call().await?;
    for _again in 0..AGAIN {
        let late = |status: &Status| matches!(no_answer(status), Some(WireError::NoAnswer(_)));
        if !answer.as_ref().is_err_and(late) {
            break;
        }
        answer = call().await?;
    }
    in_time(what, deadline, answer)
}

struct Short(Rpc);

impl Run for Short {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let what = format!("{:?}", self.0);
            for deadline in [1, 10, 100].map(Duration::from_millis) {
                let by = || By { deadline: Some(deadline), ..By::usual(t) };
                hurried(&what, deadline, async || self.0.call(t, by()).await).await?;
            }
            // And no call is stuck behind them.
            good("the next call", self.0.call(t, By::usual(t)).await?.map(tonic::Response::new))
        })
    }
}

async fn hurried_status(t: &Trial) -> Outcome {
    for deadline in [1, 10, 100].map(Duration::from_millis) {
        hurried("GetStatus", deadline, async || {
            Ok(t.base().get_status(within(GetStatusRequest {}, deadline)).await.map(drop))
        })
        .await?;
    }
    good("the next call", t.base().get_status(t.ask(GetStatusRequest {})).await).map(drop)
}

async fn hurried_ensure(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    for deadline in [1, 5, 20, 100].map(Duration::from_millis) {
        hurried("EnsureLoadBalancer", deadline, async || {
            let request = within(t.ensure_request(&wanted), deadline);
            Ok(t.load_balancers().ensure_load_balancer(request).await.map(drop))
        })
        .await?;
    }
    t.ensure(&wanted).await?;
    super::balancers::only_one(t, &wanted).await.map(drop)
}

/// Far below one for each call, far above what a server's own pools may grow by.
const FEW: u64 = 100;
const MANY: u32 = 400;
/// As many at a time as a busy machine reads before they are given up.
const WAVE: u32 = 50;

async fn threads_end(t: &Trial) -> Outcome {
    let threads = async || {
        let printed = t.hook("measure-provider", &Variables::new()).await?;
        let shape = || Stop::NotRun(format!("hook measure-provider printed no threads: {printed}"));
        printed.get("threads").and_then(serde_json::Value::as_u64).ok_or_else(shape)
    };
    let before = threads().await?;
    t.steer("slow-cloud", Variables::new()).await?;
    // All of them have arrived, and none has its answer.
    for _wave in 0..MANY / WAVE {
        give_up(t, WAVE, Duration::from_millis(300)).await;
    }
    t.restore("slow-cloud").await?;
    t.eventually(&format!("at most {FEW} threads more than the {before} before"), async || {
        let now = threads().await?;
        Ok(if now <= before + FEW { Ok(()) } else { Err(format!("{now} after {MANY} calls")) })
    })
    .await
}

async fn given_up(t: &Trial) -> Outcome {
    give_up(t, 64, Duration::ZERO).await;
    let answer = t.instances().batch_get_instances(t.ask(t.batch(vec![t.stranger()]))).await;
    good("the next call", answer).map(drop)
}

/// Begins so many calls, and drops each after this time, or almost.
async fn give_up(t: &Trial, calls: u32, after: Duration) {
    // A server may close a connection on which many calls are cancelled; another one must continue to work.
    let theirs = t.wire().another();
    // The connection is there before the calls are.
    let _any_answer = DiscoveryClient::new(theirs.clone()).get_info(t.ask(GetInfoRequest::default())).await;
    let given_up = (0..calls).map(async |number| {
        let batch = t.ask(t.batch(vec![t.stranger()]));
        let mut client = InstancesClient::new(theirs.clone());
        let call = client.batch_get_instances(batch);
        let after = after + Duration::from_micros(u64::from(number) * 20);
        drop(tokio::time::timeout(after, call).await);
    });
    join_all(given_up).await;
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    #[test]
    fn an_answer_in_time_is_the_deadlines_or_the_clouds() {
        let of = |code, reason: &str| {
            let details =
                ErrorDetails::with_error_info(reason, cloudprovider_proto::ERROR_DOMAIN, HashMap::new());
            Err(Status::with_error_details(code, "x", details))
        };
        for (answer, honoured) in [
            (Ok(()), true),
            (Err(Status::deadline_exceeded("x")), true),
            (of(Code::ResourceExhausted, "RATE_LIMITED"), true),
            (of(Code::Unavailable, "CLOUD_API_UNAVAILABLE"), false),
            (Err(Status::resource_exhausted("x")), false),
        ] {
            let seen = format!("{answer:?}");
            assert_eq!(in_time("X", Duration::from_millis(1), answer).is_ok(), honoured, "{seen}");
        }
    }
}
