//! The shape of each request and overtaken revisions, from the rows of `proto/vectors` that all SDKs share.

use cloudprovider_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;

use super::*;
use crate::ProviderError;
use crate::proto::*;

fn rows(json: &str) -> Vec<Value> {
    let rows: Vec<Value> = serde_json::from_str(json).unwrap();
    assert!(!rows.is_empty());
    rows
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

/// A number, or the text of one that JSON cannot hold.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

fn advertised() -> Advertised {
    let limits = Limits {
        max_batch_instances: 3,
        max_batch_load_balancers: 3,
        max_batch_routes: 3,
        max_batch_volumes: 3,
        max_page_size: 50,
        ..Default::default()
    };
    Advertised::new(GetCapabilitiesResponse { limits: Some(limits), ..Default::default() })
}

fn cluster() -> Option<ClusterRef> {
    Some(ClusterRef { uid: "c-1".into(), name: String::new() })
}

/// `$1025` as a text of 1025 bytes.
fn spelled(request: &str) -> String {
    let mut parts = request.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        out.push_str(&"x".repeat(part[..digits].parse().unwrap()));
        out.push_str(&part[digits..]);
    }
    out
}

fn refused<Q: RequestMessage + prost::Message + Default>(bytes: &[u8]) -> Option<ProviderError> {
    shape(&Q::decode(bytes).unwrap(), &advertised()).err()
}

fn refused_as(message: &str, bytes: &[u8]) -> Option<ProviderError> {
    let check: fn(&[u8]) -> Option<ProviderError> = match message {
        "AddSshKeyToAllInstancesRequest" => refused::<AddSshKeyToAllInstancesRequest>,
        "BatchDeleteRoutesRequest" => refused::<BatchDeleteRoutesRequest>,
        "BatchEnsureRoutesRequest" => refused::<BatchEnsureRoutesRequest>,
        "BatchGetInstancesRequest" => refused::<BatchGetInstancesRequest>,
        "BatchGetVolumeLabelsRequest" => refused::<BatchGetVolumeLabelsRequest>,
        "BatchUpdateLoadBalancersRequest" => refused::<BatchUpdateLoadBalancersRequest>,
        "DeleteLoadBalancerRequest" => refused::<DeleteLoadBalancerRequest>,
        "EnsureLoadBalancerRequest" => refused::<EnsureLoadBalancerRequest>,
        "GetControlPlaneEndpointRequest" => refused::<GetControlPlaneEndpointRequest>,
        "GetLoadBalancerRequest" => refused::<GetLoadBalancerRequest>,
        "LeadRequest" => refused::<LeadRequest>,
        "ListClustersRequest" => refused::<ListClustersRequest>,
        "ListInstancesRequest" => refused::<ListInstancesRequest>,
        "ListLoadBalancersRequest" => refused::<ListLoadBalancersRequest>,
        "ListRoutesRequest" => refused::<ListRoutesRequest>,
        "WatchInstancesRequest" => refused::<WatchInstancesRequest>,
        other => panic!("{other} has no row here"),
    };
    check(bytes)
}

/// [R:cluster-uid-required]
#[test]
fn requests_are_refused_as_in_every_sdk() {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    for row in rows(include_str!("../../../../proto/vectors/shapes.json")) {
        let message = text(&row, "message");
        let kind = pool.get_message_by_name(&format!("ccm.cloudprovider.v1alpha1.{message}")).unwrap();
        let request = DynamicMessage::parse_text_format(kind, &spelled(text(&row, "request"))).unwrap();
        let error = refused_as(message, &request.encode_to_vec());
        let reason = error.as_ref().map_or("", |error| error.reason().wire_name());
        let field = error.as_ref().and_then(|error| error.fields().first()).map_or("", |(field, _)| field);
        assert_eq!(reason, text(&row, "reason"), "{row}");
        let wanted = text(&row, "field");
        assert!(field == wanted || field.starts_with(&format!("{wanted}.")), "{field}: {row}");
    }
}

#[test]
fn a_batch_too_large_says_the_maximum() {
    let queries = vec![InstanceQuery::default(); 4];
    let request = BatchGetInstancesRequest { cluster: cluster(), queries, ..Default::default() };
    assert_eq!(shape(&request, &advertised()).unwrap_err().metadata()["max"], "3");
}

#[test]
fn page_sizes_fit_the_limit() {
    for (asked, seen) in [(0, 50), (1, 1), (50, 50), (51, 50), (i32::MAX, 50)] {
        let mut request = ListRoutesRequest { cluster: cluster(), page_size: asked, ..Default::default() };
        fit(&mut request, &advertised());
        assert_eq!(request.page_size, seen);
    }
}

/// [R:stale-revision]
#[test]
fn revisions_grow_as_in_every_sdk() {
    let revisions = Revisions::default();
    for row in rows(include_str!("../../../../proto/vectors/revisions.json")) {
        let (cluster, service) = (text(&row, "cluster"), text(&row, "service"));
        let error = revisions.accept(&Subject::service(cluster, service), number(&row["revision"])).err();
        let reason = error.as_ref().map(ProviderError::reason);
        assert_eq!(reason == Some(ErrorReason::StaleRevision), row["refused"], "{row}");
    }
}
