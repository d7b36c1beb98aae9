//! A pass starts before its period is over if there is a reason.

use super::*;

/// A cluster of three Ready nodes; the instance of one of them is gone.
async fn terminated() -> Scene {
    let names = ["a", "b", "c"];
    let scene = Scene::start(names.map(ready), |fake| {
        for name in ["a", "b"] {
            fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
        }
    })
    .await;
    names.iter().for_each(|name| scene.server.renew_lease(name));
    scene.passes(3).await;
    assert!(scene.server.node("c").is_some(), "a Ready node is not asked about");
    scene
}

fn fall_silent(scene: &Scene, name: &str) {
    scene.server.stop_lease(name, SignedDuration::from_secs(60));
    scene.server.edit(name, |node| node["status"]["conditions"][0]["status"] = json!("Unknown"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_is_looked_at_at_once() {
    let scene = terminated().await;
    fall_silent(&scene, "c");
    sleep(Duration::from_millis(900)).await;
    assert_eq!(scene.server.node("c"), None);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_providers_word_on_a_silent_node_is_followed_at_once() {
    for key in ["fake://c", "c"] {
        let scene = Scene::start(["a", "c"].map(silent), |fake| {
            for name in ["a", "c"] {
                fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
            }
        })
        .await;
        sleep(Duration::from_secs(1)).await;
        scene.fake.set_state("c", InstanceState::Absent);
        scene.fake.notify_change(key);
        sleep(Duration::from_millis(400)).await;
        assert_eq!(scene.server.node("c"), None, "{key}");
        scene.stop().await;
    }
}

/// Concurrent reasons start one pass, passes keep a distance, and reports about Ready nodes are no reason.
#[tokio::test(start_paused = true)]
async fn reasons_are_gathered() {
    let scene = Scene::start([silent("n"), ready("r")], |fake| {
        fake.set_instance("n", InstanceState::Running, instance("fake://n"));
    })
    .await;
    scene.fake.take_calls();
    for _ in 0..40 {
        scene.fake.notify_change("fake://n");
        scene.fake.notify_change("fake://r");
        sleep(Duration::from_millis(50)).await;
    }
    let calls = scene.fake.take_calls().len();
    assert!((3..=4).contains(&calls), "{calls} looks within two seconds");
    sleep(Duration::from_secs(1)).await;
    scene.fake.take_calls();
    scene.fake.notify_change("fake://r");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.fake.take_calls(), []);
    scene.stop().await;
}

/// A provider has others asked about nodes that may be theirs only at the pace of each node.
#[tokio::test(start_paused = true)]
async fn one_provider_does_not_have_another_one_asked_all_the_time() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    let nameless = Node { provider_id: None, ..silent("n") };
    let scene =
        Scene::on(NodeServer::new([nameless]), Arc::clone(&fake), vec![Arc::clone(&other)], settings()).await;
    other.take_calls();
    for _ in 0..1_200 {
        fake.notify_change("n");
        sleep(Duration::from_millis(50)).await;
    }
    let calls = other.take_calls().len();
    assert!(calls <= 40, "{calls} in a minute");
    scene.stop().await;
}
