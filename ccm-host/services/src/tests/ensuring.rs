//! Creation and change of a balancer: writes, and their order.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::{fin, lb, node, published},
    restarting::A_SWEEP,
    world::{A_WHILE, World},
};
use crate::nodes::EXCLUDE_LABEL;
use ccm_cloud::{
    InProgress, ProviderEvent, ServiceCondition,
    fake::{Call, method},
};
use ccm_kube::{
    EventType,
    fixtures::{invalid, refusal},
};

/// FIN-2, STAT-2; the provider decides which protocols it supports.
#[tokio::test(start_paused = true)]
async fn a_new_service_gets_finalizer_balancer_and_status_in_this_order() {
    for (id, protocol) in [("SVC-2", "UDP"), ("SVC-3", "TCP"), ("SVC-4", "SCTP")] {
        let world = World::settled([node("n1")]).await;
        let mut service = lb("web");
        service["spec"]["ports"][0]["protocol"] = json!(protocol);
        world.cluster.put(service);
        world
            .until("the status", |world| {
                world.cluster.service("web").unwrap()["status"]["loadBalancer"]["ingress"].is_array()
            })
            .await;
        world.pass(A_WHILE).await;
        assert!(world.cloud.calls().iter().any(|call| format!("{call:?}").contains(protocol)), "{id}");
        let (story, events) = world.take_with_events();
        assert_eq!(story, ["finalizer added", "ensure web n1", "status 192.0.2.1"], "{id}");
        assert_eq!(events, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"], "{id}, SW-26");
        assert_eq!(world.metric("ccm_service_pending"), "0", "{id}");
    }
}

/// SVC-8, FIN-1: one patch.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_there_is_not_written() {
    let world = World::settled([node("n1"), lb("other")]).await;
    world.cluster.put(fin(lb("web")));
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure web n1", "status 192.0.2.1"]);
}

/// STAT-1, STAT-5, SW-19.
#[tokio::test(start_paused = true)]
async fn a_status_that_stands_is_not_written() {
    let world = World::settled([node("n1")]).await;
    world.cluster.put(published(fin(lb("web"))));
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure web n1"]);
}

/// SVC-10: a relevant change is sent to the cloud under a higher revision; an irrelevant one is not sent.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_wanted_is_ensured() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.change_service("web", |service| service["metadata"]["labels"] = json!({"any": "thing"}));
    world
        .cluster
        .change_service("web", |service| service["metadata"]["annotations"] = json!({"un": "wanted"}));
    world.pass(A_WHILE).await;
    assert!(world.take().is_empty(), "SW-21");
    for ip in ["192.168.1.1", "192.168.1.11"] {
        world.cluster.change_service("web", |service| service["spec"]["loadBalancerIP"] = json!(ip));
        world.until("ensure", |world| world.count("ensure") == 1).await;
        world.pass(Duration::from_secs(1)).await;
        let revisions: Vec<_> = world.cloud.calls().iter().map(revision).collect();
        let (story, events) = world.take_with_events();
        assert_eq!(story, ["ensure web n1"]);
        assert_eq!(events, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
        assert!(revisions[0] > 1_700_000_000_000_000, "starts at the wall clock: {revisions:?}");
    }
}

fn revision(call: &Call) -> u64 {
    match call {
        Call::Ensure { revision, .. } | Call::Update { revision, .. } => *revision,
        other => panic!("{other:?} has no revision"),
    }
}

/// SVC-35, and LBN-31: ineligible nodes change nothing.
#[tokio::test(start_paused = true)]
async fn a_balancer_without_nodes_is_made_and_warned_of_once() {
    let world = World::settled([]).await;
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["finalizer added", "ensure web ", "status 192.0.2.1"]);
    assert_eq!(events[..2], ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
    assert!(events[2].starts_with("UnAvailableLoadBalancer"), "{events:?}");
    assert_eq!(events.len(), 3);
    let mut excluded = node("n1");
    excluded["metadata"]["labels"] = json!({ EXCLUDE_LABEL: "" });
    world.cluster.put(excluded);
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert!(story.is_empty() && events.is_empty(), "{story:?} {events:?}");
}

