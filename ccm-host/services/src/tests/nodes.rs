//! Changes of nodes: which balancers are updated, when, and how often.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    cluster::{lb, node},
    restarting::A_SWEEP,
    world::{A_WHILE, World},
};
use crate::nodes::EXCLUDE_LABEL;
use ccm_cloud::{
    ErrorReason, InProgress,
    fake::{error, method},
};
use ccm_kube::{Ingress, KeySet};
use ccm_reconcile::taint;

fn three() -> [Value; 3] {
    ["n1", "n2", "n3"].map(node)
}

fn services(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| lb(name)).collect()
}

async fn with(nodes: impl IntoIterator<Item = Value>, services: Vec<Value>) -> World {
    World::settled(nodes.into_iter().chain(services)).await
}

/// The calls made within a while, sorted.
async fn asked(world: &World) -> Vec<String> {
    world.pass(Duration::from_secs(100)).await;
    let mut story = world.take();
    story.sort();
    story
}

/// Where addresses depend on the nodes, an update brings the new ones, and what else is to be written.
#[tokio::test(start_paused = true)]
async fn what_an_update_answers_is_published() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let ip = "198.51.100.7".to_owned();
    world.cloud.set_updated_ingress(vec![Ingress { ip, ..Ingress::default() }]);
    world.cloud.set_annotations([("cloud/nodes".to_owned(), "2".to_owned())].into(), Vec::new());
    world.cluster.put(node("n2"));
    world.pass(A_WHILE).await;
    let written = r#"status 198.51.100.7; annotations {"cloud/nodes":"2"}"#;
    assert_eq!(world.take(), ["update web n1,n2", written]);
}

/// LBN-1..7; the concurrency limit makes no difference.
#[tokio::test(start_paused = true)]
async fn only_services_with_balancers_are_told() {
    let plain = |name: &str, type_: &str| {
        let mut service = lb(name);
        service["spec"]["type"] = json!(type_);
        service
    };
    let rows: [(&str, usize, Vec<Value>, &[&str]); 6] = [
        ("LBN-1", 1, vec![], &[]),
        ("LBN-2", 2, vec![plain("a", "ClusterIP"), plain("b", "NodePort")], &[]),
        ("LBN-3", 3, services(&["a"]), &["update a n1,n2,n3"]),
        (
            "LBN-4",
            4,
            services(&["a", "b", "c"]),
            &["update a n1,n2,n3", "update b n1,n2,n3", "update c n1,n2,n3"],
        ),
        (
            "LBN-7",
            2,
            services(&["a", "b", "c", "d"]),
            &["update a n1,n2,n3", "update b n1,n2,n3", "update c n1,n2,n3", "update d n1,n2,n3"],
        ),
        (
            "LBN-5, LBN-6",
            5,
            vec![plain("a", "NodePort"), lb("b"), lb("c"), plain("d", "ClusterIP")],
            &["update b n1,n2,n3", "update c n1,n2,n3"],
        ),
    ];
    for (id, workers, services, want) in rows {
        let mut world = World::new(["n1", "n2"].map(node).into_iter().chain(services));
        world.settings.concurrent_service_syncs = workers;
        world.start();
        asked(&world).await;
        world.cluster.put(node("n3"));
        assert_eq!(asked(&world).await, want, "{id}");
    }
}

fn label(node: &mut Value) {
    node["metadata"]["labels"] = json!({ EXCLUDE_LABEL: "" });
}

fn taint(node: &mut Value) {
    node["spec"]["taints"] = json!([{"key": taint::AUTOSCALER, "effect": "NoSchedule"}]);
}

