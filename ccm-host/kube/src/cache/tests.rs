//! The cache against a scripted watch: projection, changes, re-lists, fallback, growth of what is kept.

use std::{collections::VecDeque, time::Duration};

use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::{service_fn, util::BoxCloneSyncService};

use super::*;
use crate::{
    client::{self, ClientOptions},
    fixtures::{ApiServer, Call, Reply, Watch, node},
    keep::KeySet,
    metrics::KubeMetrics,
    node::Node,
    service::{ObjectKey, Service},
};

mod lost;
mod projection;
mod unreadable;

fn wire(name: &str, version: &str, labels: &Value) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "uid": format!("{name}-uid"), "resourceVersion": version, "labels": labels},
        "spec": {"providerID": format!("mock://{name}")},
    })
}

/// The client as the host uses it, with its limits.
fn guarded(client: &Client) -> Client {
    let client = client.clone();
    let answers = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let answer = client.send(request).await?;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
    });
    let options = ClientOptions { retries: 0, ..ClientOptions::default() };
    client::over(BoxCloneSyncService::new(answers), &options, &KubeMetrics::default().client).unwrap()
}

/// A cache that runs against scripted watches and lists, and a log of its changes.
struct Scene {
    cache: Cache<Node>,
    server: ApiServer,
    log: Arc<parking_lot::Mutex<Vec<String>>>,
    seen: Arc<tokio::sync::Notify>,
}

impl Scene {
    fn start(keep: Keep, replies: Vec<Reply>) -> Self {
        let replies = parking_lot::Mutex::new(VecDeque::from(replies));
        Self::start_with(keep, move |_| replies.lock().pop_front().unwrap_or(Reply::Silence))
    }

    fn start_with(keep: Keep, answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let server = ApiServer::new(answer);
        let cache = Cache::new(keep, &KubeMetrics::default().cache);
        let log: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::new(tokio::sync::Notify::new());
        let (logged, noted) = (Arc::clone(&log), Arc::clone(&seen));
        cache.subscribe(move |change: &Change<Node>| {
            logged.lock().push(describe(change));
            noted.notify_one();
        });
        let (running, client) = (cache.clone(), guarded(&server.client));
        tokio::spawn(async move { running.run(client, CancellationToken::new()).await });
        Self { cache, server, log, seen }
    }

    /// Waits for the cache, with a time limit.
    async fn synced(&self) {
        timeout(Duration::from_secs(3600), self.cache.synced()).await.expect("the cache never syncs");
    }

    /// The metric that shows whether the watch is open.
    fn watching(&self) -> i64 {
        self.cache.0.metrics.watching.get()
    }

    /// Waits until `count` changes were seen, and takes them.
    async fn changes(&self, count: usize) -> Vec<String> {
        while self.log.lock().len() < count {
            let next = timeout(Duration::from_secs(3600), self.seen.notified()).await;
            assert!(next.is_ok(), "no change came after {:?}", self.log.lock());
        }
        std::mem::take(&mut *self.log.lock())
    }
}

fn describe(change: &Change<Node>) -> String {
    let label = |node: &Node| node.labels.get("l").unwrap_or("-").to_owned();
    match change {
        Change::Added(node) => format!("+{} {}", node.name, label(node)),
        Change::Updated { old, new } => format!("~{} {}>{}", new.name, label(old), label(new)),
        Change::Deleted(node) => format!("-{} {}", node.name, label(node)),
    }
}

fn keep_l() -> Keep {
    Keep { labels: KeySet::keys(["l"]), ..Keep::default() }
}

