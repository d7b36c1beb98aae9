use super::*;

fn gone(fake: &FakeProvider, names: &[&str]) {
    for name in names {
        fake.set_state(name, InstanceState::Absent);
    }
}

/// NW-5, NW-6, NW-7: after the second answer and a final live check, by uid; the Event comes afterwards.
#[tokio::test(start_paused = true)]
async fn a_node_without_a_machine_goes_after_the_second_answer() {
    let scene = Scene::start([silent("n")], |fake| gone(fake, &["n"])).await;
    assert_eq!(scene.server.take_lines(), [""; 0], "one answer deletes nothing");
    scene.passes(1).await;
    let calls = scene.server.take_calls();
    let lines: Vec<_> = calls.iter().map(apiserver::Asked::line).collect();
    assert_eq!(lines, ["GET /api/v1/nodes/n", "DELETE /api/v1/nodes/n"]);
    assert_eq!(calls[1].json()["preconditions"], json!({"uid": "n-uid"}));
    assert_eq!(scene.server.node("n"), None);
    assert_eq!(scene.events(), [(Kind::Normal, "DeletingNode")]);
    assert!(scene.has_metric(r#"node_lifecycle_deletions_total{provider="fake"} 1"#));
    let ended = || {
        let count = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count";
        (0..99).find(|number| scene.has_metric(&format!("{count} {number}")))
    };
    let before = ended().unwrap();
    scene.passes(5).await;
    assert_eq!(ended(), Some(before + 5));
    assert_eq!(scene.server.take_lines(), [""; 0]);
    scene.stop().await;
}

/// LIFE-33, and the grace: a node that has just registered is spared (k/k#58334).
#[tokio::test(start_paused = true)]
async fn a_young_node_is_waited_for() {
    let young = aged(silent("young"), 200);
    let old = aged(silent("old"), 400).tainted_uninitialized();
    let scene = Scene::start([young, old], |fake| gone(fake, &["young", "old"])).await;
    scene.passes(5).await;
    assert!(scene.server.node("young").is_some());
    assert!(scene.server.node("old").is_none());
    scene.stop().await;
}

/// A node's date may be by a clock that is behind this process's.
#[tokio::test(start_paused = true)]
async fn a_node_that_has_just_joined_is_young_whatever_its_date_says() {
    let scene = Scene::start([ready("old")], |fake| {
        fake.set_instance("old", InstanceState::Running, instance("fake://old"));
        gone(fake, &["new"]);
    })
    .await;
    scene.server.put(&aged(silent("new"), 400));
    sleep(settings().node_deletion_grace - PERIOD).await;
    assert!(scene.server.node("new").is_some());
    scene.passes(3).await;
    assert_eq!(scene.server.node("new"), None);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_evidence_deletes_nothing() {
    let nodes = ["rumour", "foreign", "unknown", "leaving", "excluded", "ready"].map(|name| match name {
        "leaving" => silent(name).deleting(),
        "excluded" => silent(name).with_label(ccm_reconcile::settings::EXCLUDE_LABEL, "true"),
        "ready" => silent(name).ready(),
        _ => silent(name),
    });
    let scene = Scene::start(nodes, |fake| {
        let mut rumour = ccm_cloud::fake::machine(InstanceState::Absent, None);
        rumour.authoritative = false;
        fake.set_answer("rumour", rumour);
        fake.set_state("foreign", InstanceState::NotOwned);
        fake.set_state("unknown", InstanceState::Unspecified);
        gone(fake, &["leaving", "excluded", "ready"]);
    })
    .await;
    scene.passes(20).await;
    assert_eq!(scene.server.take_lines(), [""; 0]);
    scene.stop().await;
}

/// The final live check: the node is Ready again, or was replaced, and the cache does not show it yet.
#[tokio::test(start_paused = true)]
async fn the_last_look_saves_a_node() {
    for (what, edit) in [
        (
            "ready again",
            Box::new(|server: &NodeServer| server.put(&silent("n").ready())) as Box<dyn Fn(&NodeServer)>,
        ),
        ("another node of that name", Box::new(|server: &NodeServer| server.put(&silent("n").uid("second")))),
        ("leaving already", Box::new(|server: &NodeServer| server.put(&silent("n").deleting()))),
        (
            "another machine's",
            Box::new(|server: &NodeServer| server.put(&silent("n").with_provider_id("fake://other"))),
        ),
        ("gone already", Box::new(|server: &NodeServer| server.delete("n"))),
    ] {
        let scene = Scene::start([silent("n")], |fake| gone(fake, &["n"])).await;
        scene.server.hold_watches();
        edit(&scene.server);
        scene.passes(1).await;
        assert_eq!(scene.server.take_lines(), ["GET n"], "{what}");
        assert_eq!(scene.events(), [], "{what}");
        scene.stop().await;
    }
}

/// LIFE-30, NW-7: a failure is reported, and retried ever more slowly; no Event announces the deletion beforehand.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_backs_off() {
    let scene = Scene::start([silent("n")], |fake| gone(fake, &["n"])).await;
    for _ in 0..3 {
        scene.server.answer_next_write(refusal(403, "Forbidden"));
    }
    scene.passes(1).await;
    assert_eq!(scene.events(), [(Kind::Warning, "DeletingNodeFailed")]);
    scene.server.take_calls();
    scene.passes(1).await;
    assert_eq!(scene.server.take_lines(), [""; 0], "not in the very next pass");
    scene.passes(1).await;
    assert_eq!(scene.server.take_lines(), ["GET n", "DELETE n"]);
    scene.passes(20).await;
    assert_eq!(scene.server.node("n"), None);
    let failed = (Kind::Warning, "DeletingNodeFailed");
    assert_eq!(scene.events(), [failed, failed, (Kind::Normal, "DeletingNode")]);
    assert!(scene.has_metric(r#"node_lifecycle_deletion_failures_total{provider="fake"} 3"#));
    scene.stop().await;
}

/// With no Ready node, one place is free in each window: a policy that protects one node protects no other.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_refused_for_ever_keeps_no_place() {
    let names = ["a", "b", "c"];
    let scene = Scene::start(names.map(silent), |fake| gone(fake, &names)).await;
    let refuses = ::apiserver::Fault::Refuse(refusal(403, "Forbidden"));
    scene
        .server
        .api()
        .faults_of("host")
        .every(|asked| asked.line() == "DELETE /api/v1/nodes/a", refuses)
        .stay();
    sleep(3 * settings().node_deletion_window).await;
    assert!(scene.server.node("a").is_some());
    assert_eq!((scene.server.node("b"), scene.server.node("c")), (None, None));
    scene.stop().await;
}

/// LIFE-30: someone else deleted the node first.
#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_else_deletes_is_no_failure() {
    for (code, reason) in [(404, "NotFound"), (409, "Conflict")] {
        let scene = Scene::start([silent("n")], |fake| gone(fake, &["n"])).await;
        scene.server.answer_next_write(refusal(code, reason));
        scene.passes(1).await;
        assert_eq!(scene.events(), [], "{code}");
        scene.stop().await;
    }
}

/// D36: while the provider is unhealthy nothing is deleted or tainted, and afterwards confirmations start over.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_not_well_is_not_believed() {
    for unwell in
        [ProviderStatus::Frozen("credentials".to_owned()), ProviderStatus::Disconnected("gone".to_owned())]
    {
        let scene = Scene::start([silent("n"), silent("m")], |fake| {
            gone(fake, &["n"]);
            fake.set_instance("m", InstanceState::Running, instance("fake://m"));
        })
        .await;
        scene.fake.set_state("m", InstanceState::Stopped);
        scene.fake.set_status(unwell.clone());
        scene.passes(20).await;
        assert_eq!(scene.server.take_lines(), [""; 0], "{unwell:?}");
        scene.fake.set_status(ProviderStatus::Serving);
        sleep(Duration::from_millis(400)).await;
        assert_eq!(scene.server.take_lines(), ["PATCH m"], "the answer from before does not count any more");
        scene.passes(1).await;
        assert_eq!(scene.server.node("n"), None);
        scene.stop().await;
    }
}

/// The provider was unhealthy for a moment during the question.
#[tokio::test(start_paused = true)]
async fn a_moments_illness_during_the_question_is_noticed() {
    let fake = FakeProvider::new("fake");
    gone(&fake, &["n"]);
    fake.set_latency(method::INSTANCE, Duration::from_secs(2));
    let scene = Scene::start_with([silent("n")], fake, vec![]).await;
    sleep(Duration::from_secs(3)).await;
    scene.fake.set_status(ProviderStatus::Frozen("a moment".to_owned()));
    scene.fake.set_status(ProviderStatus::Serving);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.server.take_lines(), [""; 0], "the second answer does not count");
    scene.passes(4).await;
    assert_eq!(scene.server.node("n"), None);
    scene.stop().await;
}

