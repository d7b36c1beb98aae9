//! `Routes`, answered from the cloud.

use cloudprovider_sdk::{
    CallContext, ProviderError, Result, Routes, async_trait,
    proto::{
        BatchDeleteRoutesRequest, BatchDeleteRoutesResponse, BatchEnsureRoutesRequest,
        BatchEnsureRoutesResponse, ListRoutesRequest, ListRoutesResponse, NodeRef, RouteDeletion,
        RouteResult, RouteToDelete, RouteToEnsure,
    },
};

use super::{Mock, from_wire, not_saved, provider_error, to_wire};
use crate::cloud::{CloudError, State, canonical_cidr};

#[async_trait]
impl Routes for Mock {
    async fn list_routes(&self, ctx: &CallContext, request: ListRoutesRequest) -> Result<ListRoutesResponse> {
        let now = self.at_cloud().await;
        let within: Vec<_> = request.within.iter().filter_map(|cidr| canonical_cidr(cidr)).collect();
        self.cloud.read(now, |state| {
            let all = state.list_routes(ctx.cluster_uid(), &within).map_err(provider_error)?;
            let (page, next_page_token) = self.pager.page(&request, all, |listed| listed.route.id.clone())?;
            Ok(ListRoutesResponse {
                routes: page.iter().map(|listed| to_wire::route(listed, self.tagged_routes)).collect(),
                next_page_token,
                unreachable: Vec::new(),
            })
        })
    }

    async fn batch_ensure_routes(
        &self,
        ctx: &CallContext,
        request: BatchEnsureRoutesRequest,
    ) -> Result<BatchEnsureRoutesResponse> {
        let ensure = |state: &mut State| {
            state.enter("routes:write")?;
            let one = |item| ensure_one(state, ctx.cluster_uid(), item, self.tagged_routes);
            Ok(request.items.into_iter().map(one).collect::<Vec<_>>())
        };
        let done: Result<_, CloudError> =
            self.cloud.change(self.at_cloud().await, ensure).await.map_err(not_saved)?;
        Ok(BatchEnsureRoutesResponse { results: done.map_err(provider_error)? })
    }

    async fn batch_delete_routes(
        &self,
        ctx: &CallContext,
        request: BatchDeleteRoutesRequest,
    ) -> Result<BatchDeleteRoutesResponse> {
        let delete = |state: &mut State| {
            state.enter("routes:write")?;
            let cluster = ctx.cluster_uid();
            Ok(request.items.into_iter().map(|item| delete_one(state, cluster, item)).collect::<Vec<_>>())
        };
        let done: Result<_, CloudError> =
            self.cloud.change(self.at_cloud().await, delete).await.map_err(not_saved)?;
        Ok(BatchDeleteRoutesResponse { results: done.map_err(provider_error)? })
    }
}

fn ensure_one(state: &mut State, cluster: &str, item: RouteToEnsure, tags: bool) -> RouteResult {
    let target = item.target.unwrap_or_default();
    let query = from_wire::node(target.clone());
    match state.ensure_route(cluster, &item.destination_cidr, &query) {
        Ok(listed) => {
            let mut route = to_wire::route(&listed, tags);
            // The caller's own words for the target, with the provider ID that was found for it.
            let provider_id = route.target.map(|found| found.provider_id).unwrap_or_default();
            route.target =
                Some(NodeRef { name: target.name, uid: target.uid, provider_id, ..NodeRef::default() });
            RouteResult { key: item.key, route: Some(route), ..RouteResult::default() }
        }
        Err(error) => RouteResult { key: item.key, error: Some(as_item(error)), ..RouteResult::default() },
    }
}

fn delete_one(state: &mut State, cluster: &str, item: RouteToDelete) -> RouteDeletion {
    let route = item.route.unwrap_or_default();
    let target = route.target.as_ref().map(from_wire::target);
    let outcome = state.delete_route(cluster, &route.id, &route.destination_cidr, target.as_ref());
    RouteDeletion { key: item.key, in_progress: None, error: outcome.err().map(as_item) }
}

fn as_item(error: CloudError) -> cloudprovider_sdk::proto::ItemError {
    let error: ProviderError = provider_error(error);
    error.to_item()
}