#[tokio::test(start_paused = true)]
async fn lists_by_streaming_and_then_follows() {
    let (watch, reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![reply]);
    watch.send("ADDED", wire("a", "1", &json!({"l": "1"})));
    assert_eq!(scene.changes(1).await, ["+a 1"]);
    assert!(!scene.cache.is_synced(), "the list is not whole yet");
    watch.end_of_list("Node", "2");
    scene.synced().await;
    watch.send("ADDED", wire("b", "3", &json!({})));
    watch.send("MODIFIED", wire("a", "4", &json!({"l": "2"})));
    watch.send("DELETED", wire("b", "5", &json!({})));
    assert_eq!(scene.changes(3).await, ["+b -", "~a 1>2", "-b -"]);
    assert_eq!(scene.cache.get("a").unwrap().resource_version, "4");
    assert_eq!(scene.cache.list().len(), 1);
    let query = &scene.server.take_calls()[0].query;
    assert!(query.contains("sendInitialEvents=true"), "{query}");
    // N3: with 0 the list would be as old as whatever a lagging apiserver has.
    assert!(query.contains("resourceVersion=&") || query.ends_with("resourceVersion="), "{query}");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_updates_the_version_and_is_no_change() {
    let (watch, reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![reply]);
    watch.send("ADDED", wire("a", "1", &json!({"l": "1"})));
    watch.end_of_list("Node", "1");
    watch.send("MODIFIED", wire("a", "2", &json!({"l": "1", "nobody": "reads this"})));
    watch.send("MODIFIED", wire("a", "3", &json!({"l": "2"})));
    assert_eq!(scene.changes(2).await, ["+a 1", "~a 1>2"]);
    assert_eq!(scene.cache.get("a").unwrap().resource_version, "3");
}

#[tokio::test(start_paused = true)]
async fn what_vanished_unwatched_is_deleted_and_what_was_recreated_is_deleted_and_added() {
    let (first, first_reply) = Watch::new();
    let (second, second_reply) = Watch::new();
    let gone = Reply::status(404, "NotFound");
    let scene = Scene::start(keep_l(), vec![first_reply, second_reply, gone]);
    for name in ["gone", "same", "new"] {
        first.send("ADDED", wire(name, "1", &json!({})));
    }
    first.end_of_list("Node", "1");
    scene.changes(3).await;
    // The server ends the watch as it does once it no longer has the versions in between.
    first.send("ERROR", json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}));
    second.send("ADDED", wire("same", "1", &json!({})));
    let mut recreated = wire("new", "9", &json!({}));
    recreated["metadata"]["uid"] = json!("another");
    second.send("ADDED", recreated);
    second.end_of_list("Node", "9");
    assert_eq!(scene.changes(3).await, ["-new -", "+new -", "-gone -"]);
    assert!(scene.cache.get("gone").is_none());
    assert!(scene.cache.is_synced());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_by_pages() {
    for refusal in [Reply::invalid("sendInitialEvents is forbidden", &["sendInitialEvents"]), Reply::Silence]
    {
        let (watch, reply) = Watch::new();
        let list = json!({
            "kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
            "items": [wire("a", "1", &json!({"l": "1"}))],
        });
        let scene = Scene::start(keep_l(), vec![refusal, Reply::ok(list), reply]);
        scene.synced().await;
        watch.send("DELETED", wire("a", "6", &json!({})));
        assert_eq!(scene.changes(2).await, ["+a 1", "-a -"]);
        let calls = scene.server.take_calls();
        assert!(!calls[1].is_watch() && calls[2].query.contains("resourceVersion=5"), "{calls:#?}");
    }
}

/// A tenant's Services of a megabyte each stand beside each other in a list, and would be one page.
#[tokio::test(start_paused = true)]
async fn large_objects_come_in_small_pages() {
    let big = |name: &str| wire(name, "1", &json!({"big": "x".repeat(20 << 20)}));
    let scene = Scene::start_with(keep_l(), move |call| {
        let asks = |part: &str| call.query.split('&').any(|one| one == part);
        let (next, items) = match (asks("limit=1"), asks("continue=next")) {
            _ if call.is_watch() && call.query.contains("sendInitialEvents") => {
                return Reply::status(400, "BadRequest");
            }
            _ if call.is_watch() => return Reply::Silence,
            (true, false) => ("next", vec![big("a")]),
            (true, true) => ("", vec![big("b")]),
            (false, _) => ("", vec![big("a"), big("b")]),
        };
        let metadata = json!({"resourceVersion": "5", "continue": next});
        Reply::ok(json!({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items}))
    });
    assert_eq!(scene.changes(2).await, ["+a -", "+b -"]);
    scene.synced().await;
}

