//! What the contract says without a tag: numbers and fields of a newer contract, sizes, what is required.
//!
//! `unknown-enum` and `unknown-field` are legal: a newer provider does so. They are here for tests of skew.

use prost::encoding::{WireType, encode_key, encode_varint};

use tonic::Status;

use super::{Breach, early, late};
use crate::wire::{Answer, Method, Reply, Request, Shot, Turn};

/// A number for states and types that no contract has yet.
const FUTURE: i32 = 99;
/// The number of a field that no contract has yet.
const FUTURE_FIELD: u32 = 15_000;

pub(super) const BREACHES: &[Breach] = &[
    late("unknown-enum", "states and types have numbers of a newer contract (legal)", &[], numbers),
    late("unknown-field", "messages have a field of a newer contract (legal)", &[], field),
    late("unknown-frame", "a watch has frames of a newer contract (legal)", &[Method::WatchInstances], frame),
    early("message-limit", "requests above 4 MiB are refused, whatever is advertised", &[], small_requests),
    late("message-size", "an answer above the advertised size", &[], large),
    late("required-missing", "what an answer must hold is missing", &[], bare),
];

fn numbers(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    match &mut reply.outcome {
        Ok(Answer::GetCapabilities(answer)) => answer.capabilities.push(FUTURE),
        Ok(Answer::GetStatus(answer)) => {
            answer.conditions.iter_mut().for_each(|condition| condition.status = FUTURE);
        }
        Ok(Answer::BatchGetInstances(answer)) => {
            answer.results.iter_mut().for_each(|result| result.state = FUTURE);
        }
        Ok(Answer::ListInstances(answer)) => {
            answer.instances.iter_mut().for_each(|listed| listed.state = FUTURE);
        }
        Ok(Answer::GetLoadBalancer(answer)) => {
            answer.load_balancer.iter_mut().for_each(|balancer| balancer.state = FUTURE);
        }
        Ok(Answer::EnsureLoadBalancer(answer)) => {
            answer.load_balancer.iter_mut().for_each(|balancer| balancer.state = FUTURE);
        }
        Ok(Answer::BatchUpdateLoadBalancers(answer)) => {
            answer.results.iter_mut().for_each(|result| result.outcome = FUTURE);
        }
        Ok(Answer::ListLoadBalancers(answer)) => {
            for balancer in &mut answer.load_balancers {
                balancer.state = FUTURE;
                balancer.ownership = FUTURE;
            }
        }
        Ok(Answer::ListRoutes(answer)) => answer.routes.iter_mut().for_each(|route| route.state = FUTURE),
        Ok(Answer::BatchGetVolumeLabels(answer)) => {
            answer.results.iter_mut().for_each(|result| result.state = FUTURE);
        }
        _ => {}
    }
}

fn unknown_field(bytes: usize, tail: &mut Vec<u8>) {
    encode_key(FUTURE_FIELD, WireType::LengthDelimited, tail);
    encode_varint(bytes as u64, tail);
    tail.resize(tail.len() + bytes, b'x');
}

fn field(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    unknown_field(8, &mut reply.tail);
}

fn frame(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if let Ok(Answer::WatchInstances(answer)) = &mut reply.outcome
        && !matches!(
            answer.frame,
            Some(cloudprovider_sdk::proto::watch_instances_response::Frame::Started(_))
        )
    {
        answer.frame = None;
        unknown_field(8, &mut reply.tail);
    }
}

fn large(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    unknown_field(shot.world.advertised.message_bytes(), &mut reply.tail);
}

/// What gRPC libraries take unless they are told otherwise.
const USUAL: usize = 4 << 20;

fn small_requests(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    let bytes = request.encode().len();
    if bytes > USUAL {
        let text = format!("a message of {bytes} bytes is larger than {USUAL}");
        return Turn::status(Status::resource_exhausted(text));
    }
    Turn::GoOn
}

fn bare(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    match &mut reply.outcome {
        Ok(Answer::GetLoadBalancer(answer)) => answer.load_balancer = None,
        Ok(Answer::EnsureLoadBalancer(answer)) => answer.load_balancer = None,
        Ok(Answer::BatchGetInstances(answer)) => {
            for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
                result.instance = None;
            }
        }
        Ok(Answer::ListInstances(answer)) => {
            answer.instances.iter_mut().for_each(|listed| listed.instance = None);
        }
        Ok(Answer::BatchEnsureRoutes(answer)) => {
            answer.results.iter_mut().for_each(|result| result.route = None);
        }
        Ok(Answer::GetControlPlaneEndpoint(answer)) => answer.host.clear(),
        _ => {}
    }
}