/// LBN-8..9, LBN-11..17, LBN-23..25: the effect of a change of one node; policy Local makes no difference.
#[tokio::test(start_paused = true)]
async fn a_change_of_a_node_that_matters_is_handed_on() {
    type Change = fn(&World);
    let rows: [(&str, Change, Option<&str>); 12] = [
        ("LBN-8", |_| {}, None),
        ("LBN-9", |world| world.cluster.put(node("n4")), Some("n1,n2,n3,n4")),
        ("LBN-11", |world| ready(world, "False"), None),
        ("LBN-13", |world| ready(world, "True"), None),
        // TRIG-48: the taint alone triggers nothing; see the next test.
        ("LBN-12", |world| world.cluster.change_node("n2", taint), None),
        ("LBN-14", |world| world.cluster.change_node("n2", label), Some("n1,n3")),
        ("LBN-15", |world| world.cluster.remove_node("n3"), Some("n1,n2")),
        ("LBN-16", |world| world.cluster.change_node("n2", leave), None),
        (
            "LBN-17",
            |world| {
                world.cluster.change_node("n2", |node| {
                    node["spec"]["taints"] = json!([{"key": "x", "effect": "NoSchedule"}]);
                });
            },
            None,
        ),
        (
            "LBN-23",
            |world| {
                for name in ["n1", "n2"] {
                    world.cluster.change_node(name, |node| node["spec"]["providerID"] = json!("cloud://new"));
                }
            },
            Some("n1,n2,n3"),
        ),
        ("LBN-24", |world| world.cluster.change_node("n2", |_| {}), None),
        (
            "LBN-25",
            |world| {
                world.cluster.remove_node("n2");
                let mut other = node("n5");
                other["spec"]["providerID"] = json!("cloud://n2");
                world.cluster.put(other);
            },
            Some("n1,n3,n5"),
        ),
    ];
    for (id, change, nodes) in rows {
        let mut local = lb("local");
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        let world = with(three(), vec![lb("cluster"), local]).await;
        change(&world);
        let want: Vec<_> = nodes
            .iter()
            .flat_map(|nodes| [format!("update cluster {nodes}"), format!("update local {nodes}")])
            .collect();
        assert_eq!(asked(&world).await, want, "{id}");
    }
}

fn ready(world: &World, status: &str) {
    ready_of(world, "n2", status);
}

fn ready_of(world: &World, name: &str, status: &str) {
    world.cluster.change_node(name, |node| node["status"]["conditions"][0]["status"] = json!(status));
}

fn leave(node: &mut Value) {
    node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    node["metadata"]["finalizers"] = json!(["held/back"]);
}

/// SW-22: a change triggers updates only if a provider reads it.
#[tokio::test(start_paused = true)]
async fn a_label_that_a_provider_reads_is_handed_on() {
    let mut world = World::new([node("n1"), lb("web")]);
    world.cloud.change_info(|info| info.keep_of_nodes.labels = KeySet::keys(["pool"]));
    world.start();
    asked(&world).await;
    world.cluster.change_node("n1", |node| node["metadata"]["labels"] = json!({"other": "x"}));
    assert!(asked(&world).await.is_empty());
    world.cluster.change_node("n1", |node| node["metadata"]["labels"] = json!({"pool": "x"}));
    assert_eq!(asked(&world).await, ["update web n1"]);
}

/// A change of a node's own status triggers updates where a provider reads it, and costs nothing elsewhere.
#[tokio::test(start_paused = true)]
async fn the_state_of_a_node_is_handed_on_where_it_is_read() {
    let changes: [fn(&World); 3] = [
        |world| {
            let drain = json!([{"key": "x.example/drain", "effect": "NoSchedule"}]);
            world.cluster.change_node("n1", |node| node["spec"]["taints"] = drain);
        },
        |world| world.cluster.change_node("n1", |node| node["spec"]["unschedulable"] = json!(true)),
        |world| ready_of(world, "n1", "False"),
    ];
    for reads in [false, true] {
        let mut world = World::new([node("n1"), lb("web")]);
        world.cloud.read_node_state(reads);
        world.start();
        asked(&world).await;
        for (number, change) in changes.iter().enumerate() {
            change(&world);
            let want: &[&str] = if reads { &["update web n1"] } else { &[] };
            assert_eq!(asked(&world).await, want, "{reads} {number}");
        }
    }
}

