//! When failed calls are retried, and which Events they emit. The table of reasons is the contract's.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::{lb, node},
    ownership::balancer,
    restarting::A_SWEEP,
    world::{A_WHILE, World},
};
use ccm_cloud::{
    CloudError, ErrorReason, LoadBalancer, LoadBalancerState, Ownership, SyncState,
    fake::{Call, digest_for, error, method},
};
use ccm_kube::Ingress;

/// Fails every Ensure with `error`; returns the seconds between the first attempts, and the Events.
async fn tries(error: CloudError, at_most: usize) -> (Vec<u64>, Vec<String>) {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_always(method::ENSURE, Some(error));
    world.cluster.put(lb("web"));
    world.until("the first", |world| world.count("ensure") == 1).await;
    let mut last = 0;
    let mut waits = Vec::new();
    for second in 1..=1_000 {
        world.pass(Duration::from_secs(1)).await;
        if world.count("ensure") > waits.len() + 1 && waits.len() < at_most {
            waits.push(second - last);
            last = second;
        }
    }
    (waits, world.events())
}

fn after(reason: Option<ErrorReason>, seconds: u64) -> CloudError {
    CloudError { retry_after: Some(Duration::from_secs(seconds)), ..error(method::ENSURE, reason) }
}

#[tokio::test(start_paused = true)]
async fn each_class_of_errors_has_its_pace() {
    use ErrorReason as R;
    let of = |reason| error(method::ENSURE, Some(reason));
    let exact = || after(Some(R::RetryLater), 42);
    let rows = [
        ("Q-2, SVC-28: plain", error(method::ENSURE, None), &[5, 10, 20, 40][..], 2),
        ("Q-3, SVC-30: exact, and the backoff does not grow", exact(), &[42, 42, 42, 42], 2),
        ("full today, perhaps not in a moment", of(R::QuotaExceeded), &[5, 10, 20, 40], 2),
        ("slow", of(R::InvalidArgumentShape), &[300, 300, 300], 2),
        (
            "slow, and later if the provider says so",
            after(Some(R::InvalidArgumentShape), 450),
            &[450, 450],
            2,
        ),
        ("what it names may be made later", of(R::InvalidConfiguration), &[5, 10, 20, 40], 2),
        ("waits for a change", of(R::UnsupportedFeature), &[], 2),
        ("names the flag, waits for a change", of(R::AdoptionRefused), &[], 2),
        ("SVC-27: let go quietly", of(R::ImplementedElsewhere), &[], 1),
        ("soon, quietly", of(R::ConcurrentOperation), &[5, 10, 20, 40], 1),
        ("a former leader says nothing", of(R::StaleLeader), &[5, 10, 20, 40], 1),
    ];
    for (id, error, want, events) in rows {
        let (waits, said) = tries(error, want.len().max(1)).await;
        assert_eq!(waits, want, "{id}");
        assert_eq!(said.len(), events, "{id}: the same is said once: {said:?}");
        assert_eq!(said[0], "EnsuringLoadBalancer", "{id}");
    }
}

/// A working balancer is published, however long a change has to wait, and however it fails.
#[tokio::test(start_paused = true)]
async fn what_works_is_published_while_the_rest_waits() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_always(method::ENSURE, Some(error(method::ENSURE, Some(ErrorReason::QuotaExceeded))));
    world.cluster.put(lb("web"));
    world.until("the first", |world| world.count("ensure") == 1).await;
    let ip = "192.0.2.7".to_owned();
    let ingress = vec![Ingress { ip, ..Ingress::default() }];
    let applied_digest = Some(digest_for(None));
    world.cloud.set_balancer(LoadBalancer { ingress, applied_digest, ..balancer("web") });
    world.pass(A_SWEEP).await;
    let story = world.take();
    assert!(story.iter().any(|word| word == "status 192.0.2.7"), "{story:?}");
}

/// success resets the count.
#[tokio::test(start_paused = true)]
async fn after_a_success_the_backoff_begins_anew() {
    let world = World::settled([node("n1")]).await;
    for _ in 0..3 {
        world.cloud.fail_next(method::ENSURE, error(method::ENSURE, None));
    }
    world.cluster.put(lb("web"));
    world.until("success", |world| world.count("ensure") == 4).await;
    world.pass(A_WHILE).await;
    world.take();
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, None));
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.until("failure", |world| world.count("ensure") == 1).await;
    let waited = world.until("success", |world| world.count("ensure") == 2).await;
    assert_eq!(waited.as_secs(), 5);
}