/// The provider becomes unhealthy at the last moment, during the final check of the node.
#[tokio::test(start_paused = true)]
async fn an_illness_in_the_last_moment_is_noticed() {
    let scene = Scene::start([silent("n")], |fake| gone(fake, &["n"])).await;
    let fake = Arc::clone(&scene.fake);
    scene.server.before_next_read(move || fake.set_status(ProviderStatus::Frozen("just now".to_owned())));
    scene.passes(3).await;
    assert_eq!(scene.server.take_lines(), ["GET n"]);
    scene.stop().await;
}

/// D13, R7: a provider that denies every instance costs no more than the share, is shown to do so, and recovers.
#[tokio::test(start_paused = true)]
async fn a_lying_provider_costs_no_more_than_the_share() {
    let names = numbered(40);
    let denied: Vec<&str> = names.iter().map(String::as_str).collect();
    let scene = Scene::start(denied.iter().map(|name| silent(name)), |fake| gone(fake, &denied)).await;
    scene.passes(30).await;
    let left = || names.iter().filter(|name| scene.server.node(name).is_some()).count();
    assert_eq!(left(), 38);
    assert!(scene.is_held(Rule::Share, 38));
    let condition = scene.server.condition("n007", HELD_BACK);
    assert_eq!((&condition["type"], &condition["status"]), (&json!(HELD_BACK), &json!("True")));
    assert!(condition["message"].as_str().unwrap().contains("confirm-deletion=n007-uid"), "{condition}");
    let events = scene.events();
    let told = |reason| events.iter().filter(|(_, told)| *told == reason).count();
    assert_eq!((told("DeletingNode"), told("NodeDeletionBlocked")), (2, 38), "each once");
    let lines = scene.server.take_lines();
    let patches = lines.iter().filter(|line| line.starts_with("PATCH n0")).count();
    assert_eq!(patches, 38, "one condition each, and no more: {lines:?}");

    scene.server.edit("n007", |node| {
        node["metadata"]["annotations"] = json!({decide::CONFIRM_DELETION: "n007-uid"});
    });
    scene.server.edit("n008", |node| {
        node["metadata"]["annotations"] = json!({decide::CONFIRM_DELETION: "another"});
    });
    scene.passes(2).await;
    assert_eq!(scene.server.node("n007"), None, "a person vouched for it");
    assert!(scene.server.node("n008").is_some());
    for name in &names {
        scene.fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
    }
    scene.passes(3).await;
    assert_eq!(scene.server.condition("n001", HELD_BACK)["status"], serde_json::Value::Null, "it is gone");
    assert_eq!(scene.server.condition("n039", HELD_BACK)["status"], "False");
    assert_eq!(left(), 37);
    scene.stop().await;
}

