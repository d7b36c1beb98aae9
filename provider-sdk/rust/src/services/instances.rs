//! The machines behind the nodes.

use async_trait::async_trait;

use super::watch::InstanceWatch;
use crate::proto::{
    AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, BatchGetInstancesRequest,
    BatchGetInstancesResponse, ListInstancesRequest, ListInstancesResponse, WatchInstancesRequest,
};
use crate::{CallContext, ProviderError, Result};

/// The machines behind the nodes.
#[async_trait]
pub trait Instances: Send + Sync + 'static {
    /// Reads many machines at once.
    ///
    /// In: 1 to `Limits.max_batch_instances` queries, each with a unique key and a named node. Out: one result for each
    /// key, in any order. Existence is a state, never an error: answer an error for one query in its result, and fail
    /// the call only when nothing could be asked. Answer `ABSENT` only after a look at the place that decides it.
    async fn batch_get_instances(
        &self,
        ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse>;

    /// Opens a stream of changed machines. Needs `CAPABILITY_INSTANCES_WATCH`.
    ///
    /// The provider gives changes, and tokens if it can resume; the `started` frame, the heartbeat at
    /// `Intervals.bookmark_interval`, the end at `Intervals.watch_max_age` and at a stop of the process are done here.
    /// See [`ChangeFeed`](crate::ChangeFeed) for a source that needs three lines.
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

    /// One page of this cluster's machines. Needs `CAPABILITY_INSTANCES_LIST`.
    ///
    /// In: `page_size` is between 1 and `Limits.max_page_size`. What could not be asked stands in `unreachable`.
    ///
    /// # Errors
    /// [`ProviderError::page_token_expired`] or [`ProviderError::invalid_token`] for `request.page_token`.
    async fn list_instances(
        &self,
        _ctx: &CallContext,
        _request: ListInstancesRequest,
    ) -> Result<ListInstancesResponse> {
        Err(ProviderError::method_not_supported("ListInstances"))
    }

    /// Makes a public key valid on all machines of this cluster. Needs `CAPABILITY_SSH_KEYS`.
    ///
    /// A mutation: it is run to its end even when the caller is gone.
    ///
    /// # Errors
    /// [`ProviderError::invalid_ssh_key`] when the text is no key that the machines take.
    async fn add_ssh_key_to_all_instances(
        &self,
        _ctx: &CallContext,
        _request: AddSshKeyToAllInstancesRequest,
    ) -> Result<AddSshKeyToAllInstancesResponse> {
        Err(ProviderError::method_not_supported("AddSshKeyToAllInstances"))
    }
}
