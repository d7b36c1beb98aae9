//! Routes to create or correct.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1 as pb;

use super::Change;
use crate::cloud::{
    CloudError, EnsureRoute, EnsuredRoute,
    check::{self, Findings},
    link::Link,
    method::{self, Method},
    session::Session,
    wanted,
};

#[derive(Debug)]
pub(in crate::cloud) struct Ensure;

impl Change for Ensure {
    type Wish = EnsureRoute;
    type Item = pb::RouteToEnsure;
    type Result = pb::RouteResult;
    type Done = EnsuredRoute;

    fn method() -> &'static Method {
        &method::BATCH_ENSURE_ROUTES
    }

    fn key(wish: &EnsureRoute) -> String {
        wish.destination.to_string()
    }

    fn about(wish: &EnsureRoute) -> String {
        format!("{} {}", wish.node.name, wish.node.uid)
    }

    fn same(link: &Link, a: &EnsureRoute, b: &EnsureRoute) -> bool {
        let fields = link.present().map(|session| session.route_target()).unwrap_or_default();
        Arc::ptr_eq(&a.node, &b.node)
            || wanted::node_ref(&a.node, &fields) == wanted::node_ref(&b.node, &fields)
    }

    fn item(session: &Session, key: String, wish: &EnsureRoute) -> pb::RouteToEnsure {
        pb::RouteToEnsure {
            key,
            destination_cidr: wish.destination.to_string(),
            target: Some(wanted::node_ref(&wish.node, &session.route_target())),
        }
    }

    async fn send(
        link: &Link,
        session: &Session,
        cluster: pb::ClusterRef,
        items: Vec<pb::RouteToEnsure>,
    ) -> Result<Vec<(String, pb::RouteResult)>, CloudError> {
        let count = Some(items.len());
        let message =
            pb::BatchEnsureRoutesRequest { cluster: Some(cluster), fencing: Some(link.fencing()), items };
        let mut client = session.routes();
        let response = link
            .call(session, Self::method(), count, message, async |request| {
                client.batch_ensure_routes(request).await
            })
            .await?;
        let keyed = response.results.into_iter().map(|mut one| {
            one.route = one.route.map(|route| session.owned(route));
            (std::mem::take(&mut one.key), one)
        });
        Ok(keyed.collect())
    }

    fn read(
        wish: &EnsureRoute,
        result: pb::RouteResult,
        findings: &mut Findings,
    ) -> Result<EnsuredRoute, CloudError> {
        check::ensured_route(result, wish, findings)
    }
}
