//! The provider's identity and services. Always answered from memory.

use cloudprovider_proto::discovery::v1::discovery_server::Discovery;
use cloudprovider_proto::discovery::v1::{GetInfoRequest, GetInfoResponse};
use tonic::{Request, Response, Status};

use crate::provider::Identity;

/// Serves `Discovery`.
#[derive(Debug)]
pub(crate) struct DiscoveryRpc(GetInfoResponse);

impl DiscoveryRpc {
    /// `services` are the fully qualified names of all served services.
    pub(crate) fn new(identity: &Identity, services: Vec<String>) -> Self {
        Self(GetInfoResponse {
            name: identity.name.clone(),
            vendor_version: identity.vendor_version.clone(),
            sdk_name: "cloudprovider-sdk (rust)".into(),
            sdk_version: env!("CARGO_PKG_VERSION").into(),
            provider_id_prefixes: identity.prefixes.clone(),
            services,
            process_epoch: identity.epoch.clone(),
        })
    }
}

#[tonic::async_trait]
impl Discovery for DiscoveryRpc {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let host = request.into_inner();
        tracing::debug!(name = host.host_name, version = host.host_version, "a host connected");
        Ok(Response::new(self.0.clone()))
    }
}
