//! Balancers of this cluster without a Service (SW-2): reported, and removed only if the operator asked for it.

use std::time::Duration;

use super::{
    cluster::{lb, node},
    ownership::balancer,
    restarting::A_SWEEP,
    world::World,
};
use ccm_cloud::{
    ErrorReason, InProgress, LoadBalancer, Ownership, ProviderStatus,
    fake::{error, method},
};

const ORPHANS: &str = "ccm_service_orphaned_load_balancers{provider=\"cloud\"}";

/// A Service with its balancer; one balancer without a Service, one of a former Service of the same name, and one
/// left by a former controller.
fn world(delete: bool) -> World {
    let mut world = World::new([node("n1"), lb("web")]);
    world.cloud.set_balancer(balancer("lost"));
    world.cloud.set_balancer(LoadBalancer { ownership: Ownership::ByLegacyName, ..balancer("legacy") });
    world.cloud.set_balancer(LoadBalancer { ownership: Ownership::Unspecified, ..balancer("unknown") });
    world.cloud.set_balancer(LoadBalancer { service_uid: "former-uid".to_owned(), ..balancer("web") });
    world.settings.delete_orphaned_load_balancers = delete;
    world.start();
    world
}

fn uids(world: &World) -> Vec<String> {
    world.cloud.balancers().into_keys().collect()
}

