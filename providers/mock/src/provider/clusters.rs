//! `Clusters`, answered from the cloud.

use cloudprovider_sdk::{
    CallContext, Clusters, ProviderError, Result, async_trait,
    proto::{
        GetControlPlaneEndpointRequest, GetControlPlaneEndpointResponse, ListClustersRequest,
        ListClustersResponse,
    },
};

use super::{Mock, provider_error};
use crate::cloud::CloudError;

#[async_trait]
impl Clusters for Mock {
    async fn list_clusters(
        &self,
        _ctx: &CallContext,
        request: ListClustersRequest,
    ) -> Result<ListClustersResponse> {
        let now = self.at_cloud().await;
        self.cloud.read(now, |state| {
            let all = state.list_clusters().map_err(provider_error)?;
            let names = all.into_iter().map(|cluster| cluster.name.clone());
            let (names, next_page_token) = self.pager.page(&request, names, String::clone)?;
            Ok(ListClustersResponse { names, next_page_token })
        })
    }

    async fn get_control_plane_endpoint(
        &self,
        _ctx: &CallContext,
        request: GetControlPlaneEndpointRequest,
    ) -> Result<GetControlPlaneEndpointResponse> {
        self.cloud.read(self.at_cloud().await, |state| match state.cluster(&request.cluster_name) {
            Ok(cluster) => Ok(GetControlPlaneEndpointResponse {
                host: cluster.host.clone(),
                port: i32::from(cluster.port),
            }),
            Err(CloudError::NotFound { .. }) => Err(ProviderError::cluster_not_found(&request.cluster_name)),
            Err(error) => Err(provider_error(error)),
        })
    }
}
