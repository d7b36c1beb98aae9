//! Evidence from Ready nodes and Leases for and against the provider, and its effect on deletions.

use super::*;
use ccm_cloud::ProviderInfo;
use ccm_kube::KeySet;

/// A cluster of Ready nodes with instances, except the first `gone`: silent, and without an instance.
async fn cluster(count: usize, gone: usize, edit: impl Fn(usize, Node) -> Node) -> Scene {
    let names = numbered(count);
    let node =
        |(index, name): (usize, &String)| edit(index, if index < gone { silent(name) } else { ready(name) });
    let nodes: Vec<_> = names.iter().enumerate().map(node).collect();
    let scene = Scene::start(nodes, |fake| {
        for name in &names[gone..] {
            fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
        }
    })
    .await;
    names[gone..].iter().for_each(|name| scene.server.renew_lease(name));
    names[..gone].iter().for_each(|name| scene.server.stop_lease(name, SignedDuration::from_secs(60)));
    scene
}

impl Scene {
    fn left(&self, count: usize) -> usize {
        numbered(count).iter().filter(|name| self.server.node(name).is_some()).count()
    }

    fn is_contradicted(&self) -> bool {
        self.has_metric(r#"node_lifecycle_provider_contradicted{provider="fake"} 1"#)
    }
}

/// N1, E1: seen on a real cluster, where the guard latched until a person intervened.
#[tokio::test(start_paused = true)]
async fn an_ordinary_scale_down_needs_no_person() {
    for (total, gone) in [(30, 5), (100, 10)] {
        let scene = cluster(total, gone, |_, node| node).await;
        scene.passes(1).await;
        assert_eq!(scene.left(total), total - gone, "{gone} of {total}");
        assert_eq!(scene.events(), vec![(Kind::Normal, "DeletingNode"); gone]);
        scene.stop().await;
    }
}

/// E1: the control group joins the second check, and only if there are candidates for deletion.
#[tokio::test(start_paused = true)]
async fn at_most_twenty_ready_nodes_are_asked_about() {
    let scene = cluster(100, 1, |_, node| node).await;
    assert_eq!(scene.fake.take_calls().len(), 1, "a first look");
    scene.passes(1).await;
    assert_eq!(scene.fake.take_calls().len(), 21);
    scene.passes(10).await;
    assert_eq!(scene.fake.take_calls().len(), 0, "nobody is to go any more");
    scene.stop().await;
}

/// D13: no Ready node is left to confirm the answers.
#[tokio::test(start_paused = true)]
async fn without_any_ready_node_no_more_than_the_share_goes() {
    let scene = cluster(200, 200, |_, node| node).await;
    scene.passes(100).await;
    assert_eq!(scene.left(200), 190);
    assert!(scene.is_held(Rule::Share, 190));
    sleep(settings().node_deletion_window).await;
    assert_eq!(scene.left(200), 181, "window after window, of those that were left");
    scene.stop().await;
}

/// E1: a cluster scaled to nothing overnight cleans itself up when its first new node is Ready.
#[tokio::test(start_paused = true)]
async fn the_first_ready_node_ends_the_share() {
    let scene = cluster(40, 40, |_, node| node).await;
    scene.passes(3).await;
    assert_eq!(scene.left(40), 38);
    scene.fake.set_instance("new", InstanceState::Running, instance("fake://new"));
    scene.server.renew_lease("new");
    scene.server.put(&ready("new"));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(scene.left(40), 0, "ten a minute");
    assert!(scene.server.node("new").is_some());
    scene.stop().await;
}

/// One node of each rack is gone, and its other nodes are fine.
#[tokio::test(start_paused = true)]
async fn no_zone_is_taken_for_dark_because_there_are_many() {
    let scene = cluster(120, 30, |index, node| in_zone(node, &format!("z{:02}", index % 30))).await;
    scene.passes(1).await;
    assert_eq!((scene.left(120), scene.is_held(Rule::ZoneShare, 0)), (108, true), "a tenth at a time");
    scene.stop().await;
}

/// Those that wait for a place are told of by the metric: within minutes, they follow, or their kubelets are found alive.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_place_is_not_reported() {
    let scene = cluster(60, 30, |index, node| if index < 30 { broken(node) } else { node }).await;
    scene.passes(3).await;
    let told = scene.events();
    assert!(told.iter().all(|(_, reason)| *reason != "NodeDeletionBlocked"), "{told:?}");
    scene.stop().await;
}

