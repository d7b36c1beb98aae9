use super::*;
use ccm_cloud::fake::{instance, machine};
use ccm_kube::fixtures::node;

fn unready() -> Node {
    node("n").with_condition("Ready", "False", "KubeletNotReady")
}

fn stopped_before(node: Node) -> Node {
    node.with_taint(taint::SHUTDOWN, "", "NoSchedule")
}

fn there(state: InstanceState) -> InstanceAnswer {
    machine(state, Some(instance("fake://1")))
}

fn then(node: &Node, answer: &InstanceAnswer) -> String {
    match decide(ShutdownPolicy::Taint, node, true, answer) {
        Verdict::Keep(taints) | Verdict::Stopped(taints, _) => format!("keep{}", change(taints)),
        Verdict::Absent(_) => "absent".to_owned(),
        Verdict::Nameless => "nameless".to_owned(),
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
fn only_nodes_that_report_it_are_ready() {
    let rows = [
        ("LIFE-6, LIFE-12, LIFE-20 ready", node("n").ready(), (true, false)),
        ("not ready", unready(), (false, false)),
        ("LIFE-4 silent", node("n").not_ready(), (false, true)),
        ("LIFE-26 never said a word", node("n"), (false, false)),
        ("LIFE-33 not initialised yet", node("n").tainted_uninitialized(), (false, false)),
    ];
    for (id, node, want) in rows {
        assert_eq!((is_ready(&node), is_unheard(&node)), want, "{id}");
    }
}

/// Rows of the legacy interface and of InstancesV2 are the same scenario behind our contract: one question answers
/// existence and shutdown at once. Where upstream deletes, we have evidence, which the guard judges.
#[test]
fn answers_about_nodes_that_are_not_ready() {
    use InstanceState as S;
    let rows = [
        ("LIFE-1, LIFE-7, LIFE-15, LIFE-19", unready(), machine(S::Absent, None), "absent"),
        (
            "LIFE-2, LIFE-8, LIFE-16, LIFE-31 nobody knows",
            unready(),
            machine(S::Unspecified, None),
            "uncertain",
        ),
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
        ("unknown keeps the taint", stopped_before(unready()), machine(S::Unspecified, None), "uncertain"),
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

/// N9: an answer that describes an absent instance, or reports an error, is not the result of a real look-up.
#[test]
fn absence_with_a_description_or_an_error_is_no_evidence() {
    let absent = machine(InstanceState::Absent, None);
    let failed = ccm_cloud::fake::error("BatchGetInstances", None);
    let rows = [
        ("looked for", true, absent.clone(), "absent"),
        ("E3 nobody knows what was looked for", false, absent.clone(), "nameless"),
        ("an error", true, InstanceAnswer { error: Some(failed), ..absent.clone() }, "uncertain"),
        ("a description", true, there(InstanceState::Absent), "uncertain"),
        ("no time", true, InstanceAnswer { observed_at: None, ..absent }, "uncertain"),
    ];
    for (what, named, answer, want) in rows {
        let word = match decide(ShutdownPolicy::Taint, &unready(), named, &answer) {
            Verdict::Absent(_) => "absent",
            Verdict::Nameless => "nameless",
            Verdict::Uncertain => "uncertain",
            Verdict::Keep(_) | Verdict::Stopped(_, _) => "keep",
        };
        assert_eq!(word, want, "{what}");
    }
}

/// E1: answers about Ready nodes.
#[test]
fn ready_nodes_are_found_denied_or_unknown() {
    use InstanceState as S;
    let failed = || Some(ccm_cloud::fake::error("BatchGetInstances", None));
    let hearsay = InstanceAnswer { authoritative: false, ..machine(S::Absent, None) };
    let broken = InstanceAnswer { error: failed(), ..machine(S::NotOwned, None) };
    let untimed = InstanceAnswer { observed_at: None, ..machine(S::NotOwned, None) };
    let rows = [
        (there(S::Running), Presence::Found),
        (there(S::Exists), Presence::Found),
        (there(S::Stopped), Presence::Found),
        (InstanceAnswer { error: failed(), ..machine(S::Pending, None) }, Presence::Found),
        (machine(S::Absent, None), Presence::Denied),
        (machine(S::NotOwned, None), Presence::Denied),
        (untimed, Presence::Denied),
        (hearsay, Presence::Unknown),
        (broken, Presence::Unknown),
        (there(S::Absent), Presence::Unknown),
        (machine(S::Unspecified, None), Presence::Unknown),
    ];
    for (answer, want) in rows {
        assert_eq!(presence(&answer), want, "{answer:?}");
    }
}

#[test]
fn who_gave_a_node_up_says_so_in_a_taint() {
    for key in
        ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"]
    {
        assert!(is_given_up(&unready().with_taint(key, "x", "NoSchedule")), "{key}");
    }
    assert!(!is_given_up(&unready().with_taint("dedicated", "x", "NoSchedule")));
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
