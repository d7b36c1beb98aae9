//! Watches that are lost, and lists that no longer work the way they did.

use tokio::time::sleep;

use super::*;
use ccm_base::outage::LASTING;

const EXPIRED: (u16, &str) = (410, "Expired");

/// The kind of a list or watch request.
fn way(call: &Call) -> &'static str {
    match (call.is_watch(), call.query.contains("sendInitialEvents=true")) {
        (true, true) => "stream",
        (true, false) => "watch",
        (false, _) if call.query.split('&').any(|part| part == "limit=1") => "version",
        (false, _) if call.path.ends_with("/nodes") => "pages",
        (false, _) => "read",
    }
}

fn list(version: &str, items: &[Value]) -> Reply {
    Reply::ok(json!({
        "kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items,
    }))
}

fn error_event(watch: &Watch, (code, reason): (u16, &str)) {
    watch.send("ERROR", json!({"kind": "Status", "code": code, "reason": reason, "message": reason}));
}

/// A cache that has listed node `a` by streaming; then the apiserver loses streaming lists in the way that `start`
/// gives, and the versions in between.
fn streaming_goes(start: impl Fn() -> Reply + Send + Sync + 'static) -> (Scene, Watch, Watch) {
    let (first, first_reply) = Watch::new();
    let (last, last_reply) = Watch::new();
    let replies = parking_lot::Mutex::new((Some(first_reply), Some(last_reply)));
    let scene = Scene::start_with(keep_l(), move |call| match way(call) {
        "stream" => replies.lock().0.take().unwrap_or_else(&start),
        "watch" if call.query.contains("resourceVersion=7") => {
            replies.lock().1.take().unwrap_or(Reply::Silence)
        }
        "watch" => Reply::status(EXPIRED.0, EXPIRED.1),
        "pages" => list("7", &[wire("a", "1", &json!({})), wire("b", "7", &json!({}))]),
        _ => Reply::status(404, "NotFound"),
    });
    first.send("ADDED", wire("a", "1", &json!({})));
    first.end_of_list("Node", "1");
    (scene, first, last)
}

/// N2: a feature present at the first list may be missing at the next one.
#[tokio::test(start_paused = true)]
async fn streaming_lists_that_go_while_we_run_are_done_without() {
    let told = || {
        let (watch, reply) = Watch::new();
        error_event(&watch, (500, "InternalError"));
        // Kept open, as an apiserver may do.
        std::mem::forget(watch);
        reply
    };
    type Start = (&'static str, fn() -> Reply);
    let starts: [Start; 5] = [
        ("422", || Reply::invalid("sendInitialEvents is forbidden", &["sendInitialEvents"])),
        ("400", || Reply::status(400, "BadRequest")),
        ("500", || Reply::status(500, "InternalError")),
        ("an ERROR event at the start", told),
        ("silence", || Reply::Silence),
    ];
    for (id, start) in starts {
        let (scene, first, last) = streaming_goes(start);
        assert_eq!(scene.changes(1).await, ["+a -"], "{id}");
        scene.synced().await;
        error_event(&first, EXPIRED);
        let waited = Instant::now();
        assert_eq!(scene.changes(1).await, ["+b -"], "{id}");
        assert!(waited.elapsed() < Duration::from_secs(30), "{id}: {:?}", waited.elapsed());
        last.send("DELETED", wire("b", "8", &json!({})));
        assert_eq!(scene.changes(1).await, ["-b -"], "{id}: the watch goes on from the list");
    }
}

/// N2: `/readyz` reports a lost watch, since when and why, and only while it is lost.
#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_told() {
    let away = Arc::new(parking_lot::Mutex::new(false));
    let is_away = Arc::clone(&away);
    let (first, first_reply) = Watch::new();
    let first_reply = parking_lot::Mutex::new(Some(first_reply));
    let held = parking_lot::Mutex::new(Vec::new());
    let scene = Scene::start_with(keep_l(), move |call| {
        if *is_away.lock() {
            return Reply::status(503, "ServiceUnavailable");
        }
        if way(call) == "version" {
            return list("1", &[]);
        }
        first_reply.lock().take().unwrap_or_else(|| {
            let (watch, reply) = Watch::new();
            held.lock().push(watch);
            reply
        })
    });
    assert_eq!(scene.cache.health(), Err("the list is not complete".to_owned()));
    first.end_of_list("Node", "1");
    scene.synced().await;
    assert_eq!((scene.cache.health(), scene.watching()), (Ok(()), 1));

    *away.lock() = true;
    error_event(&first, (500, "InternalError"));
    sleep(LASTING - Duration::from_secs(1)).await;
    assert_eq!((scene.cache.health(), scene.watching()), (Ok(()), 0), "too short to be told");
    sleep(Duration::from_secs(2)).await;
    let told = scene.cache.health().unwrap_err();
    assert!(
        told.starts_with("changes are not seen since ") && told.ends_with("ServiceUnavailable (503)"),
        "{told}"
    );

    *away.lock() = false;
    // The longest pause, and as long as a watch must last.
    sleep(Duration::from_secs(16)).await;
    assert_eq!((scene.cache.health(), scene.watching()), (Ok(()), 1));
}

