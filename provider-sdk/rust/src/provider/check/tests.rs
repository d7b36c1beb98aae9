//! Every inconsistency is refused before the provider is served.

use async_trait::async_trait;

use crate::proto::{
    BatchGetInstancesRequest, BatchGetInstancesResponse, Capability, GetCapabilitiesResponse, Intervals,
    Limits,
};
use crate::{BuildError, CallContext, Instances, Provider, Result};

struct Nothing;

#[async_trait]
impl Instances for Nothing {
    async fn batch_get_instances(
        &self,
        _ctx: &CallContext,
        _request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse> {
        Ok(BatchGetInstancesResponse::default())
    }
}

fn advertising(capabilities: &[Capability]) -> GetCapabilitiesResponse {
    let capabilities = capabilities.iter().map(|one| i32::from(*one)).collect();
    GetCapabilitiesResponse { capabilities, ..Default::default() }
}

fn limited(max_message_bytes: u32) -> GetCapabilitiesResponse {
    let limits = Limits { max_message_bytes, ..Default::default() };
    GetCapabilitiesResponse { limits: Some(limits), ..Default::default() }
}

#[test]
fn names_are_dns_subdomains() {
    let long = "a".repeat(64);
    for bad in ["", "Mock", "a_b", "-a", "a-", "a..b", ".a", long.as_str()] {
        assert_eq!(Provider::builder(bad).build().unwrap_err(), BuildError::Name { name: bad.into() });
    }
    for good in ["mock", "aws", "cloud.example-1", &long[..63]] {
        assert_eq!(Provider::builder(good).build().unwrap().name(), good);
    }
}

#[test]
fn a_capability_needs_its_service() {
    for capability in [
        Capability::InstancesWatch,
        Capability::InstancesList,
        Capability::SshKeys,
        Capability::InstancePodCidrs,
        Capability::Adoption,
        Capability::RouteNodeAddresses,
        Capability::LoadBalancerDrift,
    ] {
        let error = Provider::builder("a").capabilities(advertising(&[capability])).build().unwrap_err();
        assert!(error.to_string().contains(capability.as_str_name()), "{error}");
        assert!(matches!(error, BuildError::CapabilityWithoutService { .. }));
    }
    let served = Provider::builder("a").provider_id_prefix("a://").instances(Nothing);
    served.capabilities(advertising(&[Capability::InstancesWatch])).build().unwrap();
}

#[test]
fn unknown_and_doubled_capabilities_are_refused() {
    for (numbers, number) in [(vec![999], 999), (vec![0], 0), (vec![1, 1], 1)] {
        let advertised = GetCapabilitiesResponse { capabilities: numbers, ..Default::default() };
        let served = Provider::builder("a").provider_id_prefix("a://").instances(Nothing);
        let error = served.capabilities(advertised).build().unwrap_err();
        assert_eq!(error, BuildError::Capability { number });
    }
}

#[test]
fn instances_need_a_prefix() {
    assert_eq!(Provider::builder("a").instances(Nothing).build().unwrap_err(), BuildError::NoPrefix);
}

#[test]
fn limits_and_intervals_stay_in_the_contract() {
    for (bytes, fine) in
        [(0, true), (4 << 20, true), (64 << 20, true), (1 << 20, false), ((64 << 20) + 1, false)]
    {
        assert_eq!(Provider::builder("a").capabilities(limited(bytes)).build().is_ok(), fine, "{bytes}");
    }
    let zero = Some(prost_types::Duration::default());
    let intervals = Intervals { bookmark_interval: zero, ..Default::default() };
    let advertised = GetCapabilitiesResponse { intervals: Some(intervals), ..Default::default() };
    let error = Provider::builder("a").capabilities(advertised).build().unwrap_err();
    assert!(error.to_string().starts_with("intervals.bookmark_interval is 0 s"), "{error}");
}

#[test]
fn classes_need_load_balancers() {
    let classes = vec!["example.io/lb".to_owned()];
    let advertised = GetCapabilitiesResponse { load_balancer_classes: classes, ..Default::default() };
    let error = Provider::builder("a").capabilities(advertised).build().unwrap_err();
    assert!(matches!(error, BuildError::FieldWithoutService { .. }), "{error}");
}

#[test]
fn every_provider_has_another_epoch() {
    let epoch = || Provider::builder("a").build().unwrap().process_epoch().to_owned();
    assert_ne!(epoch(), epoch());
}
