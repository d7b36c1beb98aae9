//! Breaches in what happens to balancers, and in what answers say about them.

use std::{sync::Arc, time::Duration};

use cloudprovider_sdk::{ProviderError, proto::*};
use serde_json::json;
use tonic::Status;

use crate::{
    cloud::{Balancer, NewLegacyBalancer, State, WRITTEN_PREFIX},
    contract::{Message, Method, method},
    effect::{Delivery, Effect, Reply, Shot, Turn, effect},
};

const ENSURE: &[&Method] = &[&method::ENSURE_LOAD_BALANCER];
const UPDATE: &[&Method] = &[&method::BATCH_UPDATE_LOAD_BALANCERS];
const DELETE: &[&Method] = &[&method::DELETE_LOAD_BALANCER];
const REMEMBERED: &[&Method] = &[&method::ENSURE_LOAD_BALANCER, &method::DELETE_LOAD_BALANCER];
const ANNOTATED: &[&Method] =
    &[&method::ENSURE_LOAD_BALANCER, &method::DELETE_LOAD_BALANCER, &method::BATCH_GET_INSTANCES];
const SHOWN: &[&Method] =
    &[&method::GET_LOAD_BALANCER, &method::ENSURE_LOAD_BALANCER, &method::LIST_LOAD_BALANCERS];