/// Design rule 8: work in progress is no failure and emits no Event; the provider sets the delay.
#[tokio::test(start_paused = true)]
async fn long_work_is_published_as_far_as_it_is_and_asked_for_again_exactly_then() {
    let world = World::settled([node("n1")]).await;
    world.cloud.early_addresses();
    for _ in 0..2 {
        world.cloud.in_progress_next(method::ENSURE, in_progress(40));
    }
    world.cluster.put(lb("web"));
    world.until("first", |world| world.count("ensure") == 1).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.take(), ["finalizer added", "ensure web n1", "status 192.0.2.1"], "partial status");
    assert_eq!(world.metric("ccm_service_pending"), "1");
    let waited = [
        world.until("second", |world| world.count("ensure") == 1).await,
        world.until("third", |world| world.count("ensure") == 2).await,
    ];
    for (waited, want) in waited.into_iter().zip([39.0, 40.0]) {
        assert!((waited.as_secs_f64() - want).abs() < 0.1, "{waited:?}");
    }
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["ensure web n1", "ensure web n1"]);
    assert_eq!(events, ["EnsuredLoadBalancer"], "no warning, told when it is a fact");
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

fn in_progress(seconds: u64) -> InProgress {
    InProgress { retry_after: Duration::from_secs(seconds), reason: String::new(), message: String::new() }
}

/// A repeated call carries the same revision.
#[tokio::test(start_paused = true)]
async fn asking_again_is_the_same_call() {
    let world = World::settled([node("n1")]).await;
    world.cloud.in_progress_next(method::ENSURE, in_progress(10));
    world.cluster.put(lb("web"));
    world.until("both", |world| world.count("ensure") == 2).await;
    let calls = world.cloud.calls();
    assert_eq!(calls[0], calls[1]);
}

/// Design rule 18.
#[tokio::test(start_paused = true)]
async fn annotations_and_events_of_an_answer_are_written() {
    let world = World::settled([node("n1")]).await;
    world
        .cloud
        .set_annotations([("cloud/arn".to_owned(), "a1".to_owned())].into(), vec!["cloud/old".to_owned()]);
    world.cloud.set_events(vec![ProviderEvent {
        kind: EventType::Warning,
        reason: "Shared".to_owned(),
        message: "with others".to_owned(),
    }]);
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    let written = r#"status 192.0.2.1; annotations {"cloud/arn":"a1"}"#;
    assert_eq!(story, ["finalizer added", "ensure web n1", written]);
    assert_eq!(events, ["EnsuringLoadBalancer", "Shared: with others", "EnsuredLoadBalancer"]);
}

/// A condition is set once, and leaves those of others.
#[tokio::test(start_paused = true)]
async fn conditions_of_an_answer_are_set() {
    let world = World::settled([node("n1")]).await;
    let condition = |status| {
        let one = ServiceCondition { status, reason: "R".to_owned(), message: String::new() };
        [("cloud/Open".to_owned(), one)].into()
    };
    world.cloud.set_conditions(condition("True"));
    let mut web = lb("web");
    web["status"]["conditions"] = json!([{"type": "Other", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    world.cluster.put(web);
    world.pass(A_WHILE).await;
    assert_eq!(
        world.take(),
        ["finalizer added", "ensure web n1", "status 192.0.2.1; condition cloud/Open=True"]
    );
    let edit = |number: u64| {
        world.cluster.change_service("web", |service| service["spec"]["healthCheckNodePort"] = json!(number));
    };
    edit(31000);
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure web n1"], "it stands already");
    world.cloud.set_conditions(condition("False"));
    edit(31001);
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure web n1", "condition cloud/Open=False"]);
    let web = world.cluster.service("web").unwrap();
    assert_eq!(web["status"]["conditions"].as_array().unwrap().len(), 2, "{web}");
}

/// S8: the provider answers once. What could not be written is written later, without another call.
#[tokio::test(start_paused = true)]
async fn annotations_that_could_not_be_written_are_written_later() {
    let world = World::settled([node("n1")]).await;
    world.cloud.set_annotations([("cloud/arn".to_owned(), "a1".to_owned())].into(), Vec::new());
    for _ in 0..3 {
        world.cluster.refuse_next("status", refusal(500, "InternalError"));
    }
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    let written = r#"status 192.0.2.1; annotations {"cloud/arn":"a1"}"#;
    assert_eq!(world.take(), ["finalizer added", "ensure web n1", written]);
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// A write that the apiserver always refuses blocks neither the Service nor its next answers.
#[tokio::test(start_paused = true)]
async fn annotations_that_are_refused_cost_only_themselves() {
    let world = World::settled([node("n1")]).await;
    let long = [("cloud/long".to_owned(), "x".repeat(300_000))].into();
    world.cloud.set_annotations(long, Vec::new());
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["finalizer added", "ensure web n1", "status 192.0.2.1"], "no second try");
    let told =
        events.iter().filter(|event| event.contains("failed to write annotations of the provider")).count();
    assert_eq!((told, events.last().map(String::as_str)), (1, Some("EnsuredLoadBalancer")), "{events:?}");
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// kube-vip's provider only says which address it chose; an agent on the nodes writes it into the status.
#[tokio::test(start_paused = true)]
async fn an_address_that_somebody_else_gives_the_service_stays() {
    let world = World::settled([node("n1")]).await;
    world.cloud.without_addresses();
    world.cluster.put(lb("web"));
    // A list may come before they do.
    world.pass(A_SWEEP).await;
    let theirs = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}});
    world.cluster.change_service("web", |service| service["status"] = theirs.clone());
    world.cluster.put(node("n2"));
    world.pass(A_SWEEP).await;
    assert_eq!(world.cluster.service("web").unwrap()["status"]["loadBalancer"], theirs["loadBalancer"]);
    let wrote = world.take();
    assert!(!wrote.iter().any(|word| word.starts_with("status")), "{wrote:?}");
}

/// A policy of the cluster that knows no such annotation refuses the whole patch that has it.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_refuses_an_annotation_keeps_no_address_back() {
    let world = World::settled([node("n1")]).await;
    world.cloud.set_annotations([("cloud/arn".to_owned(), "a1".to_owned())].into(), Vec::new());
    // The whole, and then the part that it is about.
    world.cluster.refuse_next("annotations", refusal(403, "Forbidden"));
    world.cluster.refuse_next("annotations", refusal(403, "Forbidden"));
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    let later = r#"annotations {"cloud/arn":"a1"}"#;
    assert_eq!(story, ["finalizer added", "ensure web n1", "status 192.0.2.1", later]);
    let told = events.iter().filter(|event| event.contains("failed to write annotations of the provider"));
    assert_eq!(told.count(), 1, "{events:?}");
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// SW-26: told once it is true and written, however late that is.
#[tokio::test(start_paused = true)]
async fn an_ensure_whose_addresses_are_written_later_is_told_then() {
    let world = World::settled([]).await;
    world.cluster.refuse_next("status", refusal(500, "InternalError"));
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["finalizer added", "ensure web ", "status 192.0.2.1"]);
    for reason in ["EnsuredLoadBalancer", "UnAvailableLoadBalancer"] {
        assert_eq!(events.iter().filter(|one| one.starts_with(reason)).count(), 1, "{reason}: {events:?}");
    }
}

