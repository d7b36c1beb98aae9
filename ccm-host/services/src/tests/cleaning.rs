//! Removal of a balancer: calls, writes, and their order.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::{deleting, fin, lb, node, published},
    world::{A_WHILE, World},
};
use ccm_cloud::{
    ErrorReason, InProgress, ProviderStatus,
    fake::{error, method},
};
use ccm_kube::{
    KeySet,
    fixtures::{invalid, refusal},
    service::ObjectKey,
};

const TOLD: [&str; 2] = ["DeletingLoadBalancer", "DeletedLoadBalancer"];

/// SVC-6, FIN-4. The apiserver clears the status together with the type.
#[tokio::test(start_paused = true)]
async fn a_service_that_wants_no_balancer_any_more_loses_it() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid", "finalizer removed"]);
    assert_eq!(events, TOLD);
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// What a deletion leaves on a Service that stays is written before the finalizer goes; a write that fails is no loss.
#[tokio::test(start_paused = true)]
async fn what_a_deletion_wants_removed_goes_from_a_service_that_stays() {
    let mut service = fin(published(lb("web")));
    service["metadata"]["annotations"] = json!({"cloud/arn": "a1", "users": "own"});
    let mut world = World::new([node("n1"), service]);
    world.cloud.change_info(|info| info.keep_of_services.annotations = KeySet::patterns(&["cloud/"]));
    world.start();
    world.pass(A_WHILE).await;
    world.take();
    world.cloud.set_annotations([].into(), vec!["cloud/arn".to_owned()]);
    world.cluster.refuse_next("status", refusal(500, "InternalError"));
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.pass(A_WHILE).await;
    let written = r#"annotations {"cloud/arn":null}"#;
    assert_eq!(world.take(), ["delete web-uid", "delete web-uid", written, "finalizer removed"]);
    let service = world.cluster.service("web").unwrap();
    assert_eq!(service["metadata"]["annotations"], json!({"users": "own"}));
}

/// While the apiserver takes no write, the cloud is not asked at the pace of its refusals, and the Service says why.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_written_is_told_and_repeated_at_the_pace_of_retries() {
    let mut world = World::new([node("n1"), fin(published(lb("web")))]);
    world.cloud.change_info(|info| info.keep_of_services.annotations = KeySet::patterns(&["cloud/"]));
    world.start();
    world.pass(A_WHILE).await;
    world.take();
    world.cloud.set_annotations([("cloud/arn".to_owned(), "a1".to_owned())].into(), vec![]);
    for _ in 0..1_000 {
        world.cluster.refuse_next("status", refusal(500, "InternalError"));
    }
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    let calls = story.iter().filter(|word| *word == "delete web-uid").count();
    assert!((2..=12).contains(&calls), "{calls} calls");
    let told = |event: &String| {
        event.starts_with("SyncLoadBalancerFailed") && event.ends_with("InternalError (500)")
    };
    assert!(events.iter().any(told), "{events:?}");
}

/// SVC-7; no status is written to a Service that is gone.
#[tokio::test(start_paused = true)]
async fn a_deleted_service_goes_when_its_balancer_is_gone() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid", "finalizer removed"]);
    assert_eq!(events, TOLD);
    assert!(world.cluster.service("web").is_none());
}

/// SVC-7, STAT-4, SW-5: others' finalizers stay, and a Service that stays because of them shows no balancer.
#[tokio::test(start_paused = true)]
async fn others_finalizers_stay_and_the_status_is_cleared() {
    let mut service = published(fin(lb("web")));
    service["metadata"]["finalizers"].as_array_mut().unwrap().insert(0, json!("other/one"));
    let world = World::settled([node("n1"), service]).await;
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["delete web-uid", "status cleared", "finalizer removed"]);
    let service = world.cluster.service("web").unwrap();
    assert_eq!(service["metadata"]["finalizers"], json!(["other/one"]));
    assert_eq!(service["status"]["loadBalancer"].get("ingress"), None);
}