#[tokio::test(start_paused = true)]
async fn errors_back_off_and_do_not_end_the_watch() {
    let (watch, reply) = Watch::new();
    let failures = (0..3).map(|_| Reply::status(429, "TooManyRequests"));
    let scene = Scene::start(keep_l(), failures.chain([reply]).collect());
    watch.send("ADDED", wire("a", "1", &json!({})));
    watch.end_of_list("Node", "1");
    let start = tokio::time::Instant::now();
    scene.synced().await;
    assert!(start.elapsed() >= Duration::from_secs(2), "three errors waited only {:?}", start.elapsed());
    assert_eq!(scene.server.take_calls().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn wanting_more_lists_anew_and_wanting_less_does_nothing() {
    let (first, first_reply) = Watch::new();
    let (second, second_reply) = Watch::new();
    let scene = Scene::start(Keep::default(), vec![first_reply, second_reply]);
    first.send("ADDED", wire("a", "1", &json!({"l": "1"})));
    first.end_of_list("Node", "1");
    scene.synced().await;
    assert_eq!(scene.changes(1).await, ["+a -"]);
    assert!(!scene.cache.kept("a", &Keep::default()).await, "nothing more is wanted");
    scene.cache.set_keep("a", &keep_l());
    assert!(!scene.cache.holds(&keep_l()), "what is cached was projected with less");
    assert!(scene.cache.is_synced(), "and is enough for whoever wants no more");
    assert_eq!(scene.cache.get("a").unwrap().labels.get("l"), None, "and stays readable");
    second.send("ADDED", wire("a", "1", &json!({"l": "1"})));
    second.end_of_list("Node", "1");
    assert!(scene.cache.kept("a", &keep_l()).await);
    assert_eq!(scene.changes(1).await, ["~a ->1"]);
}

/// A provider that wants another key at each handshake makes nobody wait but itself.
#[tokio::test(start_paused = true)]
async fn a_list_ends_however_often_a_provider_wants_more() {
    let (first, first_reply) = Watch::new();
    let (second, second_reply) = Watch::new();
    let (third, third_reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![first_reply, second_reply, third_reply]);
    first.end_of_list("Node", "1");
    scene.synced().await;
    let key = |number: usize| Keep { labels: KeySet::keys([format!("key-{number}")]), ..Keep::default() };
    for number in 0..3 {
        scene.cache.set_keep("fickle", &key(number));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(scene.cache.holds(&keep_l()), "what others want is known");
    }
    assert_eq!(scene.server.take_calls().len(), 2, "the list of its first wishes goes on");
    second.end_of_list("Node", "1");
    third.end_of_list("Node", "1");
    assert!(scene.cache.kept("fickle", &key(2)).await);
}

/// Core L8: whatever one provider has wanted before, another gets what it wants.
#[tokio::test]
async fn no_provider_uses_up_the_keys_of_another() {
    let scene = Scene::start(Keep::default(), vec![]);
    let keys = |from: usize| Keep {
        labels: KeySet::keys((from..from + 1_500).map(|number| format!("key-{number}"))),
        ..Keep::default()
    };
    for change in 0..10 {
        scene.cache.set_keep("fickle", &keys(change * 1_500));
    }
    assert_eq!(scene.cache.keep().len(), 3_000, "each new key costs a list");
    scene.cache.set_keep("late", &keys(30_000));
    assert_eq!(scene.cache.keep().len(), 4_500);
}

/// H1: a tenant who renames annotations again and again fills no memory.
#[tokio::test(start_paused = true)]
async fn keys_that_were_renamed_are_not_kept() {
    let (watch, reply) = Watch::new();
    let keep = Keep { labels: KeySet::all(), ..Keep::default() };
    let scene = Scene::start(keep, vec![reply]);
    watch.send("ADDED", wire("a", "1", &json!({})));
    watch.end_of_list("Node", "1");
    scene.synced().await;
    const EDITS: usize = 20_000;
    for edit in 0..EDITS {
        watch.send("MODIFIED", wire("a", &(edit + 2).to_string(), &json!({format!("key-{edit}"): ""})));
    }
    scene.changes(EDITS + 1).await;
    let kept = scene.cache.0.interner.len();
    assert!(kept < 1_000, "{kept} keys are kept of one object that has one");
}

#[tokio::test(start_paused = true)]
async fn a_late_subscriber_hears_of_everything() {
    let (watch, reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![reply]);
    watch.send("ADDED", wire("a", "1", &json!({})));
    scene.changes(1).await;
    let late: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let logged = Arc::clone(&late);
    scene.cache.subscribe(move |change: &Change<Node>| logged.lock().push(describe(change)));
    watch.send("ADDED", wire("b", "2", &json!({})));
    scene.changes(1).await;
    assert_eq!(*late.lock(), ["+a -", "+b -"]);
}

#[test]
fn the_index_follows_the_provider_id() {
    let mut store = Store::<Node>::default();
    let names = |store: &Store<Node>, id: &str| -> Vec<String> {
        store.by_index(id).iter().map(|node| node.name.clone()).collect()
    };
    store.put(node("a").version("1"));
    store.put(node("a").version("2").with_provider_id("x"));
    store.put(node("b").with_provider_id("x"));
    assert_eq!(names(&store, "x"), ["a", "b"]);
    store.put(node("a").version("3").with_provider_id("y"));
    assert_eq!((names(&store, "x"), names(&store, "y")), (vec!["b".to_owned()], vec!["a".to_owned()]));
    store.remove(&"b".to_owned(), Some(node("b")));
    store.begin_list();
    store.end_list();
    assert!(names(&store, "x").is_empty() && names(&store, "y").is_empty());
}
