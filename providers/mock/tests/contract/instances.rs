//! Machines: states, views, lists.

use crate::support::*;
use cloudprovider_sdk::proto::*;
use provider_mock::{admin::Termination, cloud::NewInstances};
use serde_json::{Value, json};
use tonic::Code;

#[tokio::test]
async fn machines_are_seen_in_every_state() {
    let mock = Mock::start(&["--seed-instances", "4", "--terminate-linger", "1h"]).await;
    mock.admin.stop_instance("node-1").await.unwrap();
    mock.admin.terminate_instance("node-2", &Termination::default()).await.unwrap();
    mock.admin.delete_instance("node-3").await.unwrap();
    let boots = NewInstances { boot_ms: Some(3_600_000), ..NewInstances::named("boots") };
    mock.admin.create_instances(&boots).await.unwrap();
    let results = mock.get(&["node-0", "node-1", "node-2", "node-3", "boots", "aws:///i-1"]).await.unwrap();
    use InstanceState as S;
    let wanted = [S::Running, S::Stopped, S::Terminating, S::Absent, S::Pending, S::NotOwned];
    for (result, wanted) in results.iter().zip(wanted) {
        assert_eq!(result.state(), wanted, "{}", result.key);
        assert!(result.observed_at.is_some(), "{}: R:observed-at", result.key);
        assert_eq!(result.authoritative, wanted != S::Absent, "{}: R:absence-needs-id", result.key);
    }
    let instance = results[0].instance.clone().unwrap();
    assert_eq!(
        (instance.provider_id.as_str(), instance.zone.as_str()),
        ("mock://mock-1a/i-00000001", "mock-1a")
    );
    assert_eq!(instance.addresses.len(), 4);
    assert_eq!(instance.pod_cidrs.len(), 1);
}

#[tokio::test]
async fn a_view_spares_what_is_not_asked_for() {
    let mock = Mock::start(&["--seed-instances", "1"]).await;
    for (view, addresses, cidrs) in
        [(InstanceView::Existence, 0, 0), (InstanceView::Metadata, 4, 0), (InstanceView::All, 4, 1)]
    {
        let request = BatchGetInstancesRequest { view: view.into(), ..batch(&["node-0"]) };
        let results = mock.instances().batch_get_instances(request).await.unwrap().into_inner().results;
        let instance = results[0].instance.clone().unwrap();
        assert_eq!((instance.addresses.len(), instance.pod_cidrs.len()), (addresses, cidrs), "{view:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_unknown_and_rights_win_over_absence() {
    let mock = Mock::start(&["--seed-instances", "2"]).await;
    let set = async |patch: Value| mock.admin.patch_conditions(&patch).await.unwrap();
    set(json!({"unreachable_zones": ["mock-1a"]})).await;
    let results = mock.get(&["node-0", "node-1", "ghost"]).await.unwrap();
    let reasons: Vec<_> =
        results.iter().map(|result| (result.state(), result.error.as_ref().map(ItemError::reason))).collect();
    let unknown = (InstanceState::Unspecified, Some(ErrorReason::LocationUnreachable));
    assert_eq!(reasons, [unknown, (InstanceState::Running, None), unknown], "R:absent-means-looked");
    let list = ListInstancesRequest { cluster: cluster(), ..Default::default() };
    let list = mock.instances().list_instances(list).await.unwrap().into_inner();
    assert_eq!((list.instances.len(), list.unreachable.len()), (1, 1), "R:list-unreachable");
    set(json!({"denied_actions": ["instances:read"]})).await;
    let denied = mock.get(&["ghost"]).await.unwrap_err();
    assert_eq!(
        (denied.code(), reason(&denied)),
        (Code::PermissionDenied, ErrorReason::CloudPermissionDenied),
        "R:error-order"
    );
    set(json!({"credentials": "expired"})).await;
    assert_eq!(reason(&mock.get(&["ghost"]).await.unwrap_err()), ErrorReason::CloudCredentialsExpired);
    let status = mock.base().get_status(GetStatusRequest {}).await.unwrap().into_inner();
    let credentials =
        status.conditions.iter().find(|one| one.r#type() == ConditionType::CredentialsValid).unwrap();
    assert_eq!(credentials.status(), ConditionStatus::False);
}

#[tokio::test]
async fn lists_are_walked_in_pages_and_tokens_end() {
    let mock = Mock::start(&["--seed-instances", "7", "--advertise", "page-size=3"]).await;
    let page = async |token: &str, size: i32| {
        let page_token = token.to_owned();
        let request =
            ListInstancesRequest { cluster: cluster(), page_size: size, page_token, ..Default::default() };
        mock.instances().list_instances(request).await.map(tonic::Response::into_inner)
    };
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let answer = page(&token, 100).await.unwrap();
        assert!(answer.instances.len() <= 3, "R:page-size");
        names.extend(answer.instances.into_iter().map(|listed| listed.node_name));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, (0..7).map(|number| format!("node-{number}")).collect::<Vec<_>>());
    let unknown = page("no-token", 0).await.unwrap_err();
    assert_eq!((unknown.code(), reason(&unknown)), (Code::InvalidArgument, ErrorReason::InvalidToken));
    let token = page("", 1).await.unwrap().next_page_token;
    let request = ListRoutesRequest { cluster: cluster(), page_token: token, ..Default::default() };
    let other = mock.routes().list_routes(request).await.unwrap_err();
    assert_eq!(reason(&other), ErrorReason::InvalidToken, "another list");
}