pub(super) const BREACHES: &[Effect] = &[
    effect("ensure-idempotent", "Ensure creates another balancer although one exists")
        .to(ENSURE)
        .late(|request, reply, shot| {
            double_if_marked(request, reply, shot);
        })
        .asked(|request, shot| shot.memory.doubled.lock().extend(shot.balancer_of(request).map(|found| found.id))),
    effect(
        "ensure-after-lost-answer",
        "the answer to Ensure is lost, or the provider ends in the middle, and the next Ensure creates another balancer",
    )
    .to(ENSURE)
    .ways(&["lost", "half-made"])
    .asked(|request, shot| {
        if shot.variant == "half-made" {
            match shot.balancer_of(request) {
                Some(half) if half.ingress.is_empty() => {
                    shot.memory.doubled.lock().insert(half.id);
                }
                Some(_) => {}
                None => begin(request, shot, Duration::ZERO),
            }
        }
    })
    .late(|request, reply, shot| {
        let Some(service) = request.service() else { return };
        if shot.variant == "half-made" {
            double_if_marked(request, reply, shot);
        } else if shot.memory.lost_answers.lock().insert(service.uid) {
            reply.delivery = Delivery::Reset;
        } else {
            make_another(reply, shot);
        }
    }),
    effect("ensure-keeps-working", "Ensure breaks a working balancer, then fails, or does so when it is refused")
        .to(ENSURE)
        .ways(&["always", "refused"])
        .early(|request, shot| {
            let Some(found) = shot.balancer_of(request).filter(|_| shot.variant == "always") else { return Turn::GoOn };
            match shot.alter(|state| state.halve_balancer(&found.id)) {
                Ok(_) => Turn::fail(ProviderError::cloud_api_unavailable()),
                Err(_) => Turn::GoOn,
            }
        })
        .late(|request, reply, shot| {
            let refused = shot.variant == "refused" && reply.outcome.is_err();
            if let Some(found) = shot.balancer_of(request).filter(|_| refused) {
                let _is_there = shot.alter(|state| state.halve_balancer(&found.id));
            }
        }),
    effect(
        "mutation-finishes",
        "if the caller of Ensure disconnects, the balancer stays half made, or nothing is done",
    )
    .to(ENSURE)
    .ways(&["half-made", "given-up"])
    .late(|request, reply, shot| {
        if let Some(found) = shot.balancer_of(request).filter(|_| shot.variant != "given-up") {
            reply.delivery = Delivery::OrHalve(found.id);
        }
    })
    .early(|_, shot| if shot.variant == "given-up" { Turn::IfAwaited } else { Turn::GoOn }),
    effect("applied-digest", "the digest is wrong, missing, or that of unfinished or refused work")
        .to(SHOWN)
        .ways(&["wrong", "missing", "too-early", "refused"])
        .late(|request, reply, shot| {
            let refused = shot.method == &method::ENSURE_LOAD_BALANCER && reply.outcome.is_err();
            match shot.balancer_of(request).filter(|_| shot.variant == "refused" && refused) {
                Some(found) => {
                    let patch = json!({"applied_digest": request.text("desired_digest"), "drifted": false});
                    let _is_there = shot.alter(|state| state.patch_balancer(&found.id, &patch));
                }
                None => reply.each(shot, |balancer| wrong_digest(balancer, shot)),
            }
        }),
    effect("durable-digest", "only the process that applied a digest knows it")
        .to(SHOWN)
        .late(|_, reply, shot| {
            let known = shot.memory.digests.lock();
            reply.each(shot, |balancer: &mut LoadBalancer| {
                if !known.contains(&balancer.applied_digest) {
                    balancer.applied_digest.clear();
                }
            });
        })
        .asked(|request, shot| {
            if shot.method == &method::ENSURE_LOAD_BALANCER {
                shot.memory.digests.lock().insert(request.text("desired_digest"));
            }
        }),
    effect("ingress-valid", "an ingress without IP and host name, or with an invalid IP")
        .to(SHOWN)
        .ways(&["empty", "no-ip"])
        .late(|_, reply, shot| {
            let ip = if shot.variant == "no-ip" { "300.300.300.300" } else { "" }.to_owned();
            let ip_mode = IngressIpMode::Vip.into();
            let way = LoadBalancerIngress { ip, ip_mode, ..LoadBalancerIngress::default() };
            reply.each(shot, |balancer: &mut LoadBalancer| balancer.ingress.push(way.clone()));
        }),
    effect("ingress-required", "an active balancer has no ingress, or each in a list has the last one's")
        .to(SHOWN)
        .ways(&["missing", "last"])
        .late(|_, reply, shot| match shot.variant {
            "last" => reply.each(shot, |list: &mut ListLoadBalancersResponse| {
                let last = list.load_balancers.last().map(|last| last.ingress.clone()).unwrap_or_default();
                list.load_balancers.iter_mut().for_each(|one| one.ingress.clone_from(&last));
            }),
            _ => reply.each(shot, |balancer: &mut LoadBalancer| balancer.ingress.clear()),
        }),
    effect("annotation-prefix", "annotations outside the advertised prefixes, of a Service or a node")
        .to(ANNOTATED)
        .ways(&["set", "removed", "node"])
        .late(|_, reply, shot| {
            let elsewhere = "elsewhere.example/owner".to_owned();
            match shot.variant {
                "set" => reply.each(shot, |writes: &mut ServiceWrites| {
                    writes.annotations.insert(elsewhere.clone(), "mock".to_owned());
                }),
                "removed" => reply.each(shot, |writes: &mut ServiceWrites| {
                    let applied = "kubectl.kubernetes.io/last-applied-configuration".to_owned();
                    writes.removed_annotations.extend([applied, format!("{WRITTEN_PREFIX}nothing")]);
                }),
                _ => reply.each(shot, |instance: &mut Instance| {
                    instance.annotations.insert(elsewhere.clone(), "mock".to_owned());
                }),
            }
        }),
    effect("in-progress-not-error", "work in progress is reported as an error").to(method::CHANGES).late(
        |_, reply, _| {
            if reply.outcome.as_ref().is_ok_and(|answer| answer.first::<InProgress>().is_some()) {
                let after = Duration::from_secs(1);
                reply.outcome = Err(ProviderError::retry_later(after, "still being made").to_status());
            }
        },
    ),
    effect("retry-after-positive", "`retry_after` of work in progress is zero, negative or missing")
        .to(method::CHANGES)
        .ways(&["zero", "negative", "missing"])
        .late(|_, reply, shot| {
            let seconds = if shot.variant == "negative" { -5 } else { 0 };
            let after = prost_types::Duration { seconds, nanos: 0 };
            reply.each(shot, |progress: &mut InProgress| {
                progress.retry_after = (shot.variant != "missing").then_some(after);
            });
        }),
    effect(
        "update-backends-only",
        "updates of backends are refused: only Ensure changes them; or they open the balancer, or never take a backend away",
    )
    .to(UPDATE)
    .ways(&["refused", "opens", "only-adds"])
    .asked(|request, shot| {
        if shot.variant == "only-adds" {
            let stood = shot.balancer_of(request).map(|found| found.backends).unwrap_or_default();
            request.each(|set: &mut BackendSet| {
                let kept = stood.iter().map(|target| NodeRef::from(target.clone()));
                let new = std::mem::take(&mut set.nodes);
                set.nodes = kept.filter(|node| new.iter().all(|one| one.name != node.name)).collect();
                set.nodes.extend(new);
            });
        }
    })
    .late(|request, reply, shot| {
        match shot.variant {
            "opens" => {
                let Some(found) = shot.balancer_of(request) else { return };
                let patch = json!({"source_ranges": [], "drifted": false});
                let _is_there = shot.alter(|state| state.patch_balancer(&found.id, &patch));
            }
            "only-adds" => {}
            _ => reply.each(shot, |result: &mut LoadBalancerUpdateResult| {
                result.set_outcome(UpdateOutcome::NotUpdated);
                result.error = Some(ProviderError::needs_ensure(&result.service_uid).to_item());
            }),
        }
    }),
    effect("delete-absent-ok", "deleting an absent balancer is an error").to(DELETE).early(
        |request, shot| match shot.balancer_of(request) {
            Some(_) => Turn::GoOn,
            None => Turn::fail(Status::not_found("no such load balancer")),
        },
    ),
    effect(
        "delete-by-key",
        "Delete fails or does nothing without the last known Service, or after a restart; or names are keys, also cut \
        to what a cloud's name holds",
    )
    .to(REMEMBERED)
    .ways(&["error", "ignored", "after-restart", "by-name", "by-cut-name"])
    .asked(|request, shot| {
        if let "by-name" | "by-cut-name" = shot.variant
            && let Some(service) = request.service()
            && let Some(uid) = shot.look(|state| {
                let key = |namespace: &str, name: &str| match shot.variant {
                    "by-name" => name.to_owned(),
                    _ => format!("k8s-{namespace}-{name}").chars().take(63).collect(),
                };
                let wanted = key(&service.namespace, &service.name);
                let mut own = state.balancers().filter(|one| !one.is_legacy());
                own.find(|one| key(&one.namespace, &one.service_name) == wanted).map(|one| one.service_uid.clone())
            })
        {
            request.each(|service: &mut ServiceRef| service.uid.clone_from(&uid));
        }
    })
    .early(hint),
    effect(
        "delete-leaves-nothing",
        "the balancer's firewall is left behind, of a half-made one too, or Delete is done though the cloud refused, or \
        an Ensure makes it again",
    )
    .to(REMEMBERED)
    .ways(&["firewall", "half-made", "swallowed", "made-again"])
    .asked(|request, shot| {
        if shot.method == &method::ENSURE_LOAD_BALANCER {
            if shot.balancer_of(request).is_none() {
                match shot.variant {
                    "half-made" => begin(request, shot, Duration::ZERO),
                    "made-again" => begin(request, shot, Duration::from_millis(1500)),
                    _ => {}
                }
            }
            return;
        }
        let leaves = |found: &Balancer| match shot.variant {
            "half-made" => found.ingress.is_empty(),
            "swallowed" | "made-again" => false,
            _ => true,
        };
        if let Some(found) = shot.balancer_of(request).filter(leaves) {
            // An absent balancer leaves nothing behind.
            let _gone_already = shot.alter(|state| state.forget_firewall(&found.id));
        }
    })
    .late(|_, reply, shot| {
        let swallows = shot.variant == "swallowed" && shot.method == &method::DELETE_LOAD_BALANCER;
        if swallows && reply.outcome.is_err() {
            reply.outcome = shot.blank();
        }
    }),
    effect("delete-not-elsewhere", "Delete says that another controller implements it")
        .to(DELETE)
        .early(|_, _| Turn::fail(ProviderError::implemented_elsewhere("another controller"))),
];

