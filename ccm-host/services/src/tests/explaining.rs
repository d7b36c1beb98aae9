//! What people are told about a Service and its balancer.

use std::time::Duration;

use ccm_state::{LeftOut, ServiceState, Standing};
use serde_json::json;

use super::{
    cluster::{lb, node},
    world::{A_WHILE, World},
};
use crate::{nodes::EXCLUDE_LABEL, service::IP_MODE};
use ccm_cloud::{
    ErrorReason, InProgress, ProviderStatus,
    fake::{error, method},
};
use ccm_kube::ObjectKey;
use ccm_reconcile::explain::Explain as _;

fn explained(world: &World, name: &str) -> ServiceState {
    let key = ObjectKey::new("default", name);
    world.controller().service(&key).unwrap_or_else(|| panic!("{name} is of no interest"))
}

/// What is known of the only balancer, and its last call with the answer.
fn last_call(state: &ServiceState) -> (&str, String) {
    let [balancer] = state.balancers.as_slice() else { panic!("{:?}", state.balancers) };
    let last = balancer.last_call.as_ref().map(|last| format!("{}: {}", last.call, last.answer));
    (&balancer.known, last.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn what_was_last_tried_and_said_is_told_from_creation_to_deletion() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::QuotaExceeded)));
    world.cluster.put(lb("web"));
    world.until("an attempt", |world| world.count("ensure") == 1).await;
    world.pass(Duration::from_secs(1)).await;
    let refused = explained(&world, "web");
    let (known, last) = last_call(&refused);
    assert!(known.contains("its state is not known") && last.starts_with("ensure: "), "{known} {last}");
    assert_eq!(refused.summary.standing, Standing::Blocked);
    assert!(refused.explanations[0].why.contains(last.trim_start_matches("ensure: ")), "{refused:?}");
    assert!(refused.summary.next_attempt.is_some());

    world.pass(A_WHILE).await;
    let done = explained(&world, "web");
    assert_eq!(last_call(&done), ("as last applied", "ensure: done".to_owned()));
    assert_eq!((done.summary.standing, done.backends), (Standing::Settled, 1));
    assert_eq!((done.left_out.len(), done.explanations.len()), (0, 0));

    world.cloud.set_latency(method::DELETE, Duration::from_secs(60));
    world.cluster.delete_service("web");
    world.until("a deletion", |world| world.count("delete") == 1).await;
    let (known, last) = (explained(&world, "web").balancers[0].known.clone(), explained(&world, "web"));
    assert!(known.ends_with("it is to be removed"), "{known}");
    assert_eq!(last_call(&last).1, "delete: no answer yet");
    world.pass(A_WHILE).await;
    assert!(world.controller().service(&ObjectKey::new("default", "web")).is_none(), "it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_balancer_without_nodes_says_what_became_of_each() {
    let mut world = World::new([]);
    let other = world.add_provider("other");
    other.change_info(|info| {
        info.provider_id_prefixes = vec!["other://".to_owned()];
        info.default_load_balancer_class = false;
    });
    world.cloud.change_info(|info| info.provider_id_prefixes = vec!["cloud://".to_owned()]);
    let at = |name: &str, provider: &str| {
        let mut node = node(name);
        node["spec"]["providerID"] = json!(format!("{provider}://{name}"));
        node
    };
    let (mut excluded, mut going) = (at("n1", "cloud"), at("n2", "cloud"));
    excluded["metadata"]["labels"] = json!({ EXCLUDE_LABEL: "" });
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["metadata"]["finalizers"] = json!(["x/y"]);
    for object in [excluded, going, at("n3", "other"), at("n4", "other"), lb("web")] {
        world.cluster.put(object);
    }
    world.start();
    world.pass(A_WHILE).await;
    let state = explained(&world, "web");
    let left_out = |why: &str, nodes: &[&str]| LeftOut {
        why: why.to_owned(),
        count: nodes.len(),
        nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
    };
    let label = format!("excluded by the label {EXCLUDE_LABEL}");
    let want = [
        left_out("being deleted", &["n2"]),
        left_out(&label, &["n1"]),
        left_out("not known to be of provider \"cloud\"", &["n3", "n4"]),
    ];
    assert_eq!((state.backends, state.left_out.as_slice()), (0, &want[..]));
    let said = format!(
        "There are no available nodes for LoadBalancer: 1 being deleted, 1 {label}, 2 not known to be of provider \"cloud\""
    );
    assert_eq!((state.summary.standing, state.summary.why.as_str()), (Standing::Blocked, said.as_str()));
    let events = world.events();
    assert!(events.contains(&format!("UnAvailableLoadBalancer: {said}")), "{events:?}");
}

