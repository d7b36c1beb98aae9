//! Failures are reported, and retried at their own pace.

use super::*;
use ccm_cloud::{
    CloudError, ErrorReason as R, InProgress, ProviderStatus,
    fake::{error, method},
};
use ccm_kube::fixtures::refusal;
use ccm_reconcile::SLOW_RETRY;

fn ensures(scene: &Scene) -> usize {
    scene.calls().iter().filter(|call| call.starts_with("ensure")).count()
}

/// ROUTE-19, ROUTE-20, WATCH-6, WATCH-7, SW-30, SW-34: any failure is retried by itself, ever more slowly.
#[tokio::test(start_paused = true)]
async fn a_route_that_cannot_be_made_is_told_and_tried_again() {
    let fake = FakeProvider::new("fake");
    fake.fail_always(method::ENSURE_ROUTE, Some(error(method::ENSURE_ROUTE, Some(R::InternalError))));
    let nodes = (0..3).map(|i| wanting(&format!("n{i}"), &[&format!("10.120.{i}.0/24")])).collect::<Vec<_>>();
    let scene = Scene::with(nodes, fake, vec![]).await;
    scene.rest().await;
    assert_eq!(ensures(&scene), 3);
    assert_eq!(scene.reasons(), ["FailedToCreateRoute"; 3]);
    assert!(
        scene.has_metric(r#"route_controller_route_sync_total{outcome="error",trigger="node_change"} 3"#)
    );
    assert_eq!(scene.condition("n1"), "True NoRouteCreated");
    sleep(Duration::from_secs(16)).await;
    assert_eq!(ensures(&scene), 3 * 4, "after 1, 2, 4 and 8 seconds");
    sleep(PERIOD * 10).await;
    let later = ensures(&scene);
    assert!(
        (3 * 10..=3 * 18).contains(&later),
        "every five minutes in the end, but {later} in fifty minutes"
    );
    assert!(scene.has_metric("ccm_route_waiting 3"));

    scene.fake.fail_always(method::ENSURE_ROUTE, None);
    sleep(PERIOD * 2).await;
    assert_eq!(scene.routes().len(), 3);
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    assert!(scene.has_metric("ccm_route_waiting 0"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_event_says_what_people_need() {
    let scene = Scene::settled([], []).await;
    scene.fake.fail_next(method::ENSURE_ROUTE, error(method::ENSURE_ROUTE, Some(R::RouteTableFull)));
    scene.server.put(&n1());
    scene.rest().await;
    let (_, reason, message) = scene.events.take().remove(0);
    assert_eq!(reason, "FailedToCreateRoute");
    for word in ["n1-uid", "10.120.0.0/24", "node n1", "ROUTE_TABLE_FULL"] {
        assert!(message.contains(word), "{word} is not in {message:?}");
    }
    scene.stop().await;
}

/// ROUTE-21, SW-33: one family fails, the other has its route; a healthy node does not wait for a failing one.
#[tokio::test(start_paused = true)]
async fn a_sick_destination_holds_up_nobody_else() {
    let scene = Scene::settled([n1()], []).await;
    scene.fake.fail_next(method::ENSURE_ROUTE, error(method::ENSURE_ROUTE, Some(R::RouteTableFull)));
    scene.server.put(&wanting("n3", &["10.120.1.0/24", "a00:100::/24"]));
    scene.rest().await;
    assert_eq!(scene.routes().len(), 2, "one of the two");
    assert_eq!(scene.condition("n3"), "True NoRouteCreated");
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}

/// The contract's table: each reason has its pace.
#[tokio::test(start_paused = true)]
async fn what_the_provider_asks_to_wait_is_waited() {
    let after = |reason, seconds| CloudError {
        retry_after: Some(Duration::from_secs(seconds)),
        ..error(method::ENSURE_ROUTE, Some(reason))
    };
    let rows = [
        ("RetryInfo", after(R::RateLimited, 20), Duration::from_secs(50), 3),
        (
            "a request that breaks the contract",
            error(method::ENSURE_ROUTE, Some(R::InvalidArgumentShape)),
            SLOW_RETRY - Duration::from_secs(1),
            1,
        ),
        (
            "another cluster's",
            error(method::ENSURE_ROUTE, Some(R::OwnedByOtherCluster)),
            PERIOD - Duration::from_secs(1),
            1,
        ),
    ];
    for (name, failure, time, want) in rows {
        let fake = FakeProvider::new("fake");
        fake.fail_always(method::ENSURE_ROUTE, Some(failure));
        let scene = Scene::with([n1()], fake, vec![]).await;
        sleep(time).await;
        assert_eq!(ensures(&scene), want, "{name}");
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_goes_on_is_asked_about_again_without_a_warning() {
    let progress =
        || InProgress { retry_after: Duration::from_secs(7), reason: String::new(), message: String::new() };
    let fake = FakeProvider::new("fake");
    fake.in_progress_next(method::ENSURE_ROUTE, progress());
    fake.in_progress_next(method::ENSURE_ROUTE, progress());
    let scene = Scene::with([n1()], fake, vec![]).await;
    scene.rest().await;
    assert_eq!(scene.condition("n1"), "True NoRouteCreated", "there is none yet");
    sleep(Duration::from_secs(14)).await;
    assert_eq!(ensures(&scene), 3, "at 0, 7 and 14 s");
    assert_eq!((scene.condition("n1").as_str(), scene.reasons()), ("False RouteCreated", vec![]));

    scene.fake.in_progress_next(method::DELETE_ROUTE, progress());
    scene.server.delete("n1");
    sleep(Duration::from_secs(8)).await;
    assert_eq!(scene.calls(), ["delete made-1", "delete made-1"]);
    assert_eq!(scene.routes(), [""; 0]);
    scene.stop().await;
}

/// A failing or unfinished change of a route that leads to the node does not make its network unavailable.
#[tokio::test(start_paused = true)]
async fn a_route_that_stands_is_not_talked_down() {
    let fake = FakeProvider::new("fake");
    fake.change_info(|info| info.route_node_addresses = true);
    let scene = Scene::with([n1()], fake, vec![]).await;
    scene.rest().await;
    scene.fake.fail_next(method::ENSURE_ROUTE, error(method::ENSURE_ROUTE, Some(R::RouteTableFull)));
    scene.server.edit("n1", |node| node["status"]["addresses"][0]["address"] = "10.0.0.7".into());
    scene.rest().await;
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    assert_eq!(scene.reasons(), ["FailedToCreateRoute"]);
    scene.stop().await;
}

/// ROUTE-31, SW-35: a route that cannot be removed is reported and retried, and delays nothing else.
#[tokio::test(start_paused = true)]
async fn a_route_that_cannot_be_removed_is_told_and_tried_again() {
    let fake = FakeProvider::new("fake");
    fake.set_route(route("old", "10.120.9.0/24", "n1"));
    fake.set_route(route("gone", "10.120.8.0/24", "nobody"));
    for _ in 0..4 {
        fake.fail_next(method::DELETE_ROUTE, error(method::DELETE_ROUTE, Some(R::InternalError)));
    }
    let scene = Scene::with([n1()], fake, vec![]).await;
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1", "10.120.8.0/24 nobody", "10.120.9.0/24 n1"]);
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    assert_eq!(scene.reasons(), ["FailedToDeleteRoute"]);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    let failed = r#"ccm_route_operation_duration_seconds_count{provider="fake",operation="delete",result="INTERNAL_ERROR"} 4"#;
    assert!(scene.has_metric(failed));
    scene.stop().await;
}

/// ROUTE-30: without a list nothing is done; the list is retried.
#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_the_routes_are_known() {
    let fake = FakeProvider::new("fake");
    fake.fail_always(method::LIST_ROUTES, Some(error(method::LIST_ROUTES, Some(R::CloudApiUnavailable))));
    let scene = Scene::with([n1()], fake, vec![]).await;
    sleep(Duration::from_secs(10)).await;
    let calls = scene.calls();
    assert_eq!(calls, ["list"; 4], "after 1, 2 and 4 seconds");
    assert_eq!(scene.condition("n1"), "none");
    assert!(scene.has_metric("route_controller_route_sync_total{outcome=\"error\",trigger=\"periodic\"} 4"));
    scene.fake.fail_always(method::LIST_ROUTES, None);
    sleep(Duration::from_secs(8)).await;
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    scene.stop().await;
}

/// A failed write of the condition is retried without another call to the cloud.
#[tokio::test(start_paused = true)]
async fn a_condition_that_was_not_written_is_written_later() {
    let scene = Scene::settled([], []).await;
    scene.server.answer_next_write(refusal(500, "InternalError"));
    scene.server.put(&n1());
    sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.condition("n1"), "False RouteCreated");
    assert_eq!(scene.calls(), ["ensure 10.120.0.0/24 n1"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_is_not_asked_until_it_is_back() {
    let fake = FakeProvider::new("fake");
    fake.set_status(ProviderStatus::Disconnected("away".into()));
    let scene = Scene::with([n1()], fake, vec![]).await;
    sleep(PERIOD * 2).await;
    assert_eq!(scene.calls(), [""; 0]);
    scene.fake.set_status(ProviderStatus::Serving);
    scene.rest().await;
    assert_eq!(scene.routes(), ["10.120.0.0/24 n1"]);
    scene.stop().await;
}

/// SW-28.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_nobody_and_nothing_is_written_afterwards() {
    let fake = FakeProvider::new("fake");
    fake.set_latency(method::ENSURE_ROUTE, Duration::from_secs(86_400));
    let scene = Scene::with([n1()], fake, vec![]).await;
    scene.rest().await;
    let before = tokio::time::Instant::now();
    let (server, fake) = (scene.server.clone(), Arc::clone(&scene.fake));
    scene.stop().await;
    assert!(before.elapsed() < Duration::from_secs(1));
    sleep(Duration::from_secs(90_000)).await;
    assert_eq!(routes_of(&fake), ["10.120.0.0/24 n1"], "the cloud ends what was begun");
    assert_eq!(server.take_lines(), [""; 0]);
}

/// S7: a failure keeps its backoff, however often its provider freezes and thaws, or comes and goes.
#[tokio::test(start_paused = true)]
async fn a_flapping_status_does_not_defeat_the_backoff() {
    let fake = FakeProvider::new("fake");
    fake.fail_always(method::ENSURE_ROUTE, Some(error(method::ENSURE_ROUTE, Some(R::InternalError))));
    let scene = Scene::with([n1()], fake, vec![]).await;
    for round in 0..60 {
        sleep(Duration::from_secs(1)).await;
        scene.fake.set_status(match round % 2 {
            0 => ProviderStatus::Frozen("the cloud is down".to_owned()),
            _ => ProviderStatus::Disconnected("no socket".to_owned()),
        });
        sleep(Duration::from_secs(1)).await;
        scene.fake.set_status(ProviderStatus::Serving);
    }
    let tries = ensures(&scene);
    assert!((5..=8).contains(&tries), "{tries} in two minutes");
    scene.stop().await;
}