/// "wait": until the Service changes, whatever else happens.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_tried_again_when_the_service_changes() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::UnsupportedFeature)));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(60)).await;
    world.cluster.put(node("n2"));
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.calls(), ["ensure web n1"], "nodes make no difference");
    assert_eq!(world.metric("ccm_service_pending"), "1");
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.calls(), ["ensure web n1", "ensure web n1,n2"]);
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// A change of the Service is tried at once, regardless of the backoff.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_service_does_not_wait() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::QuotaExceeded)));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_secs(1)).await;
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.count("ensure"), 2);
}

/// However often it fails meanwhile: only the time tells a provider that is being replaced from one that stays away.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_being_replaced_is_no_news_for_ten_seconds() {
    let world = World::settled([node("n1")]).await;
    let unanswered = CloudError { is_unanswered: true, ..error(method::ENSURE, None) };
    world.cloud.fail_always(method::ENSURE, Some(unanswered));
    world.cluster.put(lb("web"));
    for port in 81..85 {
        world.pass(Duration::from_secs(2)).await;
        world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(port));
    }
    world.pass(Duration::from_secs(1)).await;
    let warned = || world.events().iter().filter(|event| event.starts_with("SyncLoadBalancerFailed")).count();
    assert_eq!((world.count("ensure"), warned()), (5, 0));
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(85));
    world.pass(Duration::from_secs(200)).await;
    assert_eq!(warned(), 1);
}

/// The warning that a balancer belongs to another controller names the flag, and the flag does what it says.
#[tokio::test(start_paused = true)]
async fn adoption_is_asked_for_and_named() {
    for adopt in [false, true] {
        let mut world = World::new([node("n1"), lb("web")]);
        world.settings.adopt_load_balancers = adopt;
        world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::AdoptionRefused)));
        world.start();
        world.until("ensure", |world| world.count("ensure") == 1).await;
        world.pass(Duration::from_secs(1)).await;
        let asked = world.cloud.calls().iter().any(|call| matches!(call, Call::Ensure { adopt: true, .. }));
        assert_eq!(asked, adopt);
        assert!(world.events()[1].contains("--adopt-load-balancers"));
    }
}

/// The provider has seen a newer revision; ours is what the cluster wants, so it is sent again under a higher one.
#[tokio::test(start_paused = true)]
async fn a_stale_revision_is_followed_by_a_higher_one() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::StaleRevision)));
    world.cluster.put(lb("web"));
    world.until("both", |world| world.count("ensure") == 2).await;
    let revisions: Vec<_> = world
        .cloud
        .calls()
        .iter()
        .map(|call| match call {
            Call::Ensure { revision, .. } => *revision,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(revisions[1] > revisions[0], "{revisions:?}");
    assert_eq!(world.events()[0], "EnsuringLoadBalancer");
}

/// Errors of every operation are counted by reason (SW-27).
#[tokio::test(start_paused = true)]
async fn operations_are_counted_by_result() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::RetryLater)));
    world.cluster.put(lb("web"));
    world.until("success", |world| world.count("ensure") == 2).await;
    world.pass(Duration::from_secs(1)).await;
    let count = |result: &str| {
        world.metric(&format!(
            "ccm_service_operation_duration_seconds_count{{provider=\"cloud\",operation=\"ensure\",result=\"{result}\"}}"
        ))
    };
    assert_eq!((count("RETRY_LATER"), count("ok")), ("1".to_owned(), "1".to_owned()));
}

/// SVC-29: an answer without a balancer is a failure, and publishes nothing.
#[test]
fn a_done_that_is_none_is_not_believed() {
    use crate::run::what_is_left;
    use ccm_cloud::Ensured;
    let answer = |state| Ensured {
        load_balancer: LoadBalancer {
            key: ccm_kube::service::ObjectKey::new("default", "web"),
            service_uid: "web-uid".to_owned(),
            id: String::new(),
            name: String::new(),
            state,
            ingress: Vec::new(),
            applied_digest: None,
            sync_state: SyncState::Unspecified,
            ownership: Ownership::ByUid,
            rejected: Vec::new(),
        },
        in_progress: None,
        effects: Default::default(),
    };
    use LoadBalancerState as S;
    for state in [S::Unspecified, S::Absent, S::NotOwned, S::Deleting] {
        assert!(what_is_left(&answer(state)).is_err(), "{state:?}");
    }
    assert_eq!(what_is_left(&answer(S::Active)), Ok(None));
    let left = what_is_left(&answer(S::Pending)).unwrap().unwrap();
    assert_eq!(left.retry_after, Duration::from_secs(5));
}