/// After etcd was restored from a backup, a watch from a version of the lost future brings nothing until the cluster has
/// come that far, and never what changed before.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_went_back_in_time_is_listed_anew() {
    let (first, first_reply) = Watch::new();
    let (second, second_reply) = Watch::new();
    let streams = parking_lot::Mutex::new(VecDeque::from([first_reply, second_reply]));
    let now = Arc::new(parking_lot::Mutex::new("95"));
    let version = Arc::clone(&now);
    let scene = Scene::start_with(keep_l(), move |call| match way(call) {
        "stream" => streams.lock().pop_front().unwrap_or(Reply::Silence),
        "version" => list(*version.lock(), &[]),
        "watch" if *version.lock() == "95" => Watch::new().1,
        "watch" => Reply::Silence,
        _ => Reply::status(404, "NotFound"),
    });
    first.send("ADDED", wire("a", "90", &json!({})));
    first.end_of_list("Node", "90");
    scene.changes(1).await;
    drop(first);
    sleep(Duration::from_secs(60)).await;
    let calls = scene.server.take_calls();
    assert_eq!(calls.iter().filter(|call| way(call) == "stream").count(), 1, "nothing went back: {calls:?}");

    *now.lock() = "50";
    second.send("ADDED", wire("b", "40", &json!({})));
    second.end_of_list("Node", "50");
    assert_eq!(scene.changes(2).await, ["+b -", "-a -"]);
}

/// N3: an object that can still be read is never reported deleted; the list is repeated.
#[tokio::test(start_paused = true)]
async fn what_a_stale_list_lacks_is_not_gone() {
    let (first, first_reply) = Watch::new();
    let lists =
        parking_lot::Mutex::new(VecDeque::from([list("1", &[]), list("9", &[wire("a", "1", &json!({}))])]));
    let first_reply = parking_lot::Mutex::new(Some(first_reply));
    let failures = parking_lot::Mutex::new(2);
    let scene = Scene::start_with(keep_l(), move |call| match way(call) {
        "stream" => first_reply.lock().take().unwrap_or_else(|| Reply::status(400, "BadRequest")),
        "read" if call.path.ends_with("/b") && *failures.lock() > 0 => {
            *failures.lock() -= 1;
            Reply::status(500, "InternalError")
        }
        "pages" => lists.lock().pop_front().unwrap(),
        "read" if call.path.ends_with("/a") => Reply::ok(wire("a", "1", &json!({}))),
        "read" => Reply::status(404, "NotFound"),
        _ => Reply::Silence,
    });
    for name in ["a", "b"] {
        first.send("ADDED", wire(name, "1", &json!({})));
    }
    first.end_of_list("Node", "1");
    scene.changes(2).await;
    error_event(&first, EXPIRED);
    assert_eq!(scene.changes(1).await, ["-b -"], "only what is gone for certain");
    assert!(scene.cache.get("a").is_some());
    let lists = scene.server.take_calls().iter().filter(|call| way(call) == "pages").count();
    assert_eq!(lists, 2, "the stale list was not believed, and the next one was, though a read failed twice");
}

/// A watch that ends as soon as it opens is not reopened without a pause.
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_opened_with_pauses() {
    let (first, first_reply) = Watch::new();
    let first_reply = parking_lot::Mutex::new(Some(first_reply));
    let scene = Scene::start_with(keep_l(), move |call| match way(call) {
        "version" => list("1", &[]),
        _ => first_reply.lock().take().unwrap_or_else(|| Watch::new().1),
    });
    first.end_of_list("Node", "1");
    scene.synced().await;
    drop(first);
    sleep(Duration::from_secs(60)).await;
    let opened = scene.server.take_calls().iter().filter(|call| call.is_watch()).count();
    assert!((5..30).contains(&opened), "{opened} watches in a minute");
    assert!(scene.cache.health().unwrap_err().ends_with("ended before it brought anything"));
    assert_eq!(scene.watching(), 0, "opening it is not enough");
}
