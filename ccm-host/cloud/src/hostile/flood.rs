//! Items that nobody asked about, different ones each time.

use std::sync::atomic::{AtomicU64, Ordering};

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message;

/// Number of such items in one list or stream.
const LISTED: u64 = 400;
/// Number of such items in the answer to a batch.
const ANSWERED: u64 = 20;

/// An honest answer plus more items.
pub(super) fn flooded(rpc: &str, honest: &[u8], unknown: &AtomicU64) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    // Concatenated messages merge into one.
    let more = match rpc {
        "ListLoadBalancers" => {
            let load_balancers = numbers(LISTED, unknown).map(balancer).collect();
            pb::ListLoadBalancersResponse { load_balancers, ..Default::default() }.encode_to_vec()
        }
        "ListRoutes" => {
            let routes = numbers(LISTED, unknown).map(route).collect();
            let error =
                pb::ItemError { reason: pb::ErrorReason::LocationUnreachable.into(), ..Default::default() };
            let away = pb::UnreachableLocation { location: "zone-1".into(), error: Some(error) };
            pb::ListRoutesResponse { routes, unreachable: vec![away], ..Default::default() }.encode_to_vec()
        }
        "BatchGetInstances" => {
            let result = |number| pb::InstanceResult { key: format!("u{number}"), ..Default::default() };
            let results = numbers(ANSWERED, unknown).map(result).collect();
            pb::BatchGetInstancesResponse { results }.encode_to_vec()
        }
        "BatchUpdateLoadBalancers" => {
            let result = |number| pb::LoadBalancerUpdateResult {
                service_uid: format!("u{number}"),
                ..Default::default()
            };
            let results = numbers(ANSWERED, unknown).map(result).collect();
            pb::BatchUpdateLoadBalancersResponse { results }.encode_to_vec()
        }
        "BatchEnsureRoutes" => {
            let result = |number| pb::RouteResult { key: format!("u{number}"), ..Default::default() };
            let results = numbers(ANSWERED, unknown).map(result).collect();
            pb::BatchEnsureRoutesResponse { results }.encode_to_vec()
        }
        _ => Vec::new(),
    };
    bytes.extend(more);
    bytes
}

/// Frames of a watch.
pub(super) fn changes(unknown: &AtomicU64) -> impl Iterator<Item = Vec<u8>> {
    numbers(LISTED, unknown).map(|number| {
        let changed = pb::InstanceChanged { provider_id: format!("test://u{number}"), ..Default::default() };
        let frame = Some(pb::watch_instances_response::Frame::Changed(changed));
        pb::WatchInstancesResponse { frame }.encode_to_vec()
    })
}

fn numbers(count: u64, unknown: &AtomicU64) -> std::ops::Range<u64> {
    let first = unknown.fetch_add(count, Ordering::Relaxed);
    first..first + count
}

fn balancer(number: u64) -> pb::LoadBalancer {
    let uid = format!("u{number}");
    let service = pb::ServiceRef { namespace: "default".into(), name: uid.clone(), uid };
    pb::LoadBalancer {
        service: Some(service),
        state: pb::LoadBalancerState::Active.into(),
        ownership: pb::Ownership::ByUid.into(),
        ..Default::default()
    }
}

/// Alternates between destinations outside of the cluster's networks and ones that nodes want; each under a new id.
fn route(number: u64) -> pb::Route {
    let destination_cidr = match number % 2 {
        0 => format!("192.168.{}.0/24", number % 256),
        _ => "10.0.0.0/24".to_owned(),
    };
    let target = pb::NodeRef { name: "r0".into(), provider_id: "test://r0".into(), ..Default::default() };
    pb::Route {
        id: format!("u{number}"),
        destination_cidr,
        target: Some(target),
        state: pb::RouteState::Active.into(),
        ..Default::default()
    }
}