/// SW-5: another finalizer is added while ours is being removed.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_comes_while_ours_goes_stays() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.refuse_next("finalizers", invalid("a test failed", &[]));
    world.cluster.change_service("web", |service| {
        service["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("other/late"));
    });
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["delete web-uid", "status cleared", "finalizer removed"]);
    assert_eq!(world.cluster.service("web").unwrap()["metadata"]["finalizers"], json!(["other/late"]));
}

/// Whatever ends the process in between, the next one finds the finalizer and continues.
#[tokio::test(start_paused = true)]
async fn a_finalizer_does_not_go_before_the_status() {
    let mut service = published(fin(lb("web")));
    service["metadata"]["finalizers"].as_array_mut().unwrap().insert(0, json!("other/one"));
    let mut world = World::settled([node("n1"), service]).await;
    world.cluster.refuse_next("status", refusal(500, "InternalError"));
    world.cluster.delete_service("web");
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.take(), ["delete web-uid"]);
    world.stop().await;
    world.start();
    world.pass(A_WHILE).await;
    let story: Vec<_> = world.take().into_iter().filter(|word| word != "list").collect();
    assert_eq!(story, ["delete web-uid", "status cleared", "finalizer removed"]);
}

/// FIN-3: what this process made is removed even if somebody removed the finalizer.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_gone_is_not_removed() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.change_service("web", |service| {
        service["metadata"]["finalizers"] = json!([]);
        service["spec"]["type"] = json!("ClusterIP");
    });
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["delete web-uid"]);
}

/// SVC-20, SW-1, SW-26: upstream requests no deletion but reports one.
#[tokio::test(start_paused = true)]
async fn what_is_said_to_be_absent_is_deleted_without_a_word() {
    let mut world = World::new([node("n1"), deleting(fin(lb("web")))]);
    world.start();
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    let after_the_list: Vec<_> = story.iter().filter(|word| *word != "list").collect();
    assert_eq!(after_the_list, ["delete web-uid", "finalizer removed"]);
    assert!(world.cluster.service("web").is_none());
    // Only if the list came first was it known to be absent.
    assert!(events.is_empty() || events == TOLD, "{events:?}");
}

/// Design rule 8: work in progress is legal on Delete, too.
#[tokio::test(start_paused = true)]
async fn a_deletion_in_progress_keeps_the_finalizer_and_waits_exactly() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let message = "draining".to_owned();
    let retry_after = Duration::from_secs(70);
    world.cloud.in_progress_next(method::DELETE, InProgress { retry_after, reason: String::new(), message });
    world.cluster.delete_service("web");
    world.until("first", |world| world.count("delete") == 1).await;
    let waited = world.until("second", |world| world.count("delete") == 2).await;
    assert!((waited.as_secs_f64() - 70.0).abs() < 0.1, "{waited:?}");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid", "delete web-uid", "finalizer removed"]);
    assert_eq!(events, TOLD, "told once, no warning");
}

/// SVC-21: upstream fails on a Get that we do not need; the finalizer stays for as long as anything may be left.
#[tokio::test(start_paused = true)]
async fn a_failed_deletion_keeps_the_finalizer() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let refused = error(method::DELETE, Some(ErrorReason::UnsupportedFeature));
    world.cloud.fail_always(method::DELETE, Some(refused));
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(
        story, ["delete web-uid"; 4],
        "a deletion never waits for a change, but slowly: 0, 300, 600, 900 s"
    );
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[1].starts_with("SyncLoadBalancerFailed: Error syncing load balancer: "), "{events:?}");
    world.cloud.fail_always(method::DELETE, None);
    world.until("end", |world| world.cluster.service("web").is_none()).await;
}

/// Q-4, SW-20: upstream retries at 0, 5, 15, 30, 35, 60 s.
#[tokio::test(start_paused = true)]
async fn a_failing_cleanup_follows_the_backoff_and_nothing_else() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.fail_always(method::DELETE, Some(error(method::DELETE, None)));
    world.cluster.delete_service("web");
    let mut waits = Vec::new();
    for number in 1..=5 {
        let label = |service: &mut serde_json::Value| {
            service["metadata"]["labels"] = json!({"n": number.to_string()});
        };
        world.cluster.change_service("web", label);
        waits.push(world.until("a try", |world| world.count("delete") == number).await.as_secs());
    }
    assert_eq!(waits, [0, 5, 10, 20, 40]);
}

