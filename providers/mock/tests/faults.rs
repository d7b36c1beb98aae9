//! Every kind of fault, seen once on the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::time::{Duration, Instant};

use cloudprovider_sdk::{ProviderError, proto::*};
use provider_mock::{
    calls::GONE,
    fault::{Fault, KINDS},
};
use support::*;
use tonic::Code;

/// As short as a call may be that a busy machine must read in time.
const SHORT: Duration = Duration::from_secs(4);

async fn status(mock: &Mock) -> Result<GetStatusResponse, tonic::Status> {
    mock.base().get_status(timely(GetStatusRequest {})).await.map(tonic::Response::into_inner)
}

async fn balancer_count(mock: &Mock) -> usize {
    mock.admin.balancers().await.unwrap().len()
}

#[tokio::test]
async fn latency_and_jitter() {
    let mock = Mock::start(&["--fault", "latency,time=200ms,jitter=50ms,method=GetStatus,times=1"]).await;
    let began = Instant::now();
    status(&mock).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn errors_statuses_and_throttling() {
    let mock = Mock::start(&[]).await;
    mock.fault("error,reason=QUOTA_EXCEEDED,retry-after=7s,message=full,times=1").await;
    let error = ProviderError::from_status(&status(&mock).await.unwrap_err()).unwrap();
    assert_eq!(
        (error.reason(), error.message(), error.retry_after()),
        (ErrorReason::QuotaExceeded, "full", Some(Duration::from_secs(7)))
    );
    mock.fault("status,code=NOT_FOUND,times=1").await;
    let bare = status(&mock).await.unwrap_err();
    assert_eq!((bare.code(), bare.details()), (Code::NotFound, [].as_slice()), "proves nothing");
    mock.fault("throttle,retry-after=3s,times=1").await;
    let throttled = ProviderError::from_status(&status(&mock).await.unwrap_err()).unwrap();
    assert_eq!(
        (throttled.reason(), throttled.retry_after()),
        (ErrorReason::RateLimited, Some(Duration::from_secs(3)))
    );
    status(&mock).await.unwrap();
}

#[tokio::test]
async fn an_error_after_the_work() {
    let mock =
        Mock::start(&["--fault", "error,reason=INTERNAL_ERROR,after-work,method=EnsureLoadBalancer"]).await;
    let failed = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d", 1)).await.unwrap_err();
    assert_eq!(reason(&failed), ErrorReason::InternalError);
    assert_eq!(balancer_count(&mock).await, 1);
    mock.clear().await;
    mock.fault("status,code=UNAVAILABLE,after-work,method=EnsureLoadBalancer").await;
    mock.balancers().ensure_load_balancer(ensure("second", "d", 1)).await.unwrap_err();
    assert_eq!(balancer_count(&mock).await, 2);
}

#[tokio::test]
async fn hanging_and_lost_answers() {
    let mock = Mock::start(&[]).await;
    mock.fault("hang,times=1").await;
    let hangs =
        mock.balancers().ensure_load_balancer(within(ensure("hangs", "d", 1), SHORT)).await.unwrap_err();
    assert!(matches!(hangs.code(), Code::Cancelled | Code::DeadlineExceeded), "{hangs}");
    assert_eq!(balancer_count(&mock).await, 0, "no work");
    mock.fault("lost-answer,times=1").await;
    mock.balancers().ensure_load_balancer(timely(ensure("reset", "d", 1))).await.unwrap_err();
    assert_eq!(balancer_count(&mock).await, 1, "the work was done");
    mock.fault("lost-answer,silent,times=1").await;
    let silent =
        mock.balancers().ensure_load_balancer(within(ensure("silent", "d", 1), SHORT)).await.unwrap_err();
    assert!(matches!(silent.code(), Code::Cancelled | Code::DeadlineExceeded), "{silent}");
    assert_eq!(balancer_count(&mock).await, 2, "the work was done");
    // The other end learns a little later that nobody waits.
    let all_gone = async {
        loop {
            let calls = mock.admin.calls().await.unwrap();
            if calls.iter().all(|call| call.code == GONE) {
                break calls;
            }
        }
    };
    let calls = tokio::time::timeout(PATIENCE, all_gone).await.unwrap();
    assert_eq!((calls.len(), calls[0].faults.as_slice()), (3, ["hang".to_owned()].as_slice()));
}

#[tokio::test]
async fn partial_answers() {
    let mock = Mock::start(&["--seed-instances", "4", "--fault", "partial,location=zone-x"]).await;
    let list = ListInstancesRequest { cluster: cluster(), ..Default::default() };
    let list = mock.instances().list_instances(list).await.unwrap().into_inner();
    assert_eq!((list.instances.len(), list.unreachable[0].location.as_str()), (2, "zone-x"));
    let result = mock.get_one("node-0").await;
    assert_eq!(result.state(), InstanceState::Unspecified);
    assert_eq!(result.error.unwrap().reason(), ErrorReason::LocationUnreachable);
}

#[tokio::test]
async fn lies_about_what_lives() {
    let mock = Mock::start(&["--seed-instances", "3", "--fault", "absent,on=node-1"]).await;
    let results = mock.get(&["node-0", "node-1"]).await.unwrap();
    assert_eq!((results[0].state(), results[1].state()), (InstanceState::Running, InstanceState::Absent));
    assert!(results[1].authoritative && results[1].observed_at.is_some() && results[1].instance.is_none());
    let list = ListInstancesRequest { cluster: cluster(), ..Default::default() };
    assert_eq!(mock.instances().list_instances(list).await.unwrap().into_inner().instances.len(), 2);
    mock.clear().await;
    mock.fault("state,state=STOPPED,on=node-*").await;
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Stopped);
    mock.clear().await;
    mock.fault("state,state=77").await;
    assert_eq!(mock.get_one("node-0").await.state, 77);
    mock.clear().await;
    mock.fault("not-authoritative").await;
    assert!(!mock.get_one("node-0").await.authoritative);
}

