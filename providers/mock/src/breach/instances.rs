//! Breaches by what is said of machines, in answers and by the frames of a watch.

use cloudprovider_sdk::proto::{
    Instance, InstanceResult, InstanceState, NodeAddress, NodeAddressType, watch_instances_response::Frame,
};

use super::{Breach, early, late};
use crate::{
    provider::timestamp,
    wire::{Answer, Delivery, Method, Reply, Request, Shot, Turn},
};

const BATCH: &[Method] = &[Method::BatchGetInstances];
const WATCH: &[Method] = &[Method::WatchInstances];
const BOTH: &[Method] = &[Method::BatchGetInstances, Method::ListInstances];

pub(super) const BREACHES: &[Breach] = &[
    late("absent-means-looked", "what could not be asked is said to be absent, with authority", BATCH, blind)
        .ways(&["anything", "by-name"]),
    late(
        "absence-needs-id",
        "who is not found by name is said to be absent, with authority",
        BATCH,
        by_name_gone,
    ),
    late("stopped-exists", "a stopped machine is said to be absent", BATCH, stopped),
    late("observed-at", "an answer with authority does not say when", BATCH, observed_at),
    early("batched-at-cloud", "each node of a batch costs a call of the cloud", BATCH, one_by_one),
    early("node-by-provider-id", "nodes are found by name, whatever their provider ID", BATCH, by_name),
    late("provider-id-prefix", "provider IDs begin otherwise than advertised, or are missing", BOTH, prefix)
        .ways(&["foreign", "missing"]),
    late("provider-id-stable", "provider IDs change from call to call", BOTH, unstable),
    late("address-valid", "an address of an IP type is no IP, is empty, or has no type", BOTH, address)
        .ways(&["no-ip", "empty", "no-type"]),
    late("address-unique", "each address is there twice", BOTH, doubled),
    late("label-valid", "type, zone or region is no label value, or a label key is none", BOTH, label)
        .ways(&["type", "zone", "region", "key"]),
    late("label-reserved", "labels within kubernetes.io and k8s.io", BOTH, reserved),
    late("watch-started", "the first frame is not `started`", WATCH, started),
    late("watch-bookmark", "no bookmark ever comes", WATCH, bookmark),
];

/// All machines that the fault is meant for.
fn each(reply: &mut Reply, shot: &Shot<'_>, mut change: impl FnMut(&mut Instance)) {
    match &mut reply.outcome {
        Ok(Answer::BatchGetInstances(answer)) => {
            let meant = answer.results.iter_mut().filter(|result| shot.hits(&result.key));
            meant.filter_map(|result| result.instance.as_mut()).for_each(change);
        }
        Ok(Answer::ListInstances(answer)) => {
            let meant = answer.instances.iter_mut().filter(|listed| shot.hits_named([&listed.node_name]));
            meant.filter_map(|listed| listed.instance.as_mut()).for_each(&mut change);
        }
        _ => {}
    }
}

fn blind(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let names_only = shot.variant == "by-name";
    if reply.outcome.is_err() && !names_only {
        reply.outcome = Ok(super::errors::all_absent(request, shot));
    }
    let Request::BatchGetInstances(request) = request else { return };
    let named = |key: &str| {
        let node =
            request.queries.iter().find(|query| query.key == key).and_then(|query| query.node.as_ref());
        node.is_some_and(|node| node.provider_id.is_empty())
    };
    if let Ok(Answer::BatchGetInstances(answer)) = &mut reply.outcome {
        for result in answer.results.iter_mut().filter(|result| !names_only || named(&result.key)) {
            if result.state == i32::from(InstanceState::Unspecified) && shot.hits(&result.key) {
                result.state = InstanceState::Absent.into();
                result.authoritative = true;
                result.observed_at = Some(timestamp(shot.world.now()));
                result.error = None;
            }
        }
    }
}

fn by_name_gone(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::BatchGetInstances(answer)) = &mut reply.outcome {
        let absent = |result: &&mut InstanceResult| result.state() == InstanceState::Absent;
        let meant = answer.results.iter_mut().filter(|result| shot.hits(&result.key));
        meant.filter(absent).for_each(|result| result.authoritative = true);
    }
}

fn stopped(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::BatchGetInstances(answer)) = &mut reply.outcome {
        for result in &mut answer.results {
            if result.state == i32::from(InstanceState::Stopped) && shot.hits(&result.key) {
                result.state = InstanceState::Absent.into();
                result.instance = None;
            }
        }
    }
}

fn observed_at(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::BatchGetInstances(answer)) = &mut reply.outcome {
        for result in answer.results.iter_mut().filter(|result| shot.hits(&result.key)) {
            result.authoritative = true;
            result.observed_at = None;
        }
    }
}

fn one_by_one(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if let Request::BatchGetInstances(request) = request {
        let each = |state: &crate::cloud::State| {
            request.queries.iter().for_each(|_| state.count_call("instances:read"));
        };
        shot.world.cloud.read(shot.world.now(), each);
    }
    Turn::GoOn
}

fn by_name(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    if let Request::BatchGetInstances(request) = request {
        let nodes = request.queries.iter_mut().filter_map(|query| query.node.as_mut());
        nodes.for_each(|node| node.provider_id.clear());
    }
    Turn::GoOn
}

fn prefix(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    each(reply, shot, |instance| {
        instance.provider_id = if shot.variant == "missing" {
            String::new()
        } else {
            format!("foreign{}", &instance.provider_id)
        };
    });
}

fn unstable(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    each(reply, shot, |instance| {
        instance.provider_id = format!("{}-{}", instance.provider_id, shot.world.count());
    });
}

fn address(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let (kind, text) = match shot.variant {
        "empty" => (NodeAddressType::InternalIp, ""),
        "no-type" => (NodeAddressType::Unspecified, "192.0.2.250"),
        _ => (NodeAddressType::InternalIp, "not-an-ip"),
    };
    each(reply, shot, |instance| {
        instance.addresses.push(NodeAddress { r#type: kind.into(), address: text.to_owned() });
    });
}

fn doubled(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    each(reply, shot, |instance| instance.addresses.extend_from_within(..));
}

fn label(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let bad = "no label value!".to_owned();
    each(reply, shot, |instance| match shot.variant {
        "zone" => instance.zone.clone_from(&bad),
        "region" => instance.region.clone_from(&bad),
        "key" => {
            instance.labels.insert("no label key!".to_owned(), "value".to_owned());
        }
        _ => instance.instance_type.clone_from(&bad),
    });
}

fn reserved(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    each(reply, shot, |instance| {
        for key in ["node-role.kubernetes.io/control-plane", "kubernetes.io/hostname", "mock.k8s.io/zone"] {
            instance.labels.insert(key.to_owned(), "mock".to_owned());
        }
    });
}

fn frame(reply: &Reply) -> Option<&Frame> {
    match &reply.outcome {
        Ok(Answer::WatchInstances(answer)) => answer.frame.as_ref(),
        _ => None,
    }
}

fn started(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if matches!(frame(reply), Some(Frame::Started(_))) {
        reply.delivery = Delivery::Drop;
    }
}

fn bookmark(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if matches!(frame(reply), Some(Frame::Bookmark(_))) {
        reply.delivery = Delivery::Drop;
    }
}
