//! Correlation by table, and the writer against an apiserver in memory on a paused clock.

use ::apiserver::{ApiServer, Asked, Fault, Verb};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{correlate::Correlator, *};
use crate::fixtures::{node, refusal, service};

fn raised(name: &str, reason: &'static str, message: &str) -> Raised {
    Raised {
        component: "cloud-node",
        regarding: (&node(name)).into(),
        type_: EventType::Normal,
        reason: reason.into(),
        message: message.to_owned(),
        at: Timestamp::UNIX_EPOCH,
        since: Instant::now(),
    }
}

/// Count and message of the written event, `None` for spam.
fn verdict(correlator: &mut Correlator, mut raised: Raised, now: Instant) -> Option<(u32, String)> {
    let occurrence = correlator.correlate(&mut raised, now)?;
    Some((occurrence.count, raised.message))
}

#[tokio::test(start_paused = true)]
async fn repeats_become_a_count_under_one_name() {
    let (mut correlator, now) = (Correlator::default(), Instant::now());
    let mut names = Vec::new();
    for count in 1..=3 {
        let Some(occurrence) = correlator.correlate(&mut raised("a", "Synced", "m"), now) else {
            panic!("spam after {count}")
        };
        assert_eq!(occurrence.count, count);
        names.push(occurrence.name);
    }
    assert!(names.iter().all(|name| *name == names[0]) && names[0].starts_with("a."), "{names:?}");
    let Some(other) = correlator.correlate(&mut raised("a", "Synced", "n"), now) else { panic!("spam") };
    assert_ne!(other.name, names[0], "events of one moment have names of their own");
}