/// The reasons for which nodes are held back stand until the new process has its own.
#[tokio::test(start_paused = true)]
async fn a_restart_changes_no_condition_back_and_forth() {
    let held = |name: &str| silent(name).with_condition(HELD_BACK, "True", "TooManyDeletions");
    let names = ["a", "b", "c", "d"];
    let scene = Scene::start(names.map(held), |fake| gone(fake, &names)).await;
    scene.passes(10).await;
    let left: Vec<_> = names.into_iter().filter(|name| scene.server.node(name).is_some()).collect();
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|name| scene.server.condition(name, HELD_BACK)["status"] == "True"), "all along");
    let lines = scene.server.take_lines();
    let patches = lines.iter().filter(|line| line.starts_with("PATCH ") && line.ends_with("/status"));
    assert_eq!(patches.count(), 3, "the text of each condition once: {lines:?}");
    scene.stop().await;
}

/// D35: a provider's answers do not affect another's nodes, and each has its own share.
#[tokio::test(start_paused = true)]
async fn each_provider_has_a_guard_of_its_own() {
    let (liar, honest) = (FakeProvider::new("liar"), FakeProvider::new("honest"));
    let of =
        |provider: &str, name: &str| node(name).with_provider_id(&format!("{provider}://{name}")).not_ready();
    gone(&liar, &["a", "b", "c"]);
    gone(&honest, &["x"]);
    let nodes = [of("liar", "a"), of("liar", "b"), of("liar", "c"), of("honest", "x"), of("nobody", "y")];
    let scene = Scene::start_with(nodes, liar, vec![honest]).await;
    scene.passes(5).await;
    assert_eq!(scene.server.node("x"), None);
    let left = ["a", "b", "c"].into_iter().filter(|name| scene.server.node(name).is_some()).count();
    assert_eq!((left, scene.server.node("y").is_some()), (2, true), "one node may always go");
    scene.stop().await;
}

