//! Breaches by what is said of machines, in answers and by the frames of a watch.

use cloudprovider_sdk::proto::{
    InstanceResult, InstanceState, NodeAddress, NodeAddressType, watch_instances_response::Frame,
};

use super::{Breach, asked, late};
use crate::{
    provider::timestamp,
    wire::{Answer, Delivery, Method, Reply, Request, Shot},
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
        |_, reply, shot| {
            reply.each(shot, |result: &mut InstanceResult| {
                result.authoritative |= result.state() == InstanceState::Absent;
            });
        },
    ),
    late("stopped-exists", "a stopped machine is said to be absent", BATCH, |_, reply, shot| {
        reply.each(shot, |result: &mut InstanceResult| {
            if result.state() == InstanceState::Stopped {
                result.set_state(InstanceState::Absent);
                result.instance = None;
            }
        });
    }),
    late("observed-at", "an answer with authority does not say when", BATCH, |_, reply, shot| {
        reply.each(shot, |result: &mut InstanceResult| {
            (result.authoritative, result.observed_at) = (true, None);
        });
    }),
    asked("batched-at-cloud", "each node of a batch costs a call of the cloud", BATCH, |request, shot| {
        let nodes = request.subjects();
        shot.mock.look(|state| nodes.iter().for_each(|_| state.count_call("instances:read")));
    }),
    asked(
        "node-by-provider-id",
        "nodes are found by name, whatever their provider ID",
        BATCH,
        |request, _| {
            if let Request::BatchGetInstances(request) = request {
                let nodes = request.queries.iter_mut().filter_map(|query| query.node.as_mut());
                nodes.for_each(|node| node.provider_id.clear());
            }
        },
    ),
    late(
        "provider-id-prefix",
        "provider IDs begin otherwise than advertised, or are missing",
        BOTH,
        |_, reply, shot| {
            reply.each_instance(shot, |instance| match shot.variant {
                "missing" => instance.provider_id.clear(),
                _ => instance.provider_id.insert_str(0, "foreign"),
            });
        },
    )
    .ways(&["foreign", "missing"]),
    late("provider-id-stable", "provider IDs change from call to call", BOTH, |_, reply, shot| {
        reply.each_instance(shot, |instance| {
            instance.provider_id = format!("{}-{}", instance.provider_id, shot.memory.count());
        });
    }),
    late(
        "address-valid",
        "an address of an IP type is no IP, is empty, or has no type",
        BOTH,
        |_, reply, shot| {
            let (kind, text) = match shot.variant {
                "empty" => (NodeAddressType::InternalIp, ""),
                "no-type" => (NodeAddressType::Unspecified, "192.0.2.250"),
                _ => (NodeAddressType::InternalIp, "not-an-ip"),
            };
            let address = NodeAddress { r#type: kind.into(), address: text.to_owned() };
            reply.each_instance(shot, |instance| instance.addresses.push(address.clone()));
        },
    )
    .ways(&["no-ip", "empty", "no-type"]),
    late("address-unique", "each address is there twice", BOTH, |_, reply, shot| {
        reply.each_instance(shot, |instance| instance.addresses.extend_from_within(..));
    }),
    late(
        "label-valid",
        "type, zone or region is no label value, or a label key is none",
        BOTH,
        |_, reply, shot| {
            reply.each_instance(shot, |instance| {
                let value = match shot.variant {
                    "zone" => &mut instance.zone,
                    "region" => &mut instance.region,
                    "key" => instance.labels.entry("no label key!".to_owned()).or_default(),
                    _ => &mut instance.instance_type,
                };
                let bad = if shot.variant == "key" { "value" } else { "no label value!" };
                bad.clone_into(value);
            });
        },
    )
    .ways(&["type", "zone", "region", "key"]),
    late("label-reserved", "labels within kubernetes.io and k8s.io", BOTH, |_, reply, shot| {
        reply.each_instance(shot, |instance| {
            let keys =
                ["node-role.kubernetes.io/control-plane", "kubernetes.io/hostname", "mock.k8s.io/zone"];
            instance.labels.extend(keys.map(|key| (key.to_owned(), "mock".to_owned())));
        });
    }),
    late("watch-started", "the first frame is not `started`", WATCH, |_, reply, _| {
        leave_out(reply, |frame| matches!(frame, Frame::Started(_)));
    }),
    late("watch-bookmark", "no bookmark ever comes", WATCH, |_, reply, _| {
        leave_out(reply, |frame| matches!(frame, Frame::Bookmark(_)));
    }),
];

/// Leaves out the frames of a watch that are of this kind.
pub(crate) fn leave_out(reply: &mut Reply, is: impl Fn(&Frame) -> bool) {
    if let Ok(Answer::WatchInstances(answer)) = &reply.outcome
        && answer.frame.as_ref().is_some_and(is)
    {
        reply.delivery = Delivery::Drop;
    }
}

fn blind(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let names_only = shot.variant == "by-name";
    if reply.outcome.is_err() && !names_only {
        reply.outcome = super::errors::all_absent(request, shot);
    }
    let Request::BatchGetInstances(request) = request else { return };
    let named = |key: &str| {
        let node =
            request.queries.iter().find(|query| query.key == key).and_then(|query| query.node.as_ref());
        node.is_some_and(|node| node.provider_id.is_empty())
    };
    reply.each(shot, |result: &mut InstanceResult| {
        if result.state == i32::from(InstanceState::Unspecified) && (!names_only || named(&result.key)) {
            result.set_state(InstanceState::Absent);
            result.authoritative = true;
            result.observed_at = Some(timestamp(shot.mock.now()));
            result.error = None;
        }
    });
}
