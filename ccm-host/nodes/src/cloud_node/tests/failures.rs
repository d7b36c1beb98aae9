use serde_json::json;

use super::*;
use ccm_cloud::{ErrorReason, InstanceState, fake::error};
use ccm_kube::{events::EventType as Kind, fixtures::refusal};
use ccm_reconcile::SLOW_RETRY;

/// NW-19: decides again on a live read; a concurrent write by others stays.
#[tokio::test(start_paused = true)]
async fn a_write_that_meets_a_change_is_decided_anew() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    scene.server.hold_watches();
    scene.server.put(&new_node("n"));
    scene.server.edit("n", |node| {
        node["spec"]["taints"]
            .as_array_mut()
            .unwrap()
            .push(json!({"key": "dedicated", "effect": "NoExecute"}));
    });
    scene.server.release(1);
    scene.until_initialised("n").await;
    assert_eq!(scene.server.take_lines(), ["PATCH n/status", "PATCH n", "GET n", "PATCH n"]);
    assert_eq!(scene.server.part("n", "/spec/taints"), json!([{"key": "dedicated", "effect": "NoExecute"}]));
    assert_eq!(scene.questions(), 1, "the answer is still good");
    assert_eq!(scene.reasons(), ["Synced"]);
    scene.stop().await;
}

/// ADDR-14, NW-14: a kubelet's write that the cache does not show yet is neither lost nor merged with ours.
#[tokio::test(start_paused = true)]
async fn addresses_that_the_cache_has_not_seen_are_met() {
    let scene = Scene::start([], |fake| {
        let mut answer = running("n");
        let internal = |ip: &str| ccm_cloud::InstanceAddress {
            kind: ccm_cloud::AddressType::InternalIp,
            address: ip.to_owned(),
        };
        answer.instance.as_mut().unwrap().addresses = vec![internal("10.0.0.1"), internal("fd00::1")];
        fake.set_answer("n", answer);
    })
    .await;
    scene.server.hold_watches();
    scene.server.put(&node("n").tainted_uninitialized());
    let of_kubelet =
        json!([{"type": "InternalIP", "address": "10.9.9.9"}, {"type": "Hostname", "address": "n"}]);
    scene.server.edit("n", |node| node["status"]["addresses"] = of_kubelet);
    scene.server.release(1);
    scene.until_initialised("n").await;
    assert_eq!(scene.server.take_lines(), ["PATCH n/status", "GET n", "PATCH n/status", "PATCH n"]);
    assert_eq!(
        scene.server.part("n", "/status/addresses"),
        json!([
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "fd00::1"},
            {"type": "Hostname", "address": "n"},
        ])
    );
    scene.stop().await;
}

/// A policy of the cluster may refuse what the provider says of a node.
#[tokio::test(start_paused = true)]
async fn what_a_webhook_refuses_is_told() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    for _ in 0..3 {
        scene.server.answer_next_write(refusal(403, "labels of this cloud are not allowed"));
    }
    scene.server.put(&new_node("n"));
    scene.until_initialised("n").await;
    assert_eq!(scene.reasons(), ["InvalidInstanceMetadata", "Synced"]);
    scene.stop().await;
}

/// NODE-24: endless conflicts are left to the queue after a few attempts.
#[tokio::test(start_paused = true)]
async fn conflicts_without_end_go_back_to_the_queue() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    for _ in 0..6 {
        scene.server.answer_next_write(refusal(409, "Conflict"));
    }
    scene.server.put(&new_node("n"));
    scene.until_initialised("n").await;
    let lines = scene.server.take_lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("PATCH")).count(), 8, "{lines:?}");
    assert_eq!(scene.questions(), 2, "asked once for each turn in the queue");
    assert!(
        scene.has_metric(r#"node_controller_failures_total{stage="initialise",reason="WriteConflict"} 1"#)
    );
    scene.stop().await;
}