/// LBN-12, LBN-16: a node being drained is taken out together with the next change.
#[tokio::test(start_paused = true)]
async fn a_draining_node_goes_with_the_next_change() {
    for (id, change) in [("LBN-12", taint as fn(&mut Value)), ("LBN-16", leave)] {
        let world = with(three(), vec![lb("web")]).await;
        world.cluster.change_node("n2", change);
        assert!(asked(&world).await.is_empty(), "{id}");
        world.cluster.put(node("n4"));
        assert_eq!(asked(&world).await, ["update web n1,n3,n4"], "{id}");
    }
}

/// LBN-18..20.
#[tokio::test(start_paused = true)]
async fn each_growth_is_handed_on() {
    let world = with([], services(&["a", "b", "c", "d"])).await;
    for (nodes, want) in [(&["n1"][..], "n1"), (&["n2"], "n1,n2"), (&["n3", "n4"], "n1,n2,n3,n4")] {
        nodes.iter().for_each(|name| world.cluster.put(node(name)));
        assert_eq!(asked(&world).await, ["a", "b", "c", "d"].map(|name| format!("update {name} {want}")));
    }
}

/// LBN-21, LBN-22: no balancer gets only some of the nodes because they cannot be listed.
#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_be_listed_are_waited_for() {
    let mut world = World::new(three().into_iter().chain(services(&["a", "b", "c", "d"])));
    world.cluster.fail_lists(Some("nodes"));
    world.start();
    assert!(asked(&world).await.is_empty());
    world.cluster.fail_lists(None);
    world.pass(A_WHILE).await;
    let asked: Vec<_> = asked(&world).await.into_iter().filter(|word| word.starts_with("ensure")).collect();
    assert_eq!(asked, ["a", "b", "c", "d"].map(|name| format!("ensure {name} n1,n2,n3")));
}