/// N9: seen on a real cluster, where both silent Nodes were deleted.
#[tokio::test(start_paused = true)]
async fn a_provider_that_denies_living_nodes_is_not_believed() {
    let scene = cluster(60, 2, |_, node| node).await;
    for name in &numbered(60) {
        scene.fake.set_state(name, InstanceState::Absent);
    }
    scene.passes(20).await;
    assert_eq!(scene.left(60), 60);
    assert!(scene.is_contradicted() && scene.is_held(Rule::Contradiction, 2));
    let events = scene.events();
    let told = |reason| events.iter().filter(|(_, told)| *told == reason).count();
    assert!((10..=58).contains(&told("InstanceDenied")), "each node once: {events:?}");
    assert_eq!(told("NodeDeletionBlocked"), 2);
    assert_eq!(scene.server.condition("n001", HELD_BACK)["reason"], "ProviderContradictsItself");

    for name in &numbered(60)[2..] {
        scene.fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
    }
    scene.passes(1).await;
    assert_eq!(scene.left(60), 60, "one pass without a contradiction");
    scene.passes(2).await;
    assert!(!scene.is_contradicted());
    assert_eq!(scene.left(60), 58, "it ends by itself");
    scene.stop().await;
}

/// The alert must not stay: nobody is to go any more, so nothing else asks about Ready nodes.
#[tokio::test(start_paused = true)]
async fn a_contradiction_ends_though_the_nodes_that_were_to_go_came_back() {
    let scene = cluster(60, 2, |_, node| node).await;
    for name in &numbered(60) {
        scene.fake.set_state(name, InstanceState::Absent);
    }
    scene.passes(20).await;
    assert!(scene.is_contradicted());
    for name in &numbered(60) {
        scene.fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
    }
    ["n000", "n001"].iter().for_each(|name| scene.server.put(&ready(name)));
    scene.passes(5).await;
    assert!(!scene.is_contradicted());
    scene.fake.take_calls();
    scene.passes(5).await;
    assert!(scene.fake.take_calls().is_empty(), "nor are they asked about any longer");
    scene.stop().await;
}

/// Nobody is left to speak for the provider: the share decides.
#[tokio::test(start_paused = true)]
async fn a_contradiction_ends_with_the_last_ready_node() {
    let scene = cluster(40, 2, |_, node| node).await;
    for name in &numbered(40) {
        scene.fake.set_state(name, InstanceState::Absent);
    }
    scene.passes(20).await;
    assert!(scene.is_contradicted());
    for name in &numbered(40)[2..] {
        scene.server.put(&silent(name));
        scene.server.stop_lease(name, SignedDuration::from_secs(60));
    }
    scene.passes(5).await;
    assert!(scene.is_contradicted(), "the last one may be back in a moment");
    assert_eq!(scene.left(40), 40);
    sleep(settings().node_deletion_window).await;
    scene.passes(1).await;
    assert!(!scene.is_contradicted());
    scene.stop().await;
}

/// Found by seed 4470 of the simulation, in which all deletions were held back forever.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_denied_once_and_of_which_nothing_is_known_since_contradicts_nothing() {
    let scene = cluster(10, 1, |_, node| node).await;
    for name in ["n005", "n006"] {
        scene.fake.set_state(name, InstanceState::Absent);
    }
    scene.passes(5).await;
    assert!(scene.is_contradicted());
    for name in ["n005", "n006"] {
        scene.fake.set_state(name, InstanceState::Unspecified);
    }
    scene.passes(3).await;
    assert_eq!((scene.left(10), scene.is_contradicted()), (9, false));
    scene.stop().await;
}

