//! Who is there and what it can.

use crate::support::*;
use cloudprovider_sdk::proto::*;
use serde_json::json;
use tonic::Code;

#[tokio::test]
async fn who_is_there() {
    let mock = Mock::start(&[]).await;
    mock.breach("discovery-always").await;
    assert_eq!(mock.info().await.unwrap_err().code(), Code::Unauthenticated);
    mock.breach("discovery-no-refusal").await;
    assert_eq!(reason(&mock.info().await.unwrap_err()), ErrorReason::PeerNotTrusted);
    mock.breach("discovery-no-cloud").await;
    mock.info().await.unwrap();
    assert_eq!(mock.admin.call_summary().await.unwrap().cloud["account:read"], 1);
    mock.admin.patch_conditions(&json!({"cloud_reachable": false})).await.unwrap();
    assert_eq!(reason(&mock.info().await.unwrap_err()), ErrorReason::CloudApiUnavailable);
    mock.breach("discovery-name").await;
    assert_eq!(mock.info().await.unwrap().name, "No Name!");
    mock.breach("discovery-name/missing").await;
    assert_eq!(mock.info().await.unwrap().name, "");
    mock.breach("discovery-prefix").await;
    assert!(mock.info().await.unwrap().provider_id_prefixes.is_empty());
    mock.breach("discovery-prefix/foreign").await;
    assert_eq!(mock.info().await.unwrap().provider_id_prefixes, ["foreign://"]);
    mock.breach("discovery-services").await;
    assert!(!mock.info().await.unwrap().services.iter().any(|name| name.ends_with(".Instances")));
    mock.breach("discovery-services/extra").await;
    assert!(mock.info().await.unwrap().services.iter().any(|name| name.contains(".v9.")));
    mock.breach("discovery-epoch").await;
    assert_ne!(mock.info().await.unwrap().process_epoch, mock.info().await.unwrap().process_epoch);
    mock.breach("discovery-epoch/missing").await;
    assert_eq!(mock.info().await.unwrap().process_epoch, "");
}

#[tokio::test]
async fn what_it_can() {
    let mock = Mock::start(&[]).await;
    let ask =
        async || mock.base().get_capabilities(GetCapabilitiesRequest::default()).await.unwrap().into_inner();
    assert_eq!(ask().await, ask().await);
    mock.breach("capabilities-constant").await;
    assert_ne!(ask().await, ask().await);
    mock.breach("advertised-works").await;
    assert_eq!(mock.list(0, "").await.unwrap_err().code(), Code::Unimplemented);
    mock.breach("served-whole").await;
    let list = mock.balancers().list_load_balancers(ListLoadBalancersRequest::default()).await;
    assert_eq!(list.unwrap_err().code(), Code::Unimplemented);
}
