//! Routes: the list of all routes, and batched changes.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1 as pb;
use ipnet::IpNet;

use super::{
    CloudError, EnsureRoute, EnsuredRoute, InProgress, InstanceAddress, Listed, Route,
    call::{
        batch::{Answer, BatchRpc, Call, Item, ItemKey},
        list,
    },
    check,
    connection::{Link, session::Session},
    wanted,
};
use crate::findings::Findings;

pub(super) async fn list(link: &Link, within: &[IpNet]) -> Result<Listed<Route>, CloudError> {
    let within = within.iter().map(ToString::to_string).collect();
    let read = |session: &Session, given, findings: &mut Findings| {
        check::route(given, session.info.route_ownership, findings).map(|route| (route.id.clone(), route))
    };
    list::walk(link, pb::ListRoutesRequest { within, ..Default::default() }, |_| true, read).await
}

/// BatchEnsureRoutes: routes to create or correct.
#[derive(Debug)]
pub(super) struct Ensure;

impl BatchRpc for Ensure {
    type Lane = ();
    /// A route, and what the provider wanted to know when it was asked for.
    type Question = (EnsureRoute, Arc<pb::Wants>);
    type Request = pb::BatchEnsureRoutesRequest;
    type Result = pb::RouteResult;
    type Done = EnsuredRoute;

    /// Another target for the same destination is another change.
    fn key((wanted, _): &Self::Question) -> ItemKey {
        ItemKey::new(format!("{} {} {}", wanted.destination, wanted.node.name, wanted.node.uid))
    }

    fn wants((_, wants): &Self::Question) -> Option<&pb::Wants> {
        Some(wants)
    }

    fn same(link: &Link, (a, then): &Self::Question, (b, wants): &Self::Question) -> bool {
        let fields = link.present().map(|session| session.route_target()).unwrap_or_default();
        let is_same = || wanted::node_ref(&a.node, &fields) == wanted::node_ref(&b.node, &fields);
        then == wants && (Arc::ptr_eq(&a.node, &b.node) || is_same())
    }

    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        items.iter().map(|(_, (wanted, _))| wanted.destination.to_string()).collect()
    }

    fn request(call: &Call<'_, Self>, keys: &[String], items: &[Item<Self>]) -> Self::Request {
        let fields = call.session.route_target();
        let routes = keys.iter().zip(items).map(|(key, (_, (wanted, _)))| pb::RouteToEnsure {
            key: key.clone(),
            destination_cidr: key.clone(),
            target: Some(wanted::node_ref(&wanted.node, &fields)),
        });
        pb::BatchEnsureRoutesRequest {
            cluster: Some(call.link.cluster()),
            fencing: Some(call.link.fencing()),
            items: routes.collect(),
        }
    }

    fn results(answer: pb::BatchEnsureRoutesResponse) -> Vec<(String, pb::RouteResult)> {
        answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.key), one)).collect()
    }

    fn read(
        call: &Call<'_, Self>,
        (wanted, _): &Self::Question,
        result: pb::RouteResult,
        findings: &mut Findings,
    ) -> Answer<Self> {
        check::ensured_route(result, wanted, call.session.info.route_ownership, findings)
    }
}

/// BatchDeleteRoutes.
#[derive(Debug)]
pub(super) struct Delete;

impl BatchRpc for Delete {
    type Lane = ();
    type Question = Route;
    type Request = pb::BatchDeleteRoutesRequest;
    type Result = pb::RouteDeletion;
    type Done = Option<InProgress>;

    fn key(route: &Route) -> ItemKey {
        ItemKey::new(format!("{} {}", route.id, route.destination))
    }

    fn same(_: &Link, a: &Route, b: &Route) -> bool {
        a == b
    }

    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        items.iter().map(|(_, route)| route.id.clone()).collect()
    }

    fn request(call: &Call<'_, Self>, keys: &[String], items: &[Item<Self>]) -> Self::Request {
        let routes = keys.iter().zip(items).map(|(key, (_, route))| {
            let mut listed = as_listed(route);
            if !call.session.info.route_ownership {
                listed.set_ownership(pb::Ownership::Unspecified);
            }
            pb::RouteToDelete { key: key.clone(), route: Some(listed) }
        });
        pb::BatchDeleteRoutesRequest {
            cluster: Some(call.link.cluster()),
            fencing: Some(call.link.fencing()),
            items: routes.collect(),
        }
    }

    fn results(answer: pb::BatchDeleteRoutesResponse) -> Vec<(String, pb::RouteDeletion)> {
        answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.key), one)).collect()
    }

    fn read(
        _: &Call<'_, Self>,
        _: &Route,
        result: pb::RouteDeletion,
        findings: &mut Findings,
    ) -> Answer<Self> {
        match result.error {
            Some(error) => Err(CloudError::of_item(Self::METHOD.name, error, findings)),
            None => Ok(result.in_progress.map(|given| check::in_progress(given, findings))),
        }
    }
}

/// The route as the provider listed it, so that the provider can tell whether it has changed since.
fn as_listed(route: &Route) -> pb::Route {
    let address = |InstanceAddress { kind, address }: &InstanceAddress| pb::NodeAddress {
        r#type: *kind as i32,
        address: address.clone(),
    };
    pb::Route {
        id: route.id.clone(),
        destination_cidr: route.destination.to_string(),
        target: route.target.as_ref().map(|target| pb::NodeRef {
            name: target.name.clone(),
            uid: target.uid.clone(),
            provider_id: target.provider_id.clone(),
            addresses: target.addresses.iter().map(address).collect(),
            ..Default::default()
        }),
        state: route.state.into(),
        ownership: if route.ours { pb::Ownership::ByUid } else { pb::Ownership::Unspecified }.into(),
    }
}
