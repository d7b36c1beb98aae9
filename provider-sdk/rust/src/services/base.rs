//! The provider's status, capabilities and leaders. Capabilities are given to the builder, since they never change while the
//! process runs.

use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider_proto::v1alpha1::cloud_provider_server::CloudProvider as Rpc;
use tonic::{Request, Response, Status};

use crate::proto::{
    GetCapabilitiesRequest, GetCapabilitiesResponse, GetStatusRequest, GetStatusResponse, LeadRequest,
    LeadResponse,
};
use crate::rpc::Core;
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

/// Serves `CloudProvider`.
pub(crate) struct Base {
    core: Arc<Core>,
    status: Option<Arc<dyn CloudProvider>>,
}

impl Base {
    pub(crate) fn new(core: Arc<Core>, status: Option<Arc<dyn CloudProvider>>) -> Self {
        Self { core, status }
    }
}

#[async_trait]
impl Rpc for Base {
    async fn get_capabilities(
        &self,
        _request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        Ok(Response::new(self.core.advertised.answer.clone()))
    }

    async fn get_status(
        &self,
        request: Request<GetStatusRequest>,
    ) -> Result<Response<GetStatusResponse>, Status> {
        let Some(status) = &self.status else { return Ok(Response::new(GetStatusResponse::default())) };
        let run = |ctx, _request| async move { status.get_status(&ctx).await };
        self.core.read(request, run).await
    }

    async fn lead(&self, request: Request<LeadRequest>) -> Result<Response<LeadResponse>, Status> {
        let run = |_ctx, request| async move { self.core.hear(request) };
        self.core.read(request, run).await
    }
}
