use super::*;
use crate::{
    cloud::fake::{instance, machine},
    kube::fixtures::node,
};

fn unready() -> Node {
    node("n").with_condition("Ready", "False", "KubeletNotReady")
}

fn stopped_before(node: Node) -> Node {
    node.with_taint(taint::SHUTDOWN, "", "NoSchedule")
}

fn there(state: InstanceState) -> InstanceAnswer {
    machine(state, Some(instance("fake://1")))
}

/// `ready`, `ask`, and what becomes of the taints.
fn first(node: &Node) -> String {
    match look(node) {
        Look::Ready(taints) => format!("ready{}", change(taints)),
        Look::NotReady => "ask".to_owned(),
    }
}

fn then(node: &Node, answer: &InstanceAnswer) -> String {
    match decide(node, answer) {
        Verdict::Keep(taints) => format!("keep{}", change(taints)),
        Verdict::Absent => "absent".to_owned(),
        Verdict::Uncertain => "uncertain".to_owned(),
    }
}

fn change(taints: Option<Vec<Taint>>) -> String {
    let keys = |taints: Vec<Taint>| {
        let keys: Vec<_> =
            taints.iter().map(|taint| taint.key.rsplit('/').next().unwrap().to_owned()).collect();
        format!(", taints: {}", keys.join(" "))
    };
    taints.map_or(String::new(), keys)
}

#[test]
fn ready_nodes_are_not_asked_about() {
    let rows = [
        ("LIFE-6, LIFE-12, LIFE-20 ready", node("n").ready(), "ready"),
        ("LIFE-27 ready again after a stop", stopped_before(node("n").ready()), "ready, taints: "),
        (
            "LIFE-27 with other taints",
            stopped_before(node("n").ready().with_taint("dedicated", "x", "NoExecute")),
            "ready, taints: dedicated",
        ),
        (
            "another effect is another taint",
            node("n").ready().with_taint(taint::SHUTDOWN, "", "NoExecute"),
            "ready",
        ),
        ("not ready", unready(), "ask"),
        ("LIFE-4 silent", node("n").not_ready(), "ask"),
        ("LIFE-26 never said a word", node("n"), "ask"),
        ("LIFE-33 not initialised yet", node("n").tainted_uninitialized(), "ask"),
    ];
    for (id, node, want) in rows {
        assert_eq!(first(&node), want, "{id}");
    }
}

/// Rows of the legacy interface and of InstancesV2 are the same scenario behind our contract: one question answers
/// existence and shutdown at once. Where upstream deletes, we have evidence; what becomes of it is the guard's.
#[test]
fn answers_about_nodes_that_are_not_ready() {
    use InstanceState as S;
    let rows = [
        ("LIFE-1, LIFE-7, LIFE-15, LIFE-19", unready(), machine(S::Absent, None), "absent"),
        ("LIFE-2, LIFE-8, LIFE-16, LIFE-31 nobody knows", unready(), machine(S::Unknown, None), "uncertain"),
        ("LIFE-3, LIFE-9", unready(), there(S::Running), "keep"),
        ("LIFE-4, LIFE-10", node("n").not_ready(), machine(S::Absent, None), "absent"),
        ("LIFE-26", node("n"), machine(S::Absent, None), "absent"),
        ("LIFE-5, LIFE-11", node("n").not_ready(), there(S::Running), "keep"),
        ("LIFE-13", unready().with_provider_id("fake://1"), there(S::Stopped), "keep, taints: shutdown"),
        ("LIFE-14", unready(), there(S::Stopped), "keep, taints: shutdown"),
        ("LIFE-18, LIFE-21 one answer, and it is absence", unready(), machine(S::Absent, None), "absent"),
        ("LIFE-28, NW-8 ours: it runs again", stopped_before(unready()), there(S::Running), "keep, taints: "),
        ("LIFE-29, NW-9 it is tainted already", stopped_before(unready()), there(S::Stopped), "keep"),
        ("LIFE-32 a provider that cannot tell says RUNNING", unready(), there(S::Running), "keep"),
        ("LIFE-33", unready().tainted_uninitialized(), machine(S::Absent, None), "absent"),
        ("on its way out", unready(), there(S::Terminating), "keep, taints: shutdown"),
        ("being made keeps the taint", stopped_before(unready()), there(S::Pending), "keep"),
        ("somebody else's", stopped_before(unready()), machine(S::NotOwned, None), "keep"),
        ("E8 whether it runs was not asked", unready(), there(S::Exists), "keep"),
        ("E8 and the taint stays", stopped_before(unready()), there(S::Exists), "keep"),
        ("unknown keeps the taint", stopped_before(unready()), machine(S::Unknown, None), "uncertain"),
        (
            "hearsay",
            unready(),
            InstanceAnswer { authoritative: false, ..machine(S::Absent, None) },
            "uncertain",
        ),
    ];
    for (id, node, answer, want) in rows {
        assert_eq!(then(&node, &answer), want, "{id}");
    }
}

#[test]
fn a_person_vouches_for_one_node_and_not_for_its_successor() {
    let vouched = |uid: &str| is_vouched_for(&node("n").with_annotation(CONFIRM_DELETION, uid));
    assert!(vouched("n-uid"));
    assert!(!vouched("another"));
    assert!(!vouched("true"));
    assert!(!is_vouched_for(&node("n")));
    assert!(!is_vouched_for(&node("n").uid("").with_annotation(CONFIRM_DELETION, "")));
}