#[tokio::test]
async fn errors_beside_items_and_metadata_that_is_not_ready() {
    let mock = Mock::start(&["--seed-instances", "2"]).await;
    mock.fault("item-error,reason=INSTANCE_AMBIGUOUS,retry-after=1s,on=node-1,times=1").await;
    let results = mock.get(&["node-0", "node-1"]).await.unwrap();
    assert_eq!(results[0].error, None);
    assert_eq!(results[1].error.as_ref().unwrap().reason(), ErrorReason::InstanceAmbiguous);
    mock.fault("metadata-not-ready,retry-after=2s,times=2").await;
    for _ in 0..2 {
        let result = mock.get_one("node-0").await;
        assert_eq!((result.state(), result.instance), (InstanceState::Running, None));
        assert_eq!(result.error.unwrap().reason(), ErrorReason::MetadataNotReady);
    }
    assert!(mock.get_one("node-0").await.instance.is_some(), "ready after n times");
}

#[tokio::test]
async fn work_that_goes_on_n_times() {
    let mock = Mock::start(&["--fault", "in-progress,retry-after=9s,times=2"]).await;
    for _ in 0..2 {
        let answer =
            mock.balancers().ensure_load_balancer(ensure(SERVICE, "d", 1)).await.unwrap().into_inner();
        assert_eq!(answer.in_progress.unwrap().retry_after.unwrap().seconds, 9);
        assert_eq!(answer.load_balancer.unwrap().state(), LoadBalancerState::Pending);
    }
    let answer = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d", 1)).await.unwrap().into_inner();
    assert_eq!(answer.in_progress, None);
}

#[tokio::test]
async fn a_crash_before_and_after_the_work() {
    let mut mock = Mock::start(&["--fault", "crash,method=EnsureLoadBalancer,times=1"]).await;
    mock.balancers().ensure_load_balancer(ensure(SERVICE, "d", 1)).await.unwrap_err();
    assert!(!mock.child.wait().await.unwrap().success());
    let state = mock.folder.path().join("state.json");
    let state_file = state.to_str().unwrap();
    let mut mock = Mock::start(&["--state-file", state_file, "--fault", "crash,after-work"]).await;
    mock.balancers().ensure_load_balancer(ensure(SERVICE, "d", 1)).await.unwrap_err();
    assert!(!mock.child.wait().await.unwrap().success());
    let mock = Mock::start(&["--state-file", state_file]).await;
    assert_eq!(balancer_count(&mock).await, 1, "the work was done and kept");
}

#[tokio::test]
async fn watches_that_leave_out_and_break_off() {
    let mock = Mock::start(&["--seed-instances", "1", "--advertise", "bookmark-interval=100ms"]).await;
    let watch = async || {
        let request = WatchInstancesRequest { cluster: cluster(), ..Default::default() };
        mock.instances().watch_instances(request).await.unwrap().into_inner()
    };
    mock.fault("drop-changes").await;
    let mut stream = watch().await;
    stream.message().await.unwrap();
    mock.admin.stop_instance("node-0").await.unwrap();
    for _ in 0..3 {
        let frame = stream.message().await.unwrap().unwrap().frame.unwrap();
        assert!(matches!(frame, watch_instances_response::Frame::Bookmark(_)), "{frame:?}");
    }
    mock.clear().await;
    mock.fault("cut-watch,frames=2").await;
    let mut stream = watch().await;
    stream.message().await.unwrap();
    stream.message().await.unwrap();
    stream.message().await.unwrap_err();
}

#[tokio::test]
async fn a_fault_is_one_of_the_table_or_refused() {
    let mock = Mock::start(&[]).await;
    let wrong: Fault = serde_json::from_str(r#"{"kind": "status", "code": "FINE"}"#).unwrap();
    let refused = mock.admin.add_fault(&wrong).await.unwrap_err().to_string();
    assert!(refused.contains("\"FINE\" is not a gRPC error code"), "{refused}");
    let ours = include_str!("faults.rs");
    for kind in KINDS {
        assert!(
            kind.name == "breach" || ours.contains(&format!("\"{}", kind.name)),
            "{} is not seen here",
            kind.name
        );
    }
}
