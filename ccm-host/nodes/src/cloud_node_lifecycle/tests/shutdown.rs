use super::*;

const GRACE: Duration = Duration::from_secs(60);
/// The grace, the check that confirms it, and the write.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(75);

/// A cluster of these stopped nodes and ten Ready ones.
async fn stopped(policy: ShutdownPolicy, names: &[&str]) -> Scene {
    let fake = FakeProvider::new("fake");
    let witnesses = numbered(10);
    for name in &witnesses {
        fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
    }
    for name in names {
        fake.set_instance(name, InstanceState::Stopped, instance(&format!("fake://{name}")));
    }
    let nodes = witnesses.iter().map(|name| ready(name)).chain(names.iter().map(|name| silent(name)));
    let settings =
        LifecycleSettings { node_shutdown_policy: policy, node_shutdown_grace: GRACE, ..settings() };
    Scene::on(NodeServer::new(nodes), fake, vec![], settings).await
}

/// The keys and effects of the node's taints.
fn taints(scene: &Scene, name: &str) -> Vec<String> {
    let taints = scene.server.part(name, "/spec/taints");
    let text = |taint: &serde_json::Value| {
        let key = taint["key"].as_str().unwrap().rsplit('/').next().unwrap();
        format!("{key}:{}", taint["effect"].as_str().unwrap())
    };
    taints.as_array().into_iter().flatten().map(text).collect()
}

/// After the grace each policy has its taint, and it goes when the instance runs again.
#[tokio::test(start_paused = true)]
async fn a_node_that_stays_stopped_is_given_up_until_its_instance_returns() {
    let rows: [(ShutdownPolicy, &[&str], &[&str]); 4] = [
        (ShutdownPolicy::None, &[], &[]),
        (ShutdownPolicy::Taint, &["shutdown:NoSchedule"], &["shutdown:NoSchedule"]),
        (ShutdownPolicy::Evict, &["shutdown:NoSchedule"], &["shutdown:NoSchedule", "shutdown:NoExecute"]),
        (
            ShutdownPolicy::OutOfService,
            &["shutdown:NoSchedule"],
            &["shutdown:NoSchedule", "out-of-service:NoExecute"],
        ),
    ];
    for (policy, at_once, later) in rows {
        let scene = stopped(policy, &["n"]).await;
        assert_eq!(taints(&scene, "n"), at_once, "{policy:?}");
        sleep(GRACE - PERIOD).await;
        assert_eq!(taints(&scene, "n"), at_once, "{policy:?}, before the grace is over");
        sleep(GIVEN_UP_AFTER - GRACE + PERIOD).await;
        assert_eq!(taints(&scene, "n"), later, "{policy:?}");
        let events: &[_] = if later.len() > 1 { &[(Kind::Warning, "NodeGivenUp")] } else { &[] };
        assert_eq!(scene.events(), events, "{policy:?}");
        scene.server.take_lines();
        scene.passes(20).await;
        let reads = scene.server.take_lines();
        assert!(reads.is_empty(), "{policy:?}: nothing is left to do, but {reads:?}");
        scene.fake.set_state("n", InstanceState::Running);
        scene.passes(1).await;
        assert_eq!(taints(&scene, "n"), [""; 0], "{policy:?}");
        assert!(scene.events().is_empty());
        scene.stop().await;
    }
}

/// A single answer of a provider proves as little as it does for a deletion.
#[tokio::test(start_paused = true)]
async fn one_confirmation_is_too_few_to_give_a_node_up() {
    let scene = stopped(ShutdownPolicy::OutOfService, &["n"]).await;
    scene.stop().await;
    let settings = LifecycleSettings {
        node_shutdown_policy: ShutdownPolicy::OutOfService,
        node_shutdown_grace: GRACE,
        node_deletion_confirmations: 1,
        ..settings()
    };
    let scene = Scene::on(scene.server.clone(), Arc::clone(&scene.fake), vec![], settings).await;
    sleep(GIVEN_UP_AFTER).await;
    assert_eq!(scene.events(), [(Kind::Warning, "NodeGivenUp")]);
    scene.stop().await;
}

