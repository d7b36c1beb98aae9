use serde_json::json;

use super::*;
use ccm_cloud::{Freshness, InstanceState, InstanceView};

/// NODE-25, NW-15, and ours instead of ADDR-9 and ADDR-10: addresses first, then one write for the rest; no reads,
/// one Event.
#[tokio::test(start_paused = true)]
async fn addresses_come_before_the_taint_goes() {
    let scene = Scene::start([new_node("n")], |fake| fake.set_answer("n", running("n"))).await;
    scene.until_initialised("n").await;
    let calls = scene.server.take_calls();
    let lines: Vec<_> = calls.iter().map(apiserver::Asked::line).collect();
    assert_eq!(lines, ["PATCH /api/v1/nodes/n/status", "PATCH /api/v1/nodes/n"]);
    assert!(calls.iter().all(|call| call.accept.contains("PartialObjectMetadata")), "{calls:?}");
    assert_eq!(scene.server.part("n", "/spec"), json!({"providerID": "fake://n"}));
    assert_eq!(
        scene.server.part("n", "/status/addresses"),
        json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "host-1"}])
    );
    let labels = scene.server.part("n", "/metadata/labels");
    for (key, value) in [
        ("topology.kubernetes.io/zone", "zone-1"),
        ("failure-domain.beta.kubernetes.io/zone", "zone-1"),
        ("topology.kubernetes.io/region", "region-1"),
        ("failure-domain.beta.kubernetes.io/region", "region-1"),
        ("node.kubernetes.io/instance-type", "small"),
        ("beta.kubernetes.io/instance-type", "small"),
    ] {
        assert_eq!(labels[key], value, "{key}");
    }
    assert_eq!(scene.reasons(), ["Synced"]);
    let asked = Call::Instance {
        node: "n".to_owned(),
        view: InstanceView::Metadata,
        freshness: Freshness::ReadThrough,
    };
    assert_eq!(scene.fake.take_calls(), [asked], "NODE-28: one question");
    assert!(scene.has_metric("node_controller_initial_node_sync_delay_seconds_count 1"));
    assert!(scene.has_metric("node_controller_cloud_provider_taint_removal_delay_seconds_count 1"));
    scene.stop().await;
}

/// Only differences are written: a node whose addresses are right already gets one write.
#[tokio::test(start_paused = true)]
async fn right_addresses_are_not_written() {
    let right = node("n")
        .tainted_uninitialized()
        .with_address("InternalIP", "10.0.0.1")
        .with_address("Hostname", "host-1");
    let scene = Scene::start([right], |fake| fake.set_answer("n", running("n"))).await;
    scene.until_initialised("n").await;
    assert_eq!(scene.server.take_lines(), ["PATCH n"]);
    scene.stop().await;
}

/// NODE-4, NODE-14: changes of a node without the taint cause no question.
#[tokio::test(start_paused = true)]
async fn events_of_a_node_without_the_taint_ask_nobody() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    scene.rest().await;
    scene.server.put(&node("n").with_taint("dedicated", "x", "NoSchedule").with_address("Hostname", "n"));
    scene.rest().await;
    let before = scene.server.node("n");
    scene.server.edit("n", |node| node["metadata"]["labels"] = json!({"x": "y"}));
    scene.server.edit("n", |node| node["metadata"]["labels"] = json!(null));
    scene.rest().await;
    assert_eq!((scene.questions(), scene.server.take_lines()), (0, Vec::<String>::new()));
    assert_eq!(scene.server.part("n", "/spec"), before.unwrap()["spec"]);
    scene.stop().await;
}

