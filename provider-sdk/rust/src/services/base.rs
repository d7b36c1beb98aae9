//! The provider's status. Capabilities are given to the builder, since they never change while the process
//! runs.

use async_trait::async_trait;

use crate::proto::GetStatusResponse;
use crate::{CallContext, Result};

/// Reports the provider's status in conditions.
///
/// Optional: without it, `GetStatus` returns no conditions, which the host reads as "not known".
#[async_trait]
pub trait CloudProvider: Send + Sync + 'static {
    /// The provider's conditions, from memory: the host asks every minute, and the method must not call the
    /// cloud.
    async fn get_status(&self, ctx: &CallContext) -> Result<GetStatusResponse>;
}
