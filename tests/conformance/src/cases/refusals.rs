//! Ensures that must be refused without doing harm.

use cloudprovider_proto::v1alpha1::{ErrorReason, LoadBalancer, Protocol, ServicePort};

use super::{
    balancers::serves,
    built::{behind, next, stands},
    updates::{is_updated, updated},
};
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers},
    trial::{INSPECT, Trial, Wanted, expect, failed, refused, same},
};

pub(super) const CASES: &[Case] = &[
    Case::new("LB-11", LoadBalancers, "an unknown protocol is UNSUPPORTED_FEATURE", &[], &unknown_protocol)
        .words(&["| a protocol or family is not supported | INVALID_ARGUMENT | UNSUPPORTED_FEATURE"]),
    Case::new(
        "LB-12",
        LoadBalancers,
        "a refused Ensure leaves what works alone, and does not pass for applied",
        &["ensure-keeps-working", "applied-digest"],
        &keeps_working,
    )
    .words(&["A failed Ensure is no reason for NEEDS_ENSURE"]),
    Case::new(
        "LB-17",
        LoadBalancers,
        "an edit that a quota ends leaves what works alone, and is done once it is asked for again",
        &["ensure-keeps-working", "applied-digest"],
        &ended_by_a_quota,
    )
    .hooks(&["provoke-error", "stop-errors", INSPECT, "create-instance", "terminate-instance"])
    .extended(),
];

/// A state that nobody can serve: a port with an unknown protocol.
pub(super) fn impossible(wanted: &Wanted) -> Wanted {
    let mut bad = wanted.clone();
    let port = ServicePort { protocol: Protocol::Unspecified.into(), port: 99, ..ServicePort::default() };
    bad.service.ports.push(port);
    bad.digest = format!("{}-impossible", wanted.digest);
    bad.revision += 1;
    bad
}

async fn unknown_protocol(t: &Trial) -> Outcome {
    let bad = impossible(&t.unmade().await?);
    refused("a port of no protocol", t.refusal(&bad).await?, ErrorReason::UnsupportedFeature).map(drop)
}

async fn keeps_working(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let before = t.ensured(&wanted).await?;
    serves(&before)?;
    let bad = impossible(&wanted);
    if t.refusal(&bad).await?.is_ok() {
        return Err(failed("a refusal of a port of no protocol", "OK"));
    }
    let after = t.get(&wanted).await?;
    serves(&after)?;
    is_not_applied(&after, &bad)?;
    // It follows its nodes as it was applied.
    let nodes = Wanted { revision: bad.revision + 1, ..wanted.clone() };
    is_updated(&updated(t, &[&nodes]).await?.remove(0))?;
    same("the ways in", &after.ingress, &before.ingress)
}

async fn ended_by_a_quota(t: &Trial) -> Outcome {
    let wanted = Wanted { nodes: behind(&t.machines(1).await?), ..t.wanted().await? };
    stands(t, &wanted).await?;
    t.provoke(ErrorReason::QuotaExceeded, "EnsureLoadBalancer").await?;
    let edit = wanted.changed(443);
    let answer = t.ensure_or_refused(&edit).await?;
    t.restore("provoke-error").await?;
    // A cloud of other quotas may have had room for it.
    t.stands(if answer.is_ok() { &edit } else { &wanted }).await?;
    let after = t.get(&edit).await?;
    serves(&after)?;
    if answer.is_err() {
        is_not_applied(&after, &edit)?;
    }
    // The host repeats the same request.
    stands(t, &edit).await?;
    stands(t, &next(&edit, |_| {})).await
}

/// What was refused must not pass for applied: nobody would ask for it again.
fn is_not_applied(seen: &LoadBalancer, refused: &Wanted) -> Outcome {
    expect(
        seen.applied_digest != refused.digest,
        "another applied_digest than that of what was refused",
        seen,
    )
}
