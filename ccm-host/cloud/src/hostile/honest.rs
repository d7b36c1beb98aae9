//! Honest answers, but that it would also move its Services to another provider. Nodes whose names begin with a, d, u or y
//! have no instance.

use std::collections::BTreeMap;

use cloudprovider_proto::{discovery::v1::GetInfoResponse, service_names, v1alpha1 as pb};
use parking_lot::Mutex;
use prost::Message as _;
use tonic_health::pb::{HealthCheckResponse, health_check_response::ServingStatus};

use crate::PROVIDER_ANNOTATION;

#[derive(Default)]
pub(super) struct Honest {
    /// The balancers it created, by Service uid.
    balancers: Mutex<BTreeMap<String, pb::LoadBalancer>>,
}

fn balancer(service: pb::ServiceRef, digest: String) -> pb::LoadBalancer {
    pb::LoadBalancer {
        service: Some(service),
        state: pb::LoadBalancerState::Active.into(),
        ownership: pb::Ownership::ByUid.into(),
        applied_digest: digest,
        ingress: vec![pb::LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }],
        ..Default::default()
    }
}

impl Honest {
    pub(super) fn answer(&self, rpc: &str, asked: &[u8]) -> Vec<u8> {
        match rpc {
            "GetInfo" => introduction("e1").encode_to_vec(),
            "GetCapabilities" => pb::GetCapabilitiesResponse {
                capabilities: vec![
                    pb::Capability::InstancesWatch.into(),
                    pb::Capability::InstancePodCidrs.into(),
                ],
                wants: Some(pb::Wants {
                    service_annotation_writes: vec!["test.example/".into(), "cloudprovider.ccm/".into()],
                    ..Default::default()
                }),
                ..Default::default()
            }
            .encode_to_vec(),
            "BatchGetInstances" => {
                let mut all = all_running(pb::BatchGetInstancesRequest::decode(asked).unwrap_or_default());
                for gone in all.results.iter_mut().filter(|one| one.key.starts_with(['a', 'd', 'u', 'y'])) {
                    gone.state = pb::InstanceState::Absent.into();
                    gone.instance = None;
                }
                all.encode_to_vec()
            }
            "BatchUpdateLoadBalancers" => {
                let asked = pb::BatchUpdateLoadBalancersRequest::decode(asked).unwrap_or_default();
                let mut known = self.balancers.lock();
                for item in &asked.items {
                    let about = item.service.as_ref().and_then(|service| service.r#ref.as_ref());
                    if let Some(one) = about.and_then(|about| known.get_mut(&about.uid)) {
                        one.applied_digest.clone_from(&item.desired_digest);
                    }
                }
                all_updated(&asked).encode_to_vec()
            }
            "BatchEnsureRoutes" => {
                all_routed(pb::BatchEnsureRoutesRequest::decode(asked).unwrap_or_default()).encode_to_vec()
            }
            "BatchDeleteRoutes" => {
                all_removed(pb::BatchDeleteRoutesRequest::decode(asked).unwrap_or_default()).encode_to_vec()
            }
            "EnsureLoadBalancer" => {
                let asked = pb::EnsureLoadBalancerRequest::decode(asked).unwrap_or_default();
                let about = asked.service.and_then(|service| service.r#ref).unwrap_or_default();
                let made = balancer(about.clone(), asked.desired_digest);
                self.balancers.lock().insert(about.uid, made.clone());
                let moves = (PROVIDER_ANNOTATION.to_owned(), "fake".to_owned());
                let annotations = [("test.example/id".to_owned(), "1".to_owned()), moves].into();
                let service = Some(pb::ServiceWrites { annotations, ..Default::default() });
                let load_balancer = Some(made);
                pb::EnsureLoadBalancerResponse { load_balancer, service, ..Default::default() }
                    .encode_to_vec()
            }
            "DeleteLoadBalancer" => {
                let asked = pb::DeleteLoadBalancerRequest::decode(asked).unwrap_or_default();
                self.balancers.lock().remove(&asked.service.unwrap_or_default().uid);
                Vec::new()
            }
            "GetLoadBalancer" => {
                let asked = pb::GetLoadBalancerRequest::decode(asked).unwrap_or_default();
                let load_balancer = Some(balancer(asked.service.unwrap_or_default(), "d".into()));
                pb::GetLoadBalancerResponse { load_balancer }.encode_to_vec()
            }
            "ListLoadBalancers" => {
                let load_balancers = self.balancers.lock().values().cloned().collect();
                pb::ListLoadBalancersResponse { load_balancers, ..Default::default() }.encode_to_vec()
            }
            "ListRoutes" => {
                let route = |destination_cidr: &str, name: &str| pb::Route {
                    id: format!("rt-{destination_cidr}"),
                    destination_cidr: destination_cidr.to_owned(),
                    target: Some(pb::NodeRef { name: name.to_owned(), ..Default::default() }),
                    state: pb::RouteState::Active.into(),
                    ..Default::default()
                };
                let routes = vec![route("10.0.0.0/24", "r0"), route("10.0.99.0/24", "gone")];
                pb::ListRoutesResponse { routes, ..Default::default() }.encode_to_vec()
            }
            "Check" | "Watch" => {
                let status = ServingStatus::Serving.into();
                HealthCheckResponse { status }.encode_to_vec()
            }
            _ => Vec::new(),
        }
    }
}

/// A provider `test` with instances, balancers and routes.
pub(crate) fn introduction(epoch: &str) -> GetInfoResponse {
    GetInfoResponse {
        name: "test".into(),
        provider_id_prefixes: vec!["test://".into()],
        services: [
            service_names::CLOUD_PROVIDER,
            service_names::INSTANCES,
            service_names::LOAD_BALANCERS,
            service_names::ROUTES,
        ]
        .map(str::to_owned)
        .to_vec(),
        process_epoch: epoch.into(),
        ..Default::default()
    }
}

pub(crate) fn running(key: &str, provider_id: &str) -> pb::InstanceResult {
    pb::InstanceResult {
        key: key.into(),
        state: pb::InstanceState::Running.into(),
        authoritative: true,
        observed_at: Some(std::time::SystemTime::now().into()),
        instance: Some(pb::Instance { provider_id: provider_id.into(), ..Default::default() }),
        ..Default::default()
    }
}

pub(crate) fn all_running(request: pb::BatchGetInstancesRequest) -> pb::BatchGetInstancesResponse {
    let results = request
        .queries
        .into_iter()
        .map(|query| running(&query.key, &format!("test://{}", query.key)))
        .collect();
    pb::BatchGetInstancesResponse { results }
}

pub(crate) fn all_updated(
    request: &pb::BatchUpdateLoadBalancersRequest,
) -> pb::BatchUpdateLoadBalancersResponse {
    let uid =
        |item: &pb::LoadBalancerUpdate| item.service.as_ref().and_then(|s| s.r#ref.clone()).unwrap().uid;
    let results = request.items.iter().map(|item| pb::LoadBalancerUpdateResult {
        service_uid: uid(item),
        outcome: pb::UpdateOutcome::Updated.into(),
        ..Default::default()
    });
    pb::BatchUpdateLoadBalancersResponse { results: results.collect() }
}

/// Every route exists as requested and is named after its destination.
pub(crate) fn all_routed(request: pb::BatchEnsureRoutesRequest) -> pb::BatchEnsureRoutesResponse {
    let stands = |item: pb::RouteToEnsure| pb::RouteResult {
        key: item.key,
        route: Some(pb::Route {
            id: format!("rt-{}", item.destination_cidr),
            destination_cidr: item.destination_cidr,
            target: item.target,
            state: pb::RouteState::Active.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    pb::BatchEnsureRoutesResponse { results: request.items.into_iter().map(stands).collect() }
}

pub(crate) fn all_removed(request: pb::BatchDeleteRoutesRequest) -> pb::BatchDeleteRoutesResponse {
    let gone = |item: pb::RouteToDelete| pb::RouteDeletion { key: item.key, ..Default::default() };
    pb::BatchDeleteRoutesResponse { results: request.items.into_iter().map(gone).collect() }
}