/// E1: NOT_OWNED denies like ABSENT.
#[tokio::test(start_paused = true)]
async fn somebody_elses_living_node_is_a_contradiction() {
    let scene = cluster(10, 1, |_, node| node).await;
    for name in ["n005", "n006"] {
        scene.fake.set_state(name, InstanceState::NotOwned);
    }
    scene.passes(5).await;
    assert!(scene.is_contradicted());
    scene.server.edit("n005", |node| {
        node["metadata"]["labels"] = json!({ccm_reconcile::settings::EXCLUDE_LABEL: "true"});
    });
    scene.passes(3).await;
    assert_eq!((scene.left(10), scene.is_contradicted()), (9, false), "the remedy that the Event names");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_finds_no_ready_node_is_not_believed() {
    let scene = cluster(30, 1, |_, node| node).await;
    for name in &numbered(30)[1..] {
        scene.fake.set_state(name, InstanceState::Unspecified);
    }
    scene.passes(20).await;
    assert_eq!(scene.left(30), 30);
    assert!(scene.is_held(Rule::NoneFound, 1) && !scene.is_contradicted());
    for name in &numbered(30)[1..] {
        scene.fake.set_state(name, InstanceState::Running);
    }
    scene.passes(2).await;
    assert_eq!(scene.left(30), 29);
    scene.stop().await;
}

/// E1: a tenth of the nodes per minute; nodes given up before take no place.
#[tokio::test(start_paused = true)]
async fn many_nodes_go_at_a_pace() {
    let doomed = |index: usize, node: Node| match index < 15 {
        true => node.with_taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"),
        false => node,
    };
    let scene = cluster(200, 60, doomed).await;
    scene.passes(2).await;
    assert_eq!(scene.left(200), 200 - 15 - 20);
    assert!(scene.is_held(Rule::Pace, 25));
    sleep(Duration::from_secs(180)).await;
    assert_eq!(scene.left(200), 140, "without a person");
    scene.stop().await;
}

/// E1: the share, window after window, and no latch.
#[tokio::test(start_paused = true)]
async fn a_zone_without_a_ready_node_goes_by_the_share() {
    let scene = cluster(40, 6, |index, node| in_zone(node, if index < 5 { "dark" } else { "light" })).await;
    scene.passes(2).await;
    assert_eq!(scene.left(40), 40 - 1 - 2, "one of the zone that has Ready nodes, and two of forty");
    assert!(scene.is_held(Rule::ZoneShare, 3));
    sleep(settings().node_deletion_window * 3 + PERIOD * 2).await;
    assert_eq!(scene.left(40), 34);
    scene.stop().await;
}

/// A node whose kubelet reports that it is not ready.
fn broken(node: Node) -> Node {
    node.with_condition("Ready", "False", "KubeletNotReady")
}

impl Scene {
    /// That many passes, before each of which these kubelets renew their Leases, by a clock that is that far behind.
    async fn passes_with(&self, count: u32, renewing: &[String], behind: SignedDuration) {
        for _ in 0..count {
            renewing.iter().for_each(|name| self.server.stop_lease(name, behind));
            self.passes(1).await;
        }
    }
}

/// R7: by whatever clock it does so.
#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_is_alive_is_kept() {
    for behind in [0, 30, 300, -300].map(SignedDuration::from_secs) {
        let scene = cluster(30, 2, |index, node| if index < 2 { broken(node) } else { node }).await;
        scene.passes_with(20, &numbered(1), behind).await;
        assert!(scene.server.node("n000").is_some() && scene.server.node("n001").is_none(), "{behind}");
        assert!(scene.is_held(Rule::Alive, 1));
        let advice = scene.server.condition("n000", HELD_BACK)["message"].to_string();
        assert!(!advice.contains("annotate"), "it would have no effect: {advice}");
        scene.passes(10).await;
        assert_eq!(scene.server.node("n000"), None, "{behind}");
        scene.stop().await;
    }
}

/// R7: the cloud denies ten of sixty, two of which are not ready; every kubelet renews its Lease, and all their clocks
/// are half a minute behind.
#[tokio::test(start_paused = true)]
async fn a_provider_that_lies_in_part_is_not_believed_whatever_clocks_show() {
    for behind in [0, 30, 300, -300].map(SignedDuration::from_secs) {
        let scene = cluster(60, 2, |index, node| if index < 2 { broken(node) } else { node }).await;
        for name in &numbered(10) {
            scene.fake.set_state(name, InstanceState::Absent);
        }
        scene.passes_with(60, &numbered(60), behind).await;
        assert_eq!(scene.left(60), 60, "{behind}");
        assert!(scene.is_contradicted() && scene.is_held(Rule::Contradiction, 2), "{behind}");
        scene.stop().await;
    }
}