/// R5: after a restore of etcd, say, records and rows may be wrong.
#[tokio::test(start_paused = true)]
async fn a_resync_ensures_every_balancer_after_what_is_new_and_nodes_follow_meanwhile() {
    let mut world = World::new([node("n1"), lb("a"), lb("b")]);
    world.settings.concurrent_service_syncs = 1;
    world.start();
    world.pass(A_WHILE).await;
    world.take();
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(100));
    assert_eq!(world.controller().resync(), 2);
    world.pass(Duration::from_secs(5)).await;
    world.cluster.put(lb("new"));
    world.cluster.put(node("n2"));
    world.pass(Duration::from_secs(5)).await;
    let ensures = |calls: Vec<String>| -> Vec<String> {
        calls.into_iter().filter(|word| word.starts_with("ensure")).collect()
    };
    let (first, second) = if ensures(world.calls()) == ["ensure a n1"] { ("a", "b") } else { ("b", "a") };
    // What it was doubted for, a list does not know.
    world.controller().sweep(world.cloud.as_ref()).await.unwrap();
    // Nobody knows which nodes it has: it gets those of now at once, and those that come.
    for update in [format!("update {second} n1"), format!("update {second} n1,n2")] {
        assert!(world.calls().contains(&update), "{:?}", world.calls());
    }
    world.pass(A_WHILE).await;
    let want =
        [format!("ensure {first} n1"), "ensure new n1,n2".to_owned(), format!("ensure {second} n1,n2")];
    assert_eq!(ensures(world.take()), want);
    for name in ["a", "b", "new"] {
        assert_eq!(explained(&world, name).summary.standing, Standing::Settled);
    }
}

/// What was wrong is not said of what has not been tried yet.
#[tokio::test(start_paused = true)]
async fn a_mended_service_is_not_blamed_any_more() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::InvalidConfiguration)));
    world.cluster.put(lb("web"));
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(explained(&world, "web").summary.standing, Standing::Blocked);
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(60));
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(explained(&world, "web").summary.standing, Standing::Waiting);
}

/// Whoever reads that the host looks again by itself waits for that, and corrects nothing.
#[tokio::test(start_paused = true)]
async fn what_only_a_change_ends_is_not_said_to_end_by_itself() {
    type Trouble = fn(&World);
    fn edit(world: &World) {
        world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    }
    fn refuse(world: &World, reason: ErrorReason) {
        world.cloud.fail_always(method::ENSURE, Some(error(method::ENSURE, Some(reason))));
        edit(world);
    }
    let rows: [(&str, Trouble, bool); 9] = [
        ("quota", |world| refuse(world, ErrorReason::QuotaExceeded), true),
        ("no such feature", |world| refuse(world, ErrorReason::UnsupportedFeature), false),
        ("adoption", |world| refuse(world, ErrorReason::AdoptionRefused), false),
        (
            "in progress",
            |world| {
                let retry_after = Duration::from_secs(30);
                let work = InProgress { retry_after, reason: String::new(), message: String::new() };
                world.cloud.in_progress_next(method::ENSURE, work);
                edit(world);
            },
            true,
        ),
        (
            "away",
            |world| {
                world.cloud.set_status(ProviderStatus::Disconnected("no socket".to_owned()));
                edit(world);
            },
            false,
        ),
        (
            "invalid",
            |world| {
                let mode = json!({ IP_MODE: "other" });
                world.cluster.change_service("web", |service| service["metadata"]["annotations"] = mode);
            },
            false,
        ),
        (
            "no place",
            |world| {
                world.cloud.set_latency(method::ENSURE, Duration::from_secs(60));
                world.cluster.put(lb("first"));
                edit(world);
            },
            false,
        ),
        (
            "frozen",
            |world| {
                world.cloud.set_status(ProviderStatus::Frozen("credentials".to_owned()));
                world.cluster.delete_service("web");
            },
            false,
        ),
        (
            "not deleted",
            |world| {
                let refused = error(method::DELETE, Some(ErrorReason::UnsupportedFeature));
                world.cloud.fail_always(method::DELETE, Some(refused));
                world.cluster.delete_service("web");
            },
            true,
        ),
    ];
    for (what, trouble, by_itself) in rows {
        let mut world = World::new([node("n1"), lb("web")]);
        world.settings.concurrent_service_syncs = 1;
        world.start();
        world.pass(Duration::from_secs(3)).await;
        trouble(&world);
        world.pass(Duration::from_secs(1)).await;
        let said = explained(&world, "web").explanations;
        let [said] = said.as_slice() else { panic!("{what}: {said:?}") };
        assert_eq!(said.next_attempt.is_some(), by_itself, "{what}: {said:?}");
        assert_eq!(said.next.contains("by itself"), by_itself, "{what}: {said:?}");
    }
}
