//! Wanted states that were overtaken.

use cloudprovider_proto::v1alpha1::{ErrorReason, LoadBalancerState};

use crate::{
    case::{Case, Outcome, Profile::LoadBalancers},
    trial::{Trial, Wanted, expect, refused, same},
};

const RULE: &[&str] = &["stale-revision"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "REV-01",
        LoadBalancers,
        "a lower revision is STALE_REVISION and changes nothing",
        RULE,
        &lower,
    ),
    Case::new("REV-02", LoadBalancers, "an equal revision is the same call again", &[], &equal)
        .words(&["an equal one is the same call again."]),
    Case::new("REV-03", LoadBalancers, "revision 0 is never refused", &[], &zero)
        .words(&["0 is never refused."]),
    Case::new("REV-04", LoadBalancers, "revisions of one Service say nothing of another", RULE, &per_service),
    Case::new("REV-05", LoadBalancers, "an Ensure that a Delete overtook is refused", RULE, &after_delete)
        .words(&["an older Ensure that arrives later is refused."]),
];

async fn lower(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    let next = wanted.changed(443);
    t.ensure(&next).await?;
    refused("a former revision", t.ensure_once(&wanted).await, ErrorReason::StaleRevision)?;
    same("applied_digest", &t.get(&next).await?.applied_digest, &next.digest)
}

async fn equal(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    t.ensure(&wanted).await.map(drop)
}

async fn zero(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    t.ensure(&Wanted { revision: 0, ..wanted }).await.map(drop)
}

async fn per_service(t: &Trial) -> Outcome {
    let (one, mut other) = (t.wanted()?, t.wanted()?);
    t.ensure(&one).await?;
    other.revision = one.revision - 1000;
    t.ensure(&other).await?;
    refused(
        "a former revision",
        t.ensure_once(&Wanted { revision: 1, ..other }).await,
        ErrorReason::StaleRevision,
    )
    .map(drop)
}

async fn after_delete(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    delete.revision = wanted.revision + 1;
    t.delete(&delete).await?;
    refused("an Ensure from before the Delete", t.ensure_once(&wanted).await, ErrorReason::StaleRevision)?;
    let state = t.get(&wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT", state)
}
