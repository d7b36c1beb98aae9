//! New backends for many balancers in one call.

use cloudprovider_proto::v1alpha1::{
    BatchUpdateLoadBalancersRequest, ErrorReason, LoadBalancerState, LoadBalancerUpdate,
    LoadBalancerUpdateResult, SyncState, UpdateOutcome,
};

use super::balancers::ways;
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers, Stop},
    trial::{INSPECT, Trial, Wanted, expect, failed, good, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "UPD-01",
        LoadBalancers,
        "new backends are applied with their digest",
        &["applied-digest"],
        &applied,
    )
    .words(&["| done, or nothing to do | OK, item UPDATED |"])
    .hooks(MACHINE),
    Case::new("UPD-02", LoadBalancers, "a balancer that is absent is never made: NEEDS_ENSURE", &[], &absent)
        .words(&[
            "The RPC never creates a load balancer.",
            "| absent, or must be rebuilt | OK, item error | NEEDS_ENSURE",
        ]),
    Case::new(
        "UPD-03",
        LoadBalancers,
        "a balancer that drifted is NEEDS_ENSURE, or takes its nodes and hides no drift",
        &[],
        &drifted,
    )
    .words(&["it stays DRIFTED, and an Ensure mends the rest."])
    .hooks(&["make-drift", "create-instance", "terminate-instance"])
    .extended(),
    Case::new(
        "UPD-04",
        LoadBalancers,
        "a former revision is STALE_REVISION beside its item",
        &["stale-revision"],
        &stale,
    )
    .words(&["| a newer revision was accepted | OK, item error | STALE_REVISION"])
    .hooks(MACHINE),
    Case::new("UPD-06", LoadBalancers, "one bad item costs the others nothing", &["batch-keys"], &mixed)
        .words(&["one bad item never fails the others."])
        .hooks(MACHINE),
    Case::new("UPD-07", LoadBalancers, "the same update again is OK", &[], &again)
        .words(&["| done, or nothing to do | OK, item UPDATED |"])
        .hooks(MACHINE),
    Case::new(
        "UPD-08",
        LoadBalancers,
        "while an edit waits, new backends are applied all the same",
        &["update-backends-only"],
        &edited,
    )
    .words(&["| the Service was edited in the meantime | OK, item UPDATED |"])
    .hooks(MACHINE),
    Case::new(
        "UPD-09",
        LoadBalancers,
        "an update that the cloud refuses does not say that it is done",
        &["update-every-item"],
        &refused_by_the_cloud,
    )
    .words(&["The load balancer has the wanted backends."])
    .hooks(&["provoke-error", "stop-errors", INSPECT, "create-instance", "terminate-instance"])
    .extended(),
];

fn update(t: &Trial, wanted: &Wanted) -> LoadBalancerUpdate {
    LoadBalancerUpdate {
        service: Some(t.sent(wanted).service),
        desired_digest: wanted.digest.clone(),
        revision: wanted.revision,
    }
}

/// Balancers that all get the backends of the first.
pub(super) fn request(t: &Trial, items: &[&Wanted]) -> BatchUpdateLoadBalancersRequest {
    BatchUpdateLoadBalancersRequest {
        cluster: t.cluster(),
        fencing: t.fencing(),
        backends: items.first().map(|wanted| t.sent(wanted).backends()),
        items: items.iter().map(|wanted| update(t, wanted)).collect(),
    }
}

/// The results in the order of the items, once nothing is in progress.
pub(super) async fn updated(t: &Trial, items: &[&Wanted]) -> Result<Vec<LoadBalancerUpdateResult>, Stop> {
    t.to_its_end("BatchUpdateLoadBalancers", async || {
        let answer = t.load_balancers().batch_update_load_balancers(t.ask(request(t, items))).await;
        let results = good("BatchUpdateLoadBalancers", answer)?.results;
        let mut ordered = Vec::new();
        for wanted in items {
            let uid = wanted.uid();
            let of: Vec<_> = results.iter().filter(|result| result.service_uid == uid).collect();
            match of.as_slice() {
                [result] => ordered.push((*result).clone()),
                other => return Err(failed("each Service uid exactly once", format!("{uid}: {other:?}"))),
            }
        }
        let goes_on = results.into_iter().find_map(|result| result.in_progress);
        Ok(goes_on.map_or(Ok(ordered), Err))
    })
    .await
}

