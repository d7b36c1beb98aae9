//! Who it is, the rest of the services, the call log.

use std::time::Duration;

use crate::support::*;
use cloudprovider_sdk::{contract::discovery::v1::GetInfoRequest, proto::*};
use provider_mock::cloud::{HostedCluster, Volume};
use serde_json::json;

#[tokio::test]
async fn it_says_who_it_is_and_what_it_can() {
    let mock = Mock::start(&["--advertise", "max-batch-instances=2,page-size=3"]).await;
    let info = mock.discovery().get_info(GetInfoRequest::default()).await.unwrap().into_inner();
    assert_eq!(info.name, "mock");
    assert_eq!(info.provider_id_prefixes, ["mock://"]);
    for service in ["CloudProvider", "Instances", "LoadBalancers", "Routes", "Volumes", "Clusters"] {
        assert!(
            info.services.iter().any(|name| name.ends_with(&format!(".{service}"))),
            "{service}: R:discovery-services"
        );
    }
    let capabilities =
        mock.base().get_capabilities(GetCapabilitiesRequest::default()).await.unwrap().into_inner();
    assert_eq!(capabilities.capabilities.len(), 10);
    assert_eq!(capabilities.limits.unwrap().max_batch_instances, 2);
    let large = mock.get(&["a", "b", "c"]).await.unwrap_err();
    assert_eq!(reason(&large), ErrorReason::BatchTooLarge);
}

#[tokio::test]
async fn volumes_clusters_and_keys_are_served() {
    let mock = Mock::start(&[]).await;
    let zones = ["b".to_owned(), "a".to_owned()].into();
    mock.admin.put_volume(&Volume { id: "disk".into(), zones, ..Volume::default() }).await.unwrap();
    let query = |id: &str, plugin: &str| VolumeQuery {
        key: id.into(),
        name: id.into(),
        plugin: plugin.into(),
        volume_id: id.into(),
        ..VolumeQuery::default()
    };
    let queries = vec![
        query("disk", "kubernetes.io/cinder"),
        query("gone", "kubernetes.io/cinder"),
        query("x", "example.com/x"),
    ];
    let request = BatchGetVolumeLabelsRequest { cluster: cluster(), queries };
    let results = mock.volumes().batch_get_volume_labels(request).await.unwrap().into_inner().results;
    let states: Vec<_> = results.iter().map(VolumeResult::state).collect();
    assert_eq!(states, [VolumeState::Present, VolumeState::Absent, VolumeState::NotOwned]);
    assert_eq!(results[0].labels["topology.kubernetes.io/zone"], "a__b");
    let hosted = HostedCluster { name: "one".into(), host: "api.example".into(), port: 0 };
    mock.admin.put_cluster(&hosted).await.unwrap();
    let list = ListClustersRequest { cluster: cluster(), ..Default::default() };
    assert_eq!(mock.clusters().list_clusters(list).await.unwrap().into_inner().names, ["one"]);
    let endpoint =
        |name: &str| GetControlPlaneEndpointRequest { cluster: cluster(), cluster_name: name.into() };
    let found = mock.clusters().get_control_plane_endpoint(endpoint("one")).await.unwrap().into_inner();
    assert_eq!(found.host, "api.example");
    let none = mock.clusters().get_control_plane_endpoint(endpoint("two")).await.unwrap_err();
    assert_eq!(reason(&none), ErrorReason::ClusterNotFound);
    let key = |public_key: &str| AddSshKeyToAllInstancesRequest {
        cluster: cluster(),
        fencing: fencing(),
        user: "core".into(),
        public_key: public_key.into(),
    };
    let good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    mock.instances().add_ssh_key_to_all_instances(key(good)).await.unwrap();
    assert_eq!(mock.admin.ssh_keys().await.unwrap().len(), 1);
    let bad = mock.instances().add_ssh_key_to_all_instances(key("ssh-dss AAAA")).await.unwrap_err();
    assert_eq!(reason(&bad), ErrorReason::InvalidSshKey);
}

#[tokio::test]
async fn a_patch_is_seen_and_calls_are_logged() {
    let mock = Mock::start(&["--seed-instances", "3"]).await;
    mock.admin.patch_instance("node-0", &json!({"instance_type": "mock.large"})).await.unwrap();
    mock.admin.reset_calls().await.unwrap();
    let results = mock.get(&["node-0", "node-1", "node-2"]).await.unwrap();
    assert_eq!(results[0].instance.as_ref().unwrap().instance_type, "mock.large");
    let calls = mock.admin.calls().await.unwrap();
    let call = &calls[0];
    assert_eq!((call.method.as_str(), call.items, call.code.as_str()), ("BatchGetInstances", 3, "OK"));
    assert_eq!((call.keys.len(), call.cluster_uid.as_str()), (3, CLUSTER));
    assert!(call.peer.starts_with("uid "), "{call:?}");
    let summary = mock.admin.call_summary().await.unwrap();
    assert_eq!((summary.methods["BatchGetInstances"].items, summary.cloud["instances:read"]), (3, 1));
}

#[tokio::test]
async fn the_latency_of_the_cloud_is_felt_where_the_cloud_is_asked() {
    let mock = Mock::start(&["--latency", "300ms"]).await;
    let began = std::time::Instant::now();
    mock.get(&["x"]).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(300));
    // A busy machine may be as slow, but not each time.
    for tries in 1.. {
        let began = std::time::Instant::now();
        mock.base().get_status(GetStatusRequest {}).await.unwrap();
        let from_memory = began.elapsed();
        if from_memory < Duration::from_millis(300) {
            break;
        }
        assert!(tries < 20, "{from_memory:?}");
    }
}
