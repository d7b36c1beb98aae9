use super::*;
use ccm_cloud::{ErrorReason, Freshness, InstanceView};

/// LIFE-13, LIFE-28, LIFE-29, NW-8, NW-9: the taint follows the cloud both ways, and is written only when it differs.
#[tokio::test(start_paused = true)]
async fn the_taint_follows_the_machine() {
    let scene = Scene::start([silent("n").with_taint("dedicated", "x", "NoExecute")], |fake| {
        fake.set_instance("n", InstanceState::Stopped, instance("fake://n"));
    })
    .await;
    let both = json!([
        {"key": "dedicated", "value": "x", "effect": "NoExecute"},
        {"key": taint::SHUTDOWN, "effect": "NoSchedule"},
    ]);
    assert_eq!(scene.server.part("n", "/spec/taints"), both);
    assert_eq!(scene.server.take_lines(), ["PATCH n"]);
    scene.passes(10).await;
    assert_eq!(scene.server.take_lines(), [""; 0], "tainted already: not even a read");
    scene.fake.set_state("n", InstanceState::Running);
    scene.passes(1).await;
    assert!(!is_tainted(&scene, "n"));
    assert_eq!(scene.server.take_lines(), ["PATCH n"]);
    assert_eq!(scene.events(), []);
    scene.stop().await;
}

/// LIFE-20, LIFE-27: a Ready node is not asked about, and loses the taint.
#[tokio::test(start_paused = true)]
async fn a_ready_node_is_not_asked_about() {
    let ready = node("n").with_provider_id("fake://n").ready().with_taint(taint::SHUTDOWN, "", "NoSchedule");
    let scene = Scene::start([ready], |fake| {
        fake.set_instance("n", InstanceState::Stopped, instance("fake://n"));
        fake.set_status(ProviderStatus::Disconnected("no socket".to_owned()));
    })
    .await;
    assert_eq!(scene.server.part("n", "/spec/taints"), serde_json::Value::Null);
    scene.fake.set_status(ProviderStatus::Serving);
    scene.passes(3).await;
    assert_eq!(scene.server.take_lines(), ["PATCH n"]);
    assert_eq!(scene.fake.take_calls(), []);
    scene.stop().await;
}

/// NW-1, NW-4: one question per node and pass, all at once.
#[tokio::test(start_paused = true)]
async fn all_nodes_are_asked_about_at_once() {
    let names: Vec<_> = (0..50).map(|index| format!("n{index:02}")).collect();
    let scene = Scene::start(names.iter().map(|name| silent(name)), |fake| {
        for name in &names {
            fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
        }
        fake.set_latency(method::INSTANCE, Duration::from_secs(1));
    })
    .await;
    let calls = scene.fake.take_calls();
    assert_eq!(calls.len(), 50, "before the first was answered");
    let fresh = |call: &Call| {
        matches!(
            call,
            Call::Instance { view: InstanceView::Existence, freshness: Freshness::ReadThrough, .. }
        )
    };
    assert!(calls.iter().all(fresh), "{calls:?}");
    sleep(PERIOD).await;
    assert_eq!(scene.fake.take_calls(), [], "the period counts from the end of a pass");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.fake.take_calls().len(), 50);
    scene.stop().await;
}

/// LIFE-2, LIFE-16, LIFE-31: an unknown state changes nothing.
#[tokio::test(start_paused = true)]
async fn an_error_changes_nothing() {
    let tainted = silent("n").with_taint(taint::SHUTDOWN, "", "NoSchedule");
    let scene = Scene::start([tainted], |fake| {
        fake.fail_always(
            method::INSTANCE,
            Some(error(method::INSTANCE, Some(ErrorReason::InstanceNotFound))),
        );
    })
    .await;
    scene.passes(20).await;
    assert_eq!(scene.server.take_lines(), [""; 0]);
    assert!(is_tainted(&scene, "n"));
    scene.stop().await;
}

/// TNT-7 ours: a node written concurrently is left to the next pass.
#[tokio::test(start_paused = true)]
async fn a_write_that_meets_a_change_waits_for_the_next_pass() {
    let fake = FakeProvider::new("fake");
    fake.set_instance("n", InstanceState::Stopped, instance("fake://n"));
    fake.set_latency(method::INSTANCE, Duration::from_secs(1));
    let scene = Scene::start_with([silent("n")], fake, vec![]).await;
    let foreign = json!([{"key": "dedicated", "effect": "NoExecute"}]);
    scene.server.edit("n", |node| node["spec"]["taints"] = foreign.clone());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.server.part("n", "/spec/taints"), foreign, "the write was refused");
    scene.passes(2).await;
    assert!(is_tainted(&scene, "n"));
    assert_eq!(scene.server.part("n", "/spec/taints/0"), foreign[0]);
    scene.stop().await;
}

/// NW-24: a cache that has not synced is no list of nodes.
#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_the_cache_is_filled() {
    let (server, fake) = (NodeServer::new([silent("n")]), FakeProvider::new("fake"));
    let stage = Stage::empty(&REGISTRATION, server, &[Arc::clone(&fake)], stage::settings()).run();
    sleep(PERIOD * 10).await;
    assert_eq!(fake.take_calls(), []);
    stage.fill().await;
    stage.rest().await;
    assert_eq!(fake.take_calls().len(), 1, "the first pass begins with the first whole list");
    stage.stop().await;
}

/// NW-22: an answer after shutdown writes nothing.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_end() {
    let fake = FakeProvider::new("fake");
    fake.set_instance("n", InstanceState::Stopped, instance("fake://n"));
    fake.set_latency(method::INSTANCE, Duration::from_secs(1));
    let scene = Scene::start_with([silent("n")], fake, vec![]).await;
    let server = scene.server.clone();
    scene.stop().await;
    sleep(PERIOD * 10).await;
    assert_eq!(server.take_lines(), [""; 0]);
}

/// D35, NW-4: a provider that hangs delays only its own nodes, and those that may be its own.
#[tokio::test(start_paused = true)]
async fn a_hanging_provider_holds_up_only_its_own() {
    for first in ["hanging", "well"] {
        let (hanging, well) = (FakeProvider::new("hanging"), FakeProvider::new("well"));
        hanging.set_latency(method::INSTANCE, Duration::from_secs(86_400));
        well.set_instance("b", InstanceState::Stopped, instance("well://b"));
        let nodes = [
            node("a").with_provider_id("hanging://a").not_ready(),
            node("b").with_provider_id("well://b").not_ready(),
            node("c").not_ready(),
        ];
        let (fake, other) = if first == "well" { (well, hanging) } else { (hanging, well) };
        let scene = Scene::start_with(nodes, fake, vec![other]).await;
        assert!(is_tainted(&scene, "b"), "{first} is first");
        let before = Instant::now();
        scene.stop().await;
        assert!(before.elapsed() < Duration::from_secs(1), "and it does not hold up the end");
    }
}
