//! Breaches in what answers and watches say about instances.

use cloudprovider_sdk::proto::*;
use jiff::SignedDuration;

use crate::{
    contract::{Message, Method, method},
    effect::{Delivery, Effect, Reply, Shot, effect},
};

const BATCH: &[&Method] = &[&method::BATCH_GET_INSTANCES];
const WATCH: &[&Method] = &[&method::WATCH_INSTANCES];
const BOTH: &[&Method] = &[&method::BATCH_GET_INSTANCES, &method::LIST_INSTANCES];

pub(super) const BREACHES: &[Effect] = &[
    effect("absent-means-looked", "instances that could not be queried are authoritatively absent")
        .to(BATCH)
        .ways(&["anything", "by-name"])
        .late(blind),
    effect("absence-needs-id", "an instance that is not found by name is authoritatively absent")
        .to(BATCH)
        .late(|_, reply, shot| {
            reply.each(shot, |result: &mut InstanceResult| {
                result.authoritative |= result.state() == InstanceState::Absent;
            });
        }),
    effect("stopped-exists", "a stopped instance is reported as absent").to(BATCH).late(|_, reply, shot| {
        reply.each(shot, |result: &mut InstanceResult| {
            if result.state() == InstanceState::Stopped {
                result.set_state(InstanceState::Absent);
                result.instance = None;
            }
        });
    }),
    effect("observed-at", "an authoritative answer has no `observed_at`").to(BATCH).late(|_, reply, shot| {
        reply.each(shot, |result: &mut InstanceResult| {
            (result.authoritative, result.observed_at) = (true, None);
        });
    }),
    effect(
        "batched-at-cloud",
        "each node of a batch, or each with a provider ID, costs one call to the cloud",
    )
    .to(BATCH)
    .ways(&["all", "known"])
    .asked(|request, shot| {
        request.each(|node: &mut NodeRef| {
            if shot.variant == "all" || !node.provider_id.is_empty() {
                shot.look(|state| state.count_call("instances:read"));
            }
        });
    }),
    effect("node-by-provider-id", "nodes are looked up by name, whatever their provider ID")
        .to(BATCH)
        .asked(|request, _| request.each(|node: &mut NodeRef| node.provider_id.clear())),
    effect("provider-id-prefix", "provider IDs lack the advertised prefix, or are missing")
        .to(BOTH)
        .ways(&["foreign", "missing"])
        .late(|_, reply, shot| {
            reply.each(shot, |instance: &mut Instance| match shot.variant {
                "missing" => instance.provider_id.clear(),
                _ => instance.provider_id.insert_str(0, "foreign"),
            });
        }),
    effect("provider-id-stable", "provider IDs change from call to call").to(BOTH).late(|_, reply, shot| {
        reply.each(shot, |instance: &mut Instance| {
            instance.provider_id = format!("{}-{}", instance.provider_id, shot.memory.count());
        });
    }),
    effect("address-valid", "an address of an IP type is not an IP, is empty, or has no type")
        .to(BOTH)
        .ways(&["no-ip", "empty", "no-type"])
        .late(|_, reply, shot| {
            let (kind, text) = match shot.variant {
                "empty" => (NodeAddressType::InternalIp, ""),
                "no-type" => (NodeAddressType::Unspecified, "192.0.2.250"),
                _ => (NodeAddressType::InternalIp, "not-an-ip"),
            };
            let address = NodeAddress { r#type: kind.into(), address: text.to_owned() };
            reply.each(shot, |instance: &mut Instance| instance.addresses.push(address.clone()));
        }),
    effect("address-unique", "each address is listed twice").to(BOTH).late(|_, reply, shot| {
        reply.each(shot, |instance: &mut Instance| instance.addresses.extend_from_within(..));
    }),
    effect("label-valid", "type, zone or region is not a valid label value, or a label key is invalid")
        .to(BOTH)
        .ways(&["type", "zone", "region", "key"])
        .late(|_, reply, shot| {
            reply.each(shot, |instance: &mut Instance| {
                let value = match shot.variant {
                    "zone" => &mut instance.zone,
                    "region" => &mut instance.region,
                    "key" => instance.labels.entry("no label key!".to_owned()).or_default(),
                    _ => &mut instance.instance_type,
                };
                let bad = if shot.variant == "key" { "value" } else { "no label value!" };
                bad.clone_into(value);
            });
        }),
    effect("label-reserved", "labels within kubernetes.io and k8s.io").to(BOTH).late(|_, reply, shot| {
        reply.each(shot, |instance: &mut Instance| {
            let keys =
                ["node-role.kubernetes.io/control-plane", "kubernetes.io/hostname", "mock.k8s.io/zone"];
            instance.labels.extend(keys.map(|key| (key.to_owned(), "mock".to_owned())));
        });
    }),
    effect("watch-started", "the first frame is not `started`").to(WATCH).late(|_, reply, _| {
        leave_out(reply, "started");
    }),
    effect("watch-every-key", "of changes within a second of each other only the first is sent")
        .to(WATCH)
        .late(|_, reply, shot| {
            if reply.outcome.as_ref().is_ok_and(|frame| frame.has("changed")) {
                let mut last = shot.memory.last_change.lock();
                if last.is_some_and(|last| shot.now.duration_since(last) < SignedDuration::from_secs(1)) {
                    reply.delivery = Delivery::Drop;
                } else {
                    *last = Some(shot.now);
                }
            }
        }),
    effect("watch-bookmark", "no bookmark is ever sent").to(WATCH).late(|_, reply, _| {
        leave_out(reply, "bookmark");
    }),
];

/// Drops the frames of a watch that are of this kind.
pub(crate) fn leave_out(reply: &mut Reply, kind: &str) {
    if reply.outcome.as_ref().is_ok_and(|frame| frame.has(kind)) {
        reply.delivery = Delivery::Drop;
    }
}

fn blind(request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    let names_only = shot.variant == "by-name";
    if reply.outcome.is_err() && !names_only {
        reply.outcome = super::errors::all_absent(request, shot);
    }
    let queries = request.first::<BatchGetInstancesRequest>().unwrap_or_default().queries;
    let named = |key: &str| {
        let node = queries.iter().find(|query| query.key == key).and_then(|query| query.node.as_ref());
        node.is_some_and(|node| node.provider_id.is_empty())
    };
    reply.each(shot, |result: &mut InstanceResult| {
        if result.state == i32::from(InstanceState::Unspecified) && (!names_only || named(&result.key)) {
            result.set_state(InstanceState::Absent);
            result.authoritative = true;
            result.observed_at = shot.timestamp();
            result.error = None;
        }
    });
}
