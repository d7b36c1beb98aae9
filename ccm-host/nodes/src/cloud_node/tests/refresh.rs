use super::*;
use serde_json::{Value, json};

use ccm_cloud::{
    ErrorReason, Freshness, Instance, InstanceAnswer, InstanceState, Maintenance, MaintenanceKind,
    fake::{error, instance, machine},
};

/// A node that matches `running`.
async fn initialised(names: &[&str]) -> Scene {
    let scene = Scene::start(names.iter().map(|name| new_node(name)), |fake| {
        for name in names {
            fake.set_answer(name, running(name));
        }
    })
    .await;
    for name in names {
        scene.until_initialised(name).await;
    }
    scene.questions();
    scene.server.take_calls();
    scene.events.take();
    scene
}

fn freshness(scene: &Scene) -> Vec<Freshness> {
    let calls = scene.fake.take_calls();
    calls
        .into_iter()
        .map(|call| match call {
            Call::Instance { freshness, .. } => freshness,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// NW-3, NW-11: one sweep per period, without nodes that were asked about just before.
#[tokio::test(start_paused = true)]
async fn every_node_is_asked_about_once_a_period() {
    let scene = initialised(&["a", "b"]).await;
    sleep(PERIOD - Duration::from_secs(1)).await;
    assert_eq!(scene.questions(), 0, "no storm of reads right after the start");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(freshness(&scene), [Freshness::AtMost(PERIOD); 2]);
    sleep(PERIOD * 3).await;
    assert_eq!(scene.questions(), 6);
    assert_eq!(scene.server.take_lines(), [""; 0], "nothing differs, nothing is written");
    assert_eq!(scene.reasons(), [""; 0]);

    sleep(PERIOD * 9 / 10).await;
    scene.fake.set_answer("late", running("late"));
    scene.server.put(&new_node("late"));
    scene.until_initialised("late").await;
    scene.questions();
    sleep(PERIOD / 5).await;
    assert_eq!(scene.questions(), 2, "the new one was asked about just before");
    sleep(PERIOD).await;
    assert_eq!(scene.questions(), 3);
    scene.stop().await;
}

/// ADDR-11, NW-1, NW-3: however few may write, a sweep asks about each node once, and about all at once.
#[tokio::test(start_paused = true)]
async fn a_sweep_asks_once_about_each_node_however_few_may_write() {
    let names: Vec<_> = (0..100).map(|index| format!("n{index}")).collect();
    for workers in [1, 5, 10, 30] {
        let fake = FakeProvider::new("fake");
        for name in &names {
            fake.set_answer(name, running(name));
        }
        fake.set_latency(method::INSTANCE, Duration::from_millis(10));
        let nodes = names.iter().map(|name| node(name).with_provider_id(&format!("fake://{name}")));
        let scene = Scene::start_with(nodes, fake, vec![], |settings| {
            settings.concurrent_node_syncs = workers;
        })
        .await;
        sleep(Duration::from_millis(5)).await;
        assert_eq!(scene.questions(), 100, "before the first answer, with {workers} workers");
        sleep(PERIOD).await;
        assert_eq!(scene.questions(), 100, "and once more a period later");
        scene.stop().await;
    }
}

/// After a restart of the host every node is asked about once, and nothing written.
#[tokio::test(start_paused = true)]
async fn a_restart_looks_at_all_and_writes_nothing() {
    let scene = initialised(&["a", "b", "c"]).await.restart().await;
    sleep(PERIOD / 2).await;
    assert_eq!(scene.questions(), 3);
    assert_eq!(scene.server.take_lines(), [""; 0]);
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

/// NW-2, NW-11: a change that the provider reports is read at once, and written.
#[tokio::test(start_paused = true)]
async fn a_change_in_the_cloud_is_followed_at_once() {
    let scene = initialised(&["a", "b"]).await;
    let mut moved = running("a");
    let machine = moved.instance.as_mut().unwrap();
    machine.zone = Some("zone-2".to_owned());
    machine.addresses[0].address = "10.0.0.2".to_owned();
    scene.fake.set_answer("a", moved);
    for key in ["fake://a", "nobody://x"] {
        scene.fake.notify_change(key);
    }
    scene.rest().await;
    assert_eq!(freshness(&scene), [Freshness::NOW]);
    assert_eq!(scene.server.take_lines(), ["PATCH a/status", "PATCH a"]);
    assert_eq!(scene.server.part("a", "/metadata/labels/topology.kubernetes.io~1zone"), "zone-2");
    assert_eq!(scene.server.part("a", "/metadata/labels/failure-domain.beta.kubernetes.io~1zone"), "zone-2");
    scene.fake.notify_change("b");
    scene.rest().await;
    assert_eq!(scene.questions(), 1, "by the name of the node, too");
    scene.fake.request_sweep();
    scene.rest().await;
    assert_eq!(freshness(&scene), [Freshness::NOW; 2], "changes were missed: everything");
    scene.stop().await;
}

/// N4: a flapping provider does not cause everything to be asked about all the time.
#[tokio::test(start_paused = true)]
async fn sweeps_that_are_wished_all_the_time_become_rare() {
    let scene = initialised(&["a"]).await;
    for _ in 0..1800 {
        scene.fake.request_sweep();
        sleep(Duration::from_secs(1)).await;
    }
    let asked = scene.questions();
    assert!((8..=16).contains(&asked), "asked {asked} times in half an hour");
    sleep(Duration::from_secs(900)).await;
    scene.questions();
    let mut moved = running("a");
    moved.instance.as_mut().unwrap().zone = Some("zone-2".to_owned());
    scene.fake.set_answer("a", moved);
    scene.fake.request_sweep();
    scene.rest().await;
    assert_eq!(freshness(&scene), [Freshness::NOW], "one that comes alone is made at once");
    scene.fake.request_sweep();
    scene.rest().await;
    assert_eq!(scene.questions(), 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(freshness(&scene), [Freshness::NOW], "the next a little later, and never lost");
    scene.stop().await;
}

/// Changes found by a sweep but not reported by the watch are counted, for providers that have a watch; reported ones
/// are not.
#[tokio::test(start_paused = true)]
async fn what_the_watch_missed_is_counted() {
    const SERIES: &str = r#"cloudprovider_watch_missed_total{provider="fake"} 1"#;
    for watched in [true, false] {
        let scene = initialised(&["a", "b"]).await;
        scene.fake.change_info(|info| info.watch_instances = watched);
        let moved = |name: &str| {
            let mut answer = running(name);
            answer.instance.as_mut().unwrap().zone = Some("zone-2".to_owned());
            answer
        };
        scene.fake.set_answer("a", moved("a"));
        scene.fake.notify_change("fake://a");
        scene.rest().await;
        sleep(PERIOD * 2).await;
        assert!(!scene.has_metric(SERIES), "it was told");
        scene.fake.set_answer("b", moved("b"));
        sleep(PERIOD * 2).await;
        assert_eq!(scene.has_metric(SERIES), watched);
        assert_eq!(scene.server.part("b", "/metadata/labels/topology.kubernetes.io~1zone"), "zone-2");
        scene.stop().await;
    }
}

/// Waiting nodes are retried at once when a provider comes back.
#[tokio::test(start_paused = true)]
async fn a_reconnect_wakes_nodes_that_wait() {
    let scene = Scene::start([new_node("n")], |fake| fake.set_state("n", InstanceState::Unspecified)).await;
    sleep(Duration::from_secs(900)).await;
    scene.fake.set_answer("n", running("n"));
    scene.fake.request_sweep();
    scene.rest().await;
    assert!(!scene.is_tainted("n"));
    scene.stop().await;
}

/// ADDR-12, NW-16: an answer of unknown state changes nothing, and is counted.
#[tokio::test(start_paused = true)]
async fn what_is_not_known_changes_nothing() {
    let scene = initialised(&["a"]).await;
    for state in [
        InstanceState::Unspecified,
        InstanceState::Absent,
        InstanceState::NotOwned,
        InstanceState::Terminating,
    ] {
        scene.fake.set_state("a", state);
        scene.fake.notify_change("fake://a");
        scene.rest().await;
        assert_eq!(scene.server.take_lines(), [""; 0], "{state:?}");
    }
    assert_eq!(scene.reasons(), ["InstanceNotOwned"]);
    assert!(scene.has_metric(r#"node_controller_failures_total{stage="refresh",reason="InstanceAbsent"} 1"#));
    scene.stop().await;
}

/// LBL-3, LBL-6, NW-12: the two names of the zone are made to agree without a question, also after a conflict.
#[tokio::test(start_paused = true)]
async fn a_users_zone_stays_under_both_names() {
    let scene = initialised(&["a"]).await;
    scene.server.edit("a", |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "mine".into());
    scene.server.answer_next_write(ccm_kube::fixtures::refusal(409, "Conflict"));
    scene.rest().await;
    assert_eq!(scene.server.take_lines(), ["PATCH a", "GET a", "PATCH a"]);
    assert_eq!(scene.server.part("a", "/metadata/labels/failure-domain.beta.kubernetes.io~1zone"), "mine");
    assert_eq!(scene.questions(), 0);
    sleep(PERIOD * 2).await;
    assert_eq!(
        scene.server.part("a", "/metadata/labels/topology.kubernetes.io~1zone"),
        "mine",
        "no sweep takes it back"
    );
    scene.stop().await;
}

/// A provider that reads its addresses from a map returns another order each time: that costs no write, and is
/// counted.
#[tokio::test(start_paused = true)]
async fn addresses_in_another_order_are_counted_and_not_written() {
    let scene = initialised(&["a"]).await;
    let mut another = running("a");
    let machine = another.instance.as_mut().unwrap();
    let second =
        ccm_cloud::InstanceAddress { address: "10.0.0.2".to_owned(), ..machine.addresses[0].clone() };
    machine.addresses.push(second);
    scene.fake.set_answer("a", another.clone());
    scene.fake.notify_change("fake://a");
    scene.rest().await;
    assert_eq!(scene.server.take_lines(), ["PATCH a/status"]);
    another.instance.as_mut().unwrap().addresses.reverse();
    scene.fake.set_answer("a", another);
    sleep(PERIOD * 3).await;
    assert_eq!(scene.server.take_lines(), [""; 0]);
    assert!(scene.has_metric("node_controller_reordered_addresses_total 3"));
    scene.server.edit("a", |node| node["metadata"]["annotations"][PROVIDED_NODE_IP] = "10.0.0.2".into());
    scene.rest().await;
    assert_eq!(scene.server.take_lines(), ["PATCH a/status"], "the kubelet was told which one leads");
    assert_eq!(scene.server.part("a", "/status/addresses/0/address"), "10.0.0.2");
    scene.stop().await;
}

/// A node that no provider owns, and one of someone else, keep their labels; one registered without a cloud provider
/// gets addresses only, as upstream does.
#[tokio::test(start_paused = true)]
async fn labels_of_nodes_that_are_not_ours_are_left_alone() {
    let zone = |node: Node| node.with_label("topology.kubernetes.io/zone", "theirs");
    let foreign = zone(node("foreign").with_provider_id("other://1"));
    let not_owned = zone(node("not-owned").with_provider_id("fake://not-owned"));
    let scene = Scene::start([foreign, not_owned, node("plain")], |fake| {
        fake.set_state("not-owned", InstanceState::NotOwned);
        fake.set_answer("plain", running("plain"));
    })
    .await;
    sleep(PERIOD * 2).await;
    for name in ["foreign", "not-owned"] {
        scene
            .server
            .edit(name, |node| node["metadata"]["labels"]["topology.kubernetes.io/region"] = "x".into());
    }
    sleep(PERIOD * 2).await;
    assert_eq!(scene.server.take_lines(), ["PATCH plain/status"]);
    scene.stop().await;
}

/// The kubelet was told to use another IP: addresses follow at once.
#[tokio::test(start_paused = true)]
async fn another_provided_ip_is_followed_at_once() {
    let scene = initialised(&["a"]).await;
    scene.server.edit("a", |node| node["metadata"]["annotations"][PROVIDED_NODE_IP] = "10.0.0.9".into());
    scene.rest().await;
    assert_eq!(scene.questions(), 1);
    assert_eq!(scene.server.take_lines(), [""; 0], "it is not the cloud's: the old addresses stay");
    assert_eq!(scene.reasons(), ["InvalidProvidedNodeIP"]);
    sleep(PERIOD * 2).await;
    assert_eq!(scene.reasons(), [""; 0], "said once");
    scene.stop().await;
}

/// NW-2: a new node has no provider ID yet, so a report names it, too.
#[tokio::test(start_paused = true)]
async fn a_report_about_a_new_node_ends_its_wait() {
    let scene = Scene::start([new_node("n")], |fake| fake.set_state("n", InstanceState::Pending)).await;
    sleep(Duration::from_secs(130)).await;
    scene.fake.set_answer("n", running("n"));
    for key in ["fake://n", "n"] {
        scene.fake.notify_change(key);
    }
    scene.rest().await;
    assert!(!scene.is_tainted("n"));
    scene.stop().await;
}

/// A read that was asked for because something changed, or may have changed, is made again if it fails.
#[tokio::test(start_paused = true)]
async fn a_change_whose_read_fails_is_read_later() {
    let unavailable = || error(method::INSTANCE, Some(ErrorReason::CloudApiUnavailable));
    type Trigger = fn(&Scene);
    let triggers: [(&str, Trigger); 2] = [
        ("a report", |scene| scene.fake.notify_change("fake://a")),
        ("a gap", |scene| scene.fake.request_sweep()),
    ];
    for (name, trigger) in triggers {
        for partly in [false, true] {
            let scene = initialised(&["a"]).await;
            scene.fake.change_info(|info| info.instance_sweep = Some(Duration::from_secs(24 * 3600)));
            let mut moved = running("a");
            moved.instance.as_mut().unwrap().zone = Some("zone-2".to_owned());
            match partly {
                false => scene.fake.fail_next(method::INSTANCE, unavailable()),
                true => scene.fake.set_answer(
                    "a",
                    InstanceAnswer {
                        error: Some(unavailable()),
                        ..machine(InstanceState::Unspecified, None)
                    },
                ),
            }
            trigger(&scene);
            scene.rest().await;
            scene.fake.set_answer("a", moved);
            sleep(Duration::from_secs(60)).await;
            let zone = scene.server.part("a", "/metadata/labels/topology.kubernetes.io~1zone");
            assert_eq!(zone, "zone-2", "{name}, {partly}");
            scene.stop().await;
        }
    }
}

/// However many nodes a sweep has in hand, a new one is initialised at once.
#[tokio::test(start_paused = true)]
async fn a_new_node_does_not_wait_for_a_sweep_of_all() {
    let fake = FakeProvider::new("fake");
    let nodes: Vec<_> =
        (0..9000).map(|i| node(&format!("n{i}")).with_provider_id(&format!("fake://n{i}"))).collect();
    fake.set_latency(method::INSTANCE, Duration::from_secs(20));
    fake.set_answer("late", running("late"));
    let scene = Scene::start_with(nodes, fake, vec![], |_| {}).await;
    sleep(Duration::from_secs(1)).await;
    scene.fake.set_latency(method::INSTANCE, Duration::from_secs(1));
    scene.server.put(&new_node("late"));
    sleep(Duration::from_secs(3)).await;
    assert!(!scene.is_tainted("late"));
    scene.stop().await;
}

/// F17: whose a node is may depend on a provider that comes late.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_nobodys_for_sure_is_asked_about_once_it_is() {
    let (fake, late) = (FakeProvider::new("fake"), FakeProvider::new("late"));
    fake.change_info(|info| info.instance_sweep = Some(Duration::from_secs(24 * 3600)));
    let known = late.info().unwrap();
    late.forget_info();
    let node = node("n").with_provider_id("fake://n");
    let scene = Scene::start_with([node], fake, vec![Arc::clone(&late)], |_| {}).await;
    sleep(PERIOD).await;
    assert_eq!(scene.questions(), 0);
    late.change_info(|info| *info = (*known).clone());
    late.request_sweep();
    scene.rest().await;
    assert_eq!(scene.questions(), 1);
    late.request_sweep();
    sleep(PERIOD).await;
    assert_eq!(scene.questions(), 0, "it is not the late one's");
    scene.stop().await;
}

/// Shown only where the operator wants it, and taken back when the cloud no longer plans it.
#[tokio::test(start_paused = true)]
async fn planned_maintenance_is_a_condition_of_the_node() {
    let planned = |maintenance| {
        let instance = Instance { maintenance, ..instance("fake://a") };
        machine(InstanceState::Running, Some(instance))
    };
    let reboot = || {
        let kind = MaintenanceKind::Reboot;
        planned(Some(Maintenance { kind, message: "kernel".to_owned(), ..Maintenance::default() }))
    };
    for (is_shown, want) in [(true, json!("True")), (false, json!(null))] {
        let fake = FakeProvider::new("fake");
        fake.set_answer("a", reboot());
        let scene = Scene::start_with([new_node("a")], Arc::clone(&fake), vec![], |settings| {
            settings.planned_maintenance_condition = is_shown;
        })
        .await;
        scene.until_initialised("a").await;
        let status = || {
            let conditions = scene.server.part("a", "/status/conditions");
            let all: Vec<Value> = conditions.as_array().cloned().unwrap_or_default();
            let of = all.into_iter().find(|one| one["type"] == "MaintenancePlanned");
            of.map_or(json!(null), |one| one["status"].clone())
        };
        assert_eq!(status(), want, "{is_shown}");
        if !is_shown {
            // As another agent, or the host before the flag was taken back, says it.
            let said = json!([{"type": "MaintenancePlanned", "status": "True"}]);
            scene.server.edit("a", |node| node["status"]["conditions"] = said);
        }
        fake.set_answer("a", planned(None));
        sleep(PERIOD * 2).await;
        assert_eq!(status(), if is_shown { json!("False") } else { json!("True") });
        scene.stop().await;
    }
}

/// What one provider reports of another one's instances has nobody asked.
#[tokio::test(start_paused = true)]
async fn a_report_concerns_nobody_elses_nodes() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    let nodes = [node("a").with_provider_id("fake://a"), node("b").with_provider_id("other://b")];
    let scene = Scene::start_with(nodes, fake, vec![Arc::clone(&other)], |_| {}).await;
    sleep(PERIOD + Duration::from_secs(1)).await;
    scene.questions();
    other.take_calls();
    for _ in 0..20 {
        scene.fake.notify_change("other://b");
        scene.fake.notify_change("b");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((scene.questions(), other.take_calls().len()), (0, 0));
    other.notify_change("other://b");
    scene.rest().await;
    assert_eq!(other.take_calls().len(), 1, "its own");
    scene.stop().await;
}

/// A new node that may be another provider's, too, does not wait for its retry when that one returns.
#[tokio::test(start_paused = true)]
async fn a_provider_that_returns_wakes_the_nodes_that_may_be_its_own() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    other.set_answer("n", machine(InstanceState::Running, Some(instance("other://n"))));
    fake.set_state("n", InstanceState::NotOwned);
    other.fail_always(method::INSTANCE, Some(error(method::INSTANCE, None)));
    let scene = Scene::start_with([new_node("n")], fake, vec![Arc::clone(&other)], |_| {}).await;
    sleep(Duration::from_secs(600)).await;
    assert!(scene.is_tainted("n"));
    other.fail_always(method::INSTANCE, None);
    other.request_sweep();
    scene.rest().await;
    assert!(!scene.is_tainted("n"));
    scene.stop().await;
}
