//! How the provider is. Capabilities are data, given to the builder, since they never change while a process lives.

use async_trait::async_trait;

use crate::proto::GetStatusResponse;
use crate::{CallContext, Result};

/// Says how the provider is, in conditions.
///
/// Optional: without it, `GetStatus` answers no conditions, which a host reads as "not known".
#[async_trait]
pub trait CloudProvider: Send + Sync + 'static {
    /// The conditions of the provider, from memory: it is asked every minute and must not call the cloud.
    async fn get_status(&self, ctx: &CallContext) -> Result<GetStatusResponse>;
}
