//! `Volumes`, answered from the cloud.

use cloudprovider_sdk::{
    CallContext, ProviderError, Result, Volumes, async_trait,
    proto::{
        BatchGetVolumeLabelsRequest, BatchGetVolumeLabelsResponse, VolumeQuery, VolumeResult, VolumeState,
    },
};

use super::{Mock, provider_error};
use crate::cloud::{FoundVolume, State};

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
