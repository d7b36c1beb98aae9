//! The handshake: who answers, what it speaks and what it can do, before any other call.
//!
//! In: an endpoint, and the names of the provider's services. Out: what the provider is, and the highest version of each
//! service that both sides name (D5), or a sentence that says which side to upgrade. Parsed names are compared, never
//! version strings.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use cloudprovider_proto::{
    defaults,
    discovery::v1::{GetInfoRequest, GetInfoResponse},
    v1alpha1::{self as pb, ErrorReason},
};
use tonic::{Code, client::Grpc};

use super::{connect::Connection, session::Session};
use crate::{
    CloudError,
    call::rpc,
    findings::rule,
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
        .map_err(|source| HandshakeError::NoCommonVersion { name: info.name.clone(), source })?;
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

const PACKAGE: &str = "ccm.cloudprovider.";
/// The versions that this host speaks, oldest first.
const SPOKEN: [&str; 1] = ["v1alpha1"];
/// The services that this host calls.
const SERVICES: [&str; 6] = ["CloudProvider", "Instances", "LoadBalancers", "Routes", "Volumes", "Clusters"];

/// The versions in common with a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// The name of each service, and the version to speak.
    pub(crate) versions: Vec<(&'static str, &'static str)>,
    /// Services that the provider has, but in no version that this host speaks.
    pub(crate) unusable: Vec<NoCommonVersion>,
}

impl Served {
    /// Whether the service can be called.
    pub(crate) fn has(&self, service: &str) -> bool {
        self.versions.iter().any(|(name, _)| *name == service)
    }
}

/// Why there is no version in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NegotiationError {
    /// It answers GetInfo but serves nothing of this contract.
    #[error("it serves no service of {PACKAGE}*: it names {0:?}")]
    NothingServed(Vec<String>),
    /// It serves other services, but not CloudProvider, which all calls depend on.
    #[error("it serves {0:?}, but not CloudProvider, which every provider must serve")]
    NoCloudProvider(Vec<String>),
    /// Both sides know the service, in different versions.
    #[error(transparent)]
    NoCommonVersion(NoCommonVersion),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it speaks {} of {service} ({}; this host speaks {}): upgrade the {}",
    if *.newer { "only newer versions" } else { "no common version" },
    .theirs.join(", "),
    SPOKEN.join(", "),
    if *.newer { "host" } else { "provider" }
)]
pub(crate) struct NoCommonVersion {
    pub(crate) service: &'static str,
    theirs: Vec<String>,
    newer: bool,
}

/// The service names that the host announces.
pub(crate) fn host_services() -> Vec<String> {
    SPOKEN
        .iter()
        .flat_map(|version| SERVICES.iter().map(move |service| format!("{PACKAGE}{version}.{service}")))
        .collect()
}

/// The services and versions that both sides speak.
pub(crate) fn negotiate(names: &[String]) -> Result<Served, NegotiationError> {
    negotiate_with(names, &SPOKEN)
}

fn negotiate_with(names: &[String], spoken: &[&'static str]) -> Result<Served, NegotiationError> {
    let theirs: Vec<(&str, &str)> = names.iter().filter_map(|name| split(name)).collect();
    if theirs.is_empty() {
        return Err(NegotiationError::NothingServed(names.to_vec()));
    }
    let mut served = Served::default();
    for service in SERVICES {
        let versions: Vec<&str> =
            theirs.iter().filter(|(_, name)| *name == service).map(|(version, _)| *version).collect();
        if versions.is_empty() {
            continue;
        }
        match spoken.iter().rev().find(|ours| versions.contains(ours)) {
            Some(version) => served.versions.push((service, version)),
            None => served.unusable.push(no_common(service, &versions, spoken)),
        }
    }
    if served.has("CloudProvider") {
        return Ok(served);
    }
    Err(match served.unusable.into_iter().find(|unusable| unusable.service == "CloudProvider") {
        Some(unusable) => NegotiationError::NoCommonVersion(unusable),
        None => NegotiationError::NoCloudProvider(names.to_vec()),
    })
}

fn no_common(service: &'static str, theirs: &[&str], spoken: &[&'static str]) -> NoCommonVersion {
    let highest = spoken.last().and_then(|version| rank(version));
    let newer = theirs.iter().all(|version| rank(version) > highest);
    NoCommonVersion { service, theirs: theirs.iter().map(|&version| version.to_owned()).collect(), newer }
}

fn split(name: &str) -> Option<(&str, &str)> {
    let (version, service) = name.strip_prefix(PACKAGE)?.split_once('.')?;
    rank(version).map(|_| (version, service))
}

/// Kubernetes' order of versions: v1alpha1 < v1alpha2 < v1beta1 < v1 < v2alpha1.
fn rank(version: &str) -> Option<(u32, u8, u32)> {
    let rest = version.strip_prefix('v')?;
    for (word, stage) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((major.parse().ok()?, stage, minor.parse().ok()?));
        }
    }
    Some((rest.parse().ok()?, 2, 0))
}
