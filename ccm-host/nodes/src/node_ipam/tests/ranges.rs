//! `RangeAllocator`.

use super::*;
use ccm_kube::keep::KeySet;
use ccm_reconcile::settings::EXCLUDE_LABEL;

/// IPAM-1, IPAM-10.
#[tokio::test(start_paused = true)]
async fn a_new_node_gets_its_cidrs_with_one_patch() {
    let rows: [(&[&str], &[&str]); 3] = [
        (&["10.10.0.0/16>24"], &["10.10.0.0/24"]),
        (&["10.10.0.0/16>24", "a00::/48>64"], &["10.10.0.0/24", "a00::/64"]),
        (&["a00::/48>64", "10.10.0.0/16>24"], &["a00::/64", "10.10.0.0/24"]),
    ];
    for (clusters, want) in rows {
        let scene = Scene::start(ranges(clusters), [node("a")]).await;
        let patches: Vec<_> = scene.server.take_calls();
        assert_eq!(patches.len(), 1, "{patches:?}");
        assert_eq!(
            patches[0].json(),
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "a-uid"},
                {"op": "test", "path": "/spec/podCIDR", "value": null},
                {"op": "add", "path": "/spec/podCIDR", "value": want[0]},
                {"op": "test", "path": "/spec/podCIDRs", "value": null},
                {"op": "add", "path": "/spec/podCIDRs", "value": want},
            ])
        );
        assert_eq!(scene.cidrs("a"), json!(want));
        assert_eq!(scene.reasons(), [""; 0]);
        scene.stop().await;
    }
}

/// IPAM-11, IPAM-15, IPAM-16: existing CIDRs count before any are assigned; a terminating node gets none and keeps
/// its own.
#[tokio::test(start_paused = true)]
async fn everybody_is_known_before_anything_is_given() {
    let nodes = [
        node("new"),
        node("a").with_pod_cidr("10.10.0.0/24"),
        node("going").with_pod_cidr("10.10.2.0/24").created_at(jiff::Timestamp::UNIX_EPOCH).deleting(),
        node("gone-soon").deleting(),
    ];
    let scene = Scene::start(ranges(&["10.10.0.0/22>24"]), nodes).await;
    assert_eq!(scene.server.take_lines(), ["PATCH new"]);
    assert_eq!(scene.cidrs("new"), json!(["10.10.1.0/24"]));
    scene.server.put(&node("newer"));
    scene.rest().await;
    assert_eq!(scene.cidrs("newer"), json!(["10.10.3.0/24"]));
    assert_eq!(scene.cidrs("gone-soon"), Value::Null);
    scene.stop().await;
}

/// IPAM-12..14, NW-30: exhaustion is reported once, and heals by itself.
#[tokio::test(start_paused = true)]
async fn a_node_that_waits_gets_what_another_leaves() {
    let nodes = [node("a").with_pod_cidr("10.10.0.0/24"), node("b")];
    let scene = Scene::start(ranges(&["10.10.0.0/24>24"]), nodes).await;
    let told =
        "the cluster CIDR 10.10.0.0/24 has no block left for this node: it gets one when another node goes";
    assert_eq!(scene.events(), [(EventType::Warning, "CIDRNotAvailable", told.to_owned())]);
    assert!(scene.problems("Exhausted", 1));
    scene.server.edit("b", |node| node["metadata"]["labels"] = json!({EXCLUDE_LABEL: "false"}));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(scene.server.take_lines(), [""; 0], "nothing is written in vain");
    assert_eq!(scene.reasons(), [""; 0]);
    scene.server.delete("a");
    scene.rest().await;
    assert_eq!(scene.cidrs("b"), json!(["10.10.0.0/24"]));
    assert!(scene.problems("Exhausted", 0));
    scene.stop().await;
}

/// IPAM-4..6, NW-29.
#[tokio::test(start_paused = true)]
async fn a_wrong_cidr_is_told_on_its_node_and_the_others_are_served() {
    let nodes = [
        node("out").with_pod_cidr("10.9.0.0/24"),
        node("two").with_pod_cidr("10.10.0.0/24").with_pod_cidr("a00::/64"),
        node("bad").with_pod_cidr("10.10.1.x/24"),
        node("good"),
    ];
    let scene = Scene::start(ranges(&["10.10.0.0/16>24"]), nodes).await;
    assert_eq!(scene.cidrs("good"), json!(["10.10.1.0/24"]));
    let events = scene.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(
        events.iter().all(|(type_, reason, _)| (*type_, *reason) == (EventType::Warning, "InvalidPodCIDR"))
    );
    for kind in ["OutOfRange", "OtherFamily", "Malformed"] {
        assert!(scene.problems(kind, 1), "{kind}");
    }
    scene.server.delete("out");
    scene.rest().await;
    assert!(scene.problems("OutOfRange", 0));
    scene.stop().await;
}