/// NODE-27, LBL-5: a node that is gone at its turn needs nothing.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_when_its_turn_comes_is_done_with() {
    let scene = Scene::start([new_node("n")], |fake| {
        fake.set_state("n", ccm_cloud::InstanceState::Unspecified);
    })
    .await;
    scene.rest().await;
    assert_eq!(
        (scene.questions(), scene.reasons()),
        (1, vec!["InitializationFailed"]),
        "its next turn will come"
    );
    scene.server.delete("n");
    sleep(PERIOD * 2).await;
    assert_eq!((scene.questions(), scene.reasons()), (0, vec![]));
    assert_eq!(scene.server.take_lines(), [""; 0]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_not_ours_are_left() {
    let excluded = new_node("excluded").with_label(ccm_reconcile::settings::EXCLUDE_LABEL, "true");
    let elsewhere = new_node("elsewhere").with_label("pool", "b");
    let foreign = new_node("foreign").with_provider_id("other://1").with_label("pool", "a");
    let nodes = [excluded, elsewhere, new_node("leaving").with_label("pool", "a").deleting(), foreign];
    let select_pool = |settings: &mut NodeSettings| settings.node_selector = "pool=a".parse().unwrap();
    let scene = Scene::start_with(nodes, FakeProvider::new("fake"), vec![], select_pool).await;
    scene.rest().await;
    scene.server.delete("elsewhere");
    scene.rest().await;
    assert_eq!(scene.questions(), 0);
    assert_eq!(scene.server.take_lines(), [""; 0]);
    assert!(scene.has_metric("node_controller_unmatched_nodes 1"), "the foreign one is counted");
    scene.stop().await;
}

/// All nodes of a cold start are asked about at once, so that they share calls, however few may be written at once.
#[tokio::test(start_paused = true)]
async fn the_number_of_writers_does_not_limit_the_questions() {
    let names: Vec<_> = (0..2000).map(|index| format!("n{index}")).collect();
    let fake = FakeProvider::new("fake");
    for name in &names {
        fake.set_answer(name, running(name));
    }
    let scene = Scene::start_with(names.iter().map(|name| new_node(name)), fake, vec![], |settings| {
        settings.concurrent_node_syncs = 32;
    })
    .await;
    scene.server.silence_writes(true);
    scene.rest().await;
    assert_eq!(scene.questions(), 2000, "every node was asked about");
    assert_eq!(scene.server.take_lines().len(), 32, "and as many are being written as may be");
    scene.stop().await;
}

/// The whole of a cold start: one question and two writes for each node, no read.
#[tokio::test(start_paused = true)]
async fn a_cold_start_costs_one_question_and_two_writes_a_node() {
    let names: Vec<_> = (0..300).map(|index| format!("n{index}")).collect();
    let scene = Scene::start(names.iter().map(|name| new_node(name)), |fake| {
        for name in &names {
            fake.set_answer(name, running(name));
        }
    })
    .await;
    for name in &names {
        scene.until_initialised(name).await;
    }
    let lines = scene.server.take_lines();
    assert_eq!(lines.len(), 600);
    assert!(lines.iter().all(|line| line.starts_with("PATCH ")), "{lines:?}");
    assert_eq!(scene.questions(), 300, "and none by the first sweep");
    assert_eq!(scene.reasons().len(), 300);
    scene.stop().await;
}

/// Nothing is asked or written again before our write arrives in the cache.
#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_our_own_write_is_waited_for() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    scene.server.put(&new_node("n"));
    scene.server.hold_watches();
    scene.until_initialised("n").await;
    assert_eq!((scene.questions(), scene.server.take_lines().len()), (1, 2));
    scene.server.release(1);
    scene.rest().await;
    assert_eq!(
        (scene.questions(), scene.server.take_lines().len()),
        (0, 0),
        "the addresses have arrived, the rest not"
    );
    scene.server.release_all();
    scene.rest().await;
    assert_eq!((scene.questions(), scene.server.take_lines().len()), (0, 0));
    scene.server.edit("n", |node| {
        node["spec"]["taints"] = json!([{"key": taint::UNINITIALIZED, "effect": "NoSchedule"}]);
    });
    scene.until_initialised("n").await;
    assert_eq!(scene.questions(), 1, "tainted anew by somebody");
    scene.stop().await;
}