/// SVC-22, SVC-23, SVC-26: however the error is wrapped, and on every path.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_is_implemented_elsewhere_is_let_go() {
    let world = World::settled([node("n1"), lb("web"), lb("torn")]).await;
    let elsewhere = error(method::DELETE, Some(ErrorReason::ImplementedElsewhere));
    world.cloud.fail_always(method::DELETE, Some(elsewhere));
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["delete web-uid", "finalizer removed"]);
    world.cluster.remove_service("torn");
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["delete torn-uid"]);
}

/// SVC-34: upstream fails and deletes again.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_gone_when_its_finalizer_goes_is_done_with() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.refuse_next("finalizers", refusal(404, "NotFound"));
    world.cluster.delete_service("web");
    world.pass(Duration::from_secs(1)).await;
    world.cluster.remove_service("web");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid"]);
    assert_eq!(events, TOLD);
}

/// A finalizer that could not be removed is removed later, without another deletion.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_stays_is_tried_again() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.refuse_next("finalizers", refusal(500, "InternalError"));
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid", "finalizer removed"]);
    assert_eq!(events[..2], TOLD);
    assert!(events[2].starts_with("SyncLoadBalancerFailed"), "{events:?}");
    assert_eq!(events.len(), 3, "{events:?}");
}

/// SVC-14, SVC-17, SW-25: the balancer of a vanished Service is deleted by its natural key, after a live read.
#[tokio::test(start_paused = true)]
async fn a_service_that_vanished_leaves_no_balancer() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.remove_service("web");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid"]);
    assert_eq!(events, TOLD);
    assert_eq!(world.cluster.reads(), 1);
    assert!(world.remembered().is_empty(), "SW-25");
}

/// SVC-13, SW-45: a key without a Service costs nothing, and is not retried.
#[tokio::test(start_paused = true)]
async fn a_key_without_a_service_is_dropped() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.enqueue(ObjectKey::new("invalid", "key/string"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert!(story.is_empty() && events.is_empty(), "{story:?} {events:?}");
    assert_eq!((world.cluster.reads(), world.remembered().len()), (0, 1), "only the real one is known");
}

/// Design rule 7: a Service that the API still has did not vanish.
#[tokio::test(start_paused = true)]
async fn a_watch_that_loses_a_living_service_deletes_nothing() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.lose_service("web");
    world.pass(Duration::from_secs(5)).await;
    assert!(world.take().is_empty());
    assert!(world.cluster.reads() > 1, "it looks again until the cache has caught up");
    world.cluster.change_service("web", |_| {});
    world.pass(A_WHILE).await;
    assert!(world.take().is_empty(), "nothing has changed");
}

/// SVC-16, SVC-25.
#[tokio::test(start_paused = true)]
async fn a_vanished_services_balancer_is_tried_until_it_is_gone() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let mut later = error(method::DELETE, Some(ErrorReason::RetryLater));
    later.retry_after = Some(Duration::from_secs(33));
    world.cloud.fail_next(method::DELETE, later);
    world.cluster.remove_service("web");
    world.until("first", |world| world.count("delete") == 1).await;
    let waited = world.until("second", |world| world.count("delete") == 2).await;
    assert!((waited.as_secs_f64() - 33.0).abs() < 0.1, "{waited:?}");
    let events = world.events();
    assert_eq!(
        events[1],
        "DeleteLoadBalancerFailed: Error deleting load balancer: DeleteLoadBalancer: RETRY_LATER (RETRY_LATER)"
    );
}

