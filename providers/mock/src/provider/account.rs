//! What an account has beside machines and their network: how it is, hosted clusters, volumes.

use cloudprovider_sdk::{
    CallContext, CloudProvider, Clusters, ProviderError, Result, Volumes, async_trait,
    proto::{
        BatchGetVolumeLabelsRequest, BatchGetVolumeLabelsResponse, ConditionStatus, ConditionType,
        GetControlPlaneEndpointRequest, GetControlPlaneEndpointResponse, GetStatusResponse,
        ListClustersRequest, ListClustersResponse, ProviderCondition, VolumeQuery, VolumeResult, VolumeState,
    },
};

use super::{Mock, provider_error, to_wire};
use crate::cloud::{CloudError, Credentials, FoundVolume, State};

#[async_trait]
impl CloudProvider for Mock {
    async fn get_status(&self, _ctx: &CallContext) -> Result<GetStatusResponse> {
        let now = self.now();
        self.cloud.read(now, |state| {
            let is = state.conditions();
            let credentials = match is.credentials {
                Credentials::Valid => (true, ""),
                Credentials::Invalid => (false, "CredentialsRefused"),
                Credentials::Expired => (false, "CredentialsExpired"),
            };
            let told = |holds: bool, reason: &'static str| (holds, if holds { "" } else { reason });
            let conditions = [
                (ConditionType::ConfigValid, told(is.config_valid, "ConfigInvalid")),
                (ConditionType::CredentialsValid, credentials),
                (ConditionType::CloudReachable, told(is.cloud_reachable, "CloudUnreachable")),
                (ConditionType::WatchHealthy, told(is.watch_healthy, "WatchBroken")),
                (
                    ConditionType::RateLimited,
                    (is.rate_limited, if is.rate_limited { "Throttled" } else { "" }),
                ),
            ];
            let last_contact = is.cloud_reachable.then(|| to_wire::timestamp(now));
            Ok(GetStatusResponse {
                conditions: conditions
                    .into_iter()
                    .map(|(kind, (holds, reason))| condition(kind, holds, reason))
                    .collect(),
                config_digest: String::new(),
                credentials_generation: is.credentials_generation,
                last_cloud_contact: last_contact,
            })
        })
    }
}

fn condition(kind: ConditionType, holds: bool, reason: &str) -> ProviderCondition {
    let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
    ProviderCondition {
        r#type: kind.into(),
        status: status.into(),
        reason: reason.to_owned(),
        message: String::new(),
        since: None,
    }
}

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

#[async_trait]
impl Volumes for Mock {
    async fn batch_get_volume_labels(
        &self,
        _ctx: &CallContext,
        request: BatchGetVolumeLabelsRequest,
    ) -> Result<BatchGetVolumeLabelsResponse> {
        self.cloud.read(self.at_cloud().await, |state| {
            state.enter("volumes:read").map_err(provider_error)?;
            let results = request.queries.into_iter().map(|query| answer(state, query)).collect();
            Ok(BatchGetVolumeLabelsResponse { results })
        })
    }
}

fn answer(state: &State, query: VolumeQuery) -> VolumeResult {
    let (known, labels, error) = match state.find_volume(&query.plugin, &query.volume_id) {
        FoundVolume::Present(volume) => (VolumeState::Present, volume.topology().into_iter().collect(), None),
        FoundVolume::Absent => {
            (VolumeState::Absent, Default::default(), Some(ProviderError::volume_not_found(&query.volume_id)))
        }
        FoundVolume::NotOwned => (VolumeState::NotOwned, Default::default(), None),
        FoundVolume::UnknownKind => {
            let error = ProviderError::unsupported_feature("plugin", "this kind of volume is not known here");
            (VolumeState::NotOwned, Default::default(), Some(error))
        }
    };
    VolumeResult { key: query.key, state: known.into(), labels, error: error.map(|error| error.to_item()) }
}