/// SW-7, SW-8, SW-9: one wave, and all calls are under way before the first answer, so that they can be batched.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_a_hundred_services_is_one_wave() {
    let names: Vec<_> = (0..100).map(|number| format!("s{number:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let world = with([node("n1")], services(&names)).await;
    world.cloud.set_latency(method::UPDATE, Duration::from_secs(30));
    world.cluster.put(node("n2"));
    let waited = world.until("the first", |world| world.count("update") > 0).await;
    assert!(waited <= Duration::from_millis(60), "{waited:?}");
    world.pass(Duration::from_millis(1)).await;
    assert_eq!(world.count("update"), 100, "all of them before the first answer");
    world.pass(A_WHILE).await;
    assert_eq!((world.count("update"), world.calls().len()), (100, 100), "and nothing else");
    let events = world.events();
    assert_eq!(events.iter().filter(|event| *event == "UpdatedLoadBalancer").count(), 100);
    assert_eq!(world.metric("service_controller_loadbalancer_sync_total"), "100");
    // From the change to the last answer, which includes the debounce and the latency.
    assert_eq!(world.metric("service_controller_nodesync_latency_seconds_bucket{le=\"32.0\"}"), "1");
}

/// SW-7, E7: the first node of a scale-up is passed on at once, the others less often the longer it lasts.
#[tokio::test(start_paused = true)]
async fn nodes_that_keep_coming_are_gathered() {
    let world = with([node("n1")], services(&["a"])).await;
    for number in 2..=6 {
        world.cluster.put(node(&format!("n{number}")));
        world.pass(Duration::from_millis(500)).await;
    }
    let want = ["update a n1,n2", "update a n1,n2,n3,n4", "update a n1,n2,n3,n4,n5,n6"];
    assert_eq!(asked(&world).await, want);
}

/// E7: an update that is slower than nodes join must not look for newer ones at once.
#[tokio::test(start_paused = true)]
async fn a_storm_is_gathered_however_fast_the_updates_are() {
    let world = with([node("n001")], services(&["a"])).await;
    world.cloud.set_latency(method::UPDATE, Duration::from_millis(40));
    for number in 2..=200 {
        world.cluster.put(node(&format!("n{number:03}")));
        world.pass(Duration::from_millis(20)).await;
    }
    world.pass(A_WHILE).await;
    let updates = asked(&world).await;
    assert!(updates.last().is_some_and(|last| last.ends_with("n200")), "{updates:?}");
    // Passed on after 50 ms, 1 s, 2 s, and when the storm is over.
    assert_eq!(updates.len(), 4, "{updates:?}");
}

/// E7: a new node takes several writes, but one update; one that is never initialised does not wait forever.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_being_initialised_is_handed_on_once() {
    let uninitialised = |name: &str| {
        let mut node = node(name);
        node["spec"] =
            json!({"taints": [{"key": taint::UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]});
        node
    };
    let world = with([node("n1")], services(&["a"])).await;
    world.cluster.put(uninitialised("n2"));
    world.pass(Duration::from_millis(200)).await;
    world.cluster.put(node("n2"));
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(world.take(), ["update a n1,n2"]);
    world.pass(Duration::from_secs(10)).await;
    world.cluster.put(uninitialised("n3"));
    assert_eq!(asked(&world).await, ["update a n1,n2,n3"]);
}

/// S12: a field that changes all the time, and that no provider reads, invalidates no set.
#[tokio::test(start_paused = true)]
async fn what_no_provider_reads_makes_no_set_anew() {
    let world = with([node("n1")], services(&["a"])).await;
    ready_of(&world, "n1", "False");
    world.cluster.change_node("n1", |node| node["metadata"]["labels"] = json!({"other": "x"}));
    world.cluster.change_node("n1", |node| node["metadata"]["annotations"] = json!({"other": "x"}));
    assert!(asked(&world).await.is_empty());
    assert!(!world.lacks_a_set());
    world.cluster.change_node("n1", taint);
    world.pass(Duration::from_secs(1)).await;
    assert!(world.lacks_a_set(), "a node that drains is in no new set");
}

/// LBN-10, LBN-28, LBN-29, LBN-34, SW-14, SW-15: with the usual backoff, and an update suffices.
#[tokio::test(start_paused = true)]
async fn a_failed_update_is_told_and_tried_again_in_its_time() {
    let world = with([node("n1")], services(&["a"])).await;
    world.cloud.fail_next(method::UPDATE, error(method::UPDATE, None));
    let mut later = error(method::UPDATE, Some(ErrorReason::RetryLater));
    later.retry_after = Some(Duration::from_secs(77));
    world.cloud.fail_next(method::UPDATE, later);
    world.cluster.put(node("n2"));
    world.until("first", |world| world.count("update") == 1).await;
    let second = world.until("second", |world| world.count("update") == 2).await;
    let third = world.until("third", |world| world.count("update") == 3).await;
    assert_eq!((second.as_secs(), third.as_secs()), (5, 77));
    let events = world.events();
    let want = "UpdateLoadBalancerFailed: Error updating load balancer with 2 nodes [n1, n2]: ";
    assert!(events[0].starts_with(want), "{events:?}");
    world.pass(A_WHILE).await;
    assert_eq!(world.count(""), 3, "no Ensure");
    assert_eq!(world.metric("service_controller_nodesync_error_total"), "2");
}

/// SW-15: nodes that join while updates fail do not bring the next attempt forward; it includes them.
#[tokio::test(start_paused = true)]
async fn churn_does_not_hot_loop_a_failing_cloud() {
    let world = with([node("n1")], services(&["a"])).await;
    world
        .cloud
        .fail_always(method::UPDATE, Some(error(method::UPDATE, Some(ErrorReason::InvalidArgumentShape))));
    for number in 2..=20 {
        world.cluster.put(node(&format!("n{number:02}")));
        world.pass(Duration::from_secs(5)).await;
    }
    assert_eq!(world.count("update"), 1);
    world.cloud.fail_always(method::UPDATE, None);
    world.until("the next", |world| world.count("update") == 2).await;
    assert!(world.calls()[1].ends_with(",n20"), "{:?}", world.calls());
}

/// A set of unknown outcome is corrected, even when the nodes are back to the former set.
#[tokio::test(start_paused = true)]
async fn after_a_failed_update_the_former_set_is_sent_again() {
    let world = with([node("n1")], services(&["a"])).await;
    world.cloud.fail_next(method::UPDATE, error(method::UPDATE, None));
    world.cluster.put(node("n2"));
    world.until("failure", |world| world.count("update") == 1).await;
    world.cluster.remove_node("n2");
    world.until("repair", |world| world.count("update") == 2).await;
    assert_eq!(world.calls(), ["update a n1,n2", "update a n1"]);
}

/// LBN-27, SW-17: upstream forgets a balancer that is gone.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_must_be_made_again_is_ensured() {
    let world = with([node("n1")], services(&["a"])).await;
    world.cloud.fail_next(method::UPDATE, error(method::UPDATE, Some(ErrorReason::NeedsEnsure)));
    world.cluster.put(node("n2"));
    assert_eq!(asked(&world).await, ["ensure a n1,n2", "update a n1,n2"]);
}