/// The apiserver wrongly reported the Service as gone: the sweep reconciles it again.
#[tokio::test(start_paused = true)]
async fn a_service_that_was_said_to_be_gone_gets_its_balancer_at_the_next_sweep() {
    let world = World::settled([node("n1")]).await;
    world.cluster.refuse_next("finalizers", refusal(404, "NotFound"));
    world.cluster.put(lb("web"));
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["list", "finalizer added", "ensure web n1", "status 192.0.2.1"]);
}

/// SVC-33: a Service that is gone gets no balancer.
#[tokio::test(start_paused = true)]
async fn no_finalizer_no_balancer() {
    let world = World::settled([node("n1")]).await;
    world.cluster.refuse_next("finalizers", refusal(404, "NotFound"));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(100)).await;
    assert!(world.take().is_empty());
    world.cluster.refuse_next("finalizers", refusal(500, "InternalError"));
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(Duration::from_secs(1)).await;
    let (story, events) = world.take_with_events();
    assert!(story.is_empty(), "{story:?}");
    assert!(events[0].starts_with("SyncLoadBalancerFailed: Error syncing load balancer: "), "{events:?}");
    world.until("the balancer", |world| world.count("ensure") == 1).await;
}

/// SW-5, HLP-23: another finalizer added meanwhile stays, and causes no failure.
#[tokio::test(start_paused = true)]
async fn a_finalizer_of_somebody_else_is_kept() {
    let world = World::settled([node("n1")]).await;
    world.cluster.refuse_next("finalizers", invalid("a test failed", &[]));
    let mut service = lb("web");
    service["metadata"]["finalizers"] = json!(["other/one"]);
    world.cluster.put(service);
    world.pass(Duration::from_secs(1)).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["finalizer added", "ensure web n1", "status 192.0.2.1"]);
    assert_eq!(events, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
    let finalizers = world.cluster.service("web").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["other/one", crate::service::FINALIZER]));
}

/// SVC-11: a concurrent write causes neither a warning (upstream warns) nor another call.
#[tokio::test(start_paused = true)]
async fn a_status_that_was_in_conflict_is_written_later() {
    let world = World::settled([node("n1")]).await;
    world.cluster.refuse_next("status", refusal(409, "Conflict"));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(1)).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["finalizer added", "ensure web n1"]);
    assert_eq!(events, ["EnsuringLoadBalancer"]);
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["status 192.0.2.1"]);
}

