//! Callers that disconnect during a mutation, and never come back.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::LoadBalancerState;

use crate::{
    case::{Case, Outcome, Profile::LoadBalancers, Stop},
    provider::{in_words, no_answer},
    scenario::Variables,
    trial::{HOLDS, INSPECT, Trial, Wanted, failed},
};

const AFTERWARDS: &[&str] = &["ensure-after-lost-answer", "built-as-asked"];
const RULE: &[&str] = &["mutation-finishes"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "IDEM-07",
        LoadBalancers,
        "an Ensure whose caller goes away leaves nothing half made",
        RULE,
        &nothing_half_made,
    ),
    Case::new(
        "IDEM-09",
        LoadBalancers,
        "an Ensure that began is finished, though its caller is gone and nobody calls again",
        RULE,
        &finished,
    )
    .hooks(&[INSPECT, "slow-cloud", "restore-cloud-speed"])
    .extended(),
    Case::new(
        "IDEM-10",
        LoadBalancers,
        "after a stop or a kill of the provider in mid-Ensure, the next Ensure builds one balancer as asked",
        AFTERWARDS,
        &ensured_after_an_end,
    )
    .hooks(&[INSPECT, "slow-cloud", "restore-cloud-speed", "restart-provider", "kill-provider"])
    .extended(),
    Case::new(
        "IDEM-11",
        LoadBalancers,
        "after a kill of the provider in mid-Ensure, Delete removes what there is",
        &["delete-leaves-nothing"],
        &deleted_after_a_kill,
    )
    .words(&["it also removes an incomplete load balancer"])
    .hooks(&[HOLDS, "slow-cloud", "restore-cloud-speed", "kill-provider"])
    .extended(),
    Case::new(
        "IDEM-12",
        LoadBalancers,
        "once Delete is done, an Ensure whose caller has gone makes nothing any more",
        &["delete-leaves-nothing"],
        &deleted_meanwhile,
    )
    .words(&["Identical concurrent calls share one operation or queue; of conflicting calls one wins"])
    .hooks(&[INSPECT, "slow-cloud", "restore-cloud-speed"])
    .extended(),
];

/// How long an Ensure that goes on may need for what is left of it: each call of a slow cloud takes about a second.
const REST: Duration = Duration::from_secs(3);

/// Starts an Ensure and disconnects after this long. Returns whether it was still running.
async fn leave(t: &Trial, wanted: &Wanted, after: Duration) -> Result<bool, Stop> {
    let request = t.ask(t.ensure_request(wanted));
    let mut client = t.load_balancers();
    // Dropping the call disconnects the caller; a fast provider has already finished.
    match tokio::time::timeout(after, client.ensure_load_balancer(request)).await {
        Ok(Err(status)) if no_answer(&status).is_none() => {
            Err(failed("an Ensure that works", in_words(&status)))
        }
        ended => Ok(ended.is_err()),
    }
}

/// Begins an Ensure in a slow cloud, which goes on when its caller has gone.
async fn left_in_a_slow_cloud(t: &Trial) -> Result<Wanted, Stop> {
    t.steer("slow-cloud", Variables::new()).await?;
    let wanted = t.unmade().await?;
    if leave(t, &wanted, Duration::from_millis(300)).await? {
        return Ok(wanted);
    }
    Err(Stop::NotRun("slow-cloud: the Ensure ended before its caller could go away".to_owned()))
}

async fn deleted_meanwhile(t: &Trial) -> Outcome {
    let wanted = left_in_a_slow_cloud(t).await?;
    t.restore("slow-cloud").await?;
    t.delete(&t.delete_request(&wanted)).await?;
    tokio::time::sleep(REST).await;
    t.nothing_stands(&wanted).await
}

/// Begins an Ensure in a slow cloud, and ends the provider in the middle of it.
async fn cut_short(t: &Trial, wanted: &Wanted, hook: &str) -> Outcome {
    t.steer("slow-cloud", Variables::new()).await?;
    let end = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        t.restart(hook).await
    };
    let (_cut_short, ended) = tokio::join!(t.ensure_once(wanted), end);
    ended?;
    t.restore("slow-cloud").await
}

async fn ensured_after_an_end(t: &Trial) -> Outcome {
    for hook in ["restart-provider", "kill-provider"] {
        let wanted = t.unmade().await?.changed(443);
        cut_short(t, &wanted, hook).await?;
        t.ensure(&wanted).await?;
        t.stands(&wanted).await?;
    }
    Ok(())
}

async fn deleted_after_a_kill(t: &Trial) -> Outcome {
    let before = t.cloud_holds().await?;
    let wanted = t.unmade().await?.changed(443);
    cut_short(t, &wanted, "kill-provider").await?;
    t.delete(&t.delete_request(&wanted)).await?;
    t.holds_no_more_than(&before).await
}

async fn nothing_half_made(t: &Trial) -> Outcome {
    let mut left = Vec::new();
    for millis in [2, 20, 200, 1000] {
        let wanted = t.unmade().await?;
        leave(t, &wanted, Duration::from_millis(millis)).await?;
        left.push(wanted);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for wanted in &left {
        // Never started, still in progress, or complete: but never half done for good.
        t.eventually("a balancer that is absent, being made, or ACTIVE with a way in", async || {
            let balancer = t.get(wanted).await?;
            let whole = match balancer.state() {
                LoadBalancerState::Active => {
                    !balancer.ingress.is_empty() && balancer.applied_digest == wanted.digest
                }
                LoadBalancerState::Absent | LoadBalancerState::Pending => true,
                _ => false,
            };
            Ok(if whole { Ok(()) } else { Err(format!("{balancer:?}")) })
        })
        .await?;
    }
    Ok(())
}

async fn finished(t: &Trial) -> Outcome {
    let first = left_in_a_slow_cloud(t).await?;
    let outcome = is_finished(t, &first).await;
    // A busy machine may not have begun it when its caller went away.
    if matches!(outcome, Err(Stop::Failed { .. })) && t.standing(&first).await?.is_empty() {
        return is_finished(t, &left_in_a_slow_cloud(t).await?).await;
    }
    outcome
}

async fn is_finished(t: &Trial, wanted: &Wanted) -> Outcome {
    tokio::time::sleep(REST).await;
    t.eventually("the cloud has what was begun", async || {
        let standing = t.standing(wanted).await?;
        let being_made = t.get(wanted).await?.state() == LoadBalancerState::Pending;
        let told = match standing.as_slice() {
            [one] => one.differs(&t.sent(wanted)).filter(|_| !being_made),
            several => Some(format!("{} balancers of this Service", several.len())),
        };
        Ok(told.map_or(Ok(()), Err))
    })
    .await
}
