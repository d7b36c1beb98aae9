//! Honest answers, but that it would also move its Services to another provider. Nodes whose names begin with a, d, u or y
//! have no instance.

use std::collections::BTreeMap;

use cloudprovider_proto::v1alpha1 as pb;
use parking_lot::Mutex;
use prost::Message as _;
use tonic_health::pb::{HealthCheckResponse, health_check_response::ServingStatus};

use crate::cloud::{
    PROVIDER_ANNOTATION,
    scripted::{all_removed, all_routed, all_running, all_updated, introduction},
};

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
