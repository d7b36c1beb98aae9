//! H2: an object that cannot be read is one object.

use std::io::Write;

use tracing::subscriber::NoSubscriber;

use super::*;

#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A Node that no apiserver of this version would write.
fn unreadable(name: &str, version: &str) -> Value {
    let mut node = wire(name, version, &json!({"l": "new"}));
    node["spec"]["unschedulable"] = json!("x");
    node
}

fn page(version: &str, items: &[Value]) -> Reply {
    Reply::ok(json!({
        "kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items,
    }))
}

impl Scene {
    fn unreadable(&self) -> u64 {
        self.cache.0.metrics.unreadable.get()
    }
}

#[tokio::test(start_paused = true)]
async fn it_holds_up_no_list() {
    let objects = || [wire("a", "1", &json!({})), unreadable("b", "2"), wire("c", "3", &json!({}))];
    let (watch, streamed) = Watch::new();
    objects().into_iter().for_each(|object| watch.send("ADDED", object));
    watch.end_of_list("Node", "3");
    let refused = Reply::status(400, "BadRequest");
    let (paged_watch, opened) = Watch::new();
    for replies in [vec![streamed], vec![refused, page("3", &objects()), opened]] {
        let scene = Scene::start(keep_l(), replies);
        scene.synced().await;
        assert_eq!(scene.changes(2).await, ["+a -", "+c -"]);
        assert_eq!((scene.cache.list().len(), scene.unreadable()), (2, 1));
    }
    drop((watch, paged_watch));
}

/// It keeps its last known state for as long as it exists, over lists, too.
#[tokio::test(start_paused = true)]
async fn it_stays_as_it_was_until_it_goes() {
    let (first, first_reply) = Watch::new();
    let (second, second_reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![first_reply, second_reply]);
    for name in ["a", "b"] {
        first.send("ADDED", wire(name, "1", &json!({"l": "old"})));
    }
    first.end_of_list("Node", "1");
    scene.changes(2).await;
    first.send("MODIFIED", unreadable("b", "2"));
    first.send("MODIFIED", wire("a", "3", &json!({"l": "1"})));
    assert_eq!(scene.changes(1).await, ["~a old>1"], "the next one is read");
    assert_eq!(scene.unreadable(), 1);

    scene.cache.list_anew();
    second.send("ADDED", wire("a", "3", &json!({"l": "2"})));
    second.send("ADDED", unreadable("b", "2"));
    second.end_of_list("Node", "4");
    scene.synced().await;
    assert_eq!(scene.changes(1).await, ["~a 1>2"], "a listed object is not gone");
    assert_eq!(scene.cache.get("b").unwrap().labels.get("l"), Some("old"));

    second.send("DELETED", unreadable("b", "5"));
    assert_eq!(scene.changes(1).await, ["-b old"]);
    assert_eq!((scene.cache.list().len(), scene.unreadable()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_log_names_it_once() {
    let log = Log::default();
    let lines = log.clone();
    // While there is only one subscriber, the thread that comes to a line first decides whether it is ever logged,
    // and a neighbour's thread has none.
    let _another = tracing::Dispatch::new(NoSubscriber::new());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let (watch, reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![reply]);
    watch.send("ADDED", unreadable("b", "1"));
    watch.end_of_list("Node", "1");
    watch.send("MODIFIED", unreadable("b", "2"));
    watch.send("ADDED", wire("c", "3", &json!({})));
    scene.changes(1).await;
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let named: Vec<_> = text.lines().filter(|line| line.contains("cannot be read")).collect();
    assert!(named.len() == 1 && named[0].contains("name=\"b\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn it_is_read_again_once_it_can_be() {
    let (watch, reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![reply]);
    watch.end_of_list("Node", "1");
    watch.send("ADDED", unreadable("b", "2"));
    watch.send("MODIFIED", wire("b", "3", &json!({"l": "1"})));
    assert_eq!(scene.changes(1).await, ["+b 1"]);
    assert_eq!(scene.unreadable(), 0);
}

/// The state of its predecessor is not its own.
#[tokio::test(start_paused = true)]
async fn another_one_of_its_name_is_gone() {
    let (watch, reply) = Watch::new();
    let scene = Scene::start(keep_l(), vec![reply]);
    watch.send("ADDED", wire("b", "1", &json!({})));
    watch.end_of_list("Node", "1");
    let mut recreated = unreadable("b", "2");
    recreated["metadata"]["uid"] = json!("another");
    watch.send("MODIFIED", recreated);
    assert_eq!(scene.changes(2).await, ["+b -", "-b -"]);
    assert_eq!((scene.cache.list().len(), scene.unreadable()), (0, 1));
}
