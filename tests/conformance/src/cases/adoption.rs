//! A former controller's balancers, drift, and what restarts leave behind.

use cloudprovider_proto::v1alpha1::{
    Adoption, Capability, ErrorReason, LoadBalancer, LoadBalancerState, Ownership, SyncState,
};

use super::balancers::only_one;
use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancers, LoadBalancersList},
        Stop,
    },
    scenario::Variables,
    trial::{Trial, Wanted, expect, refused, same},
};

const LEGACY: &[&str] = &["make-legacy-load-balancer", "delete-legacy-load-balancer"];
const REFUSE: &[&str] = &["| a legacy one exists, adoption REFUSE | FAILED_PRECONDITION | ADOPTION_REFUSED"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "ADOPT-01",
        LoadBalancers,
        "a former controller's balancer is left alone unless adoption is asked for",
        &[],
        &left_alone,
    )
    .words(REFUSE)
    .capability(Capability::Adoption)
    .hooks(LEGACY)
    .extended(),
    Case::new("ADOPT-02", LoadBalancers, "an adopted balancer carries both uids", &[], &adopted)
        .words(&["Take it over and tag it with both uids."])
        .capability(Capability::Adoption)
        .hooks(LEGACY)
        .extended(),
    Case::new(
        "ADOPT-03",
        LoadBalancers,
        "Delete without adoption leaves a former controller's balancer",
        &[],
        &not_deleted,
    )
    .words(&["The provider changes or deletes such a load balancer only with adoption ADOPT."])
    .capability(Capability::Adoption)
    .hooks(LEGACY)
    .extended(),
    Case::new(
        "DRIFT-01",
        LoadBalancers,
        "a change behind the provider's back shows as DRIFTED, and Ensure mends it",
        &[],
        &drift,
    )
    .words(&["Somebody else changed the load balancer: the host calls Ensure."])
    .capability(Capability::LoadBalancerDrift)
    .hooks(&["make-drift"])
    .extended(),
    Case::new("DRIFT-02", LoadBalancersList, "a balancer that nobody touched is IN_SYNC", &[], &in_sync)
        .words(&["Whether the cloud still holds what was applied."])
        .capability(Capability::LoadBalancerDrift),
];

async fn legacy(t: &Trial) -> Result<Wanted, Stop> {
    let wanted = t.unmade().await?;
    let service = wanted.service_ref();
    let told = Variables::new()
        .with("SERVICE_UID", &service.uid)
        .with("SERVICE_NAME", &service.name)
        .with("SERVICE_NAMESPACE", &service.namespace)
        .with("CLUSTER_NAME", &wanted.cluster.name);
    t.register_hook("delete-legacy-load-balancer", told.clone())?;
    t.hook("make-legacy-load-balancer", &told).await?;
    Ok(wanted)
}

fn is_legacy(balancer: &LoadBalancer) -> Outcome {
    expect(balancer.ownership() == Ownership::ByLegacyName, "ownership BY_LEGACY_NAME", balancer)
}

async fn left_alone(t: &Trial) -> Outcome {
    let wanted = legacy(t).await?;
    is_legacy(&t.get(&wanted).await?)?;
    for adoption in [Adoption::Refuse, Adoption::Unspecified] {
        let refusing = Wanted { adoption, ..wanted.clone() };
        refused("Ensure", t.refusal(&refusing).await?, ErrorReason::AdoptionRefused)?;
    }
    is_legacy(&t.get(&wanted).await?)
}

async fn adopted(t: &Trial) -> Outcome {
    let wanted = Wanted { adoption: Adoption::AdoptByLegacyName, ..legacy(t).await? };
    let before = t.get(&wanted).await?;
    let after = t.ensured(&wanted).await?;
    same("the id", &after.id, &before.id)?;
    expect(after.ownership() == Ownership::ByUid, "ownership BY_UID", &after)?;
    // From now on it is ours, without asking for adoption.
    t.ensure(&Wanted { adoption: Adoption::Refuse, ..wanted }).await.map(drop)
}

async fn not_deleted(t: &Trial) -> Outcome {
    let wanted = legacy(t).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    is_legacy(&t.get(&wanted).await?)?;
    t.delete(&t.delete_request(&Wanted { adoption: Adoption::AdoptByLegacyName, ..wanted.clone() })).await?;
    let state = t.get(&wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT: adoption was asked for", state)
}

async fn drift(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.made_drifted(&wanted).await?;
    t.eventually("sync state DRIFTED", async || {
        let seen = t.get(&wanted).await?;
        Ok(if seen.sync_state() == SyncState::Drifted { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .await?;
    t.ensure(&wanted).await?;
    let seen = t.get(&wanted).await?;
    expect(seen.sync_state() == SyncState::InSync, "IN_SYNC after Ensure", seen)
}

async fn in_sync(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let (read, listed) = (t.get(&wanted).await?, only_one(t, &wanted).await?);
    for seen in [read, listed] {
        expect(seen.sync_state() == SyncState::InSync, "sync state IN_SYNC", seen)?;
    }
    Ok(())
}
