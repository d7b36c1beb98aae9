//! Writes that fail, may have failed, or come too late.

use super::*;
use ccm_kube::fixtures::{invalid, refusal};

const ONE: &[&str] = &["10.10.0.0/16>24"];

/// IPAM-24, NW-27: the answer is lost, but not the write.
#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_read_back() {
    let nodes = [node("a")];
    let scene = Scene::start_with(ranges(ONE), "", nodes, |scene| {
        scene.server.lose_next_answer();
        scene.server.hold_watches();
    })
    .await;
    assert_eq!(scene.server.take_lines(), ["PATCH a", "GET a"]);
    assert_eq!(scene.cidrs("a"), json!(["10.10.0.0/24"]));
    assert_eq!(scene.reasons(), [""; 0], "nothing is left to do");
    scene.server.release_all();
    scene.server.put(&node("b"));
    scene.rest().await;
    assert_eq!(scene.cidrs("b"), json!(["10.10.1.0/24"]));
    scene.stop().await;
}

/// IPAM-24, NW-27: upstream takes another block for each attempt.
#[tokio::test(start_paused = true)]
async fn a_write_that_did_not_happen_is_tried_again_with_the_same_block() {
    let scene = Scene::start_with(ranges(ONE), "", [node("a"), node("b")], |scene| {
        for code in [504, 500, 403, 504] {
            scene.server.answer_next_write(refusal(code, "Trouble"));
        }
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    let given = [scene.cidrs("a"), scene.cidrs("b")];
    assert!(
        given.contains(&json!(["10.10.0.0/24"])) && given.contains(&json!(["10.10.1.0/24"])),
        "{given:?}"
    );
    assert!(
        scene.has_metric(
            r#"node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR="10.10.0.0/16"} 2"#
        )
    );
    let events = scene.events();
    assert!(!events.is_empty());
    assert!(
        events
            .iter()
            .all(|(type_, reason, _)| { (*type_, *reason) == (EventType::Warning, "CIDRAssignmentFailed") })
    );
    assert!(scene.problems("NotWritten", 0));
    scene.stop().await;
}

/// Node.md 3.8: a stale cache causes no failure.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_assigned_is_taken_over() {
    let scene = Scene::start(ranges(&["10.10.0.0/23>24"]), []).await;
    scene.server.hold_watches();
    scene.server.put(&node("a"));
    scene.server.edit("a", |node| {
        node["spec"] = json!({"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24"]});
    });
    scene.server.release(1);
    scene.rest().await;
    assert_eq!(scene.server.take_lines(), ["PATCH a", "GET a"]);
    assert_eq!(scene.cidrs("a"), json!(["10.10.1.0/24"]));
    assert_eq!(scene.reasons(), [""; 0]);
    assert!(scene.has_metric(r#"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.10.0.0/23"} 0.5"#));
    scene.server.release_all();
    scene.server.put(&node("b"));
    scene.rest().await;
    assert_eq!(scene.cidrs("b"), json!(["10.10.0.0/24"]), "what was proposed in vain is free");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_apiserver_refuses_is_given_back_and_another_is_tried() {
    let scene = Scene::start_with(ranges(ONE), "", [node("a")], |scene| {
        scene.server.answer_next_write(invalid("not this one", &["spec.podCIDRs"]));
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.cidrs("a"), json!(["10.10.1.0/24"]));
    let told =
        "the pod CIDR 10.10.0.0/24 could not be assigned: the apiserver refuses the value: not this one";
    assert_eq!(scene.events(), [(EventType::Warning, "CIDRAssignmentFailed", told.to_owned())]);
    assert!(
        scene
            .has_metric(r#"node_ipam_controller_cidrset_cidrs_releases_total{clusterCIDR="10.10.0.0/16"} 1"#)
    );
    scene.stop().await;
}

/// IPAM-26: the node is deleted during the write.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_meanwhile_leaks_nothing() {
    let scene = Scene::start(ranges(ONE), []).await;
    scene.server.hold_watches();
    scene.server.put(&node("a"));
    scene.server.delete("a");
    scene.server.release(1);
    scene.rest().await;
    assert_eq!(scene.server.take_lines(), ["PATCH a"]);
    scene.server.release_all();
    scene.rest().await;
    assert_eq!(scene.reasons(), [""; 0]);
    assert!(scene.has_metric(r#"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.10.0.0/16"} 0.0"#));
    scene.stop().await;
}

/// Shutdown waits for no answer.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_never_answered_does_not_hold_up_the_end() {
    let scene =
        Scene::start_with(ranges(ONE), "", [node("a")], |scene| scene.server.silence_writes(true)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}