/// NODE-26 ours, NW-15: without addresses the taint stays, and the retry is soon.
#[tokio::test(start_paused = true)]
async fn the_taint_stays_until_the_addresses_are_written() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    scene.server.answer_next_write(refusal(500, "InternalError"));
    scene.server.put(&new_node("n"));
    scene.rest().await;
    assert!(scene.is_tainted("n"));
    assert_eq!(scene.server.take_lines(), ["PATCH n/status"], "nothing follows a failure");
    scene.until_initialised("n").await;
    assert_eq!(scene.server.take_lines(), ["PATCH n/status", "PATCH n"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_meanwhile_needs_nothing() {
    let scene = Scene::start([], |fake| {
        fake.set_answer("n", running("n"));
        fake.set_latency(method::INSTANCE, Duration::from_secs(5));
    })
    .await;
    scene.server.put(&new_node("n"));
    sleep(Duration::from_secs(1)).await;
    scene.server.hold_watches();
    scene.server.delete("n");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.server.take_lines(), ["PATCH n/status"], "404 is the end of it");
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

/// A node replaced during the question about its predecessor gets its own question.
#[tokio::test(start_paused = true)]
async fn an_answer_about_a_predecessor_is_not_used() {
    let scene = Scene::start([], |fake| {
        fake.set_answer("n", running("old"));
        fake.set_latency(method::INSTANCE, Duration::from_secs(5));
    })
    .await;
    scene.server.put(&new_node("n"));
    sleep(Duration::from_secs(1)).await;
    scene.server.delete("n");
    scene.server.put(&new_node("n").uid("second"));
    sleep(Duration::from_secs(5)).await;
    scene.fake.set_answer("n", running("new"));
    scene.until_initialised("n").await;
    assert_eq!(scene.server.part("n", "/spec/providerID"), "fake://new");
    assert_eq!(scene.server.take_lines(), ["PATCH n/status", "PATCH n"]);
    scene.stop().await;
}

/// Someone else set the provider ID, and the cache does not show it yet: no storm of questions until it does.
#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_somebody_elses_write_causes_no_storm() {
    let scene = Scene::start([], |fake| fake.set_answer("n", running("n"))).await;
    scene.server.put(&new_node("n"));
    scene.server.hold_watches();
    scene.server.edit("n", |node| node["spec"]["providerID"] = "fake://other".into());
    sleep(Duration::from_secs(10)).await;
    let asked = scene.questions();
    assert!((2..=12).contains(&asked), "{asked} questions in ten seconds");
    scene.server.release_all();
    scene.until_initialised("n").await;
    assert_eq!(scene.server.part("n", "/spec/providerID"), "fake://other");
    assert_eq!(scene.reasons(), ["Synced", "ProviderIDMismatch"]);
    scene.stop().await;
}

/// NW-17, NW-18: the first failure is reported, further ones only when the reason changes; the backoff ends at two
/// minutes.
#[tokio::test(start_paused = true)]
async fn people_learn_why_a_node_waits() {
    let scene = Scene::start([new_node("n")], |fake| fake.set_state("n", InstanceState::Absent)).await;
    sleep(Duration::from_secs(600)).await;
    let events = scene.events.take();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        matches!(&events[0], (Kind::Warning, "InitializationFailed", text) if text.contains("InstanceAbsent"))
    );
    scene.questions();
    sleep(Duration::from_secs(1200)).await;
    let asked = scene.questions();
    assert!((9..=11).contains(&asked), "every two minutes, but {asked} times in twenty");
    assert_eq!(scene.server.take_lines(), [""; 0], "NODE-29: nothing is written, nothing deleted");

    scene
        .fake
        .fail_always(method::INSTANCE, Some(error(method::INSTANCE, Some(ErrorReason::LocationUnreachable))));
    sleep(Duration::from_secs(300)).await;
    let events = scene.events.take();
    assert!(
        matches!(&events[..], [(Kind::Warning, "InitializationFailed", text)] if text.contains("LOCATION_UNREACHABLE")),
        "{events:?}"
    );
    scene.fake.fail_always(method::INSTANCE, None);
    scene.fake.set_answer("n", running("n"));
    scene.until_initialised("n").await;
    assert_eq!(scene.reasons(), ["Synced"]);
    scene.stop().await;
}

/// An ordinary start emits no warning, and the provider's retry delay is honoured.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_not_ready_is_asked_about_when_the_provider_says() {
    let scene = Scene::start([new_node("n")], |fake| {
        let mut answer = running("n");
        let wait = Duration::from_secs(20);
        answer.error = Some(ccm_cloud::CloudError {
            retry_after: Some(wait),
            ..error(method::INSTANCE, Some(ErrorReason::MetadataNotReady))
        });
        fake.set_answer("n", answer);
    })
    .await;
    sleep(Duration::from_secs(50)).await;
    assert_eq!(scene.questions(), 3, "at 0, 20 and 40 s");
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

/// What only a person can settle is asked about every five minutes, and at once when the node changes (NODE-33).
#[tokio::test(start_paused = true)]
async fn what_takes_a_person_is_asked_slowly() {
    let scene = Scene::start([new_node("n")], |fake| {
        fake.fail_always(
            method::INSTANCE,
            Some(error(method::INSTANCE, Some(ErrorReason::InstanceAmbiguous))),
        );
    })
    .await;
    sleep(SLOW_RETRY / 2).await;
    assert_eq!(scene.questions(), 1);
    scene.server.edit("n", |node| node["metadata"]["annotations"] = json!({PROVIDED_NODE_IP: "10.0.0.1"}));
    scene.rest().await;
    assert_eq!(scene.questions(), 1, "a change of the node is a reason to ask");
    scene.stop().await;
}

