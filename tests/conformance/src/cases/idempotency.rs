//! Calls that are repeated, lost, cut short, or concurrent.

use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient},
    v1alpha1::{ErrorReason, LoadBalancer, LoadBalancerState, load_balancers_client::LoadBalancersClient},
};
use futures::future::join_all;
use tonic::Code;

use super::balancers::{none_listed, only_one};
use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancers, LoadBalancersList},
    },
    provider::in_words,
    trial::{Trial, Wanted, failed, good, reason_of, same},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "IDEM-01",
        LoadBalancers,
        "Ensure again and again answers the same",
        &["ensure-idempotent"],
        &same_answer,
    ),
    Case::new(
        "IDEM-02",
        LoadBalancersList,
        "Ensure again and again leaves one balancer",
        &["ensure-idempotent"],
        &one_balancer,
    ),
    Case::new(
        "IDEM-03",
        LoadBalancersList,
        "Ensure after a lost answer finds the first one's balancer",
        &["ensure-after-lost-answer"],
        &lost_answer,
    ),
    Case::new(
        "IDEM-04",
        LoadBalancersList,
        "Ensure after a kill of the provider in mid-call leaves one balancer",
        &["ensure-after-lost-answer"],
        &killed,
    )
    .hooks(&["kill-provider"])
    .extended(),
    Case::new(
        "IDEM-05",
        LoadBalancersList,
        "equal Ensures at once make one balancer",
        &["ensure-idempotent"],
        &equal_at_once,
    )
    .words(&["Identical concurrent calls share one operation or queue"]),
    Case::new(
        "IDEM-06",
        LoadBalancersList,
        "conflicting Ensures at once end in one winner",
        &["ensure-idempotent"],
        &conflicting_at_once,
    )
    .words(&["of conflicting calls one wins and the others fail with CONCURRENT_OPERATION"]),
    Case::new(
        "IDEM-08",
        LoadBalancersList,
        "Ensure and Delete at once end in one of both",
        &[],
        &ensure_and_delete,
    )
    .words(&["so that a lost, repeated or overtaken call does no harm"]),
];

/// The parts that must not change from call to call.
fn lasting(balancer: LoadBalancer) -> (String, String, Vec<(String, String)>, i32) {
    let mut ways: Vec<_> = balancer.ingress.into_iter().map(|way| (way.ip, way.hostname)).collect();
    ways.sort();
    (balancer.id, balancer.applied_digest, ways, balancer.state)
}

async fn same_answer(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let first = lasting(t.ensured(&wanted).await?);
    for _time in 1..t.scenario().repeats.max(2) {
        same("the same answer:", &lasting(t.ensured(&wanted).await?), &first)?;
    }
    Ok(())
}

async fn one_balancer(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    for _time in 0..t.scenario().repeats.max(2) {
        t.ensure(&wanted).await?;
    }
    only_one(t, &wanted).await.map(drop)
}

async fn lost_answer(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    // A refusal as throttled is lost, too.
    let mut attempts_left = 4;
    while let Err(stop) = begun_without_answer(t, &wanted).await {
        if attempts_left == 0 {
            return Err(stop);
        }
        attempts_left -= 1;
    }
    t.ensure(&wanted).await?;
    only_one(t, &wanted).await.map(drop)
}

/// Begins a balancer, and hears no answer.
async fn begun_without_answer(t: &Trial, wanted: &Wanted) -> Outcome {
    let deaf = t.wire().another();
    let mut client = LoadBalancersClient::new(deaf.clone());
    // Once with answers, so that the connection is established.
    good("GetInfo", DiscoveryClient::new(deaf.clone()).get_info(t.ask(GetInfoRequest::default())).await)?;
    deaf.lose_answers();
    let request = t.ask(t.ensure_request(wanted));
    let call = client.ensure_load_balancer(request);
    let begun = t.eventually("a balancer that is begun", async || {
        let state = t.get(wanted).await?.state();
        let begun = !matches!(state, LoadBalancerState::Absent | LoadBalancerState::Unspecified);
        Ok(if begun { Ok(()) } else { Err(format!("{state:?}")) })
    });
    tokio::select! {
        begun = begun => begun?,
        answer = call => drop(answer),
    }
    Ok(())
}

async fn killed(t: &Trial) -> Outcome {
    let mut all = Vec::new();
    for _service in 0..4 {
        all.push(t.unmade().await?);
    }
    let (calls, restarted) =
        tokio::join!(join_all(all.iter().map(|wanted| t.ensure_once(wanted))), t.restart("kill-provider"));
    drop(calls);
    restarted?;
    for made in join_all(all.iter().map(|wanted| t.ensure(wanted))).await {
        made?;
    }
    for wanted in &all {
        only_one(t, wanted).await?;
    }
    Ok(())
}

/// A concurrent call behaved as the contract requires.
pub(super) fn beside_others<T>(answer: Result<tonic::Response<T>, tonic::Status>) -> Outcome {
    match answer {
        Ok(_) => Ok(()),
        // It queued in a slow cloud for longer than its deadline.
        Err(status) if status.code() == Code::DeadlineExceeded => Ok(()),
        Err(status) => match reason_of(&status) {
            Some(
                ErrorReason::ConcurrentOperation
                | ErrorReason::StaleRevision
                | ErrorReason::ProviderOverloaded,
            ) => Ok(()),
            _ => Err(failed("OK, or CONCURRENT_OPERATION", in_words(&status))),
        },
    }
}

async fn equal_at_once(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    let most = t.provider().limits().max_concurrent_mutations.clamp(8, 16);
    t.slow_if_it_can_be().await?;
    for answer in join_all((0..most).map(|_| t.ensure_once(&wanted))).await {
        beside_others(answer)?;
    }
    t.restore("slow-cloud").await?;
    let made = t.ensured(&wanted).await?;
    same("the id", &only_one(t, &wanted).await?.id, &made.id)
}

async fn conflicting_at_once(t: &Trial) -> Outcome {
    let first = t.wanted().await?;
    let mut states: Vec<Wanted> = (0..8).map(|number| first.changed(1000 + number)).collect();
    for (number, state) in states.iter_mut().enumerate() {
        state.revision = first.revision + number as u64;
    }
    t.shuffle(&mut states);
    t.slow_if_it_can_be().await?;
    let answers = join_all(states.iter().map(|state| t.ensure_once(state))).await;
    t.restore("slow-cloud").await?;
    for answer in answers {
        beside_others(answer)?;
    }
    let last = states.iter().max_by_key(|state| state.revision).unwrap_or(&first);
    t.ensure(last).await?;
    let listed = only_one(t, last).await?;
    same("applied_digest", &listed.applied_digest, &last.digest)
}

async fn ensure_and_delete(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.slow_if_it_can_be().await?;
    let (ensured, deleted) = tokio::join!(t.ensure_once(&wanted), t.delete_once(t.delete_request(&wanted)));
    t.restore("slow-cloud").await?;
    beside_others(ensured)?;
    beside_others(deleted)?;
    t.delete(&t.delete_request(&wanted)).await?;
    none_listed(t, &wanted).await
}
