//! The handshake: who answers, what it speaks and what it can do, before any other call.
//!
//! [`super::negotiate`] finds the versions to speak.

use std::collections::HashMap;

use cloudprovider_proto::{
    defaults,
    discovery::v1::{GetInfoRequest, GetInfoResponse},
    v1alpha1::{self as pb, ErrorReason},
};
use tonic::{Code, client::Grpc};

use super::{
    connect::Connection,
    negotiate::{NegotiationError, Served, host_services, negotiate},
    session::Session,
};
use crate::findings::{rule, shown};
use crate::{
    CloudError,
    call::rpc,
    method::{self, Rpc},
    metrics::ProviderMetrics,
};

const HOST_NAME: &str = "ccm-host";

/// Why a process that answered cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// It does not serve GetInfo.
    #[error("not a provider: the server does not serve ccm.discovery.v1.Discovery")]
    NotAProvider,
    /// It refuses calls from this process.
    #[error("the provider does not trust this host: {0}")]
    NotTrusted(String),
    /// No version in common.
    #[error("provider {name:?} cannot be used: {source}")]
    NoCommonVersion { name: String, source: NegotiationError },
    #[error("handshake failed in {0}")]
    Failed(CloudError),
}

/// Learns everything about the process at the other end.
pub(super) async fn handshake(
    connection: Connection,
    metrics: &ProviderMetrics,
) -> Result<Session, HandshakeError> {
    let info = get_info(&connection, metrics).await?;
    let served = negotiate(&info.services)
        .map_err(|source| HandshakeError::NoCommonVersion { name: shown(&info.name, 253), source })?;
    for unusable in &served.unusable {
        tracing::warn!(provider = metrics.provider(), "{unusable}");
    }
    count_violations(&info, &served, metrics);
    let message = pb::GetCapabilitiesRequest { host_max_message_bytes: defaults::HARD_MAX_MESSAGE_BYTES };
    let capabilities = call(&connection, metrics, message).await.map_err(HandshakeError::Failed)?;
    Ok(metrics.checked(|findings| Session::new(connection, info, served, capabilities, findings)))
}

async fn get_info(
    connection: &Connection,
    metrics: &ProviderMetrics,
) -> Result<GetInfoResponse, HandshakeError> {
    let message = GetInfoRequest {
        host_name: HOST_NAME.to_owned(),
        host_version: env!("CARGO_PKG_VERSION").to_owned(),
        host_services: host_services(),
    };
    call(connection, metrics, message).await.map_err(|error| match (error.code, error.reason) {
        (_, Some(ErrorReason::MethodNotSupported)) | (Code::Unimplemented, _) => HandshakeError::NotAProvider,
        (_, Some(ErrorReason::PeerNotTrusted)) | (Code::Unauthenticated, _) => {
            HandshakeError::NotTrusted(error.message)
        }
        _ => HandshakeError::Failed(error),
    })
}

async fn call<Q: Rpc>(
    connection: &Connection,
    metrics: &ProviderMetrics,
    message: Q,
) -> Result<Q::Answer, CloudError> {
    let client = Grpc::new(connection.channel.clone());
    let deadline = method::deadline(Q::METHOD, &HashMap::new());
    let bytes = defaults::MAX_MESSAGE_BYTES as usize;
    rpc::unary(metrics, client, bytes, &connection.lost, deadline, None, Q::METHOD, message).await
}

fn count_violations(info: &GetInfoResponse, served: &Served, metrics: &ProviderMetrics) {
    if info.name.is_empty() {
        metrics.violation(rule::DISCOVERY_NAME);
    }
    if info.process_epoch.is_empty() {
        metrics.violation(rule::DISCOVERY_EPOCH);
    }
    if served.has("Instances") && info.provider_id_prefixes.iter().all(String::is_empty) {
        metrics.violation(rule::DISCOVERY_PREFIX);
    }
}