/// LIFE-15, LIFE-17, and ours instead of LIFE-22..24 (nobody makes up a provider ID): a node without a provider ID is
/// absent only if all candidates report it absent.
#[tokio::test(start_paused = true)]
async fn a_node_without_a_provider_id_is_absent_when_all_say_so() {
    let (one, other) = (FakeProvider::new("one"), FakeProvider::new("other"));
    gone(&one, &["n", "m"]);
    gone(&other, &["n", "m"]);
    other.set_state("m", InstanceState::NotOwned);
    for provider in [&one, &other] {
        provider.change_info(|info| info.names_are_keys = true);
    }
    let nodes = [node("n").not_ready(), node("m").not_ready()];
    let second = Arc::clone(&other);
    second.set_status(ProviderStatus::Frozen("credentials".to_owned()));
    let scene = Scene::start_with(nodes, one, vec![other]).await;
    scene.passes(5).await;
    assert!(scene.server.node("n").is_some(), "not all who say so are well");
    second.set_status(ProviderStatus::Serving);
    scene.passes(3).await;
    assert_eq!(scene.server.node("n"), None);
    assert!(scene.server.node("m").is_some());
    scene.stop().await;
}

/// E3: a provider asked by a name that is not the cloud's own key may have looked for another instance.
#[tokio::test(start_paused = true)]
async fn without_a_provider_id_absence_proves_nothing() {
    let scene = Scene::start([node("n").not_ready()], |fake| gone(fake, &["n"])).await;
    scene.passes(10).await;
    assert!(scene.server.node("n").is_some());
    assert!(scene.is_held(Rule::Nameless, 1));
    assert_eq!(scene.events(), [(Kind::Warning, "NodeDeletionBlocked")]);
    assert_eq!(scene.server.condition("n", HELD_BACK)["reason"], "NoProviderID");
    // An answer that says nothing frees nobody.
    scene.fake.set_state("n", InstanceState::Unspecified);
    scene.passes(5).await;
    assert_eq!(scene.server.condition("n", HELD_BACK)["status"], "True");
    assert!(scene.is_held(Rule::Nameless, 1));
    gone(&scene.fake, &["n"]);
    scene.passes(5).await;
    assert_eq!(scene.events(), [], "it was said already");
    scene.fake.set_state("n", InstanceState::Running);
    scene.passes(2).await;
    assert_eq!(scene.server.condition("n", HELD_BACK)["status"], "False");
    gone(&scene.fake, &["n"]);
    scene.fake.change_info(|info| info.names_are_keys = true);
    scene.passes(2).await;
    assert_eq!(scene.server.node("n"), None);
    scene.stop().await;
}

/// A person knows better.
#[tokio::test(start_paused = true)]
async fn a_node_without_a_provider_id_goes_when_a_person_confirms_it() {
    let scene = Scene::start([node("n").not_ready()], |fake| gone(fake, &["n"])).await;
    scene.passes(4).await;
    assert!(scene.server.node("n").is_some());
    scene.server.edit("n", |node| node["metadata"]["annotations"][decide::CONFIRM_DELETION] = json!("n-uid"));
    scene.passes(3).await;
    assert_eq!(scene.server.node("n"), None);
    scene.stop().await;
}

/// The record of the deletion stays in memory, so that the deletion is decided, too.
#[tokio::test(start_paused = true)]
async fn in_shadow_mode_a_node_without_a_machine_is_told_and_stays() {
    use ccm_kube::shadow::{Shadow, ShadowMetrics, ShadowSettings};
    let settings_of_shadow = ShadowSettings { shadow: true, shadow_grace: Duration::from_secs(120) };
    let shadow = Shadow::new(&settings_of_shadow, ShadowMetrics::default());
    let fake = FakeProvider::new("fake");
    gone(&fake, &["n"]);
    let server = NodeServer::new([silent("n")]).shadowed(&shadow);
    let scene = Scene::on(server, fake, vec![], settings()).await;
    scene.passes(5).await;
    let review = || shadow.review(&scene.parts, ccm_base::clock::now());
    let told: Vec<_> = review().0.into_iter().map(|row| (row.name, row.what)).collect();
    assert_eq!(told, [("n".to_owned(), "would delete the Node".to_owned())]);
    let lines = scene.server.take_lines();
    assert!(lines.iter().all(|line| line.starts_with("GET ")), "{lines:?}");
    assert_eq!(
        (scene.server.record("cloud-node-lifecycle-deletions"), scene.events().len()),
        (json!(null), 0)
    );
    scene.server.delete("n");
    scene.passes(1).await;
    let (rows, agreed) = review();
    assert_eq!((rows.len(), agreed[0].count), (0, 1));
    scene.stop().await;
}
