//! `Routes`, answered from the cloud.

use cloudprovider_sdk::{CallContext, Result, Routes, async_trait, paging, proto::*};

use super::Honest;
use crate::cloud::{ListedRoute, Target, canonical_cidr};

#[async_trait]
impl Routes for Honest {
    async fn list_routes(&self, ctx: &CallContext, request: ListRoutesRequest) -> Result<ListRoutesResponse> {
        let within: Vec<_> = request.within.iter().filter_map(|cidr| canonical_cidr(cidr)).collect();
        self.ask(|state, _| {
            let all = state.list_routes(ctx.cluster_uid(), &within)?;
            let (page, next_page_token) = paging::page(&request, all, |listed| listed.route.id.clone())?;
            Ok(ListRoutesResponse {
                routes: page.into_iter().map(|listed| self.seen(listed)).collect(),
                next_page_token,
                unreachable: Vec::new(),
            })
        })
        .await
    }

    async fn batch_ensure_routes(
        &self,
        ctx: &CallContext,
        request: BatchEnsureRoutesRequest,
    ) -> Result<BatchEnsureRoutesResponse> {
        self.change(|state, _| {
            state.enter("routes:write")?;
            let ensure = |item: RouteToEnsure| {
                let (key, target) = (item.key, item.target.unwrap_or_default());
                match state.ensure_route(ctx.cluster_uid(), &item.destination_cidr, &target) {
                    Ok(listed) => {
                        let mut route = self.seen(listed);
                        // The target as requested, with the provider ID that was found for it.
                        let provider_id = route.target.map(|found| found.provider_id).unwrap_or_default();
                        let (name, uid) = (target.name, target.uid);
                        route.target = Some(NodeRef { name, uid, provider_id, ..NodeRef::default() });
                        RouteResult { key, route: Some(route), ..RouteResult::default() }
                    }
                    Err(error) => RouteResult { key, error: Some(error.to_item()), ..RouteResult::default() },
                }
            };
            Ok(BatchEnsureRoutesResponse { results: request.items.into_iter().map(ensure).collect() })
        })
        .await
    }

    async fn batch_delete_routes(
        &self,
        ctx: &CallContext,
        request: BatchDeleteRoutesRequest,
    ) -> Result<BatchDeleteRoutesResponse> {
        let only_by_uid = self.mock.advertised.has(Capability::RouteOwnership);
        self.change(|state, _| {
            state.enter("routes:write")?;
            let delete = |item: RouteToDelete| {
                let route = item.route.unwrap_or_default();
                let target = route.target.map(Target::from);
                let (uid, cidr) = (ctx.cluster_uid(), &route.destination_cidr);
                let error = state.delete_route(uid, &route.id, cidr, target.as_ref(), only_by_uid).err();
                RouteDeletion { key: item.key, error: error.map(|error| error.to_item()), in_progress: None }
            };
            Ok(BatchDeleteRoutesResponse { results: request.items.into_iter().map(delete).collect() })
        })
        .await
    }
}

impl Honest {
    fn seen(&self, listed: ListedRoute) -> Route {
        listed.seen(self.mock.advertised.has(Capability::RouteOwnership))
    }
}