/// The same balancer with an instance behind it.
async fn with_machine(t: &Trial, wanted: &Wanted) -> Result<Wanted, Stop> {
    let nodes = vec![t.machine().await?.node()];
    let digest = format!("{}-nodes", wanted.digest);
    Ok(Wanted { nodes, digest, revision: wanted.revision + 1, ..wanted.clone() })
}

pub(super) fn is_updated(result: &LoadBalancerUpdateResult) -> Outcome {
    expect(result.outcome() == UpdateOutcome::Updated && result.error.is_none(), "UPDATED", result)
}

fn has(result: &LoadBalancerUpdateResult, reason: ErrorReason) -> Outcome {
    let told = result.error.as_ref().is_some_and(|error| error.reason() == reason);
    expect(
        told && result.outcome() != UpdateOutcome::Updated,
        format!("item error {}", reason.wire_name()),
        result,
    )
}

async fn applied(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let (next, before) = (with_machine(t, &wanted).await?, t.get(&wanted).await?);
    let result = updated(t, &[&next]).await?.remove(0);
    is_updated(&result)?;
    let after = t.get(&next).await?;
    same("applied_digest", &after.applied_digest, &next.digest)?;
    // Where it says that nodes move it, it says where to.
    if result.ingress.is_empty() { same("the ways in", &ways(&after), &ways(&before)) } else { Ok(()) }
}

async fn absent(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    has(&updated(t, &[&wanted]).await?[0], ErrorReason::NeedsEnsure)?;
    let state = t.get(&wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT: nothing was made", state)
}

async fn drifted(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.made_drifted(&wanted).await?;
    let next = with_machine(t, &wanted).await?;
    let result = updated(t, &[&next]).await?.remove(0);
    if result.outcome() != UpdateOutcome::Updated {
        return has(&result, ErrorReason::NeedsEnsure);
    }
    // What was not mended must not be hidden: nobody would ever mend it.
    let is_well = t.get(&next).await?.sync_state() == SyncState::InSync;
    if is_well && t.scenario().lacks(&[INSPECT]).is_none() { t.stands(&next).await } else { Ok(()) }
}

async fn stale(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let former = Wanted { revision: wanted.revision - 1, ..with_machine(t, &wanted).await? };
    has(&updated(t, &[&former]).await?[0], ErrorReason::StaleRevision)?;
    same("applied_digest", &t.get(&wanted).await?.applied_digest, &wanted.digest)
}

async fn mixed(t: &Trial) -> Outcome {
    let (there, missing, also_there) = (t.wanted().await?, t.unmade().await?, t.wanted().await?);
    t.ensure(&there).await?;
    t.ensure(&also_there).await?;
    let (one, two) = (with_machine(t, &there).await?, with_machine(t, &also_there).await?);
    let two = Wanted { nodes: one.nodes.clone(), ..two };
    let missing = Wanted { nodes: one.nodes.clone(), ..missing };
    // In an order that is another one backwards.
    let results = updated(t, &[&missing, &one, &two]).await?;
    has(&results[0], ErrorReason::NeedsEnsure)?;
    is_updated(&results[1])?;
    is_updated(&results[2])
}

async fn again(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let next = with_machine(t, &wanted).await?;
    for _time in 0..3 {
        is_updated(&updated(t, &[&next]).await?[0])?;
    }
    Ok(())
}

async fn edited(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let mut next = with_machine(t, &wanted).await?;
    for port in &mut next.service.ports {
        port.port += 1;
    }
    is_updated(&updated(t, &[&next]).await?[0])?;
    same("applied_digest", &t.get(&next).await?.applied_digest, &next.digest)
}

async fn refused_by_the_cloud(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let next = with_machine(t, &wanted).await?;
    t.provoke_refusal("BatchUpdateLoadBalancers").await?;
    let answer = t.load_balancers().batch_update_load_balancers(t.ask(request(t, &[&next]))).await;
    t.restore("provoke-error").await?;
    let results = answer.map(|answer| answer.into_inner().results).unwrap_or_default();
    if results.iter().any(|result| result.outcome() == UpdateOutcome::Updated) {
        // It may have found another way.
        return t.stands(&next).await;
    }
    is_updated(&updated(t, &[&next]).await?[0])?;
    t.stands(&next).await
}
