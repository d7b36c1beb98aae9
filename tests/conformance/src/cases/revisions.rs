//! Stale revisions of wanted states.

use cloudprovider_proto::v1alpha1::{ErrorReason, LoadBalancerState};

use super::refusals::impossible;
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
        .words(&["an equal revision repeats the same call."]),
    Case::new("REV-03", LoadBalancers, "revision 0 is never refused", &[], &zero)
        .words(&["0 is never refused."]),
    Case::new("REV-04", LoadBalancers, "revisions of one Service say nothing of another", RULE, &per_service),
    Case::new("REV-05", LoadBalancers, "an Ensure that a Delete overtook is refused", RULE, &after_delete)
        .words(&["the provider refuses an older Ensure that arrives later"]),
    Case::new(
        "REV-06",
        LoadBalancers,
        "a Delete that an Ensure overtook is refused",
        RULE,
        &overtaken_delete,
    )
    .words(&["a Delete that a newer Ensure has overtaken."]),
    Case::new(
        "REV-07",
        LoadBalancers,
        "an Ensure that is refused has used its revision",
        RULE,
        &used_by_refused,
    )
    .words(&["an Ensure that it then refuses has used its revision."]),
];

async fn lower(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let next = wanted.changed(443);
    t.ensure(&next).await?;
    refused("a former revision", t.ensure_once(&wanted).await, ErrorReason::StaleRevision)?;
    same("applied_digest", &t.get(&next).await?.applied_digest, &next.digest)
}

async fn equal(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.ensure(&wanted).await.map(drop)
}

async fn zero(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.ensure(&Wanted { revision: 0, ..wanted }).await.map(drop)
}

async fn per_service(t: &Trial) -> Outcome {
    let (one, mut other) = (t.wanted().await?, t.wanted().await?);
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

async fn overtaken_delete(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    delete.revision = wanted.revision - 1;
    refused("a Delete from before the Ensure", t.delete_once(delete).await, ErrorReason::StaleRevision)?;
    same("applied_digest", &t.get(&wanted).await?.applied_digest, &wanted.digest)
}

async fn used_by_refused(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let refusal = t.refusal(&impossible(&wanted)).await?;
    refused("a port of no protocol", refusal, ErrorReason::UnsupportedFeature)?;
    refused("the state before it", t.ensure_once(&wanted).await, ErrorReason::StaleRevision).map(drop)
}

async fn after_delete(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    delete.revision = wanted.revision + 1;
    t.delete(&delete).await?;
    refused("an Ensure from before the Delete", t.ensure_once(&wanted).await, ErrorReason::StaleRevision)?;
    let state = t.get(&wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT", state)
}
