//! Topology labels of volumes that no CSI driver manages.

use async_trait::async_trait;

use crate::proto::{BatchGetVolumeLabelsRequest, BatchGetVolumeLabelsResponse};
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
