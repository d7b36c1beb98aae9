//! One load balancer, created and read.

use std::{collections::BTreeSet, time::Duration};

use cloudprovider_proto::v1alpha1::{Capability, InProgress, LoadBalancer, LoadBalancerState, Ownership};

use super::updates::updated;
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers, Stop},
    invariants::valid_ways,
    scenario::Variables,
    trial::{INSPECT, List, Machine, Trial, Wanted, expect, failed, good, reason_of, same},
};

const MADE: &[&str] = &["| done | OK | | publishes the status |"];

pub(super) const CASES: &[Case] = &[
    Case::new("LB-01", LoadBalancers, "a balancer that nobody made is ABSENT, not an error", &[], &absent)
        .words(&["| it does not exist | OK, state ABSENT |"]),
    Case::new(
        "LB-02",
        LoadBalancers,
        "Ensure makes a balancer that serves and can be reached",
        &["ingress-valid"],
        &made,
    )
    .words(MADE),
    Case::new("LB-03", LoadBalancers, "Get shows what Ensure made, as this cluster's own", &[], &read).words(
        &[
            "It carries the cluster uid; a load balancer also carries the service uid.",
            "The Service that the load balancer belongs to, as recorded in the cloud. Required;",
        ],
    ),
    Case::new("LB-04", LoadBalancers, "the applied digest is the desired one", &["applied-digest"], &digest),
    Case::new("LB-05", LoadBalancers, "every way in is an IP or a name", &["ingress-valid"], &ways_in),
    Case::new("LB-06", LoadBalancers, "an empty backend set is legal", &[], &no_backends)
        .words(&["An empty backend set is legal."]),
    Case::new("LB-07", LoadBalancers, "nodes without a provider ID are coped with", &[], &unknown_backends)
        .words(&["The provider tolerates nodes without a provider ID."])
        .hooks(&["create-instance", "terminate-instance"]),
    Case::new(
        "LB-09",
        LoadBalancers,
        "what is written on a Service is under advertised prefixes and of advertised types alone",
        &["annotation-prefix"],
        &annotations,
    ),
    Case::new(
        "LB-10",
        LoadBalancers,
        "work in progress is reported as such, with a time to ask again",
        &["in-progress-not-error", "retry-after-positive"],
        &progress,
    )
    .hooks(&["slow-load-balancers", "restore-load-balancers"])
    .extended(),
    Case::new(
        "LB-16",
        LoadBalancers,
        "a digest counts once the cloud has finished, not before",
        &["applied-digest"],
        &digest_when_done,
    )
    .words(&["was fully applied"])
    .hooks(&["slow-load-balancers", "restore-load-balancers"])
    .extended(),
    Case::new(
        "LB-14",
        LoadBalancers,
        "the next state of a Service changes the same balancer, which is reached as before",
        &["ensure-idempotent", "applied-digest", "ensure-keeps-working"],
        &changed,
    ),
    Case::new(
        "LB-15",
        LoadBalancers,
        "the digest outlives a restart of the provider",
        &["durable-digest"],
        &digest_after_restart,
    )
    .capability(Capability::DurableDigest)
    .hooks(&["restart-provider"])
    .extended(),
];

/// The contract's requirements for a serving balancer.
pub(super) fn serves(balancer: &LoadBalancer) -> Outcome {
    expect(balancer.state() == LoadBalancerState::Active, "state ACTIVE", balancer)?;
    expect(!balancer.ingress.is_empty(), "a way in", balancer)?;
    valid_ways(balancer)
}

async fn absent(t: &Trial) -> Outcome {
    let balancer = t.get(&t.unmade().await?).await?;
    expect(balancer.state() == LoadBalancerState::Absent, "state ABSENT", balancer)
}

async fn made(t: &Trial) -> Outcome {
    serves(&t.ensured(&t.unmade().await?).await?)
}

async fn read(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let made = t.ensured(&wanted).await?;
    let seen = t.get(&wanted).await?;
    serves(&seen)?;
    same("the id", &seen.id, &made.id)?;
    same("the Service", &seen.service.clone().unwrap_or_default(), &wanted.service_ref())?;
    expect(seen.ownership() == Ownership::ByUid, "ownership BY_UID", &seen)
}

async fn digest(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    same("Ensure: applied_digest", &t.ensured(&wanted).await?.applied_digest, &wanted.digest)?;
    same("Get: applied_digest", &t.get(&wanted).await?.applied_digest, &wanted.digest)
}

async fn ways_in(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let first = good("EnsureLoadBalancer", t.ensure_once(&wanted).await)?.load_balancer.unwrap_or_default();
    // Even while it is being created.
    valid_ways(&first)?;
    valid_ways(&t.ensured(&wanted).await?)?;
    valid_ways(&t.get(&wanted).await?)
}

async fn no_backends(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let made = t.ensured(&wanted).await?;
    serves(&made)?;
    same("applied_digest", &made.applied_digest, &wanted.digest)
}

async fn unknown_backends(t: &Trial) -> Outcome {
    let nodes = t.machines(2).await?.iter().map(Machine::new_node).collect();
    serves(&t.ensured(&Wanted { nodes, ..t.wanted().await? }).await?)
}

/// All three answers about a balancer are looked at as they come.
async fn annotations(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    updated(t, &[&wanted]).await?;
    t.delete(&t.delete_request(&wanted)).await
}