/// R7: what a kubelet wrote before it died is no time.
#[tokio::test(start_paused = true)]
async fn a_dead_node_goes_whatever_its_kubelet_wrote() {
    for node in [silent("n000"), broken(silent("n000"))] {
        let scene = cluster(30, 1, |index, old| if index == 0 { node.clone() } else { old }).await;
        scene.server.stop_lease("n000", SignedDuration::from_hours(-600_000));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.left(30), 29);
        scene.stop().await;
    }
}

/// R7: root on a machine may write a time that Go can read and this host cannot, and then lose the machine, or go on as a
/// node that the provider denies.
#[tokio::test(start_paused = true)]
async fn a_lease_from_the_end_of_all_time_holds_up_no_deletion() {
    for name in ["n000", "n020"] {
        let scene = cluster(30, 2, |_, node| node).await;
        scene.fake.set_state("n020", InstanceState::Absent);
        scene.server.write_lease(name, "9999-12-31T23:59:59.999999Z");
        sleep(Duration::from_secs(120)).await;
        assert_eq!((scene.left(2), scene.left(30)), (0, 28), "{name}");
        scene.stop().await;
    }
}

/// R7: one node with a stale provider ID is reported, and stops nothing.
#[tokio::test(start_paused = true)]
async fn one_node_that_is_denied_though_it_lives_holds_up_no_other() {
    let scene = cluster(60, 5, |index, node| if index == 0 { broken(node) } else { node }).await;
    for name in &numbered(5)[1..] {
        scene.fake.set_instance(name, InstanceState::Running, instance(&format!("fake://{name}")));
    }
    scene.fake.set_state("n030", InstanceState::Absent);
    // A candidate that stays, so that Ready nodes are asked about until the stale one was.
    scene.passes_with(40, &numbered(1), SignedDuration::ZERO).await;
    let events = scene.events();
    assert!(events.contains(&(Kind::Warning, "InstanceDenied")), "{events:?}");
    for name in &numbered(5)[1..] {
        scene.fake.set_state(name, InstanceState::Absent);
    }
    scene.passes_with(3, &numbered(1), SignedDuration::ZERO).await;
    assert_eq!(scene.left(60), 56);
    assert!(scene.server.node("n030").is_some() && !scene.is_contradicted());
    scene.stop().await;
}

/// R7: nodes that are about to go say nothing about the provider.
#[tokio::test(start_paused = true)]
async fn nodes_that_were_given_up_are_not_in_the_control_group() {
    let doomed = |index: usize, node: Node| match (1..15).contains(&index) {
        true => node.with_taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"),
        false => node,
    };
    let scene = cluster(30, 1, doomed).await;
    for name in &numbered(15) {
        scene.fake.set_state(name, InstanceState::Absent);
    }
    scene.passes(1).await;
    assert_eq!(scene.left(30), 29);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_leases_nothing_is_deleted() {
    let scene = cluster(30, 1, |_, node| node).await;
    scene.server.refuse_leases(true);
    scene.passes(3).await;
    assert_eq!(scene.left(30), 30);
    let (kind, reason, message) = scene.events.take().remove(0);
    assert_eq!((kind, reason), (Kind::Warning, "DeletingNodeFailed"));
    assert!(message.contains("Lease kube-node-lease/n000 cannot be read"), "{message}");
    scene.server.refuse_leases(false);
    scene.passes(5).await;
    assert_eq!(scene.left(30), 29);
    scene.stop().await;
}

/// N5: the provider has only just asked for a label that the cache does not keep.
#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_the_cache_keeps_what_the_provider_wants() {
    let wish = |info: &mut ProviderInfo| info.keep_of_nodes.labels = KeySet::keys(["example.com/machine"]);
    let scene = Scene::start([silent("n")], |fake| fake.change_info(wish)).await;
    scene.passes(5).await;
    assert_eq!(scene.fake.take_calls(), []);
    assert!(scene.server.node("n").is_some());
    let info = scene.fake.info().unwrap();
    scene.parts.nodes.set_keep("fake", &info.keep_of_nodes);
    scene.passes(2).await;
    assert_eq!(scene.server.node("n"), None);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn people_see_the_guard_of_each_provider() {
    let scene = cluster(3, 0, |_, node| node).await;
    let guards = scene.parts.views.all(|one| one.guard());
    let seen: Vec<_> = guards.iter().map(|guard| (guard.provider.as_str(), guard.nodes)).collect();
    assert_eq!(seen, [("fake", 3)]);
}
