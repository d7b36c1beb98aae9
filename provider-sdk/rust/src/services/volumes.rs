//! Topology labels of volumes that no CSI driver manages.

use async_trait::async_trait;
use cloudprovider_proto::v1alpha1::volumes_server::Volumes as Rpc;
use tonic::{Request, Response, Status};

use crate::checks::{Asked, settle};
use crate::proto::{BatchGetVolumeLabelsRequest, BatchGetVolumeLabelsResponse};
use crate::rpc::Served;
use crate::{CallContext, Result};

/// Topology labels of volumes that no CSI driver manages.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// Reads the labels of many volumes.
    ///
    /// In: 1 to `Limits.max_batch_volumes` queries with unique keys. Out: one result for each key, in any order.
    async fn batch_get_volume_labels(
        &self,
        ctx: &CallContext,
        request: BatchGetVolumeLabelsRequest,
    ) -> Result<BatchGetVolumeLabelsResponse>;
}

#[async_trait]
impl Rpc for Served<dyn Volumes> {
    async fn batch_get_volume_labels(
        &self,
        request: Request<BatchGetVolumeLabelsRequest>,
    ) -> Result<Response<BatchGetVolumeLabelsResponse>, Status> {
        let run = |ctx, request: BatchGetVolumeLabelsRequest| async move {
            let queries = request.queries.iter();
            let asked: Asked = queries.map(|query| (query.key.clone(), query.name.clone())).collect();
            let mut answer = self.ours.batch_get_volume_labels(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.read(request, run).await
    }
}
