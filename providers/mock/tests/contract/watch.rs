//! The stream of changes.

use crate::support::*;
use cloudprovider_sdk::proto::{watch_instances_response::Frame, *};
use provider_mock::cloud::NewInstances;
use tonic::Code;

async fn next(stream: &mut tonic::Streaming<WatchInstancesResponse>) -> Frame {
    let frame = tokio::time::timeout(PATIENCE, stream.message()).await.unwrap().unwrap().unwrap();
    frame.frame.unwrap()
}

/// The next change and the token behind it.
async fn next_change(stream: &mut tonic::Streaming<WatchInstancesResponse>) -> (String, String) {
    let mut name = None;
    loop {
        match (next(stream).await, &name) {
            (Frame::Changed(change), None) => name = Some(change.node_name),
            (Frame::Bookmark(bookmark), Some(name)) => return (name.clone(), bookmark.resume_token),
            (Frame::Bookmark(_), None) => {}
            (other, name) => panic!("{other:?} after {name:?}"),
        }
    }
}

#[tokio::test]
async fn a_watch_tells_keys_resumes_and_refuses_strange_tokens() {
    let mock = Mock::start(&["--seed-instances", "1", "--advertise", "bookmark-interval=100ms"]).await;
    let watch = async |token: &str| {
        let request = WatchInstancesRequest { cluster: cluster(), resume_token: token.to_owned() };
        mock.instances().watch_instances(request).await.map(tonic::Response::into_inner)
    };
    let mut stream = watch("").await.unwrap();
    assert_eq!(next(&mut stream).await, Frame::Started(WatchStarted { resumed: false }), "R:watch-started");
    let Frame::Bookmark(_) = next(&mut stream).await else {
        panic!("R:watch-bookmark: a bookmark comes when nothing happens")
    };
    mock.admin.stop_instance("node-0").await.unwrap();
    let (name, token) = next_change(&mut stream).await;
    assert_eq!(name, "node-0");
    drop(stream);
    mock.admin.create_instances(&NewInstances::named("missed")).await.unwrap();
    let mut stream = watch(&token).await.unwrap();
    assert_eq!(next(&mut stream).await, Frame::Started(WatchStarted { resumed: true }));
    assert_eq!(next_change(&mut stream).await.0, "missed");
    let strange = watch("no-token").await.unwrap_err();
    assert_eq!((strange.code(), reason(&strange)), (Code::InvalidArgument, ErrorReason::InvalidToken));
}

#[tokio::test]
async fn an_old_resume_token_has_expired_and_due_changes_come_by_themselves() {
    let mock = Mock::start(&["--advertise", "bookmark-interval=1h,resume-token-validity=1ms"]).await;
    let watch = async |token: String| {
        let request = WatchInstancesRequest { cluster: cluster(), resume_token: token };
        mock.instances().watch_instances(request).await.map(tonic::Response::into_inner)
    };
    let mut stream = watch(String::new()).await.unwrap();
    next(&mut stream).await;
    let boots = NewInstances { boot_ms: Some(50), ..NewInstances::named("boots") };
    mock.admin.create_instances(&boots).await.unwrap();
    // It is there, and then it runs, though nobody asked; a busy machine may tell both at once.
    let (mut changes, mut token) = (0, None);
    while changes < 2 || token.is_none() {
        match next(&mut stream).await {
            Frame::Changed(change) => {
                assert_eq!(change.node_name, "boots");
                (changes, token) = (changes + 1, None);
            }
            Frame::Bookmark(bookmark) => token = Some(bookmark.resume_token),
            other => panic!("{other:?}"),
        }
    }
    let token = token.unwrap();
    let expired = watch(token).await.unwrap_err();
    assert_eq!((expired.code(), reason(&expired)), (Code::OutOfRange, ErrorReason::ResumeTokenExpired));
}

#[tokio::test]
async fn an_ended_watch_ends_in_the_log() {
    let mock = Mock::start(&["--advertise", "watch-max-age=1s"]).await;
    let request = WatchInstancesRequest { cluster: cluster(), ..Default::default() };
    let mut stream = mock.instances().watch_instances(request).await.unwrap().into_inner();
    while stream.message().await.unwrap().is_some() {}
    let ended = async { while mock.admin.calls().await.unwrap()[0].code != "OK" {} };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
}
