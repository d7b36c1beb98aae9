//! Breaches of sentences without a tag: values and fields of a newer contract, sizes, required fields.
//!
//! `unknown-enum`, `unknown-field` and `unknown-frame` are legal, since a newer provider sends them. They serve tests of
//! version skew.

use cloudprovider_sdk::proto::*;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::Status;

use crate::{
    contract::{Message, method},
    effect::{Effect, Reply, Shot, Turn, effect},
};

/// A value for states and types that no contract has yet.
const FUTURE: i32 = 99;
/// The number of a field that no contract has yet.
const FUTURE_FIELD: u32 = 15_000;

/// The default limit of gRPC libraries.
const USUAL: usize = 4 << 20;

pub(super) const BREACHES: &[Effect] = &[
    effect("unknown-enum", "states and types have values of a newer contract (legal)").late(numbers),
    effect("unknown-field", "messages have a field of a newer contract (legal)").late(|_, reply, _| {
        unknown_field(8, &mut reply.tail);
    }),
    effect("unknown-frame", "a watch has frames of a newer contract (legal)")
        .to(&[&method::WATCH_INSTANCES])
        .late(|_, reply, shot| {
            if reply.outcome.as_ref().is_ok_and(|frame| !frame.has("started")) {
                reply.outcome = shot.blank();
                unknown_field(8, &mut reply.tail);
            }
        }),
    effect("message-limit", "requests above 4 MiB are refused, whatever is advertised").early(
        |request, _| {
            let bytes = request.encode().len();
            if bytes <= USUAL {
                return Turn::GoOn;
            }
            let text = format!("a message of {bytes} bytes is larger than {USUAL}");
            Turn::fail(Status::resource_exhausted(text))
        },
    ),
    effect("message-size", "an answer exceeds the advertised size").late(|_, reply, shot| {
        unknown_field(shot.advertised.message_bytes(), &mut reply.tail);
    }),
    effect("answer-parts", "an answer of the advertised size takes many times that once decoded")
        .ways(&["flat", "deep"])
        .late(swollen),
    effect("required-missing", "required fields of an answer are missing").late(bare),
];

fn numbers(_request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    reply.each(shot, |answer: &mut GetCapabilitiesResponse| answer.capabilities.push(FUTURE));
    reply.each(shot, |one: &mut ProviderCondition| one.status = FUTURE);
    reply.each(shot, |one: &mut InstanceResult| one.state = FUTURE);
    reply.each(shot, |one: &mut ListedInstance| one.state = FUTURE);
    reply.each(shot, |one: &mut LoadBalancer| one.state = FUTURE);
    reply.each(shot, |one: &mut LoadBalancerUpdateResult| one.outcome = FUTURE);
    reply.each(shot, |list: &mut ListLoadBalancersResponse| {
        list.load_balancers.iter_mut().for_each(|one| one.ownership = FUTURE);
    });
    reply.each(shot, |list: &mut ListRoutesResponse| {
        list.routes.iter_mut().for_each(|one| one.state = FUTURE);
    });
    reply.each(shot, |one: &mut VolumeResult| one.state = FUTURE);
}

fn unknown_field(bytes: usize, tail: &mut Vec<u8>) {
    encode_key(FUTURE_FIELD, WireType::LengthDelimited, tail);
    encode_varint(bytes as u64, tail);
    tail.resize(tail.len() + bytes, b'x');
}

/// Adds empty parts to the first list of the answer, or to one inside its parts, up to the advertised size.
fn swollen(_request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    let Ok(answer) = &reply.outcome else { return };
    let Some((last, outer)) =
        answer.way_to_a_list(shot.variant == "deep").and_then(|mut way| Some((way.pop()?, way)))
    else {
        return;
    };
    let mut part = Vec::new();
    encode_key(last, WireType::LengthDelimited, &mut part);
    encode_varint(0, &mut part);
    // For the keys and lengths of what is around it.
    let room = shot.advertised.message_bytes().saturating_sub(answer.encode().len() + 64);
    let mut content = part.repeat(room / part.len());
    for number in outer.into_iter().rev() {
        let mut around = Vec::with_capacity(content.len() + 16);
        encode_key(number, WireType::LengthDelimited, &mut around);
        encode_varint(content.len() as u64, &mut around);
        around.append(&mut content);
        content = around;
    }
    reply.tail.append(&mut content);
}

fn bare(_request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    reply.each(shot, |one: &mut InstanceResult| one.instance = None);
    reply.each(shot, |one: &mut ListedInstance| one.instance = None);
    reply.each(shot, |answer: &mut GetLoadBalancerResponse| answer.load_balancer = None);
    reply.each(shot, |answer: &mut EnsureLoadBalancerResponse| answer.load_balancer = None);
    reply.each(shot, |one: &mut RouteResult| one.route = None);
    reply.each(shot, |answer: &mut GetControlPlaneEndpointResponse| answer.host.clear());
}