/// What the provider reports before the cache shows our write is asked about once it does.
#[tokio::test(start_paused = true)]
async fn a_report_that_comes_before_our_own_write_is_not_lost() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    scene.server.put(&new_node("n"));
    scene.server.hold_watches();
    scene.until_initialised("n").await;
    assert_eq!(scene.questions(), 1);
    scene.fake.notify_change("n");
    scene.rest().await;
    assert_eq!(scene.questions(), 0);
    scene.server.release_all();
    scene.rest().await;
    assert_eq!(scene.questions(), 1);
    scene.stop().await;
}

/// The node has a label already that the cache does not keep: the write conflicts, and the user's value wins.
#[tokio::test(start_paused = true)]
async fn a_users_label_that_the_cache_does_not_keep_wins() {
    let scene = Scene::start([new_node("n").with_label("example.com/tier", "user")], |fake| {
        let mut answer = running("n");
        answer.instance.as_mut().unwrap().labels =
            [("example.com/tier".to_owned(), "cloud".to_owned())].into();
        fake.set_answer("n", answer);
    })
    .await;
    scene.until_initialised("n").await;
    assert_eq!(scene.server.take_lines(), ["PATCH n/status", "PATCH n", "GET n", "PATCH n"]);
    assert_eq!(scene.server.part("n", "/metadata/labels/example.com~1tier"), "user");
    assert!(scene.server.part("n", "/metadata/annotations").to_string().contains("!example.com/tier"));
    sleep(PERIOD * 2).await;
    assert_eq!(scene.server.take_lines(), [""; 0], "and no sweep tries again");
    scene.stop().await;
}

/// D35: a node without a provider ID belongs to the provider that has its instance; one that hangs delays only its
/// own.
#[tokio::test(start_paused = true)]
async fn one_provider_that_hangs_does_not_hold_up_another() {
    let (hanging, well) = (FakeProvider::new("hanging"), FakeProvider::new("well"));
    hanging.set_latency(method::INSTANCE, Duration::from_secs(86_400));
    well.set_instance("b", ccm_cloud::InstanceState::Running, instance("well://b"));
    let nodes = [new_node("a").with_provider_id("hanging://a"), new_node("b").with_provider_id("well://b")];
    let scene =
        Scene::start_with(nodes, hanging, vec![well], |settings| settings.concurrent_node_syncs = 1).await;
    scene.until_initialised("b").await;
    assert!(scene.is_tainted("a"));
    scene.stop().await;
}

