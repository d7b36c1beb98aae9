//! The watch of changed instances over a socket.

use cloudprovider_proto::v1alpha1::{self as pb, Capability, watch_instances_response::Frame};

use super::*;

fn started() -> WatchStep {
    WatchStep::Frame(Frame::Started(pb::WatchStarted { resumed: false }))
}

fn changed(provider_id: &str, node_name: &str) -> WatchStep {
    WatchStep::Frame(Frame::Changed(pb::InstanceChanged {
        provider_id: provider_id.into(),
        node_name: node_name.into(),
    }))
}

fn bookmark(token: &str) -> WatchStep {
    WatchStep::Frame(Frame::Bookmark(pb::WatchBookmark { resume_token: token.into() }))
}

/// Each stream plays the next of these, the last one for ever. Returns the tokens that were sent.
fn streams(script: &Script, all: Vec<Vec<WatchStep>>) -> Arc<parking_lot::Mutex<Vec<String>>> {
    script.can(Capability::InstancesWatch);
    let tokens = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    *script.watch.lock() = Box::new(move |request| {
        let mut seen = seen.lock();
        let steps = all[seen.len().min(all.len() - 1)].clone();
        seen.push(request.resume_token);
        Box::pin(std::future::ready(Ok(steps)))
    });
    tokens
}

fn quick_bookmarks(script: &Script) {
    let bookmark_interval = prost_types::Duration::try_from(Duration::from_millis(100)).ok();
    script.capabilities.lock().intervals = Some(pb::Intervals { bookmark_interval, ..Default::default() });
}

async fn next(changes: &mut broadcast::Receiver<String>) -> String {
    tokio::time::timeout(PATIENCE, changes.recv()).await.expect("a change in time").unwrap()
}

#[tokio::test]
async fn changes_arrive_as_keys_and_a_stream_asks_for_a_sweep() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    streams(&script, vec![vec![started(), changed("test://1", "n1"), changed("", "n2"), WatchStep::Hang]]);
    let host = Host::at(&path);
    let mut changes = host.provider.instance_changes();
    let mut sweeps = host.provider.sweeps();
    let _running = Running::at(&path, &script);
    for key in ["test://1", "n1", "n2"] {
        assert_eq!(next(&mut changes).await, key);
    }
    tokio::time::timeout(PATIENCE, sweeps.wait_for(|generation| *generation == 1)).await.unwrap().unwrap();
}

/// D16.
#[tokio::test]
async fn a_stream_that_ends_is_resumed_with_its_token_and_sweeps() {
    let script = Script::new("e1");
    let tokens = streams(
        &script,
        vec![
            vec![started(), bookmark("t1")],
            vec![started(), bookmark("t2"), WatchStep::Fail(tonic::Status::unavailable("bye"))],
            vec![WatchStep::Fail(refusal(Code::OutOfRange, "RESUME_TOKEN_EXPIRED"))],
            vec![WatchStep::Fail(refusal(Code::InvalidArgument, "INVALID_TOKEN"))],
            vec![started(), WatchStep::Hang],
        ],
    );
    let (host, _running, _dir) = served(&script).await;
    eventually("five streams", || tokens.lock().len() == 5).await;
    assert_eq!(*tokens.lock(), ["", "t1", "t2", "", ""]);
    eventually("a sweep for each stream that started", || *host.provider.sweeps().borrow() == 3).await;
    for (end, times) in [("finished", 1.0), ("failed", 1.0), ("token_expired", 1.0), ("token_unknown", 1.0)] {
        let series = format!("cloudprovider_watch_streams_total{{provider=\"p\",end=\"{end}\"}}");
        assert_eq!(host.metric(&series), times, "{end}");
    }
}

/// A stream that resumes where the last one ended missed nothing; one that claims so without a token did.
#[tokio::test]
async fn a_stream_that_resumes_asks_for_no_sweep() {
    let resumed = || WatchStep::Frame(Frame::Started(pb::WatchStarted { resumed: true }));
    let script = Script::new("e1");
    let tokens = streams(
        &script,
        vec![vec![resumed(), bookmark("t1")], vec![resumed()], vec![resumed(), WatchStep::Hang]],
    );
    let (host, _running, _dir) = served(&script).await;
    eventually("three streams", || tokens.lock().len() == 3).await;
    assert_eq!(*tokens.lock(), ["", "t1", "t1"]);
    assert_eq!(*host.provider.sweeps().borrow(), 1, "for the first");
}

/// [R:watch-bookmark]
#[tokio::test]
async fn a_silent_stream_is_left() {
    let script = Script::new("e1");
    quick_bookmarks(&script);
    let tokens = streams(&script, vec![vec![started(), WatchStep::Hang]]);
    let (host, _running, _dir) = served(&script).await;
    eventually("a second stream", || tokens.lock().len() >= 2).await;
    eventually("it is counted", || host.metrics().contains("rule=\"watch-bookmark\"")).await;
    assert_eq!(script.count("GetInfo"), 1, "the connection is kept");
}

/// [R:watch-started]
#[tokio::test]
async fn a_stream_that_does_not_begin_with_started_is_left() {
    let script = Script::new("e1");
    let tokens = streams(&script, vec![vec![changed("test://1", ""), WatchStep::Hang]]);
    let (host, _running, _dir) = served(&script).await;
    eventually("a second stream", || tokens.lock().len() >= 2).await;
    assert!(host.metrics().contains("rule=\"watch-started\""), "{}", host.metrics());
}

#[tokio::test]
async fn without_the_capability_nothing_is_watched_and_a_connection_sweeps() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    eventually("the connection asks for a sweep", || *host.provider.sweeps().borrow() == 1).await;
    assert_eq!(script.count("WatchInstances"), 0);
}

/// [R:advertised-works]
#[tokio::test]
async fn a_watch_that_is_advertised_but_not_served_is_counted_and_left_alone() {
    let script = Script::new("e1");
    streams(&script, vec![vec![WatchStep::Fail(tonic::Status::unimplemented(""))]]);
    let (host, _running, _dir) = served(&script).await;
    eventually("it is counted", || host.metrics().contains("rule=\"advertised-works\"")).await;
    eventually("a sweep instead", || *host.provider.sweeps().borrow() == 1).await;
    assert_eq!(script.count("WatchInstances"), 1);
}
