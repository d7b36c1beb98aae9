//! New backends for many balancers in one call.

use cloudprovider_proto::v1alpha1::{
    BatchUpdateLoadBalancersRequest, ErrorReason, LoadBalancerState, LoadBalancerUpdate,
    LoadBalancerUpdateResult, UpdateOutcome,
};

use crate::{
    case::{Case, Outcome, Profile::LoadBalancers, Stop},
    trial::{Trial, Wanted, expect, failed, good, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];
const NEEDS_ENSURE: &[&str] = &["| absent, drifted, or must be rebuilt | OK, item error | NEEDS_ENSURE"];

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
            "| absent, drifted, or must be rebuilt | OK, item error | NEEDS_ENSURE",
        ]),
    Case::new(
        "UPD-03",
        LoadBalancers,
        "a balancer that drifted is NEEDS_ENSURE, or is mended",
        &[],
        &drifted,
    )
    .words(NEEDS_ENSURE)
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
];

fn update(wanted: &Wanted) -> LoadBalancerUpdate {
    LoadBalancerUpdate {
        service: Some(wanted.service.clone()),
        desired_digest: wanted.digest.clone(),
        revision: wanted.revision,
    }
}

/// Balancers that all get the backends of the first.
pub(super) fn request(t: &Trial, items: &[&Wanted]) -> BatchUpdateLoadBalancersRequest {
    BatchUpdateLoadBalancersRequest {
        cluster: t.cluster(),
        fencing: t.fencing(),
        backends: items.first().map(|wanted| wanted.backends()),
        items: items.iter().map(|wanted| update(wanted)).collect(),
    }
}

/// The results in the order of the items, once nothing is in progress.
pub(super) async fn updated(t: &Trial, items: &[&Wanted]) -> Result<Vec<LoadBalancerUpdateResult>, Stop> {
    t.eventually("results that go on no more", async || {
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
        let goes_on = results.iter().any(|result| result.in_progress.is_some());
        Ok(if goes_on { Err(format!("{results:?}")) } else { Ok(ordered) })
    })
    .await
}

/// The same balancer with an instance behind it.
async fn with_machine(t: &Trial, wanted: &Wanted) -> Result<Wanted, Stop> {
    let nodes = vec![t.machine().await?.node()];
    let digest = format!("{}-nodes", wanted.digest);
    Ok(Wanted { nodes, digest, revision: wanted.revision + 1, ..wanted.clone() })
}

fn is_updated(result: &LoadBalancerUpdateResult) -> Outcome {
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
    let next = with_machine(t, &wanted).await?;
    is_updated(&updated(t, &[&next]).await?[0])?;
    same("applied_digest", &t.get(&next).await?.applied_digest, &next.digest)
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
    let result = updated(t, &[&with_machine(t, &wanted).await?]).await?.remove(0);
    let mended = result.outcome() == UpdateOutcome::Updated;
    if mended { Ok(()) } else { has(&result, ErrorReason::NeedsEnsure) }
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
    let results = updated(t, &[&one, &missing, &two]).await?;
    is_updated(&results[0])?;
    has(&results[1], ErrorReason::NeedsEnsure)?;
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