/// People look at a node first. Those of another manager are initialised by then.
#[tokio::test(start_paused = true)]
async fn a_new_node_that_no_provider_looks_after_says_so() {
    let foreign = new_node("typo").with_provider_id("fke://1").created_at(ccm_base::clock::now());
    let scene = Scene::start([foreign], |_| {}).await;
    sleep(Duration::from_secs(50)).await;
    assert_eq!(scene.reasons(), [""; 0]);
    // The age of a node is told by the wall clock.
    scene.server.edit("typo", |node| node["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into());
    sleep(PERIOD * 3).await;
    assert_eq!(scene.reasons(), ["NoProviderForNode"], "once");
    assert_eq!(scene.questions(), 0);
    scene.stop().await;
}

/// M3: nobody is asked about a node that several providers claim; it becomes somebody's once they do not.
#[tokio::test(start_paused = true)]
async fn a_node_that_several_providers_claim_is_left_alone() {
    let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
    fake.set_answer("new", running("new"));
    let known = node("known").with_provider_id("fake://zone-1/known");
    let new = new_node("new").with_provider_id("fake://zone-1/new");
    other.change_info(|info| info.provider_id_prefixes.push("fake://zone-1/".to_owned()));
    let scene = Scene::start_with([known, new], fake, vec![Arc::clone(&other)], |_| {}).await;
    sleep(PERIOD * 2).await;
    assert_eq!((scene.questions(), other.take_calls().len()), (0, 0));
    let mut reasons = scene.reasons();
    reasons.sort_unstable();
    assert_eq!(reasons, ["InitializationFailed", "ProviderIDContested"]);
    assert!(scene.has_metric("node_controller_contested_nodes 2"));
    other.change_info(|info| info.provider_id_prefixes.truncate(1));
    sleep(PERIOD).await;
    assert!(!scene.is_tainted("new"));
    assert!(scene.has_metric("node_controller_contested_nodes 0"));
    scene.stop().await;
}

/// What one provider cannot say about a node of the other one's is not silently waited for.
#[tokio::test(start_paused = true)]
async fn a_node_that_one_of_two_providers_does_not_know_of_says_what_it_waits_for() {
    for (failed, event) in [(true, Some("InitializationFailed")), (false, None)] {
        let (fake, other) = (FakeProvider::new("fake"), FakeProvider::new("other"));
        fake.set_answer("new", running("new"));
        let denied = failed.then(|| {
            ccm_cloud::fake::error("BatchGetInstances", Some(ccm_cloud::ErrorReason::CloudPermissionDenied))
        });
        let unknown = ccm_cloud::fake::machine(InstanceState::Unspecified, None);
        other.set_answer("new", ccm_cloud::InstanceAnswer { error: denied, ..unknown });
        let mut young = new_node("new");
        young.created = Some(ccm_base::clock::now());
        let scene = Scene::start_with([young], fake, vec![Arc::clone(&other)], |_| {}).await;
        sleep(Duration::from_secs(15)).await;
        assert!(scene.is_tainted("new"));
        assert_eq!(scene.reasons().first().copied(), event, "{failed}");
        let reason = if failed { "CLOUD_PERMISSION_DENIED" } else { "OwnerUnknown" };
        let waits = |standing: &str| {
            format!(
                r#"ccm_reports{{controller="cloud-node-controller",standing="{standing}",reason="{reason}"}} 1"#
            )
        };
        assert!(["Waiting", "Blocked"].iter().any(|one| scene.has_metric(&waits(one))), "{reason}");
        scene.stop().await;
    }
}

/// Once, whichever queue it is in, with what the host does next.
#[tokio::test(start_paused = true)]
async fn people_are_told_what_a_node_waits_for_and_what_comes_next() {
    let scene = Scene::start([new_node("a")], |fake| fake.set_state("a", InstanceState::Absent)).await;
    sleep(Duration::from_secs(10)).await;
    let told = |reason: &str, next: &str| {
        let node = scene.parts.nodes.get("a").unwrap();
        let said = scene.parts.views.all(|one| one.explain(&node));
        let [said] = said.as_slice() else { panic!("{said:?}") };
        assert!(said.reason == reason && said.next.contains(next), "{said:?}");
        assert_eq!(scene.parts.views.all(|one| one.reports()).len(), usize::from(reason != "Initialized"));
    };
    told("InstanceAbsent", "removes the uninitialized taint");
    scene.fake.set_answer("a", running("a"));
    scene.until_initialised("a").await;
    told("Initialized", "the host compares the node with what provider \"fake\" says");
}

/// A kubelet that came first waits ever longer; its instance's arrival ends the wait, by its name, for it has no ID yet.
#[tokio::test(start_paused = true)]
async fn an_instance_that_appears_wakes_the_node_that_waits_for_it() {
    let scene = Scene::start([new_node("a")], |fake| fake.set_state("a", InstanceState::Absent)).await;
    sleep(Duration::from_secs(600)).await;
    scene.questions();
    while scene.questions() == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    scene.fake.set_answer("a", running("a"));
    sleep(Duration::from_secs(60)).await;
    assert!(scene.is_tainted("a"), "it waits");
    scene.fake.notify_change("a");
    sleep(Duration::from_secs(1)).await;
    assert!(!scene.is_tainted("a"));
    scene.stop().await;
}
