//! The frames of a watch.

use std::time::{Duration, Instant};

use cloudprovider_sdk::proto::watch_instances_response::Frame;
use cloudprovider_sdk::proto::{ErrorReason, InstanceChanged, Intervals, WatchInstancesResponse};
use tonic::{Code, Status, Streaming};

use crate::cloud::{Cloud, capabilities};
use crate::fixture::{Served, reason, serve, within};
use crate::requests::watch;

async fn open(served: &Served, token: &str) -> Result<Streaming<WatchInstancesResponse>, Status> {
    served.instances().await.watch_instances(watch(token)).await.map(tonic::Response::into_inner)
}

/// The next frame that is no bookmark without a token: on a busy machine one may be due before what comes at once.
async fn told(stream: &mut Streaming<WatchInstancesResponse>) -> Option<Frame> {
    let is_beat =
        |frame: &Frame| matches!(frame, Frame::Bookmark(bookmark) if bookmark.resume_token.is_empty());
    let next = async {
        loop {
            let next = frame(stream).await;
            if !next.as_ref().is_some_and(is_beat) {
                break next;
            }
        }
    };
    within(next).await
}

async fn frame(stream: &mut Streaming<WatchInstancesResponse>) -> Option<Frame> {
    within(stream.message()).await.unwrap().map(|answer| answer.frame.expect("a frame"))
}

fn change(id: usize) -> InstanceChanged {
    InstanceChanged { provider_id: format!("double://{id}"), node_name: String::new() }
}

/// [R:watch-started] [R:watch-bookmark]
#[tokio::test]
async fn a_watch_starts_tells_and_beats() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut stream = open(&served, "").await.unwrap();
    assert!(matches!(frame(&mut stream).await, Some(Frame::Started(started)) if !started.resumed));
    cloud.feed.publish(change(1));
    assert_eq!(told(&mut stream).await, Some(Frame::Changed(change(1))));
    for _ in 0..3 {
        let asked = Instant::now();
        let Some(Frame::Bookmark(bookmark)) = frame(&mut stream).await else { panic!("no bookmark") };
        assert!(bookmark.resume_token.is_empty());
        assert!(asked.elapsed() < Duration::from_secs(15), "advertised: 200 ms, and 30 s if nothing is");
    }
}

#[tokio::test]
async fn a_token_is_repeated_until_the_next_one() {
    let served = serve(Cloud::new().provider()).await;
    let mut stream = open(&served, "t").await.unwrap();
    assert!(matches!(frame(&mut stream).await, Some(Frame::Started(started)) if started.resumed));
    let Some(Frame::Bookmark(first)) = told(&mut stream).await else { panic!("no token") };
    assert_eq!(first.resume_token, "t+1");
    for _ in 0..2 {
        let Some(Frame::Bookmark(bookmark)) = frame(&mut stream).await else { panic!("no bookmark") };
        assert_eq!(bookmark.resume_token, "t+1");
    }
}

#[tokio::test]
async fn an_old_token_is_refused_before_the_stream() {
    let served = serve(Cloud::new().provider()).await;
    let status = open(&served, "old").await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::OutOfRange, ErrorReason::ResumeTokenExpired));
}

/// D8: of a provider that issues no tokens, each is one that was never issued.
#[tokio::test]
async fn a_token_that_is_not_honoured_is_refused() {
    let served = serve(Cloud::new().provider()).await;
    let status = open(&served, "of nobody").await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::InvalidArgument, ErrorReason::InvalidToken));
}

#[tokio::test]
async fn a_watch_ends_at_its_age() {
    let mut advertised = capabilities();
    let age = Some(prost_types::Duration { seconds: 0, nanos: 300_000_000 });
    advertised.intervals = Some(Intervals { watch_max_age: age, ..Default::default() });
    let served = serve(Cloud::new().builder().capabilities(advertised).build().unwrap()).await;
    let mut stream = open(&served, "").await.unwrap();
    assert!(matches!(frame(&mut stream).await, Some(Frame::Started(_))));
    assert_eq!(frame(&mut stream).await, None, "ends with OK");
}

#[tokio::test]
async fn a_reader_that_falls_behind_is_ended_and_loses_nothing_silently() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut stream = open(&served, "").await.unwrap();
    assert!(matches!(frame(&mut stream).await, Some(Frame::Started(_))));
    // More than the feed keeps, at once: the stream cannot have read them.
    (0..100).for_each(|id| cloud.feed.publish(change(id)));
    let mut seen = 0;
    while let Some(next) = frame(&mut stream).await {
        if let Frame::Changed(told) = next {
            assert_eq!(told, change(seen), "no gap");
            seen += 1;
        }
    }
    assert!(seen < 100);
}

#[tokio::test]
async fn a_stop_ends_watches_with_a_reason() {
    let served = serve(Cloud::new().provider()).await;
    let mut stream = open(&served, "").await.unwrap();
    assert!(matches!(frame(&mut stream).await, Some(Frame::Started(_))));
    served.handle.stop();
    let status = loop {
        match within(stream.message()).await {
            Ok(frame) => assert!(frame.is_some(), "ended with OK"),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), reason(&status)), (Code::Unavailable, ErrorReason::ShuttingDown));
    within(served.task).await.unwrap().unwrap();
}