/// Root on one worker changes its Node all the time: what the cloud allows for all is not spent on it.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_all_the_time_is_asked_about_in_its_time() {
    let known = node("known").with_provider_id("fake://known");
    let scene = Scene::start([new_node("new"), known], |fake| {
        fake.fail_always(
            method::INSTANCE,
            Some(error(method::INSTANCE, Some(ErrorReason::InstanceAmbiguous))),
        );
    })
    .await;
    scene.questions();
    for number in 0..3_000 {
        for name in ["new", "known"] {
            let address = format!("10.0.{}.{}", number / 250, number % 250);
            scene.server.edit(name, |node| {
                node["metadata"]["annotations"] = json!({PROVIDED_NODE_IP: address});
            });
        }
        sleep(Duration::from_millis(100)).await;
    }
    let asked = scene.questions();
    assert!((30..=100).contains(&asked), "{asked} questions in five minutes");
    scene.stop().await;
}

/// NODE-7: an instance of someone else is reported once, and its node never touched.
#[tokio::test(start_paused = true)]
async fn a_node_of_somebody_else_is_left_alone() {
    let scene = Scene::start([new_node("n")], |fake| fake.set_state("n", InstanceState::NotOwned)).await;
    sleep(PERIOD * 4 + Duration::from_secs(1)).await;
    assert_eq!(scene.reasons(), ["InstanceNotOwned"]);
    assert_eq!(scene.questions(), 5, "and asked about at the pace of a sweep");
    assert_eq!(scene.server.take_lines(), [""; 0]);
    scene.stop().await;
}

/// NW-22: an answer from provider or apiserver after shutdown writes nothing.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_end() {
    for slow_apiserver in [false, true] {
        let scene = Scene::start([], |fake| {
            fake.set_answer("n", running("n"));
            fake.set_latency(method::INSTANCE, Duration::from_secs(5));
        })
        .await;
        scene.server.silence_writes(slow_apiserver);
        scene.server.put(&new_node("n"));
        sleep(Duration::from_secs(if slow_apiserver { 6 } else { 1 })).await;
        let server = &scene.server;
        server.take_calls();
        scene.stop().await;
        server.silence_writes(false);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(server.take_lines(), [""; 0]);
        assert!(server.part("n", "/spec/taints").to_string().contains(taint::UNINITIALIZED));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_provider_does_not_hold_up_the_end() {
    let scene = Scene::start([new_node("n")], |fake| {
        fake.set_latency(method::INSTANCE, Duration::from_secs(86_400));
    })
    .await;
    scene.rest().await;
    let before = tokio::time::Instant::now();
    scene.stop().await;
    assert!(before.elapsed() < Duration::from_secs(1));
}

/// However many nodes wait for a provider that hangs, another provider's are still reconciled.
#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_leaves_the_others_their_places() {
    let (stuck, other) = (FakeProvider::new("stuck"), FakeProvider::new("other"));
    stuck.set_latency(method::INSTANCE, Duration::from_secs(3600));
    other.set_instance("n", InstanceState::Running, instance("other://n"));
    let waiting = (0..Worker::<true>::AT_ONCE)
        .map(|index| new_node(&format!("stuck-{index}")).with_provider_id(&format!("stuck://{index}")));
    let scene = Scene::start_with(waiting, stuck, vec![other], |_| {}).await;
    scene.rest().await;
    scene.server.put(&new_node("n").with_provider_id("other://n"));
    scene.until_initialised("n").await;
    scene.stop().await;
}

/// What was said about a node is not said about its successor.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_replaced_while_it_is_asked_about_is_told_of_anew() {
    let scene = Scene::start([new_node("n")], |fake| {
        fake.set_latency(ccm_cloud::fake::method::INSTANCE, Duration::from_secs(5));
        let away = error(ccm_cloud::fake::method::INSTANCE, Some(ErrorReason::CloudCredentialsInvalid));
        fake.fail_always(ccm_cloud::fake::method::INSTANCE, Some(away));
    })
    .await;
    scene.rest().await;
    scene.server.delete("n");
    scene.rest().await;
    scene.server.put(&new_node("n").uid("newer"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(scene.reasons(), ["InitializationFailed"; 2], "one for each of both");
    scene.stop().await;
}