/// SVC-18.
#[tokio::test(start_paused = true)]
async fn a_service_of_the_same_name_gets_its_own_balancer_after_the_former_is_gone() {
    let world = World::settled([node("n1"), lb("web")]).await;
    replace(&world);
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid", "finalizer added", "ensure web n1", "status 192.0.2.1"]);
    assert_eq!(events, [TOLD[0], TOLD[1], "EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
}

/// SVC-19.
#[tokio::test(start_paused = true)]
async fn while_the_former_balancer_is_there_no_new_one_is_made() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.fail_next(method::DELETE, error(method::DELETE, None));
    replace(&world);
    world.pass(Duration::from_secs(4)).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["delete web-uid"]);
    assert!(events[1].starts_with("DeleteLoadBalancerFailed"), "{events:?}");
    let waits = "SyncLoadBalancerFailed: Error syncing load balancer: another load balancer of this name is removed first: ";
    assert!(events[2].starts_with(waits), "the new one says what it waits for: {events:?}");
    assert_eq!(events.len(), 3);
    world.pass(A_WHILE).await;
    assert_eq!(world.take()[..3], ["delete web-uid", "finalizer added", "ensure web n1"]);
}

/// While its provider is away, nobody forgets whose balancer is to be removed.
#[tokio::test(start_paused = true)]
async fn a_balancer_of_a_former_service_outlives_no_absence_of_its_provider() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.set_status(ProviderStatus::Disconnected("no socket".to_owned()));
    replace(&world);
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(world.take(), [""; 0]);
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(world.take(), ["delete web-uid", "finalizer added", "ensure web n1", "status 192.0.2.1"]);
}

/// A new Service takes the name before the watch reports the deletion.
fn replace(world: &World) {
    world.cluster.change_service("web", |service| {
        *service = lb("web");
        service["metadata"]["uid"] = json!("new-uid");
    });
}

/// SW-12: no two workers ever change one balancer, and the last decision wins.
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_the_update_that_is_under_way() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.set_latency(method::UPDATE, Duration::from_secs(60));
    world.cluster.put(node("n2"));
    world.until("the update", |world| world.count("update") == 1).await;
    world.cluster.delete_service("web");
    world.pass(Duration::from_secs(50)).await;
    assert_eq!(world.calls(), ["update web n1,n2"]);
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["update web n1,n2", "delete web-uid", "finalizer removed"]);
}

/// The Service wants its balancer again while the cache still shows the finalizer that was removed with the former
/// one.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_the_cache_still_shows_is_put_back_before_the_balancer() {
    let behind = Duration::from_secs(5);
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.cluster.late(behind);
    world.pass(Duration::from_secs(1)).await;
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("LoadBalancer"));
    world.cluster.late(behind);
    world.pass(Duration::from_secs(20)).await;
    let story =
        ["delete web-uid", "finalizer removed", "finalizer added", "ensure web n1", "status 192.0.2.2"];
    assert_eq!(world.take(), story);
}

/// Two hosts overlap: the other one has finished with the Service, and this one's cache does not show it yet.
#[tokio::test(start_paused = true)]
async fn no_balancer_is_made_anew_for_a_service_that_is_gone() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.fail_next(method::UPDATE, error(method::UPDATE, Some(ErrorReason::NeedsEnsure)));
    world.cluster.put(node("n2"));
    world.cluster.late(Duration::from_secs(5));
    world.pass(Duration::from_secs(2)).await;
    world.cluster.remove_service("web");
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.calls(), ["update web n1,n2", "delete web-uid"]);
}

/// S9: a half-deleted balancer is wanted again: only an Ensure restores it.
#[tokio::test(start_paused = true)]
async fn a_removal_that_is_taken_back_is_an_ensure() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let retry_after = Duration::from_secs(50);
    let work = InProgress { retry_after, reason: String::new(), message: String::new() };
    world.cloud.in_progress_next(method::DELETE, work);
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("ClusterIP"));
    world.until("the removal", |world| world.count("delete") == 1).await;
    world.pass(Duration::from_secs(1)).await;
    world.cluster.change_service("web", |service| service["spec"]["type"] = json!("LoadBalancer"));
    world.pass(A_WHILE).await;
    assert_eq!(world.calls(), ["delete web-uid", "ensure web n1"]);
}
