//! The instances behind the nodes.

use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider_proto::v1alpha1::instances_server::Instances as Rpc;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::watch::{self, InstanceWatch};
use crate::checks::{Asked, settle};
use crate::proto::{
    AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, BatchGetInstancesRequest,
    BatchGetInstancesResponse, InstanceQuery, ListInstancesRequest, ListInstancesResponse,
    WatchInstancesRequest, WatchInstancesResponse,
};
use crate::rpc::Served;
use crate::{CallContext, ProviderError, Result};

/// The instances behind the nodes.
#[async_trait]
pub trait Instances: Send + Sync + 'static {
    /// Reads many instances at once.
    ///
    /// In: 1 to `Limits.max_batch_instances` queries, each with a unique key and a named node. Out: one
    /// result for each key, in any order. Existence is a state, never an error: return the error of one query
    /// in its result, and fail the call only if nothing could be queried. Return `ABSENT` only after a look
    /// at the system of record.
    async fn batch_get_instances(
        &self,
        ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse>;

    /// Opens a stream of changed instances. Needs `CAPABILITY_INSTANCES_WATCH`.
    ///
    /// The provider supplies changes, and tokens if it can resume. The SDK sends the `started` frame and the
    /// heartbeat at `Intervals.bookmark_interval`, and ends the stream at `Intervals.watch_max_age` and when
    /// the process stops. See [`ChangeFeed`](crate::ChangeFeed) for a source in three lines.
    ///
    /// # Errors
    /// [`ProviderError::resume_token_expired`] or [`ProviderError::invalid_token`] for `request.resume_token`.
    async fn watch_instances(
        &self,
        _ctx: &CallContext,
        _request: WatchInstancesRequest,
    ) -> Result<InstanceWatch> {
        Err(ProviderError::method_not_supported("WatchInstances"))
    }

    /// One page of this cluster's instances. Needs `CAPABILITY_INSTANCES_LIST`.
    ///
    /// In: `page_size` is between 1 and `Limits.max_page_size`. Name locations that could not be queried in
    /// `unreachable`.
    ///
    /// # Errors
    /// [`ProviderError::invalid_token`] for `request.page_token`.
    async fn list_instances(
        &self,
        _ctx: &CallContext,
        _request: ListInstancesRequest,
    ) -> Result<ListInstancesResponse> {
        Err(ProviderError::method_not_supported("ListInstances"))
    }

    /// Authorises a public key on all instances of this cluster. Needs `CAPABILITY_SSH_KEYS`.
    ///
    /// A mutation: it finishes even if the caller is gone.
    ///
    /// # Errors
    /// [`ProviderError::invalid_ssh_key`] if the instances do not accept the key.
    async fn add_ssh_key_to_all_instances(
        &self,
        _ctx: &CallContext,
        _request: AddSshKeyToAllInstancesRequest,
    ) -> Result<AddSshKeyToAllInstancesResponse> {
        Err(ProviderError::method_not_supported("AddSshKeyToAllInstances"))
    }
}

#[async_trait]
impl Rpc for Served<dyn Instances> {
    async fn batch_get_instances(
        &self,
        request: Request<BatchGetInstancesRequest>,
    ) -> Result<Response<BatchGetInstancesResponse>, Status> {
        let run = |ctx, request: BatchGetInstancesRequest| async move {
            let name = |query: &InstanceQuery| {
                query.node.as_ref().map_or_else(String::new, |node| node.name.clone())
            };
            let asked: Asked = request.queries.iter().map(|query| (query.key.clone(), name(query))).collect();
            let mut answer = self.ours.batch_get_instances(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.read(request, run).await
    }

    async fn watch_instances(
        &self,
        request: Request<WatchInstancesRequest>,
    ) -> Result<Response<BoxStream<'static, Result<WatchInstancesResponse, Status>>>, Status> {
        watch::open(&self.core, &*self.ours, request).await
    }

    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<ListInstancesResponse>, Status> {
        let run = |ctx, request| async move { self.ours.list_instances(&ctx, request).await };
        self.core.read(request, run).await
    }

    async fn add_ssh_key_to_all_instances(
        &self,
        request: Request<AddSshKeyToAllInstancesRequest>,
    ) -> Result<Response<AddSshKeyToAllInstancesResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request| async move { ours.add_ssh_key_to_all_instances(&ctx, request).await };
        self.core.mutate(request, run).await
    }
}