/// A deletion needs the record; giving up a stopped node does not.
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_stops_no_giving_up() {
    let scene = stopped(ShutdownPolicy::OutOfService, &["n"]).await;
    scene.server.refuse_records(true);
    scene.fake.set_state("gone", InstanceState::Absent);
    scene.server.put(&silent("gone"));
    scene.server.stop_lease("gone", SignedDuration::from_secs(60));
    sleep(GIVEN_UP_AFTER * 2).await;
    assert_eq!(taints(&scene, "n").len(), 2);
    assert!(scene.server.node("gone").is_some());
    scene.stop().await;
}

/// A kubelet that renews its Lease runs pods, whatever the cloud says of its instance.
#[tokio::test(start_paused = true)]
async fn a_node_with_a_live_kubelet_is_not_given_up() {
    let scene = stopped(ShutdownPolicy::OutOfService, &["n"]).await;
    for _ in 0..60 {
        scene.server.stop_lease("n", SignedDuration::from_secs(300));
        scene.passes(1).await;
    }
    assert_eq!(taints(&scene, "n"), ["shutdown:NoSchedule"]);
    scene.passes(20).await;
    assert_eq!(taints(&scene, "n").len(), 2, "then it fell silent");
    scene.stop().await;
}

/// What a provider said before it failed proves nothing.
#[tokio::test(start_paused = true)]
async fn the_grace_begins_anew_after_a_provider_was_away() {
    let scene = stopped(ShutdownPolicy::OutOfService, &["n"]).await;
    sleep(GRACE - PERIOD).await;
    scene.fake.set_status(ProviderStatus::Disconnected("no socket".to_owned()));
    scene.passes(2).await;
    scene.fake.set_status(ProviderStatus::Serving);
    sleep(GRACE - PERIOD).await;
    assert_eq!(taints(&scene, "n"), ["shutdown:NoSchedule"]);
    sleep(GIVEN_UP_AFTER - GRACE + PERIOD * 2).await;
    assert_eq!(taints(&scene, "n").len(), 2);
    scene.stop().await;
}

/// The guard of deletions holds here as well: a provider without a Ready node that bears it out may give up no more
/// than the share.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_stops_everything_at_once_is_not_believed() {
    let fake = FakeProvider::new("fake");
    let all = numbered(40);
    for name in &all {
        fake.set_instance(name, InstanceState::Stopped, instance(&format!("fake://{name}")));
    }
    let settings = LifecycleSettings { node_shutdown_policy: ShutdownPolicy::OutOfService, ..settings() };
    let nodes = all.iter().map(|name| silent(name));
    let scene = Scene::on(NodeServer::new(nodes), fake, vec![], settings).await;
    sleep(GIVEN_UP_AFTER * 4).await;
    let kept = || all.iter().filter(|name| taints(&scene, name) == ["shutdown:NoSchedule"]).count();
    assert_eq!(kept(), 38, "the share of a window");
    let told =
        |events: &[(Kind, &str)]| events.iter().filter(|event| event.1 == "NodeGivingUpBlocked").count();
    assert_eq!(told(&scene.events()), 38, "once for each node");
    assert!(scene.has_metric(r#"node_lifecycle_giving_up_blocked{provider="fake",rule="share"} 38"#));
    let again = all.iter().find(|name| taints(&scene, name).len() == 1).unwrap();
    scene.fake.set_state(again, InstanceState::Running);
    scene.passes(2).await;
    scene.fake.set_state(again, InstanceState::Stopped);
    sleep(GIVEN_UP_AFTER * 2).await;
    assert_eq!(told(&scene.events()), 1, "its second stop");
    scene.stop().await;
}

/// A person's taint of the same key stays, also when the instance returns.
#[tokio::test(start_paused = true)]
async fn a_persons_taint_stays() {
    let given_up = silent("n").with_taint(taint::OUT_OF_SERVICE, "nodeshutdown", "NoExecute");
    let fake = FakeProvider::new("fake");
    fake.set_instance("n", InstanceState::Stopped, instance("fake://n"));
    let settings = LifecycleSettings { node_shutdown_policy: ShutdownPolicy::OutOfService, ..settings() };
    let scene = Scene::on(NodeServer::new([given_up]), fake, vec![], settings).await;
    sleep(GIVEN_UP_AFTER * 2).await;
    assert_eq!(taints(&scene, "n"), ["out-of-service:NoExecute", "shutdown:NoSchedule"]);
    scene.fake.set_state("n", InstanceState::Running);
    scene.passes(1).await;
    assert_eq!(taints(&scene, "n"), ["out-of-service:NoExecute"]);
    scene.stop().await;
}