/// Begins a balancer in a slow cloud, and saves it, before the work begins, or so much later.
fn begin(request: &Message, shot: &Shot<'_>, later: Duration) {
    let (cluster_uid, service) = (request.cluster_uid(), request.service().unwrap_or_default());
    if !shot.is_slow() {
        return;
    }
    let wish = NewLegacyBalancer {
        service_uid: service.uid,
        namespace: service.namespace,
        service_name: service.name,
        cluster_uid,
        ..NewLegacyBalancer::default()
    };
    let (now, cloud) = (shot.now, Arc::clone(shot.cloud));
    let make = move |state: &mut State| {
        let begun = state.create_legacy_balancer(wish, now)?;
        state.halve_balancer(&begun.id)
    };
    if later.is_zero() {
        let _taken = shot.alter(make);
        tokio::spawn(async move { cloud.change(now, |_| ()).await.map(drop) });
    } else {
        tokio::spawn(async move {
            tokio::time::sleep(later).await;
            cloud.change(now, make).await.map(drop)
        });
    }
}

/// Creates a second balancer if the first was there, and marked, when the call came.
fn double_if_marked(request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    if shot.balancer_of(request).is_some_and(|found| shot.memory.doubled.lock().remove(&found.id)) {
        make_another(reply, shot);
    }
}

