//! Deletions of routes.

use cloudprovider_proto::v1alpha1 as pb;

use super::Change;
use crate::cloud::{
    AddressType, CloudError, DeletedRoute, NodeAddress, Route, RouteState, RouteTarget,
    check::{self, Findings},
    link::Link,
    method::{self, Method},
    session::Session,
    status,
};

#[derive(Debug)]
pub(in crate::cloud) struct Delete;

impl Change for Delete {
    type Wish = Route;
    type Item = pb::RouteToDelete;
    type Result = pb::RouteDeletion;
    type Done = DeletedRoute;

    fn method() -> &'static Method {
        &method::BATCH_DELETE_ROUTES
    }

    fn key(route: &Route) -> String {
        route.id.clone()
    }

    fn about(route: &Route) -> String {
        route.destination.to_string()
    }

    fn same(_: &Link, a: &Route, b: &Route) -> bool {
        a == b
    }

    fn item(session: &Session, key: String, route: &Route) -> pb::RouteToDelete {
        let mut listed = as_listed(route);
        if !session.info.route_ownership {
            listed.set_ownership(pb::Ownership::Unspecified);
        }
        pb::RouteToDelete { key, route: Some(listed) }
    }

    async fn send(
        link: &Link,
        session: &Session,
        cluster: pb::ClusterRef,
        items: Vec<pb::RouteToDelete>,
    ) -> Result<Vec<(String, pb::RouteDeletion)>, CloudError> {
        let count = Some(items.len());
        let message =
            pb::BatchDeleteRoutesRequest { cluster: Some(cluster), fencing: Some(link.fencing()), items };
        let mut client = session.routes();
        let response = link
            .call(session, Self::method(), count, message, async |request| {
                client.batch_delete_routes(request).await
            })
            .await?;
        Ok(response.results.into_iter().map(|mut one| (std::mem::take(&mut one.key), one)).collect())
    }

    fn read(
        _: &Route,
        result: pb::RouteDeletion,
        findings: &mut Findings,
    ) -> Result<DeletedRoute, CloudError> {
        match result.error {
            Some(error) => Err(status::item_error(Self::method().name, error, findings)),
            None => Ok(DeletedRoute {
                in_progress: result.in_progress.map(|given| check::in_progress(given, findings)),
            }),
        }
    }
}

/// The route as the provider listed it, so that the provider can tell whether it has changed since.
fn as_listed(route: &Route) -> pb::Route {
    pb::Route {
        id: route.id.clone(),
        destination_cidr: route.destination.to_string(),
        target: route.target.as_ref().map(target),
        state: match route.state {
            RouteState::Unknown => pb::RouteState::Unspecified,
            RouteState::Active => pb::RouteState::Active,
            RouteState::Pending => pb::RouteState::Pending,
            RouteState::Blackhole => pb::RouteState::Blackhole,
        }
        .into(),
        ownership: if route.ours { pb::Ownership::ByUid } else { pb::Ownership::Unspecified }.into(),
    }
}

fn target(target: &RouteTarget) -> pb::NodeRef {
    pb::NodeRef {
        name: target.name.clone(),
        uid: target.uid.clone(),
        provider_id: target.provider_id.clone(),
        addresses: target.addresses.iter().map(address).collect(),
        ..Default::default()
    }
}

fn address(address: &NodeAddress) -> pb::NodeAddress {
    let kind = match address.kind {
        AddressType::Hostname => pb::NodeAddressType::Hostname,
        AddressType::InternalIp => pb::NodeAddressType::InternalIp,
        AddressType::ExternalIp => pb::NodeAddressType::ExternalIp,
        AddressType::InternalDns => pb::NodeAddressType::InternalDns,
        AddressType::ExternalDns => pb::NodeAddressType::ExternalDns,
    };
    pb::NodeAddress { r#type: kind.into(), address: address.address.clone() }
}
