//! Resources of another cluster.

use cloudprovider_proto::v1alpha1::{Capability, ErrorReason, LoadBalancer, LoadBalancerState, Ownership};

use super::balancers::stands_if_seen;
use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancers, LoadBalancersList, Routes},
        Stop,
    },
    ledger::Entry,
    trial::{Trial, Wanted, expect, refused, same},
};

const OWNS: &[&str] = &["cluster-owns-by-uid"];

pub(super) const CASES: &[Case] = &[
    Case::new("OWN-01", LoadBalancers, "another cluster's balancer is not shown as ours", OWNS, &not_ours)
        .words(&["| another cluster owns it | OK, NOT_OWNED |"]),
    Case::new("OWN-02", LoadBalancers, "Delete leaves another cluster's balancer alone", OWNS, &not_deleted)
        .words(&["| another cluster owns it | OK | | removes the finalizer; nothing was touched |"]),
    Case::new("OWN-03", LoadBalancers, "Ensure leaves another cluster's balancer alone", OWNS, &not_changed),
    Case::new(
        "OWN-04",
        Routes,
        "another cluster's route is neither re-pointed nor removed",
        OWNS,
        &foreign_route,
    )
    .words(&["| another cluster owns the destination | OK, item error | OWNED_BY_OTHER_CLUSTER"])
    .capability(Capability::RouteOwnership)
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new(
        "OWN-05",
        LoadBalancersList,
        "a balancer of another cluster is never listed",
        &["list-own-only"],
        &not_listed,
    ),
];

/// Creates another cluster's balancer; our request has the same Service uid.
async fn theirs(t: &Trial) -> Result<(Wanted, Wanted), Stop> {
    let theirs = t.wanted_by_other().await?;
    t.ensure(&theirs).await?;
    let ours = Wanted {
        cluster: t.cluster().unwrap_or_default(),
        digest: format!("{}-ours", theirs.digest),
        ..theirs.clone()
    };
    t.register(Entry::load_balancer(&ours.cluster, &ours.service_ref(), false))?;
    Ok((theirs, ours))
}

async fn untouched(t: &Trial, theirs: &Wanted) -> Outcome {
    let seen = t.get(theirs).await?;
    let whole = seen.state() == LoadBalancerState::Active && seen.applied_digest == theirs.digest;
    expect(whole, "the other cluster's balancer ACTIVE with its own digest", seen)
}

async fn not_ours(t: &Trial) -> Outcome {
    let (theirs, ours) = theirs(t).await?;
    let state = t.get(&ours).await?.state();
    let fits = matches!(state, LoadBalancerState::NotOwned | LoadBalancerState::Absent);
    expect(fits, "NOT_OWNED or ABSENT", state)?;
    untouched(t, &theirs).await
}

async fn not_deleted(t: &Trial) -> Outcome {
    let (theirs, ours) = theirs(t).await?;
    t.delete(&t.delete_request(&ours)).await?;
    untouched(t, &theirs).await
}

async fn not_changed(t: &Trial) -> Outcome {
    let (theirs, ours) = theirs(t).await?;
    let ours = ours.changed(443);
    // Either both fit, or the name is taken.
    let answer = t.ensure_or_refused(&ours).await?;
    if answer.is_err() {
        refused("the name is taken", answer, ErrorReason::OwnedByOtherCluster)?;
    }
    untouched(t, &theirs).await?;
    // A look by the Service alone shows both.
    t.delete(&t.delete_request(&ours)).await?;
    stands_if_seen(t, &theirs).await
}

async fn not_listed(t: &Trial) -> Outcome {
    let (theirs, own) = (t.wanted_by_other().await?, t.wanted().await?);
    t.ensure(&theirs).await?;
    t.ensure(&own).await?;
    let listed = t
        .eventually("ours in the list", async || {
            let listed = t.listed(&own.cluster).await?;
            let ours = |one: &LoadBalancer| one.service.clone().unwrap_or_default().uid == own.uid();
            Ok(if listed.iter().any(ours) { Ok(listed) } else { Err(format!("{listed:?}")) })
        })
        .await?;
    for balancer in &listed {
        let uid = balancer.service.clone().unwrap_or_default().uid;
        let legacy = balancer.ownership() == Ownership::ByLegacyName;
        let ours = t.has_asked_for(&uid) && uid != theirs.uid();
        expect(legacy || ours, "only balancers that this cluster has asked for", balancer)?;
    }
    Ok(())
}

async fn foreign_route(t: &Trial) -> Outcome {
    let other = t.other_cluster();
    // An instance of one cluster need not be a target for another.
    let (target, own) = (t.machine_of(t.name(), other.clone()).await?, t.machine().await?);
    let destination = t.destination_of(&other)?;
    let mut request = t.routes_to_ensure(vec![(destination.clone(), target.node())]);
    request.cluster = Some(other.clone());
    let theirs = t.ensure_route_by(request).await?;
    let ours = t.cluster().unwrap_or_default();
    t.register(Entry::route(&ours, &destination))?;
    let taken =
        t.ensure_route_or_refused(t.routes_to_ensure(vec![(destination.clone(), own.node())])).await?;
    if let Some(error) = &taken.error {
        same("the item's reason", &error.reason(), &ErrorReason::OwnedByOtherCluster)?;
    }
    t.delete_route(&ours, &theirs).await?;
    t.eventually("the other cluster's route to its own target", async || {
        let left = t.listed_route(&other, &destination).await?;
        let leads_to = left.and_then(|route| route.target).map(|left| left.provider_id);
        let is_whole = leads_to.as_ref() == Some(&target.provider_id);
        Ok(if is_whole { Ok(()) } else { Err(format!("{leads_to:?}")) })
    })
    .await
}
