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
    negotiate::{Served, host_services, negotiate},
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

/// Learns everything about the process at the other end, or why it cannot be used.
pub(super) async fn handshake(connection: Connection, metrics: &ProviderMetrics) -> Result<Session, String> {
    let info = get_info(&connection, metrics).await?;
    let served = negotiate(&info.services)
        .map_err(|why| format!("provider {:?} cannot be used: {why}", shown(&info.name, 253)))?;
    for (_, why) in &served.unusable {
        tracing::warn!(provider = metrics.provider(), "{why}");
    }
    count_violations(&info, &served, metrics);
    let message = pb::GetCapabilitiesRequest { host_max_message_bytes: defaults::HARD_MAX_MESSAGE_BYTES };
    let capabilities = call(&connection, metrics, message).await.map_err(failed)?;
    Ok(metrics.checked(|findings| Session::new(connection, info, served, capabilities, findings)))
}

async fn get_info(connection: &Connection, metrics: &ProviderMetrics) -> Result<GetInfoResponse, String> {
    let message = GetInfoRequest {
        host_name: HOST_NAME.to_owned(),
        host_version: env!("CARGO_PKG_VERSION").to_owned(),
        host_services: host_services(),
    };
    call(connection, metrics, message).await.map_err(|error| match (error.code, error.reason) {
        (_, Some(ErrorReason::MethodNotSupported)) | (Code::Unimplemented, _) => {
            "not a provider: the server does not serve ccm.discovery.v1.Discovery".to_owned()
        }
        (_, Some(ErrorReason::PeerNotTrusted)) | (Code::Unauthenticated, _) => {
            format!("the provider does not trust this host: {}", error.message)
        }
        _ => failed(error),
    })
}

fn failed(error: CloudError) -> String {
    format!("handshake failed in {error}")
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
