//! Ensures that must be refused without doing harm.

use cloudprovider_proto::v1alpha1::{ErrorReason, Protocol, ServicePort};

use super::{
    balancers::serves,
    built::{behind, next, stands},
};
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers},
    trial::{INSPECT, Trial, Wanted, failed, refused, same},
};

pub(super) const CASES: &[Case] = &[
    Case::new("LB-11", LoadBalancers, "an unknown protocol is UNSUPPORTED_FEATURE", &[], &unknown_protocol)
        .words(&["| a protocol or family is not supported | INVALID_ARGUMENT | UNSUPPORTED_FEATURE"]),
    Case::new(
        "LB-12",
        LoadBalancers,
        "a refused Ensure leaves what works alone",
        &["ensure-keeps-working"],
        &keeps_working,
    ),
    Case::new(
        "LB-17",
        LoadBalancers,
        "an edit that a quota ends leaves what works alone",
        &["ensure-keeps-working"],
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
    refused("a port of no protocol", t.ensure_once(&bad).await, ErrorReason::UnsupportedFeature).map(drop)
}

async fn keeps_working(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let before = t.ensured(&wanted).await?;
    serves(&before)?;
    if t.ensure_once(&impossible(&wanted)).await.is_ok() {
        return Err(failed("a refusal of a port of no protocol", "OK"));
    }
    let after = t.get(&wanted).await?;
    serves(&after)?;
    same("the ways in", &after.ingress, &before.ingress)
}

async fn ended_by_a_quota(t: &Trial) -> Outcome {
    let wanted = Wanted { nodes: behind(&t.machines(1).await?), ..t.wanted().await? };
    stands(t, &wanted).await?;
    t.provoke(ErrorReason::QuotaExceeded, "EnsureLoadBalancer").await?;
    let edit = wanted.changed(443);
    let answer = t.ensure_once(&edit).await;
    t.restore("provoke-error").await?;
    // A cloud of other quotas may have had room for it.
    t.stands(if answer.is_ok() { &edit } else { &wanted }).await?;
    serves(&t.get(&edit).await?)?;
    stands(t, &next(&edit, |_| {})).await
}
