//! `Clusters` on the wire.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1::clusters_server::Clusters as Rpc;
use tonic::{Request, Response, Status};

use super::core::Core;
use crate::proto::{
    GetControlPlaneEndpointRequest, GetControlPlaneEndpointResponse, ListClustersRequest,
    ListClustersResponse,
};
use crate::services::Clusters;

/// Serves `Clusters`.
pub(crate) struct ClustersRpc {
    core: Arc<Core>,
    ours: Arc<dyn Clusters>,
}

impl ClustersRpc {
    pub(crate) fn new(core: Arc<Core>, ours: Arc<dyn Clusters>) -> Self {
        Self { core, ours }
    }
}

#[tonic::async_trait]
impl Rpc for ClustersRpc {
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