#[tokio::test(start_paused = true)]
async fn more_than_ten_different_messages_about_one_thing_are_combined() {
    let (mut correlator, now) = (Correlator::default(), Instant::now());
    for number in 0..10 {
        let got = verdict(&mut correlator, raised("a", "R", &format!("m{number}")), now);
        assert_eq!(got, Some((1, format!("m{number}"))));
    }
    let combined = |n: u32| format!("(combined from similar events): m{n}");
    for (count, number) in [(1, 10), (2, 11)] {
        let got = verdict(&mut correlator, raised("a", "R", &format!("m{number}")), now);
        assert_eq!(got, Some((count, combined(number))));
    }
    assert_eq!(verdict(&mut correlator, raised("a", "Other", "m12"), now), Some((1, "m12".to_owned())));
    assert_eq!(verdict(&mut correlator, raised("b", "R", "m12"), now), Some((1, "m12".to_owned())));
    let later = now + Duration::from_secs(601);
    assert_eq!(verdict(&mut correlator, raised("a", "R", "m13"), later), Some((1, "m13".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn one_object_raises_25_at_once_and_then_one_every_five_minutes() {
    let (mut correlator, now) = (Correlator::default(), Instant::now());
    let mut burst = |name: &str, at| {
        (0..40).filter(|_| verdict(&mut correlator, raised(name, "R", "m"), at).is_some()).count()
    };
    assert_eq!(burst("a", now), 25);
    assert_eq!(burst("b", now), 25, "each object has its own budget");
    assert_eq!(burst("a", now + Duration::from_secs(299)), 0);
    assert_eq!(burst("a", now + Duration::from_secs(301)), 1);
    assert_eq!(burst("a", now + Duration::from_secs(1_000_000)), 25);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_the_recent_is_remembered() {
    let (mut correlator, now) = (Correlator::default(), Instant::now());
    for number in 0..20_000 {
        verdict(&mut correlator, raised(&format!("n{number}"), "R", "m"), now);
    }
    assert_eq!(verdict(&mut correlator, raised("n19999", "R", "m"), now), Some((2, "m".to_owned())));
    assert_eq!(verdict(&mut correlator, raised("n0", "R", "m"), now), Some((1, "m".to_owned())));
}

struct Scene {
    server: ApiServer,
    events: Arc<Events>,
    recorder: Recorder,
    pressure: WritePressure,
    metrics: EventMetrics,
    cancel: CancellationToken,
}

fn scene() -> Scene {
    let server = ApiServer::default();
    server.world().namespace("shop");
    let (pressure, metrics) = (WritePressure::default(), crate::KubeMetrics::default().events);
    let (events, writer) = Events::new(server.client("host"), pressure.clone(), metrics.clone());
    let cancel = CancellationToken::new();
    tokio::spawn(writer.run(cancel.clone()));
    let recorder = events.recorder("cloud-node");
    Scene { server, events, recorder, pressure, metrics, cancel }
}

/// A scene in which every request fails with this fault.
fn bad_scene(fault: Fault) -> Scene {
    let scene = scene();
    scene.server.faults().every(|_| true, fault).stay();
    scene
}

/// Waits until nothing is pending, without flushing.
async fn settled(events: &Events) {
    let mut pending = events.pending.subscribe();
    let settled = timeout(Duration::from_secs(3600), pending.wait_for(|pending| *pending == 0)).await;
    settled.expect("events stay pending").unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_looks_as_upstreams_and_its_repeat_is_a_patch() {
    let scene = scene();
    let first = Timestamp::now();
    for _ in 0..2 {
        scene.recorder.record(&node("a"), EventType::Normal, "Synced", "initialised");
    }
    let warned = service("s").in_namespace("shop");
    scene.recorder.record(&warned, EventType::Warning, "SyncLoadBalancerFailed", "boom");
    settled(&scene.events).await;
    let calls = scene.server.take_requests();
    let lines: Vec<_> = calls.iter().map(Asked::line).collect();
    let bodies: Vec<_> = calls.iter().map(Asked::json).collect();
    let name = bodies[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        lines,
        [
            "POST /api/v1/namespaces/default/events".to_owned(),
            format!("PATCH /api/v1/namespaces/default/events/{name}"),
            "POST /api/v1/namespaces/shop/events".to_owned(),
        ]
    );
    let body = &bodies[0];
    let want = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "a-uid"});
    assert_eq!(body["involvedObject"], want, "LIFE-25");
    assert_eq!(body["source"], json!({"component": "cloud-node"}));
    let fields =
        ["type", "reason", "message", "reportingComponent", "count"].map(|field| body[field].clone());
    assert_eq!(
        fields,
        [json!("Normal"), json!("Synced"), json!("initialised"), json!("cloud-node"), json!(1)]
    );
    assert!(
        body["firstTimestamp"]
            .as_str()
            .unwrap()
            .parse::<Timestamp>()
            .unwrap()
            .duration_since(first)
            .as_secs()
            < 2
    );
    assert_eq!(bodies[1]["count"], json!(2));
    assert_eq!(
        (&bodies[2]["type"], &bodies[2]["involvedObject"]["namespace"]),
        (&json!("Warning"), &json!("shop"))
    );
    assert_eq!(scene.metrics.written.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_written_afresh() {
    let scene = scene();
    let patched = |asked: &Asked| asked.verb == Some(Verb::Patch);
    scene.server.faults().next(patched, Fault::Refuse(refusal(404, "NotFound")));
    for _ in 0..2 {
        scene.recorder.record(&node("a"), EventType::Normal, "R", "m");
    }
    settled(&scene.events).await;
    let calls = scene.server.take_requests();
    assert_eq!(calls.iter().map(|call| call.method.as_str()).collect::<Vec<_>>(), ["POST", "PATCH", "POST"]);
    assert_eq!(calls[2].json()["count"], json!(2));
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_writes_that_matter() {
    let scene = scene();
    let held = scene.pressure.hold();
    let start = Instant::now();
    scene.recorder.record(&node("a"), EventType::Normal, "R", "m");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(scene.server.take_requests().is_empty(), "a write is in flight");
    drop(held);
    settled(&scene.events).await;
    assert_eq!(start.elapsed(), Duration::from_millis(5_100));
    assert_eq!(scene.server.take_requests().len(), 1);
}

/// A node has two writes with a call to the cloud between: no event comes in the way of the second.
#[tokio::test(start_paused = true)]
async fn events_wait_between_writes_of_one_burst() {
    let scene = scene();
    scene.recorder.record(&node("b"), EventType::Normal, "R", "before the burst");
    settled(&scene.events).await;
    scene.server.take_requests();
    let held = scene.pressure.hold();
    scene.recorder.record(&node("a"), EventType::Normal, "R", "m");
    drop(held);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(90)).await;
        drop(scene.pressure.hold());
        assert!(scene.server.take_requests().is_empty(), "the burst goes on");
    }
    settled(&scene.events).await;
    assert_eq!(scene.server.take_requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn endless_writes_do_not_starve_events() {
    let scene = scene();
    let _held = scene.pressure.hold();
    let start = Instant::now();
    for name in ["a", "b", "c"] {
        scene.recorder.record(&node(name), EventType::Normal, "R", "m");
    }
    settled(&scene.events).await;
    assert_eq!(start.elapsed(), Duration::from_millis(10_400), "after 10 s, then one every 200 ms");
}

/// A Service that two tools fight over: what is too much of it costs the node's event no time.
#[tokio::test(start_paused = true)]
async fn spam_does_not_hold_up_the_events_of_others() {
    let scene = scene();
    let _held = scene.pressure.hold();
    let start = Instant::now();
    for number in 0..200 {
        let about = Regarding::core("Service", Some("shop"), "web", "u");
        scene.recorder.record(about, EventType::Warning, "R", format!("m{number}"));
    }
    scene.recorder.record(&node("a"), EventType::Warning, "NodeDeletionBlocked", "m");
    settled(&scene.events).await;
    let of_node = |request: &Asked| request.json()["involvedObject"]["kind"] == "Node";
    assert!(scene.server.take_requests().iter().any(of_node));
    assert_eq!(start.elapsed(), Duration::from_millis(10_000 + 25 * 200), "of the Service, 25 are written");
}

/// One namespace may hold many objects, each with a budget of its own.
#[tokio::test(start_paused = true)]
async fn a_namespace_does_not_fill_the_queue() {
    let events = Events::detached(crate::KubeMetrics::default().events);
    let recorder = events.recorder("test");
    for number in 0..2 * CAPACITY {
        let name = number.to_string();
        let about = Regarding::core("Service", Some("shop"), &name, &name);
        recorder.record(about, EventType::Warning, "R", "m");
    }
    recorder.record(&node("a"), EventType::Warning, "NodeDeletionBlocked", "m");
    let other = Regarding::core("Service", Some("other"), "web", "u");
    recorder.record(other, EventType::Warning, "R", "m");
    assert_eq!(events.take().len(), SHARE + 2);
}

#[tokio::test(start_paused = true)]
async fn flushing_does_not_wait_for_writes_and_is_bounded() {
    let scene_ok = scene();
    let _held = scene_ok.pressure.hold();
    let start = Instant::now();
    scene_ok.recorder.record(&node("a"), EventType::Normal, "R", "m");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(scene_ok.events.flush(Duration::from_secs(5)).await);
    assert_eq!(start.elapsed(), Duration::from_secs(1));

    let silent = bad_scene(Fault::Hang);
    silent.recorder.record(&node("a"), EventType::Normal, "R", "m");
    let start = Instant::now();
    assert!(!silent.events.flush(Duration::from_secs(5)).await);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

/// M6: tenants and providers choose some of its words.
#[tokio::test(start_paused = true)]
async fn a_message_is_cut() {
    let events = Events::detached(crate::KubeMetrics::default().events);
    events.recorder("test").record(&node("a"), EventType::Normal, "R", "ä".repeat(250 << 10));
    let message = events.take().remove(0).2;
    assert!(message.len() <= 1024 && message.starts_with('ä') && message.ends_with('…'), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_the_newest_and_says_so() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = crate::KubeMetrics::register(&mut registry).events;
    let events = Events::detached(metrics);
    let recorder = events.recorder("test");
    for number in 0..CAPACITY + 7 {
        recorder.record(&node("a"), EventType::Warning, "R", number.to_string());
    }
    let kept = events.take();
    assert_eq!((kept.len(), kept[0].2.as_str()), (CAPACITY, "0"));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"ccm_events_discarded_total{reason="overflow"} 7"#), "{text}");
}

/// Two thousand nodes join at once, and something goes wrong.
#[tokio::test(start_paused = true)]
async fn what_is_normal_leaves_room_for_warnings() {
    let events = Events::detached(crate::KubeMetrics::default().events);
    let recorder = events.recorder("test");
    for number in 0..2 * CAPACITY {
        recorder.record(&node(&number.to_string()), EventType::Normal, "Synced", "m");
    }
    recorder.record(&node("bad"), EventType::Warning, "Bad", "m");
    recorder.record(&service("web"), EventType::Warning, "Bad", "m");
    let kept = events.take();
    assert_eq!((kept.len(), kept.iter().filter(|one| one.1 == "Bad").count()), (3 * SHARE + 2, 2));
}

/// A right that is missing is somebody's to give; a namespace that is being deleted is nobody's fault.
#[tokio::test(start_paused = true)]
async fn what_goes_with_its_namespace_is_not_lost() {
    let server = ApiServer::default();
    server.world().namespace("shop");
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = crate::KubeMetrics::register(&mut registry).events;
    let (events, writer) = Events::new(server.client("host"), WritePressure::default(), metrics);
    tokio::spawn(writer.run(CancellationToken::new()));
    server.world().delete::<k8s_openapi::api::core::v1::Namespace>("", "shop").unwrap();
    let mut web = service("web");
    web.key.namespace = "shop".into();
    events.recorder("test").record(&web, EventType::Normal, "R", "m");
    settled(&events).await;
    web.key.namespace = "gone".into();
    events.recorder("test").record(&web, EventType::Normal, "R", "m");
    settled(&events).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"ccm_events_discarded_total{reason="namespace"} 2"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_what_is_refused_is_not() {
    for (code, attempts) in [(500, 4), (429, 4), (403, 1), (409, 1)] {
        let scene = bad_scene(Fault::Refuse(refusal(code, "R")));
        scene.recorder.record(&node("a"), EventType::Normal, "R", "m");
        settled(&scene.events).await;
        assert_eq!(scene.server.take_requests().len(), attempts, "{code}");
        assert_eq!(scene.metrics.written.get(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn when_cancelled_nothing_stays_pending() {
    let scene = bad_scene(Fault::Hang);
    for name in ["a", "b"] {
        scene.recorder.record(&node(name), EventType::Normal, "R", "m");
    }
    while scene.server.take_requests().is_empty() {
        // Any wait will do: on the paused clock it ends once everything else is idle.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    scene.cancel.cancel();
    settled(&scene.events).await;
    assert_eq!(json!(scene.metrics.queued.get()), Value::from(0));
}
