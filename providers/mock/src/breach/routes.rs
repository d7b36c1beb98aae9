//! Breaches in routes.

use cloudprovider_sdk::proto::*;
use ipnet::IpNet;

use crate::{
    cloud::{ListedRoute, canonical_cidr},
    contract::{Message, Method, method},
    effect::{Effect, Shot, effect},
};

const OWNED: &[&Method] = &[&method::LIST_ROUTES, &method::BATCH_ENSURE_ROUTES, &method::BATCH_DELETE_ROUTES];
const SHOWN: &[&Method] = &[&method::LIST_ROUTES, &method::BATCH_ENSURE_ROUTES];

pub(super) const BREACHES: &[Effect] = &[
    effect("route-canonical", "destinations have host bits, or are not in canonical form").to(SHOWN).late(
        |_, reply, shot| {
            reply.each(shot, |route: &mut Route| match route.destination_cidr.parse() {
                Ok(IpNet::V4(net)) => {
                    route.destination_cidr = format!("{}/{}", net.broadcast(), net.prefix_len());
                }
                Ok(IpNet::V6(net)) => {
                    let segments = net.network().segments().map(|segment| format!("{segment:04X}"));
                    route.destination_cidr = format!("{}/{}", segments.join(":"), net.prefix_len());
                }
                Err(_) => {}
            });
        },
    ),
    effect("route-echo-target", "the target is another one, or missing, or only two of a batch are made")
        .to(&[&method::BATCH_ENSURE_ROUTES])
        .ways(&["other", "missing", "first-two"])
        .late(|_, reply, shot| {
            if shot.variant == "first-two" {
                reply.each(shot, |answer: &mut BatchEnsureRoutesResponse| {
                    for route in answer.results.iter().skip(2).filter_map(|result| result.route.as_ref()) {
                        let _is_gone = shot.alter(|state| state.remove_route_outside(&route.id));
                    }
                });
                return;
            }
            let (name, provider_id) = ("another-node".to_owned(), "mock://elsewhere/i-0".to_owned());
            let other = NodeRef { name, provider_id, ..NodeRef::default() };
            reply.each(shot, |route: &mut Route| {
                route.target = (shot.variant != "missing").then(|| other.clone());
            });
        }),
    effect(
        "route-ownership",
        "the owner of routes is missing, or every route is reported as this cluster's, or deleted as if it were",
    )
    .to(OWNED)
    .ways(&["missing", "all-ours", "deletes-all"])
    .asked(|request, shot| {
        if shot.variant == "deletes-all" && shot.method == &method::BATCH_DELETE_ROUTES {
            request.each(|route: &mut Route| {
                let _is_gone = shot.alter(|state| state.remove_route_outside(&route.id));
            });
        }
    })
    .late(|_, reply, shot| {
        if shot.variant != "deletes-all" {
            let said = if shot.variant == "missing" { Ownership::Unspecified } else { Ownership::ByUid };
            reply.each(shot, |route: &mut Route| route.set_ownership(said));
        }
    }),
    effect("route-changed", "a route is deleted although its target has changed")
        .to(&[&method::BATCH_DELETE_ROUTES])
        .asked(whatever),
];

/// Replaces the listed route by the current one, so that the check finds no change.
fn whatever(request: &mut Message, shot: &Shot<'_>) {
    let cluster_uid = request.cluster_uid();
    request.each(|route: &mut Route| {
        let same = |listed: &ListedRoute| {
            listed.route.cluster_uid == cluster_uid
                && canonical_cidr(&route.destination_cidr) == Some(listed.route.destination_cidr)
        };
        if let Some(now) = shot.look(|state| state.routes().find(same)) {
            route.id = now.route.id;
            route.target = now.route.target.map(NodeRef::from);
        }
    });
}
