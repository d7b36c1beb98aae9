//! Machines, keys, frames and pages.

use std::time::Duration;

use crate::support::*;
use cloudprovider_sdk::proto::{watch_instances_response::Frame, *};
use provider_mock::cloud::{NewInstances, NewLegacyBalancer};
use serde_json::json;

#[tokio::test]
async fn keys_of_batches() {
    let mock = Mock::start(&["--seed-instances", "3"]).await;
    let asked = ["node-0", "node-1", "node-2"];
    for (breach, wanted) in [
        ("batch-keys/missing", vec!["node-1", "node-2"]),
        ("batch-keys/doubled", vec!["node-0", "node-1", "node-2", "node-0"]),
        ("batch-keys/unknown", vec!["node-0", "node-1", "node-2", "a-key-that-nobody-asked-for"]),
        ("batch-keys/empty", vec![]),
        ("batch-keys/reordered", vec!["node-2", "node-1", "node-0"]),
    ] {
        mock.breach(breach).await;
        let keys: Vec<_> = mock.get(&asked).await.unwrap().into_iter().map(|result| result.key).collect();
        assert_eq!(keys, wanted, "{breach}");
    }
    mock.breach("batch-keys").await;
    let items = vec![RouteToEnsure {
        key: "k".into(),
        destination_cidr: "10.1.0.0/24".into(),
        target: Some(node("node-0")),
    }];
    let request = BatchEnsureRoutesRequest { cluster: cluster(), fencing: fencing(), items };
    assert_eq!(mock.routes().batch_ensure_routes(request).await.unwrap().into_inner().results, []);
}

#[tokio::test]
async fn what_the_cloud_is_asked() {
    let mock = Mock::start(&["--seed-instances", "2"]).await;
    let asked = async |breach: &str| {
        mock.breach(breach).await;
        mock.get(&["node-0", "node-1"]).await.unwrap();
        mock.admin.reset_calls().await.unwrap();
        mock.get(&["node-0", "node-1"]).await.unwrap();
        mock.admin.call_summary().await.unwrap().cloud.get("instances:read").copied().unwrap_or(0)
    };
    assert_eq!(asked("read-through/seconds").await, 1);
    assert_eq!(asked("batched-at-cloud").await, 3);
    assert_eq!(asked("read-through/disguised").await, 0);
    mock.admin.stop_instance("node-0").await.unwrap();
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Running);
}

#[tokio::test]
async fn existence() {
    let mock = Mock::start(&["--seed-instances", "1"]).await;
    mock.breach("absence-needs-id").await;
    let result = mock.get_one("nobody").await;
    assert_eq!((result.state(), result.authoritative), (InstanceState::Absent, true));
    mock.breach("stopped-exists").await;
    mock.admin.stop_instance("node-0").await.unwrap();
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Absent);
    mock.breach("observed-at").await;
    let result = mock.get_one("node-0").await;
    assert!(result.authoritative && result.observed_at.is_none());
    mock.breach("read-through").await;
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Stopped);
    mock.admin.start_instance("node-0").await.unwrap();
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Stopped);
    mock.breach("node-by-provider-id").await;
    mock.admin.create_instances(&NewInstances::named("by-id")).await.unwrap();
    assert_eq!(mock.get_one("mock://z/gone").await.state(), InstanceState::Running);
    mock.admin.patch_conditions(&json!({"unreachable_zones": ["mock-1a"]})).await.unwrap();
    mock.breach("absent-means-looked").await;
    let result = mock.get_one("node-0").await;
    assert_eq!((result.state(), result.authoritative), (InstanceState::Absent, true));
    mock.admin.patch_conditions(&json!({"cloud_reachable": false})).await.unwrap();
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Absent);
}

