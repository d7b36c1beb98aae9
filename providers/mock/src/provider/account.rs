//! What an account has beside machines and their network: how it is, hosted clusters, volumes.

use cloudprovider_sdk::{
    CallContext, CloudProvider, Clusters, ProviderError, Result, Volumes, async_trait, proto::*,
};

use super::Honest;
use crate::cloud::{Credentials, timestamp};

#[async_trait]
impl CloudProvider for Honest {
    async fn get_status(&self, _ctx: &CallContext) -> Result<GetStatusResponse> {
        let now = self.mock.now();
        let is = self.mock.cloud.read(now, |state| state.conditions.clone());
        let credentials = match is.credentials {
            Credentials::Valid => "",
            Credentials::Invalid => "CredentialsRefused",
            Credentials::Expired => "CredentialsExpired",
        };
        let unless = |holds: bool, reason: &'static str| if holds { "" } else { reason };
        let throttled = unless(!is.rate_limited, "Throttled");
        let conditions = [
            (ConditionType::ConfigValid, is.config_valid, unless(is.config_valid, "ConfigInvalid")),
            (ConditionType::CredentialsValid, credentials.is_empty(), credentials),
            (
                ConditionType::CloudReachable,
                is.cloud_reachable,
                unless(is.cloud_reachable, "CloudUnreachable"),
            ),
            (ConditionType::WatchHealthy, is.watch_healthy, unless(is.watch_healthy, "WatchBroken")),
            (ConditionType::RateLimited, is.rate_limited, throttled),
        ];
        let condition = |(kind, holds, reason): (ConditionType, bool, &str)| ProviderCondition {
            r#type: kind.into(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False }.into(),
            reason: reason.to_owned(),
            ..ProviderCondition::default()
        };
        Ok(GetStatusResponse {
            conditions: conditions.map(condition).into(),
            config_digest: String::new(),
            credentials_generation: is.credentials_generation,
            last_cloud_contact: is.cloud_reachable.then(|| timestamp(now)),
        })
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
            let names = state.clusters().map(|cluster| cluster.name.clone());
            let (names, next_page_token) = self.pager.page(&request, names, String::clone)?;
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
            let cluster = state.cluster(name).ok_or_else(|| ProviderError::cluster_not_found(name))?;
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
