//! Breaches by routes.

use cloudprovider_sdk::proto::{NodeRef, Ownership, Route};
use ipnet::IpNet;

use super::{Breach, asked, late};
use crate::wire::{Answer, Method, Reply, Request, Shot};

const SHOWN: &[Method] = &[Method::ListRoutes, Method::BatchEnsureRoutes];

pub(super) const BREACHES: &[Breach] = &[
    late("route-canonical", "destinations have host bits, or are spelled at length", SHOWN, |_, reply, _| {
        for route in shown(reply) {
            route.destination_cidr = match route.destination_cidr.parse() {
                Ok(IpNet::V4(net)) => format!("{}/{}", net.broadcast(), net.prefix_len()),
                Ok(IpNet::V6(net)) => {
                    let segments = net.network().segments().map(|segment| format!("{segment:04X}"));
                    format!("{}/{}", segments.join(":"), net.prefix_len())
                }
                Err(_) => continue,
            };
        }
    }),
    late(
        "route-echo-target",
        "another target than the one asked for, or none",
        &[Method::BatchEnsureRoutes],
        |_, reply, shot| {
            let (name, provider_id) = ("another-node".to_owned(), "mock://elsewhere/i-0".to_owned());
            let other = NodeRef { name, provider_id, ..NodeRef::default() };
            for route in shown(reply) {
                route.target = (shot.variant != "missing").then(|| other.clone());
            }
        },
    )
    .ways(&["other", "missing"]),
    late(
        "route-ownership",
        "nothing is said of whose a route is, or all are said to be ours",
        SHOWN,
        |_, reply, shot| {
            let said = if shot.variant == "missing" { Ownership::Unspecified } else { Ownership::ByUid };
            shown(reply).into_iter().for_each(|route| route.set_ownership(said));
        },
    )
    .ways(&["missing", "all-ours"]),
    asked(
        "route-changed",
        "a route is removed though it was re-pointed",
        &[Method::BatchDeleteRoutes],
        whatever,
    ),
];

fn shown(reply: &mut Reply) -> Vec<&mut Route> {
    match &mut reply.outcome {
        Ok(Answer::ListRoutes(answer)) => answer.routes.iter_mut().collect(),
        Ok(Answer::BatchEnsureRoutes(answer)) => {
            answer.results.iter_mut().filter_map(|result| result.route.as_mut()).collect()
        }
        _ => Vec::new(),
    }
}

/// The listed route is replaced by whatever stands there now, so that the check finds nothing.
fn whatever(request: &mut Request, shot: &Shot<'_>) {
    let cluster = request.cluster_uid().to_owned();
    if let Request::BatchDeleteRoutes(request) = request {
        for route in request.items.iter_mut().filter_map(|item| item.route.as_mut()) {
            let now = shot.mock.look(|state| {
                let same = |listed: &crate::cloud::ListedRoute| {
                    let is = &listed.route;
                    is.cluster_uid == cluster
                        && crate::cloud::canonical_cidr(&route.destination_cidr) == Some(is.destination_cidr)
                };
                state.routes().find(same)
            });
            if let Some(now) = now {
                route.id = now.route.id;
                route.target = now.route.target.map(NodeRef::from);
            }
        }
    }
}