pub(super) fn positive(progress: &InProgress) -> Outcome {
    let after = progress.retry_after.and_then(|after| Duration::try_from(after).ok());
    expect(after.is_some_and(|after| !after.is_zero()), "a positive retry_after", progress)
}

async fn progress(t: &Trial) -> Outcome {
    t.steer("slow-load-balancers", Variables::new()).await?;
    let wanted = t.unmade().await?;
    let asked_to_return = || {
        let calls = t.session().patience.waits().calls;
        ["RETRY_LATER", "CONCURRENT_OPERATION"].map(|reason| calls.get(reason).copied())
    };
    let before = asked_to_return();
    let answer = match t.ensure_once(&wanted).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            let reason = reason_of(&status);
            return Err(failed(
                "OK with in_progress",
                format!("{reason:?}: {}", crate::provider::in_words(&status)),
            ));
        }
    };
    let Some(progress) = &answer.in_progress else {
        // The connection waits for such an error, until the work is done.
        same("OK with in_progress, and no error to ask again; their numbers", &asked_to_return(), &before)?;
        serves(&answer.load_balancer.unwrap_or_default())?;
        return waited(t, &wanted).await;
    };
    positive(progress)?;
    let going_on = answer.load_balancer.is_some();
    expect(going_on, "load_balancer, as far as it is", &answer)?;
    if t.get(&wanted).await?.state() == LoadBalancerState::Pending {
        let all = List::LoadBalancers.walk(t, 0).await?;
        // A list that leaves it out says that it does not exist, and nobody would delete it.
        let is_told = all.keys.contains(&wanted.uid()) || all.unreachable > 0;
        expect(is_told, "a list that has the balancer, or says that a part is missing", all)?;
    }
    t.restore("slow-load-balancers").await?;
    serves(&t.ensured(&wanted).await?)
}

/// A provider may wait in the call for what takes its time: then all of it is there now.
async fn waited(t: &Trial, wanted: &Wanted) -> Outcome {
    if t.scenario().lacks(&[INSPECT]).is_none()
        && let Some(told) = t.deviation(wanted).await?
    {
        return Err(failed("a cloud that has what the answer says is done", told));
    }
    Err(Stop::NotRun("the Ensure waited until it was done".to_owned()))
}

async fn digest_when_done(t: &Trial) -> Outcome {
    t.steer("slow-load-balancers", Variables::new()).await?;
    let wanted = t.unmade().await?;
    let answer = good("EnsureLoadBalancer", t.ensure_once(&wanted).await)?;
    let told = answer.load_balancer.unwrap_or_default();
    if answer.in_progress.is_none() {
        same("applied_digest", &told.applied_digest, &wanted.digest)?;
        return waited(t, &wanted).await;
    }
    // What is read after the answer may be done.
    let seen = t.get(&wanted).await?;
    let half_made = [Some(told), Some(seen).filter(|seen| seen.state() != LoadBalancerState::Active)];
    for half_made in half_made.into_iter().flatten() {
        let early = half_made.applied_digest == wanted.digest;
        expect(!early, "another applied_digest, or none, while work goes on", half_made)?;
    }
    t.restore("slow-load-balancers").await?;
    same("applied_digest", &t.ensured(&wanted).await?.applied_digest, &wanted.digest)
}

async fn changed(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let first = t.ensured(&wanted).await?;
    let next = wanted.changed(443);
    let second = t.ensured(&next).await?;
    serves(&second)?;
    same("applied_digest", &second.applied_digest, &next.digest)?;
    let ids: BTreeSet<_> = [&first.id, &second.id, &t.get(&next).await?.id].into_iter().cloned().collect();
    expect(ids.len() == 1, "one balancer", ids)?;
    same("the ways in", &ways(&second), &ways(&first))
}

/// Where clients find a balancer.
pub(super) fn ways(balancer: &LoadBalancer) -> BTreeSet<String> {
    balancer.ingress.iter().flat_map(|way| [way.ip.clone(), way.hostname.clone()]).collect()
}

async fn digest_after_restart(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.restart("restart-provider").await?;
    same("applied_digest", &t.get(&wanted).await?.applied_digest, &wanted.digest)
}

/// The one balancer of this Service in the list, which stands as asked where somebody can look.
pub(super) async fn only_one(t: &Trial, wanted: &Wanted) -> Result<LoadBalancer, Stop> {
    let one = t
        .eventually("exactly one balancer of this Service", async || {
            let mut listed = t.listed_of(wanted).await?;
            Ok(match listed.pop() {
                Some(balancer) if listed.is_empty() => Ok(balancer),
                other => Err(format!("{} and {other:?}", listed.len())),
            })
        })
        .await?;
    stands_if_seen(t, wanted).await?;
    Ok(one)
}

/// Nothing of this Service is in the list.
pub(super) async fn none_listed(t: &Trial, wanted: &Wanted) -> Outcome {
    t.eventually("no balancer of this Service in the list", async || {
        let left = t.listed_of(wanted).await?;
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await
}

/// The cloud has it as it was asked for, where a hook can look.
pub(super) async fn stands_if_seen(t: &Trial, wanted: &Wanted) -> Outcome {
    if t.scenario().lacks(&[INSPECT]).is_none() { t.stands(wanted).await } else { Ok(()) }
}
