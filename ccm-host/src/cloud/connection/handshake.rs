//! The handshake: who answers, what it speaks and what it can do, before any other call.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::AtomicUsize},
};

use cloudprovider_proto::{
    defaults,
    discovery::v1::{GetInfoRequest, GetInfoResponse},
    v1alpha1::{self as pb, Capability, ErrorReason},
};
use parking_lot::Mutex;
use tonic::{Code, client::Grpc};

use super::{
    connect::Connection,
    limits,
    limits::Intervals,
    negotiate::{NegotiationError, Served, host_services, negotiate},
    session::{SentSets, Session},
};
use crate::{
    cloud::{
        CloudError, ProviderInfo,
        call::{method::Rpc, rpc},
        check::{Findings, rule},
        metrics::ProviderMetrics,
        wanted,
    },
    kube::service::SOURCE_RANGES,
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
pub(crate) async fn handshake(
    connection: Connection,
    metrics: &ProviderMetrics,
    host_version: &str,
) -> Result<Session, HandshakeError> {
    let info = get_info(&connection, metrics, host_version).await?;
    let served = negotiate(&info.services)
        .map_err(|source| HandshakeError::NoCommonVersion { name: info.name.clone(), source })?;
    for unusable in &served.unusable {
        tracing::warn!(provider = metrics.provider(), "{unusable}");
    }
    count_violations(&info, &served, metrics);
    let capabilities = get_capabilities(&connection, metrics).await?;
    Ok(metrics.checked(|findings| session(connection, info, served, capabilities, findings)))
}

async fn get_info(
    connection: &Connection,
    metrics: &ProviderMetrics,
    host_version: &str,
) -> Result<GetInfoResponse, HandshakeError> {
    let message = GetInfoRequest {
        host_name: HOST_NAME.to_owned(),
        host_version: host_version.to_owned(),
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

async fn get_capabilities(
    connection: &Connection,
    metrics: &ProviderMetrics,
) -> Result<pb::GetCapabilitiesResponse, HandshakeError> {
    let message = pb::GetCapabilitiesRequest { host_max_message_bytes: defaults::HARD_MAX_MESSAGE_BYTES };
    call(connection, metrics, message).await.map_err(HandshakeError::Failed)
}

async fn call<Q: Rpc>(
    connection: &Connection,
    metrics: &ProviderMetrics,
    message: Q,
) -> Result<Q::Answer, CloudError> {
    let client = Grpc::new(connection.channel.clone());
    rpc::unary(metrics, client, Q::METHOD.deadline(&HashMap::new()), None, message).await
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

fn session(
    connection: Connection,
    hello: GetInfoResponse,
    served: Served,
    capabilities: pb::GetCapabilitiesResponse,
    findings: &mut Findings,
) -> Session {
    let limits = limits::sane(capabilities.limits.clone().unwrap_or_default(), findings);
    let intervals = Intervals::of(capabilities.intervals.as_ref(), findings);
    let wants = limits::wants(capabilities.wants.clone().unwrap_or_default(), findings);
    let info = info(hello, &served, &capabilities, &wants, &intervals);
    let most = |service, advertised| (service, AtomicUsize::new(limits::batch(advertised)));
    let sets = SentSets::new(has(&capabilities, Capability::BackendSetsByDigest));
    Session {
        channel: connection.channel,
        lost: connection.lost,
        info: Arc::new(info),
        served,
        intervals,
        wants: Arc::new(wants),
        deadlines: limits::deadlines(&limits.deadlines, findings),
        sets,
        message_bytes: limits::message_bytes(limits.max_message_bytes),
        most_items: HashMap::from([
            most("Instances", limits.max_batch_instances),
            most("LoadBalancers", limits.max_batch_load_balancers),
            most("Routes", limits.max_batch_routes),
            most("Volumes", limits.max_batch_volumes),
        ]),
        limits,
        capabilities,
        refused: Mutex::new(HashSet::new()),
    }
}

fn has(answer: &pb::GetCapabilitiesResponse, capability: Capability) -> bool {
    answer.capabilities.contains(&capability.into())
}

fn info(
    hello: GetInfoResponse,
    served: &Served,
    capabilities: &pb::GetCapabilitiesResponse,
    wants: &pb::Wants,
    intervals: &Intervals,
) -> ProviderInfo {
    let can = |capability| has(capabilities, capability);
    let nodes: Vec<&pb::NodeFields> =
        [&wants.identity, &wants.backend, &wants.route_target].into_iter().flatten().collect();
    let mut node_annotations = wanted::union(nodes.iter().map(|fields| fields.annotations.as_slice()));
    if nodes.iter().any(|fields| fields.provided_node_ips) {
        node_annotations.push(wanted::PROVIDED_NODE_IP.to_owned());
    }
    let reads_kubelets_words = wants
        .identity
        .as_ref()
        .is_some_and(|fields| fields.addresses || fields.provided_node_ips || !fields.annotations.is_empty());
    let service = wants.service.clone().unwrap_or_default();
    // Written annotations must be visible, or the host could never tell that a write is done.
    let written: Vec<String> =
        wants.service_annotation_writes.iter().map(|prefix| format!("{prefix}*")).collect();
    let mut service_annotations = wanted::union([service.annotations.as_slice(), &written]);
    let load_balancers = served.has("LoadBalancers");
    if load_balancers {
        service_annotations.push(SOURCE_RANGES.to_owned());
    }
    // Without an epoch a restart is undetectable: every connection counts as one.
    let epoch = match hello.process_epoch {
        none if none.is_empty() => uuid::Uuid::new_v4().to_string(),
        epoch => epoch,
    };
    ProviderInfo {
        name: hello.name,
        vendor_version: hello.vendor_version,
        epoch,
        provider_id_prefixes: hello.provider_id_prefixes,
        instances: served.has("Instances"),
        load_balancers,
        routes: served.has("Routes"),
        route_node_addresses: can(Capability::RouteNodeAddresses),
        watch_instances: can(Capability::InstancesWatch),
        names_are_keys: can(Capability::InstancesKeyedByName),
        pod_cidrs: can(Capability::InstancePodCidrs),
        ssh_keys: can(Capability::SshKeys),
        volumes: served.has("Volumes"),
        load_balancer_classes: capabilities.load_balancer_classes.clone(),
        default_load_balancer_class: !capabilities.no_default_load_balancer_class,
        adoption: can(Capability::Adoption),
        drift: can(Capability::LoadBalancerDrift),
        route_ownership: can(Capability::RouteOwnership),
        durable_digest: can(Capability::DurableDigest),
        node_labels: wanted::union(nodes.iter().map(|fields| fields.labels.as_slice())),
        node_annotations,
        reads_kubelets_words,
        service_labels: wanted::union([service.labels.as_slice()]),
        service_annotations,
        instance_sweep: intervals.instance_sweep,
    }
}