#[tokio::test]
async fn properties_of_machines() {
    let mock = Mock::start(&["--seed-instances", "1"]).await;
    let honest = mock.instance("node-0").await;
    mock.breach("provider-id-prefix").await;
    assert!(mock.instance("node-0").await.provider_id.starts_with("foreignmock://"));
    mock.breach("provider-id-prefix/missing").await;
    assert_eq!(mock.instance("node-0").await.provider_id, "");
    mock.breach("provider-id-stable").await;
    assert_ne!(mock.instance("node-0").await.provider_id, mock.instance("node-0").await.provider_id);
    for (breach, kind, text) in [
        ("address-valid/no-ip", NodeAddressType::InternalIp, "not-an-ip"),
        ("address-valid/empty", NodeAddressType::InternalIp, ""),
        ("address-valid/no-type", NodeAddressType::Unspecified, "192.0.2.250"),
    ] {
        mock.breach(breach).await;
        let address = mock.instance("node-0").await.addresses.pop().unwrap();
        assert_eq!((address.r#type(), address.address.as_str()), (kind, text), "{breach}");
    }
    mock.breach("address-unique").await;
    assert_eq!(mock.instance("node-0").await.addresses.len(), honest.addresses.len() * 2);
    let bad = "no label value!";
    mock.breach("label-valid").await;
    assert_eq!(mock.instance("node-0").await.instance_type, bad);
    mock.breach("label-valid/zone").await;
    assert_eq!(mock.instance("node-0").await.zone, bad);
    mock.breach("label-valid/region").await;
    assert_eq!(mock.instance("node-0").await.region, bad);
    mock.breach("label-valid/key").await;
    assert!(mock.instance("node-0").await.labels.contains_key("no label key!"));
    mock.breach("label-reserved").await;
    let listed = mock.list(0, "").await.unwrap().instances.remove(0).instance.unwrap();
    assert!(listed.labels.contains_key("node-role.kubernetes.io/control-plane"));
}

#[tokio::test]
async fn frames_of_a_watch() {
    let mock = Mock::start(&["--seed-instances", "1", "--advertise", "bookmark-interval=100ms"]).await;
    let watch = async || {
        let request = WatchInstancesRequest { cluster: cluster(), ..Default::default() };
        mock.instances().watch_instances(request).await.unwrap().into_inner()
    };
    mock.breach("watch-started").await;
    let first = watch().await.message().await.unwrap().unwrap().frame.unwrap();
    assert!(matches!(first, Frame::Bookmark(_)), "{first:?}");
    mock.breach("watch-bookmark").await;
    let mut stream = watch().await;
    stream.message().await.unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(500), stream.message()).await;
    assert!(silence.is_err(), "{silence:?}");
    mock.breach("unknown-frame").await;
    let mut stream = watch().await;
    stream.message().await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().frame, None);
}

#[tokio::test]
async fn pages() {
    let mock = Mock::start(&["--seed-instances", "4"]).await;
    mock.breach("page-size").await;
    assert_eq!(mock.list(1, "").await.unwrap().instances.len(), 4);
    assert_eq!(reason(&mock.list(1, "nowhere").await.unwrap_err()), ErrorReason::InvalidToken);
    mock.breach("page-token-refused").await;
    assert_eq!(mock.list(1, "nowhere").await.unwrap(), ListInstancesResponse::default());
    mock.breach("page-walk-ends").await;
    let token = mock.list(0, "").await.unwrap().next_page_token;
    assert!(!token.is_empty());
    assert_eq!(mock.list(0, &token).await.unwrap().next_page_token, token);
    mock.breach("list-unreachable").await;
    let list = mock.list(0, "").await.unwrap();
    assert_eq!((list.instances.len(), list.unreachable), (2, vec![]));
    mock.breach("list-own-only").await;
    let listed = async || {
        let request = ListLoadBalancersRequest { cluster: cluster(), ..Default::default() };
        mock.balancers().list_load_balancers(request).await.unwrap().into_inner().load_balancers
    };
    assert_eq!(listed().await[0].id, "lb-foreign");
    let foreign =
        NewLegacyBalancer { service_uid: "s".into(), cluster_uid: "another".into(), ..Default::default() };
    let foreign = mock.admin.create_legacy_balancer(&foreign).await.unwrap();
    let seen = listed().await;
    assert_eq!((seen[0].id.as_str(), seen[0].ownership()), (foreign.id.as_str(), Ownership::ByUid));
}
