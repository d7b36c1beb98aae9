//! `Volumes` on the wire.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1::volumes_server::Volumes as Rpc;
use tonic::{Request, Response, Status};

use super::core::Core;
use crate::checks::settle;
use crate::proto::{BatchGetVolumeLabelsRequest, BatchGetVolumeLabelsResponse};
use crate::services::Volumes;

/// Serves `Volumes`.
pub(crate) struct VolumesRpc {
    core: Arc<Core>,
    ours: Arc<dyn Volumes>,
}

impl VolumesRpc {
    pub(crate) fn new(core: Arc<Core>, ours: Arc<dyn Volumes>) -> Self {
        Self { core, ours }
    }
}

#[tonic::async_trait]
impl Rpc for VolumesRpc {
    async fn batch_get_volume_labels(
        &self,
        request: Request<BatchGetVolumeLabelsRequest>,
    ) -> Result<Response<BatchGetVolumeLabelsResponse>, Status> {
        let run = |ctx, request: BatchGetVolumeLabelsRequest| async move {
            let asked: Vec<String> = request.queries.iter().map(|query| query.key.clone()).collect();
            let mut answer = self.ours.batch_get_volume_labels(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.read(request, run).await
    }
}
