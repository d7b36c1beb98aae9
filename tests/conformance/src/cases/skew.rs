//! Hosts with a newer contract: unknown fields and values.

use cloudprovider_proto::{
    discovery::v1::GetInfoRequest,
    method::Rpc,
    v1alpha1::{GetCapabilitiesRequest, GetStatusRequest, ListRoutesRequest},
};
use prost::{
    Message,
    bytes::{Bytes, BytesMut},
    encoding::{WireType, encode_key, encode_varint},
};

use crate::{
    case::{
        Case, Outcome,
        Profile::{Identity, Instances, LoadBalancers, Routes},
        Stop,
    },
    provider::in_words,
    target::raw_call,
    trial::{Trial, expect, failed, within},
};

const WORDS: &[&str] = &["Unknown fields are ignored."];
/// No message of the contract has this many fields.
const FUTURE_FIELD: u32 = 15_000;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "SKEW-01",
        Identity,
        "unknown fields are ignored by GetInfo, GetCapabilities and GetStatus",
        &[],
        &base,
    )
    .words(WORDS),
    Case::new("SKEW-02", Instances, "unknown fields are ignored by BatchGetInstances", &[], &instances)
        .words(WORDS),
    Case::new("SKEW-03", LoadBalancers, "unknown fields are ignored by EnsureLoadBalancer", &[], &ensure)
        .words(WORDS),
    Case::new("SKEW-04", Routes, "unknown fields are ignored by ListRoutes", &[], &routes).words(WORDS),
    Case::new("SKEW-05", LoadBalancers, "an unknown number is read as the safe branch", &[], &unknown_number)
        .words(&["an unknown enum value is read as zero"]),
];

/// The message with a field of a newer contract.
fn newer(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::from(message.encode_to_vec().as_slice());
    encode_key(FUTURE_FIELD, WireType::LengthDelimited, &mut bytes);
    encode_varint(6, &mut bytes);
    bytes.extend_from_slice(b"future");
    bytes.freeze()
}

async fn call<R: Rpc>(t: &Trial, message: &R) -> Result<R::Answer, Stop> {
    let request = within(newer(message), t.deadline(R::METHOD));
    let answer = raw_call(&t.patient(), R::METHOD.path, request).await;
    let wrong = |seen: String| failed(format!("{}: OK", R::METHOD.name), seen);
    R::Answer::decode(answer.map_err(|status| wrong(in_words(&status)))?)
        .map_err(|error| wrong(error.to_string()))
}

async fn base(t: &Trial) -> Outcome {
    call(t, &GetInfoRequest::default()).await?;
    call(t, &GetCapabilitiesRequest::default()).await?;
    call(t, &GetStatusRequest {}).await.map(drop)
}

async fn instances(t: &Trial) -> Outcome {
    call(t, &t.batch(vec![t.stranger()])).await.map(drop)
}

async fn ensure(t: &Trial) -> Outcome {
    let answer = call(t, &t.ensure_request(&t.wanted().await?)).await?;
    expect(answer.load_balancer.is_some(), "a balancer", answer)
}

async fn routes(t: &Trial) -> Outcome {
    let list = ListRoutesRequest { cluster: t.cluster(), ..Default::default() };
    call(t, &list).await.map(drop)
}

async fn unknown_number(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let mut request = t.ensure_request(&wanted);
    // Adoption and policies of a newer contract: refuse them, and do not report them.
    request.adoption = 99;
    if let Some(service) = &mut request.service {
        service.ip_family_policy = 99;
        service.internal_traffic_policy = 99;
    }
    let answer = t.load_balancers().ensure_load_balancer(t.ask(request)).await;
    crate::trial::good("EnsureLoadBalancer", answer).map(drop)
}