/// LBN-30.
#[tokio::test(start_paused = true)]
async fn an_update_that_is_implemented_elsewhere_is_let_go() {
    let world = with([node("n1")], services(&["a"])).await;
    world
        .cloud
        .fail_always(method::UPDATE, Some(error(method::UPDATE, Some(ErrorReason::ImplementedElsewhere))));
    world.cluster.put(node("n2"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["update a n1,n2"]);
    assert!(events.is_empty(), "{events:?}");
}

/// SVC-27: a balancer that was ours once is no more looked after than one that never was, and the status is the other
/// controller's.
#[tokio::test(start_paused = true)]
async fn a_service_that_moved_elsewhere_is_let_go() {
    let world = with([node("n1")], services(&["a"])).await;
    let elsewhere = |method| error(method, Some(ErrorReason::ImplementedElsewhere));
    world.cloud.fail_always(method::ENSURE, Some(elsewhere(method::ENSURE)));
    world.cluster.change_service("a", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(A_WHILE).await;
    world.cluster.change_service("a", |service| {
        service["status"] = json!({"loadBalancer": {"ingress": [{"hostname": "theirs.example"}]}});
    });
    world.cluster.put(node("n2"));
    world.pass(3 * A_SWEEP).await;
    let (story, events) = world.take_with_events();
    assert!(story.iter().all(|word| word == "list" || word.starts_with("ensure a ")), "{story:?}");
    assert!(events.iter().all(|event| event == "EnsuringLoadBalancer"), "{events:?}");
    assert_eq!(
        world.cluster.service("a").unwrap()["status"]["loadBalancer"]["ingress"][0]["hostname"],
        "theirs.example"
    );
    world.cloud.fail_always(method::ENSURE, None);
    world.cluster.change_service("a", |service| service["spec"]["ports"][0]["port"] = json!(80));
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["ensure a n1,n2", "status 192.0.2.1"], "it may come back");
}

/// LBN-32.
#[tokio::test(start_paused = true)]
async fn the_last_node_is_taken_out_and_warned_of() {
    let world = with([node("n1")], services(&["a"])).await;
    world.cluster.remove_node("n1");
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["update a "]);
    assert!(events[0].starts_with("UnAvailableLoadBalancer"), "{events:?}");
    assert_eq!(events.len(), 1);
}

/// LBN-33, SW-13.
#[tokio::test(start_paused = true)]
async fn a_service_being_deleted_gets_no_nodes() {
    let world = with([node("n1")], services(&["a"])).await;
    let message = "draining".to_owned();
    let retry_after = Duration::from_secs(500);
    world.cloud.in_progress_next(method::DELETE, InProgress { retry_after, reason: String::new(), message });
    world.cluster.delete_service("a");
    world.pass(Duration::from_secs(1)).await;
    world.cluster.put(node("n2"));
    assert_eq!(asked(&world).await, ["delete a-uid"]);
}