/// Creates a second balancer and returns it instead of the first.
fn make_another(reply: &mut Reply, shot: &Shot<'_>) {
    reply.each(shot, |answer: &mut EnsureLoadBalancerResponse| {
        let Some(first) = &mut answer.load_balancer else { return };
        if let Ok(double) = shot.alter(|state| state.double_balancer(&first.id)) {
            *first = (&double).into();
        }
    });
}

/// Sets a wrong digest, none, or that of unfinished work.
fn wrong_digest(balancer: &mut LoadBalancer, shot: &Shot<'_>) {
    let pending =
        || shot.look(|state| state.balancer(&balancer.id).map(|found| found.pending_digest.clone()));
    match shot.variant {
        "missing" => balancer.applied_digest.clear(),
        "too-early" => {
            if let Some(digest) = pending().filter(|digest| !digest.is_empty()) {
                balancer.applied_digest = digest;
            }
        }
        "refused" => {}
        _ => "a-digest-of-something-else".clone_into(&mut balancer.applied_digest),
    }
}

fn hint(request: &mut Message, shot: &Shot<'_>) -> Turn {
    let uid = request.service().unwrap_or_default().uid;
    let nothing_done = || Turn::answer(shot.blank());
    let mut made_here = shot.memory.made_here.lock();
    match (shot.method, shot.variant) {
        (&method::ENSURE_LOAD_BALANCER, "after-restart") => {
            made_here.insert(uid);
            Turn::GoOn
        }
        (_, "after-restart") if !made_here.contains(&uid) => nothing_done(),
        (&method::DELETE_LOAD_BALANCER, "ignored") if !request.has("last_known") => nothing_done(),
        (&method::DELETE_LOAD_BALANCER, "error") if !request.has("last_known") => {
            Turn::fail(ProviderError::invalid_argument_shape("last_known", "is needed"))
        }
        _ => Turn::GoOn,
    }
}