/// IPAM-25, NW-28.
#[tokio::test(start_paused = true)]
async fn a_shared_block_is_told_on_both_nodes_and_stays_taken() {
    let nodes = [node("a").with_pod_cidr("10.10.0.0/24"), node("b").with_pod_cidr("10.10.0.0/25")];
    let scene = Scene::start(ranges(&["10.10.0.0/23>24"]), nodes).await;
    assert_eq!(scene.reasons(), ["PodCIDRConflict"; 2]);
    assert!(scene.problems("Shared", 2));
    scene.server.delete("a");
    scene.rest().await;
    assert!(scene.problems("Shared", 0));
    scene.server.put(&node("c"));
    scene.server.put(&node("d"));
    scene.rest().await;
    let given = [scene.cidrs("c"), scene.cidrs("d")];
    assert!(given.contains(&json!(["10.10.1.0/24"])) && given.contains(&Value::Null), "{given:?}");
    scene.stop().await;
}

/// A wide CIDR is one report, however many neighbours it has.
#[tokio::test(start_paused = true)]
async fn a_block_that_overlaps_many_is_told_once() {
    let many =
        (0..8).map(|number| node(&format!("n{number}")).with_pod_cidr(&format!("10.10.{number}.0/24")));
    let wide = node("wide").with_pod_cidr("10.10.0.0/20");
    let scene = Scene::start(ranges(&["10.10.0.0/16>24"]), many.chain([wide])).await;
    assert!(scene.problems("Shared", 9));
    assert_eq!(scene.reasons(), ["PodCIDRConflict"; 9]);
    scene.stop().await;
}

/// N3: a list is as new as the request, however old the apiserver's cache is.
#[tokio::test(start_paused = true)]
async fn a_restart_behind_an_apiserver_that_lags_gives_no_block_twice() {
    let first = Scene::start(ranges(&["10.10.0.0/16>24"]), []).await;
    let server = first.server.clone();
    server.lag();
    server.put(&node("a"));
    first.rest().await;
    assert_eq!(first.cidrs("a"), json!(["10.10.0.0/24"]));
    first.stop().await;
    let second = Scene::start_on(server, ranges(&["10.10.0.0/16>24"]), "", |_| {}).await;
    second.server.put(&node("b"));
    second.rest().await;
    assert_eq!(second.cidrs("b"), json!(["10.10.1.0/24"]));
    second.stop().await;
}

/// N3: a free block depends on all other nodes, and a standby's cache may be older than its term.
#[tokio::test(start_paused = true)]
async fn a_standby_that_takes_over_gives_no_block_twice() {
    let scene = Scene::start_with(ranges(&["10.10.0.0/16>24"]), "", [node("b")], |standby| {
        standby.server.hold_watches();
        // The former leader's last act.
        standby.server.put(&node("a").with_pod_cidr("10.10.0.0/24"));
    })
    .await;
    assert_eq!(scene.cidrs("b"), json!(["10.10.1.0/24"]));
    scene.stop().await;
}

/// NW-26: the next list shows a deletion that no watch reported.
#[tokio::test(start_paused = true)]
async fn a_missed_deletion_frees_its_block() {
    let nodes = [node("a").with_pod_cidr("10.10.0.0/24"), node("b")];
    let scene = Scene::start(ranges(&["10.10.0.0/24>24"]), nodes).await;
    scene.server.hold_watches();
    scene.server.delete("a");
    scene.rest().await;
    assert_eq!(scene.cidrs("b"), Value::Null);
    // More fields are wanted, so everything is listed again.
    scene.parts.nodes.set_keep("fake", &Keep { labels: KeySet::all(), annotations: KeySet::default() });
    scene.rest().await;
    assert_eq!(scene.cidrs("b"), json!(["10.10.0.0/24"]));
    scene.stop().await;
}

/// IPAM-26.
#[tokio::test(start_paused = true)]
async fn a_node_recreated_under_its_name_gets_a_block_of_its_own() {
    let scene = Scene::start(ranges(&["10.10.0.0/23>24"]), [node("a")]).await;
    scene.server.put(&node("a").uid("newer"));
    scene.rest().await;
    assert_eq!(scene.cidrs("a"), json!(["10.10.1.0/24"]));
    assert!(scene.has_metric(r#"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.10.0.0/23"} 0.5"#));
    scene.server.delete("a");
    scene.rest().await;
    assert!(scene.has_metric(r#"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.10.0.0/23"} 0.0"#));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ours_is_not_written_but_its_block_counts() {
    let nodes = [
        node("theirs").with_pod_cidr("10.10.0.0/24"),
        node("theirs-too"),
        node("ours").with_label("pool", "a"),
        node("out").with_label("pool", "a").with_label(EXCLUDE_LABEL, "true"),
    ];
    let scene = Scene::start_with(ranges(&["10.10.0.0/16>24"]), "pool=a", nodes, |_| {}).await;
    assert_eq!(scene.server.take_lines(), ["PATCH ours"]);
    assert_eq!(scene.cidrs("ours"), json!(["10.10.1.0/24"]));
    scene.stop().await;
}
