//! The rest of an account: status, hosted clusters and volumes.

use cloudprovider_sdk::{
    CallContext, CloudProvider, Clusters, ProviderError, Result, Volumes, async_trait, paging, proto::*,
};

use super::Honest;
use crate::cloud::Credentials;

#[async_trait]
impl CloudProvider for Honest {
    async fn get_status(&self, _ctx: &CallContext) -> Result<GetStatusResponse> {
        let is = self.mock.look(|state| state.conditions.clone());
        let refused =
            if is.credentials == Credentials::Expired { "CredentialsExpired" } else { "CredentialsRefused" };
        let valid = is.credentials == Credentials::Valid;
        let condition = |kind: ConditionType, holds: bool, else_because: &str| ProviderCondition {
            r#type: kind.into(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False }.into(),
            reason: if holds { String::new() } else { else_because.to_owned() },
            ..ProviderCondition::default()
        };
        let conditions = vec![
            condition(ConditionType::CredentialsValid, valid, refused),
            condition(ConditionType::CloudReachable, is.cloud_reachable, "CloudUnreachable"),
        ];
        Ok(GetStatusResponse { conditions })
    }
}

#[async_trait]
impl Clusters for Honest {
    async fn list_clusters(
        &self,
        _ctx: &CallContext,
        request: ListClustersRequest,
    ) -> Result<ListClustersResponse> {
        self.ask(|state, _| {
            state.enter("clusters:read")?;
            let names = state.clusters.values().map(|cluster| cluster.name.clone());
            let (names, next_page_token) = paging::page(&request, names, String::clone)?;
            Ok(ListClustersResponse { names, next_page_token })
        })
        .await
    }

    async fn get_control_plane_endpoint(
        &self,
        _ctx: &CallContext,
        request: GetControlPlaneEndpointRequest,
    ) -> Result<GetControlPlaneEndpointResponse> {
        let name = &request.cluster_name;
        self.ask(|state, _| {
            state.enter("clusters:read")?;
            let cluster = state.clusters.get(name).ok_or_else(|| ProviderError::cluster_not_found(name))?;
            Ok(GetControlPlaneEndpointResponse { host: cluster.host.clone(), port: cluster.port.into() })
        })
        .await
    }
}

#[async_trait]
impl Volumes for Honest {
    async fn batch_get_volume_labels(
        &self,
        _ctx: &CallContext,
        request: BatchGetVolumeLabelsRequest,
    ) -> Result<BatchGetVolumeLabelsResponse> {
        self.ask(|state, _| {
            state.enter("volumes:read")?;
            let results = request.queries.into_iter().map(|query| state.find_volume(query)).collect();
            Ok(BatchGetVolumeLabelsResponse { results })
        })
        .await
    }
}
