//! Providers that are away or frozen, and shutdown.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::{lb, node},
    ownership::leave,
    world::{A_WHILE, World},
};
use ccm_cloud::{
    CloudError, ErrorReason, Provider as _, ProviderStatus, covers_backends,
    fake::{Call, error, method},
};
use ccm_kube::KeySet;

fn away() -> ProviderStatus {
    ProviderStatus::Disconnected("no socket".to_owned())
}

/// Nothing is tried, nothing counts as failed, and everything resumes at once when the provider is back.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_is_waited_for() {
    let world = World::settled([node("n1"), lb("web"), lb("old"), lb("vanishing")]).await;
    world.cloud.set_status(away());
    world.cluster.put(lb("new"));
    world.cluster.delete_service("old");
    world.cluster.remove_service("vanishing");
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.cluster.put(node("n2"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert!(story.is_empty() && events.is_empty(), "{story:?} {events:?}");
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(Duration::from_secs(1)).await;
    let mut story = world.take();
    story.sort();
    let want = [
        "delete old-uid",
        "delete vanishing-uid",
        "ensure new n1,n2",
        "ensure web n1,n2",
        "finalizer added",
        "finalizer removed",
        "status 192.0.2.1",
    ];
    assert_eq!(story, want);
}

/// At the start, too: no class has a known owner yet.
#[tokio::test(start_paused = true)]
async fn a_provider_that_has_not_introduced_itself_is_waited_for() {
    let mut world = World::new([node("n1"), lb("web")]);
    world.cloud.forget_info();
    world.cloud.set_status(away());
    world.start();
    world.pass(A_WHILE).await;
    assert!(world.take().is_empty());
    world.cloud.change_info(|info| {
        info.load_balancers = true;
        info.default_load_balancer_class = true;
    });
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.take(), ["list", "finalizer added", "ensure web n1", "status 192.0.2.1"]);
}

/// A provider that comes back and wants more fields never takes a field not read yet for an absent one.
#[tokio::test(start_paused = true)]
async fn new_wishes_are_read_before_anything_is_asked() {
    let mut service = lb("web");
    service["metadata"]["annotations"] = json!({"cloud/internal": "true"});
    let world = World::settled([node("n1"), service]).await;
    world.cloud.set_status(away());
    world.pass(Duration::from_secs(1)).await;
    world.cloud.change_info(|info| info.keep_of_services.annotations = KeySet::patterns(&["cloud/"]));
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(A_WHILE).await;
    let digests: Vec<_> = world.cloud.calls().iter().map(|call| format!("{call:?}")).collect();
    assert_eq!(digests.len(), 1, "{digests:?}");
    assert!(digests[0].contains("cloud/internal"), "{digests:?}");
}

/// An unhealthy provider freezes destructive work only; reported once.
#[tokio::test(start_paused = true)]
async fn a_frozen_provider_destroys_nothing_and_does_the_rest() {
    let world = World::settled([node("n1"), lb("web"), lb("old")]).await;
    world.cloud.set_status(ProviderStatus::Frozen("credentials".to_owned()));
    world.cluster.delete_service("old");
    world.pass(A_WHILE).await;
    world.cluster.change_service("old", |service| service["metadata"]["labels"] = json!({"a": "b"}));
    world.cluster.put(node("n2"));
    world.cluster.put(lb("new"));
    world.pass(Duration::from_secs(100)).await;
    let (mut story, events) = world.take_with_events();
    story.sort();
    assert_eq!(story[..2], ["ensure new n1", "finalizer added"]);
    assert!(story.contains(&"update web n1,n2".to_owned()), "{story:?}");
    assert!(!story.iter().any(|word| word.starts_with("delete")), "{story:?}");
    let held: Vec<_> = events.iter().filter(|event| event.contains("held back")).collect();
    assert_eq!(held.len(), 1, "{events:?}");
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.take(), ["delete old-uid", "finalizer removed"]);
}

fn refused() -> CloudError {
    error(method::ENSURE, Some(ErrorReason::CloudCredentialsInvalid))
}

/// Credentials that are good again show in the call that was refused: it waits for no thaw.
#[tokio::test(start_paused = true)]
async fn renewed_credentials_are_used_soon() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_always(method::ENSURE, Some(refused()));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(1)).await;
    world.cloud.set_status(ProviderStatus::Frozen("credentials".to_owned()));
    world.cloud.fail_always(method::ENSURE, None);
    world.pass(Duration::from_secs(6)).await;
    assert_eq!(world.count("ensure"), 2);
}

/// However often the provider seems to have thawed.
#[tokio::test(start_paused = true)]
async fn credentials_that_stay_refused_are_tried_less_and_less() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_always(method::ENSURE, Some(refused()));
    world.cluster.put(lb("web"));
    for _ in 0..300 {
        world.pass(Duration::from_secs(1)).await;
        world.cloud.set_status(ProviderStatus::Frozen("credentials".to_owned()));
        world.pass(Duration::from_secs(1)).await;
        world.cloud.set_status(ProviderStatus::Serving);
    }
    assert_eq!(world.count("ensure"), 7, "at 0, 5, 15, 35, 75, 155 and 315 s");
}

/// SW-11, SW-28: work in flight is aborted at once, and nothing is written afterwards.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_nobody_and_writes_nothing() {
    let mut world = World::settled([node("n1")]).await;
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(60));
    world.cluster.put(lb("web"));
    world.until("ensure", |world| world.count("ensure") == 1).await;
    let took = world.stop().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["finalizer added", "ensure web n1"]);
}

