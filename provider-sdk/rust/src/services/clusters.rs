//! Which clusters the cloud hosts.

use async_trait::async_trait;
use cloudprovider_proto::v1alpha1::clusters_server::Clusters as Rpc;
use tonic::{Request, Response, Status};

use crate::proto::{
    GetControlPlaneEndpointRequest, GetControlPlaneEndpointResponse, ListClustersRequest,
    ListClustersResponse,
};
use crate::rpc::Served;
use crate::{CallContext, Result};

/// Which clusters the cloud hosts, and where their control planes are.
#[async_trait]
pub trait Clusters: Send + Sync + 'static {
    /// One page of the clusters of the account. In: `page_size` is between 1 and `Limits.max_page_size`.
    async fn list_clusters(
        &self,
        ctx: &CallContext,
        request: ListClustersRequest,
    ) -> Result<ListClustersResponse>;

    /// The address of a cluster's apiserver.
    ///
    /// # Errors
    /// [`ProviderError::cluster_not_found`](crate::ProviderError::cluster_not_found).
    async fn get_control_plane_endpoint(
        &self,
        ctx: &CallContext,
        request: GetControlPlaneEndpointRequest,
    ) -> Result<GetControlPlaneEndpointResponse>;
}

#[async_trait]
impl Rpc for Served<dyn Clusters> {
    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        let run = |ctx, request| async move { self.ours.list_clusters(&ctx, request).await };
        self.core.read(request, run).await
    }

    async fn get_control_plane_endpoint(
        &self,
        request: Request<GetControlPlaneEndpointRequest>,
    ) -> Result<Response<GetControlPlaneEndpointResponse>, Status> {
        let run = |ctx, request| async move { self.ours.get_control_plane_endpoint(&ctx, request).await };
        self.core.read(request, run).await
    }
}
