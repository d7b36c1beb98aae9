//! What the contract says without a tag: numbers and fields of a newer contract, sizes, what is required.
//!
//! `unknown-enum` and `unknown-field` are legal: a newer provider does so. They are here for tests of skew.

use cloudprovider_sdk::proto::{InstanceResult, watch_instances_response::Frame};
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::Status;

use super::{Breach, early, late};
use crate::wire::{Answer, Method, Reply, Request, Shot, Turn};

/// A number for states and types that no contract has yet.
const FUTURE: i32 = 99;
/// The number of a field that no contract has yet.
const FUTURE_FIELD: u32 = 15_000;

/// What gRPC libraries take unless they are told otherwise.
const USUAL: usize = 4 << 20;

pub(super) const BREACHES: &[Breach] = &[
    late("unknown-enum", "states and types have numbers of a newer contract (legal)", &[], numbers),
    late("unknown-field", "messages have a field of a newer contract (legal)", &[], |_, reply, _| {
        unknown_field(8, &mut reply.tail);
    }),
    late(
        "unknown-frame",
        "a watch has frames of a newer contract (legal)",
        &[Method::WatchInstances],
        |_, reply, _| {
            if let Ok(Answer::WatchInstances(answer)) = &mut reply.outcome
                && !matches!(answer.frame, Some(Frame::Started(_)))
            {
                answer.frame = None;
                unknown_field(8, &mut reply.tail);
            }
        },
    ),
    early("message-limit", "requests above 4 MiB are refused, whatever is advertised", &[], |request, _| {
        let bytes = request.encode().len();
        if bytes <= USUAL {
            return Turn::GoOn;
        }
        let text = format!("a message of {bytes} bytes is larger than {USUAL}");
        Turn::fail(Status::resource_exhausted(text))
    }),
    late("message-size", "an answer above the advertised size", &[], |_, reply, shot| {
        unknown_field(shot.mock.advertised.message_bytes(), &mut reply.tail);
    }),
    late("required-missing", "what an answer must hold is missing", &[], bare),
];

fn numbers(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    reply.balancers().into_iter().for_each(|balancer| balancer.state = FUTURE);
    match &mut reply.outcome {
        Ok(Answer::GetCapabilities(answer)) => answer.capabilities.push(FUTURE),
        Ok(Answer::GetStatus(answer)) => answer.conditions.iter_mut().for_each(|one| one.status = FUTURE),
        Ok(Answer::BatchGetInstances(answer)) => answer.results.iter_mut().for_each(|one| one.state = FUTURE),
        Ok(Answer::ListInstances(answer)) => answer.instances.iter_mut().for_each(|one| one.state = FUTURE),
        Ok(Answer::BatchUpdateLoadBalancers(answer)) => {
            answer.results.iter_mut().for_each(|one| one.outcome = FUTURE);
        }
        Ok(Answer::ListLoadBalancers(answer)) => {
            answer.load_balancers.iter_mut().for_each(|one| one.ownership = FUTURE);
        }
        Ok(Answer::ListRoutes(answer)) => answer.routes.iter_mut().for_each(|one| one.state = FUTURE),
        Ok(Answer::BatchGetVolumeLabels(answer)) => {
            answer.results.iter_mut().for_each(|one| one.state = FUTURE);
        }
        _ => {}
    }
}

fn unknown_field(bytes: usize, tail: &mut Vec<u8>) {
    encode_key(FUTURE_FIELD, WireType::LengthDelimited, tail);
    encode_varint(bytes as u64, tail);
    tail.resize(tail.len() + bytes, b'x');
}

fn bare(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    reply.each(shot, |result: &mut InstanceResult| result.instance = None);
    match &mut reply.outcome {
        Ok(Answer::GetLoadBalancer(answer)) => answer.load_balancer = None,
        Ok(Answer::EnsureLoadBalancer(answer)) => answer.load_balancer = None,
        Ok(Answer::ListInstances(answer)) => answer.instances.iter_mut().for_each(|one| one.instance = None),
        Ok(Answer::BatchEnsureRoutes(answer)) => answer.results.iter_mut().for_each(|one| one.route = None),
        Ok(Answer::GetControlPlaneEndpoint(answer)) => answer.host.clear(),
        _ => {}
    }
}