fn orphans(events: &[String]) -> usize {
    events.iter().filter(|event| event.starts_with("OrphanedLoadBalancer")).count()
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_reported_once_and_stays() {
    let world = world(false);
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.metric(ORPHANS), "2", "one without a Service, one of a former uid");
    assert_eq!(world.cluster.reads(), 2, "a live read before anything is called an orphan");
    let events = world.events();
    assert_eq!(orphans(&events), 2, "{events:?}");
    assert!(events.iter().any(|event| event.contains("--delete-orphaned-load-balancers")), "{events:?}");
    world.pass(3 * A_SWEEP).await;
    assert_eq!((world.count("delete"), orphans(&world.events())), (0, 0));
    assert_eq!(world.metric(ORPHANS), "2");
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_two_sweeps_find_is_removed_if_asked_for() {
    let world = world(true);
    world.pass(Duration::from_secs(10)).await;
    assert_eq!((world.count("delete"), world.metric(ORPHANS)), (0, "2".to_owned()));
    assert_eq!(orphans(&world.events()), 2);
    world.pass(A_SWEEP).await;
    let mut deleted = world.take();
    deleted.sort();
    assert_eq!(
        deleted,
        [
            "delete former-uid",
            "delete lost-uid",
            "ensure web n1",
            "finalizer added",
            "list",
            "list",
            "status 192.0.2.1"
        ]
    );
    assert_eq!(uids(&world), ["legacy-uid", "unknown-uid", "web-uid"], "what may be another's stays");
    world.pass(A_SWEEP).await;
    assert_eq!(world.metric(ORPHANS), "0");
    assert_eq!(world.take(), ["list"]);
}

/// Design rule 7: the cache may lack a Service that exists.
#[tokio::test(start_paused = true)]
async fn what_the_api_knows_is_no_orphan() {
    let mut world = World::new([node("n1")]);
    world.cluster.put(lb("unseen"));
    world.cloud.set_balancer(balancer("unseen"));
    world.settings.delete_orphaned_load_balancers = true;
    world.cluster.lose_service("unseen");
    world.start();
    world.pass(3 * A_SWEEP).await;
    assert_eq!((world.count("delete"), world.metric(ORPHANS)), (0, "0".to_owned()));
    assert!(world.cluster.reads() >= 3, "it was looked for");
    // A Service that comes back between two sweeps makes its balancer no orphan.
    world.cloud.set_balancer(balancer("late"));
    world.pass(A_SWEEP).await;
    assert_eq!(world.metric(ORPHANS), "1");
    world.cluster.put(lb("late"));
    world.pass(2 * A_SWEEP).await;
    assert_eq!((world.count("delete"), world.metric(ORPHANS)), (0, "0".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_not_well_loses_nothing() {
    let world = world(true);
    world.pass(Duration::from_secs(10)).await;
    world.cloud.set_status(ProviderStatus::Frozen("credentials".to_owned()));
    world.pass(2 * A_SWEEP).await;
    assert_eq!(world.count("delete"), 0);
    world.cloud.set_status(ProviderStatus::Serving);
    world.pass(A_SWEEP).await;
    assert_eq!(world.count("delete"), 2);
}

/// Work in progress is asked for again when the provider said; a failure is reported, and left to the next sweep.
#[tokio::test(start_paused = true)]
async fn an_orphan_takes_its_time() {
    let world = world(true);
    world.pass(Duration::from_secs(10)).await;
    world.cloud.fail_next(method::DELETE, error(method::DELETE, Some(ErrorReason::QuotaExceeded)));
    let retry_after = Duration::from_secs(40);
    let message = "draining".to_owned();
    world.cloud.in_progress_next(method::DELETE, InProgress { retry_after, reason: String::new(), message });
    world.pass(Duration::from_secs(9_980)).await;
    while world.count("delete") < 2 {
        world.pass(Duration::from_millis(10)).await;
    }
    let again = world.until("again", |world| world.count("delete") == 3).await;
    assert!((again.as_secs_f64() - 40.0).abs() < 0.1, "{again:?}");
    let events = world.events();
    assert_eq!(
        events.iter().filter(|event| event.starts_with("DeleteLoadBalancerFailed")).count(),
        1,
        "{events:?}"
    );
    assert_eq!(events.iter().filter(|event| *event == "DeletedLoadBalancer").count(), 1, "{events:?}");
    world.pass(A_SWEEP).await;
    assert_eq!((world.count("delete"), uids(&world).len()), (4, 3));
}

/// S12: a slow removal delays no sweep.
#[tokio::test(start_paused = true)]
async fn a_removal_that_hangs_holds_up_no_sweep() {
    let world = world(true);
    world.pass(Duration::from_secs(10)).await;
    world.cloud.set_latency(method::DELETE, Duration::from_secs(1_000_000));
    world.pass(5 * A_SWEEP).await;
    assert!(world.count("list") >= 6, "{:?}", world.calls());
}

/// What was reported of it is over once somebody has removed it.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_removed_by_hand_leaves_no_report() {
    let mut world = World::new([node("n1")]);
    world.cloud.set_balancer(balancer("lost"));
    world.settings.delete_orphaned_load_balancers = true;
    world.start();
    world.pass(Duration::from_secs(10)).await;
    world.cloud.set_status(ProviderStatus::Frozen("credentials".to_owned()));
    world.pass(2 * A_SWEEP).await;
    assert_eq!(world.metric("ccm_service_pending"), "1");
    world.cloud.remove_balancer("lost-uid");
    world.pass(2 * A_SWEEP).await;
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// A list that is not complete proves nothing of what it lacks.
#[tokio::test(start_paused = true)]
async fn an_orphan_is_not_forgotten_for_a_list_that_lacks_it() {
    let mut world = World::new([node("n1")]);
    world.cloud.set_balancer(balancer("lost"));
    world.start();
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(orphans(&world.events()), 1);
    world.cloud.hide_balancer("lost-uid", true);
    world.cloud.set_unreachable(vec![("zone-b".to_owned(), error(method::LIST, None))]);
    world.pass(A_SWEEP).await;
    world.cloud.hide_balancer("lost-uid", false);
    world.cloud.set_unreachable(Vec::new());
    world.pass(A_SWEEP).await;
    assert_eq!((orphans(&world.events()), world.metric(ORPHANS)), (0, "1".to_owned()));
}

/// A bridged provider cannot list everything, ever: what its list lacks is over, as far as anybody can tell.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_a_provider_without_whole_lists_lacks_is_over() {
    let mut world = World::new([node("n1")]);
    let refused = error(method::LIST, Some(ErrorReason::UnsupportedFeature));
    world.cloud.set_unreachable(vec![("the rest".to_owned(), refused)]);
    world.cloud.set_balancer(balancer("lost"));
    world.start();
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.metric(ORPHANS), "1");
    world.cloud.remove_balancer("lost-uid");
    world.pass(A_SWEEP).await;
    assert_eq!(world.metric(ORPHANS), "0");
}