/// S7: a call that brings its provider down again and again is paced by its backoff, not by the reconnects.
#[tokio::test(start_paused = true)]
async fn a_provider_that_comes_and_goes_does_not_defeat_the_backoff() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_always(method::ENSURE, Some(error(method::ENSURE, None)));
    world.cluster.put(lb("web"));
    for _ in 0..300 {
        world.pass(Duration::from_secs(1)).await;
        world.cloud.set_status(away());
        world.pass(Duration::from_secs(1)).await;
        world.cloud.set_status(ProviderStatus::Serving);
    }
    let tries = world.count("ensure");
    assert!((5..=9).contains(&tries), "{tries} in ten minutes");
}

/// The same if it is away whenever the backoff ends: its absence ends no failure.
#[tokio::test(start_paused = true)]
async fn a_call_that_kills_its_provider_is_paced_and_told() {
    let world = World::settled([node("n1")]).await;
    let unanswered = CloudError { is_unanswered: true, ..error(method::ENSURE, None) };
    world.cloud.fail_always(method::ENSURE, Some(unanswered));
    world.cluster.put(lb("web"));
    for _ in 0..60 {
        world.pass(Duration::from_secs(3)).await;
        world.cloud.set_status(away());
        world.pass(Duration::from_secs(7)).await;
        world.cloud.set_status(ProviderStatus::Serving);
    }
    let (story, events) = world.take_with_events();
    let tries = story.iter().filter(|line| line.starts_with("ensure")).count();
    assert!((5..=9).contains(&tries), "{tries} in ten minutes");
    let warned = events.iter().filter(|event| event.starts_with("SyncLoadBalancerFailed")).count();
    assert_eq!(warned, 1, "{events:?}");
}

/// A cloud in which creating hangs may well delete.
#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_wait_for_hanging_ensures() {
    let mut world = World::new([node("n1"), lb("old")]);
    world.settings.concurrent_service_syncs = 2;
    world.start();
    world.pass(Duration::from_secs(3)).await;
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(600));
    for name in ["a", "b", "c"] {
        world.cluster.put(lb(name));
    }
    world.pass(Duration::from_secs(3)).await;
    world.take();
    world.cluster.delete_service("old");
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.take(), ["delete old-uid", "finalizer removed"]);
}

/// S4: a provider that hangs takes no permits from others.
#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_holds_up_only_its_own_balancers() {
    let mut classy = lb("classy");
    classy["spec"]["loadBalancerClass"] = json!("other/lb");
    let mut world = World::new([node("n1"), lb("a"), lb("b"), lb("c")]);
    world.settings.concurrent_service_syncs = 2;
    let other = world.add_provider("other");
    other.change_info(|info| {
        info.default_load_balancer_class = false;
        info.load_balancer_classes = vec!["other/lb".to_owned()];
    });
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(600));
    world.start();
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.count("ensure"), 2);
    world.cluster.put(classy);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!((world.count("ensure"), other.balancers().len()), (2, 1));
}

/// A provider that is replaced by one that wants to know more: what it has to remove may be found by an annotation.
#[tokio::test(start_paused = true)]
async fn new_wishes_are_read_before_anything_is_removed() {
    let mut service = lb("web");
    service["metadata"]["annotations"] = json!({"cloud/kind": "network"});
    let world = World::settled([node("n1"), service]).await;
    world.cloud.set_status(away());
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.pass(Duration::from_secs(1)).await;
    world.cloud.change_info(|info| info.keep_of_services.annotations = KeySet::patterns(&["cloud/"]));
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(A_WHILE).await;
    let calls = world.cloud.calls();
    let told = calls.iter().find_map(|call| match call {
        Call::Delete { annotations, .. } => Some(annotations.clone()),
        _ => None,
    });
    assert_eq!(told.as_deref(), Some(&["cloud/kind".to_owned()][..]), "{calls:?}");
}

/// A provider may be replaced while the caches list for the sake of its former process.
#[tokio::test(start_paused = true)]
async fn wishes_of_a_new_process_are_waited_for() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let wants = |prefix: &str| {
        let annotations = KeySet::patterns(&[prefix]);
        world.cloud.change_info(|info| info.keep_of_services.annotations = annotations);
    };
    wants("former/");
    let controller = world.controller();
    let (waited, ()) = tokio::join!(controller.kept(world.cloud.as_ref()), async { wants("now/") });
    assert!(waited);
    assert!(controller.shell.parts.services.holds(&world.cloud.info().unwrap().keep_of_services));
}

/// The same for its nodes: a set that was made of less is made again.
#[tokio::test(start_paused = true)]
async fn nodes_are_told_with_all_that_a_late_provider_wants() {
    let mut labelled = node("n1");
    labelled["metadata"]["labels"] = json!({"cloud/pool": "a"});
    let mut world = World::new([labelled, lb("web")]);
    leave(&world.cloud);
    world.start();
    world.pass(A_WHILE).await;
    world.cloud.change_info(|info| {
        info.load_balancers = true;
        info.default_load_balancer_class = true;
        info.keep_of_nodes.labels = KeySet::patterns(&["cloud/"]);
    });
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(A_WHILE).await;
    let calls = world.calls();
    assert_eq!(calls, ["list", "ensure web n1"], "its digest is that of all labels");
    let Some(Call::Ensure { digest, .. }) = world.cloud.calls().pop() else { panic!("an Ensure") };
    let nodes = world.controller().shell.parts.nodes.list();
    assert!(!nodes[0].labels.is_empty());
    assert!(covers_backends(&digest, &world.cloud.backend_set(nodes).digest), "{digest}");
}