/// SVC-11: reported and retried; the cloud is not called again for what it has.
#[tokio::test(start_paused = true)]
async fn a_status_that_was_refused_is_written_later() {
    let world = World::settled([node("n1")]).await;
    world.cluster.refuse_next("status", refusal(500, "InternalError"));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(1)).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["finalizer added", "ensure web n1"]);
    assert_eq!(events.len(), 2, "{events:?}");
    let want = "SyncLoadBalancerFailed: Error syncing load balancer: failed to update load balancer status";
    assert!(events[1].starts_with(want), "{events:?}");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["status 192.0.2.1"]);
}

/// SVC-12.
#[tokio::test(start_paused = true)]
async fn the_status_of_a_service_that_is_gone_is_no_failure() {
    let world = World::settled([node("n1")]).await;
    world.cluster.refuse_next("status", refusal(404, "NotFound"));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.events(), ["EnsuringLoadBalancer"]);
}

/// An invalid range never opens a balancer to everyone.
#[tokio::test(start_paused = true)]
async fn a_bad_source_range_is_told_and_waits_for_a_change() {
    let world = World::settled([node("n1")]).await;
    let mut service = lb("web");
    service["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/33"]);
    world.cluster.put(service);
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert!(story.is_empty(), "{story:?}");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("spec.loadBalancerSourceRanges: \"10.0.0.0/33\""), "{events:?}");
    world.cluster.change_service("web", |service| {
        service["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
    });
    world.until("the balancer", |world| world.count("ensure") == 1).await;
}

/// `--concurrent-service-syncs`, SW-10.
#[tokio::test(start_paused = true)]
async fn no_more_balancers_are_made_at_once_than_allowed() {
    let mut world = World::new([node("n1")]);
    world.settings.concurrent_service_syncs = 2;
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(60));
    for number in 0..4 {
        world.cluster.put(lb(&format!("web{number}")));
    }
    world.start();
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(world.count("ensure"), 2);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.count("ensure"), 4);
}

/// Its annotation sets the mode of every address, and may change; a wrong one is named and changes nothing.
#[tokio::test(start_paused = true)]
async fn the_mode_of_an_address_is_what_the_service_says() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let mode = |world: &World| {
        world.cluster.service("web").unwrap()["status"]["loadBalancer"]["ingress"][0]["ipMode"].clone()
    };
    for (says, want) in [("Proxy", "Proxy"), ("VIP", "VIP"), ("Proxy", "Proxy")] {
        world.cluster.change_service("web", |service| {
            service["metadata"]["annotations"] = json!({"cloudprovider.ccm/load-balancer-ip-mode": says});
        });
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(mode(&world), want);
    }
    world.take();
    world.cluster.change_service("web", |service| {
        service["metadata"]["annotations"] = json!({"cloudprovider.ccm/load-balancer-ip-mode": "proxy"});
        service["spec"]["ports"][0]["port"] = json!(81);
    });
    world.pass(A_WHILE).await;
    let events = world.events();
    assert!(events.iter().any(|event| event.contains("\"proxy\" is neither VIP nor Proxy")), "{events:?}");
    assert!(world.calls().is_empty(), "{:?}", world.calls());
    world.cluster.change_service("web", |service| {
        service["metadata"]["annotations"] = json!({});
    });
    world.pass(A_WHILE).await;
    assert_eq!((mode(&world), world.count("ensure")), (json!("VIP"), 1), "as the provider says");
}

/// The same after a removal that was taken back while it was under way.
#[tokio::test(start_paused = true)]
async fn an_address_that_somebody_else_gives_a_service_that_came_back_stays() {
    let world = World::settled([node("n1")]).await;
    world.cloud.without_addresses();
    world.cluster.put(lb("web"));
    world.pass(A_WHILE).await;
    world.cloud.set_latency(method::DELETE, Duration::from_secs(2));
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.until("the removal", |world| world.count("delete") == 1).await;
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("LoadBalancer"));
    world.pass(A_WHILE).await;
    assert_eq!(world.cloud.balancers().len(), 1);
    let theirs = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}});
    world.cluster.change_service("web", |service| service["status"] = theirs.clone());
    world.cluster.put(node("n2"));
    world.pass(A_SWEEP).await;
    assert_eq!(world.cluster.service("web").unwrap()["status"]["loadBalancer"], theirs["loadBalancer"]);
}