/// S5: nodes that come and go during a call are not in it, and get their own call after it.
#[tokio::test(start_paused = true)]
async fn a_change_during_a_call_is_not_lost() {
    for (method, begin, want) in [
        (method::UPDATE, None, ["update web n1,n2", "update web n1,n2,n3"]),
        (method::ENSURE, Some(lb("web")), ["ensure web n1,n2", "update web n1,n2,n3"]),
    ] {
        let world = if begin.is_some() {
            with([node("n1")], vec![]).await
        } else {
            with([node("n1")], services(&["web"])).await
        };
        world.cloud.set_latency(method, Duration::from_secs(20));
        world.cluster.put(node("n2"));
        world.pass(Duration::from_secs(2)).await;
        begin.into_iter().for_each(|service| world.cluster.put(service));
        world.until("the call", |world| !world.calls().is_empty()).await;
        world.cluster.put(node("n3"));
        world.pass(Duration::from_secs(15)).await;
        assert_eq!(world.calls(), want[..1], "handed on while the call is under way");
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(world.calls(), want);
    }
}

/// LBN-26: a slow update of one Service neither gives another one an old set, nor delays it.
#[tokio::test(start_paused = true)]
async fn a_slow_update_of_one_service_does_not_concern_another() {
    let world = with([node("n1")], services(&["a"])).await;
    world.cloud.set_latency(method::UPDATE, Duration::from_secs(60));
    world.cluster.put(node("n2"));
    world.until("the slow one", |world| world.count("update") == 1).await;
    world.cluster.put(lb("b"));
    world.cluster.put(node("n3"));
    world.until("the other", |world| world.count("ensure b") == 1).await;
    world.pass(A_WHILE).await;
    let story = world.take();
    let of_b: Vec<_> = story.iter().filter(|word| word.contains(" b ")).collect();
    assert!(of_b.last().unwrap().ends_with("n1,n2,n3"), "{story:?}");
    let of_a: Vec<_> = story.iter().filter(|word| word.starts_with("update a")).collect();
    assert_eq!(of_a, ["update a n1,n2", "update a n1,n2,n3"], "what was busy looks again afterwards");
}

/// SW-23, opt-in: a node leaves the balancers as soon as it drains, and comes back with it.
#[tokio::test(start_paused = true)]
async fn a_draining_node_goes_at_once_if_asked_for() {
    let mut world = World::new(three().into_iter().chain(services(&["a"])));
    world.settings.exclude_draining_nodes = true;
    world.start();
    world.pass(Duration::from_secs(3)).await;
    world.take();
    for taint in [None, Some(taint::AUTOSCALER), Some(taint::KARPENTER)] {
        world.cluster.change_node("n1", |node| match taint {
            None => node["spec"]["unschedulable"] = json!(true),
            Some(key) => node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}]),
        });
        assert_eq!(asked(&world).await, ["update a n2,n3"], "{taint:?}");
        world.cluster.change_node("n1", |node| {
            let spec = node["spec"].as_object_mut().unwrap();
            spec.remove("unschedulable");
            spec.remove("taints");
        });
        assert_eq!(asked(&world).await, ["update a n1,n2,n3"], "{taint:?}");
    }
}

/// Whoever is root on a node may write some of its labels, as often as they like.
#[tokio::test(start_paused = true)]
async fn a_node_that_never_rests_does_not_wear_the_cloud_out() {
    let services = ["a", "b", "c"].map(lb);
    let world = World::settled(["n1", "n2", "n3"].map(node).into_iter().chain(services)).await;
    for round in 0..600 {
        let label = json!((round % 2 == 0).to_string());
        world.cluster.change_node("n3", |node| node["metadata"]["labels"][EXCLUDE_LABEL] = label.clone());
        world.pass(Duration::from_millis(1_100)).await;
    }
    let updates = world.count("update");
    assert!(updates < 300, "{updates}");
    // Others are not held up.
    world.take();
    world.cluster.put(node("n4"));
    world.pass(Duration::from_secs(3)).await;
    assert!(world.take().iter().any(|word| word.starts_with("update a") && word.contains("n4")));
}
