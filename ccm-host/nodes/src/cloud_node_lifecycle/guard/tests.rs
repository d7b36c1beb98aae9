//! The guard by table, and over random histories of a cluster whose provider may lie.

use super::*;
use crate::cloud_node_lifecycle::witnesses::Counts;
use ccm_base::label::ZONE;
use ccm_kube::fixtures::node;

mod histories;

const PERIOD: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(600);
const GRACE: Duration = Duration::from_secs(300);

fn rules() -> Rules {
    Rules { grace: GRACE, confirmations: 2, spacing: PERIOD, max_share: 0.05, window: WINDOW }
}

fn absent_in(zone: &str, uid: &str) -> Evidence {
    let node = Arc::new(node(uid).uid(uid).with_label(ZONE[0], zone));
    let observed_at = Timestamp::UNIX_EPOCH;
    Evidence { node, age: GRACE, vouched: false, given_up: false, observed_at }
}

fn absent(uid: &str) -> Evidence {
    absent_in("a", uid)
}

fn vouched(uid: &str) -> Evidence {
    Evidence { vouched: true, ..absent(uid) }
}

fn young(uid: &str) -> Evidence {
    Evidence { age: GRACE - Duration::from_secs(1), ..absent(uid) }
}

fn dark(uid: &str) -> Evidence {
    absent_in("dark", uid)
}

/// The findings of a pass.
#[derive(Clone, Default)]
struct Findings {
    total: usize,
    absent: Vec<Evidence>,
    control: Control,
}

/// Findings without Ready nodes.
fn found(total: usize, absent: impl IntoIterator<Item = Evidence>) -> Findings {
    Findings { total, absent: absent.into_iter().collect(), ..Findings::default() }
}

fn many(count: usize) -> Vec<Evidence> {
    (0..count).map(|index| absent(&format!("n{index:03}"))).collect()
}

fn counts<const N: usize>(of: [(&str, usize); N]) -> Counts {
    of.into_iter().map(|(zone, nodes)| (zone.to_owned(), nodes)).collect()
}

/// There are Ready nodes, and nine of zone a were found.
fn borne_out() -> Control {
    let settle = Duration::from_secs(40);
    Control { ready: 9, asked: true, found: counts([("a", 9)]), settle, ..Control::default() }
}

fn with(control: Control, findings: Findings) -> Findings {
    Findings { control, ..findings }
}

/// A guard with passes one period apart, each of one check.
struct Run {
    guard: Guard,
    now: Instant,
    seen: Timestamp,
}

impl Run {
    fn new() -> Self {
        Self { guard: Guard::new(rules()), now: Instant::now(), seen: Timestamp::UNIX_EPOCH }
    }

    fn pass(&mut self, findings: &Findings) -> Ruling {
        self.now += PERIOD;
        self.seen += PERIOD;
        let seen = |evidence: &Evidence| Evidence { observed_at: self.seen, ..evidence.clone() };
        let absent: Vec<_> = findings.absent.iter().map(seen).collect();
        self.guard.confirm(self.now, &absent);
        self.rule(self.now, findings)
    }

    fn rule(&mut self, now: Instant, findings: &Findings) -> Ruling {
        self.guard.rule(now, findings.total, &findings.absent, &findings.control)
    }

    /// Runs two passes with the same findings; returns the second ruling.
    fn passes(&mut self, findings: &Findings) -> Ruling {
        self.pass(findings);
        self.pass(findings)
    }

    /// Sorted names of nodes to delete, and of those held back.
    fn words(&mut self, findings: &Findings) -> String {
        let ruling = self.pass(findings);
        let mut held: Vec<_> = ruling.held_back.keys().map(String::as_str).collect();
        held.sort_unstable();
        format!("{}|{}", deleted(&ruling).join(" "), held.join(" "))
    }
}

fn deleted(ruling: &Ruling) -> Vec<&str> {
    let mut uids: Vec<_> = ruling.delete.iter().map(|node| node.uid.as_str()).collect();
    uids.sort_unstable();
    uids
}

fn held_by(ruling: &Ruling, rule: Rule) -> usize {
    ruling.held_back.values().filter(|held| **held == rule).count()
}

#[test]
fn a_node_goes_after_agreeing_answers_in_a_row() {
    let mut run = Run::new();
    assert_eq!(run.words(&found(100, [absent("a")])), "|", "NW-5: one answer deletes nothing");
    assert_eq!(run.words(&found(100, [absent("a")])), "a|");
    assert_eq!(run.words(&found(100, [absent("a")])), "a|", "again, for as long as it is not gone");
    let mut run = Run::new();
    run.pass(&found(100, [absent("a")]));
    run.pass(&found(100, []));
    assert_eq!(run.words(&found(100, [absent("a")])), "|", "it was there in between: from the beginning");
    assert_eq!(run.words(&found(100, [absent("a")])), "a|");
}

#[test]
fn answers_confirm_each_other_only_apart() {
    let mut run = Run::new();
    run.pass(&found(100, [absent("a")]));
    let too_soon = run.now + PERIOD - Duration::from_millis(1);
    let later = Evidence { observed_at: run.seen + PERIOD, ..absent("a") };
    run.guard.confirm(too_soon, std::slice::from_ref(&later));
    assert_eq!(run.rule(too_soon, &found(100, [later])).delete.len(), 0);
    let old = Evidence { observed_at: run.seen, ..absent("a") };
    run.guard.confirm(run.now + PERIOD, std::slice::from_ref(&old));
    assert!(run.guard.wants_another_look(true), "the same observation twice confirms nothing");
    assert_eq!(run.words(&found(100, [absent("a")])), "a|");
}

/// LIFE-33.
#[test]
fn a_young_node_is_no_suspect() {
    let mut run = Run::new();
    run.pass(&found(100, [young("a")]));
    assert_eq!(run.guard.first_denied("a"), None);
    assert_eq!(run.words(&found(100, [absent("a")])), "|", "answers before its time do not count");
    assert_eq!(run.words(&found(100, [absent("a")])), "a|");
}

#[test]
fn a_provider_that_was_unwell_is_believed_from_the_beginning() {
    let mut run = Run::new();
    run.pass(&found(100, [absent("a")]));
    run.guard.distrust();
    assert_eq!(run.words(&found(100, [absent("a")])), "|");
    assert_eq!(run.words(&found(100, [absent("a")])), "a|");
}

/// N1, E1.
#[test]
fn with_a_control_group_nodes_go_at_a_pace() {
    for (total, gone, a_minute) in [(30, 5, 5), (100, 10, 10), (30, 25, 10), (300, 100, 30)] {
        let mut run = Run::new();
        let findings = with(borne_out(), found(total, many(gone)));
        let ruling = run.passes(&findings);
        assert_eq!(ruling.delete.len(), a_minute, "{gone} of {total}");
        assert_eq!(held_by(&ruling, Rule::Pace), gone - a_minute, "{gone} of {total}");
        assert_eq!(deleted(&run.pass(&findings)), deleted(&ruling), "a retry takes no second place");
        run.now += Duration::from_secs(60);
        let went = deleted(&ruling);
        let rest =
            findings.absent.iter().filter(|evidence| !went.contains(&evidence.node.uid.as_str())).cloned();
        let findings = with(borne_out(), found(total - a_minute, rest));
        assert_eq!(run.pass(&findings).delete.len(), a_minute.min(gone - a_minute), "the next minute");
    }
}

/// E1.
#[test]
fn who_was_given_up_takes_no_place() {
    let mut run = Run::new();
    let doomed = |evidence| Evidence { given_up: true, ..evidence };
    let absent = many(40).into_iter().map(doomed).chain(["x", "y"].map(absent));
    assert_eq!(run.passes(&with(borne_out(), found(100, absent))).delete.len(), 42);
    assert_eq!((run.guard.grants().pace.len(), run.guard.grants().share.len()), (2, 0));
}

/// E1.
#[test]
fn a_zone_without_a_found_node_has_the_share() {
    let mut run = Run::new();
    let absent = || ["a", "b"].map(absent).into_iter().chain(["u", "v", "w"].map(dark));
    let ruling = run.passes(&with(borne_out(), found(40, absent())));
    assert_eq!((ruling.delete.len(), held_by(&ruling, Rule::ZoneShare)), (4, 1));
    run.now += WINDOW;
    assert_eq!(
        run.words(&with(borne_out(), found(36, [dark("w")]))),
        "w|",
        "the next window, without a person"
    );
}

/// E1, N9, R7.
#[test]
fn denied_nodes_with_living_kubelets_hold_back_their_zone_or_everybody() {
    let both = [("a", 10), ("dark", 10)];
    let rows = [
        ("one of many may have a stale provider ID", counts(both), counts([("a", 1)]), "x y|"),
        ("and so may one in each zone", counts(both), counts([("a", 1), ("dark", 1)]), "x y|"),
        ("two of a zone are too many", counts([("a", 10), ("dark", 30)]), counts([("a", 2)]), "y|x"),
        ("more than a tenth of all", counts(both), counts([("a", 3)]), "|x y"),
        ("more than a tenth, none in this zone", counts([("a", 29), ("b", 0)]), counts([("b", 3)]), "|x y"),
        ("one, and few are found in its zone", counts([("a", 2), ("dark", 10)]), counts([("a", 1)]), "y|x"),
        ("one, and few are found at all", counts([("a", 1), ("dark", 1)]), counts([("b", 1)]), "|x y"),
    ];
    for (what, found_nodes, alive, want) in rows {
        let mut run = Run::new();
        let control = Control { found: found_nodes, alive, ..borne_out() };
        let findings = with(control, found(100, [absent("x"), dark("y")]));
        run.pass(&findings);
        assert_eq!(run.words(&findings), want, "{what}");
    }
}

#[test]
fn a_contradiction_holds_until_two_passes_are_clean() {
    let mut run = Run::new();
    let liar = || Control { alive: counts([("a", 2)]), ..borne_out() };
    let lying = with(liar(), found(100, [absent("a"), vouched("b")]));
    run.pass(&lying);
    assert_eq!(run.words(&lying), "b|a", "but whom a person vouches for");
    let clean = with(borne_out(), found(100, [absent("a")]));
    assert_eq!(run.words(&clean), "|a");
    assert_eq!(run.words(&lying), "|a", "from the beginning");
    assert_eq!(run.words(&clean), "|a");
    let nobody_asked = Control { ready: 9, ..Control::default() };
    for _ in 0..10 {
        assert!(run.pass(&with(nobody_asked.clone(), found(100, [absent("a")]))).delete.is_empty());
        assert!(run.guard.is_contradicted(), "a pass that asks about no Ready node proves nothing");
    }
    assert_eq!(run.words(&clean), "a|");
    assert!(!run.guard.is_contradicted());
}

/// What one check of a pass found counts, whatever the next one finds.
#[test]
fn contradictions_add_up_over_the_checks_of_a_pass() {
    let first = Control { alive: counts([("a", 2), ("b", 1)]), unsettled: counts([("a", 4)]), ..borne_out() };
    let second = Control { found: counts([("a", 1)]), alive: counts([("b", 3)]), ..borne_out() };
    let mut both = Control { ready: 9, ..Control::default() };
    both.then(first);
    both.then(second);
    both.then(Control::default());
    let want = Control { found: counts([("a", 1)]), alive: counts([("a", 2), ("b", 3)]), ..borne_out() };
    assert_eq!(both, want);
}

#[test]
fn who_finds_no_ready_node_is_not_believed() {
    let mut run = Run::new();
    let blind = with(Control { ready: 9, asked: true, ..Control::default() }, found(100, [absent("a")]));
    for _ in 0..200 {
        assert_eq!(run.pass(&blind).delete.len(), 0);
    }
    assert_eq!(held_by(&run.pass(&blind), Rule::NoneFound), 1);
    assert_eq!(run.words(&with(borne_out(), found(100, [absent("a")]))), "a|");
}

#[test]
fn leases_of_denied_nodes_are_waited_for_and_not_for_ever() {
    for seconds in [40, 120] {
        let mut run = Run::new();
        let settle = Duration::from_secs(seconds);
        let open = Control { unsettled: counts([("a", 2)]), settle, ..borne_out() };
        let open = with(open, found(100, [absent("a")]));
        run.pass(&open);
        for _ in 1..seconds / 5 {
            assert_eq!(held_by(&run.pass(&open), Rule::Unsettled), 1, "Leases of {seconds} s");
        }
        assert_eq!(run.words(&open), "a|", "in a cluster that is renewed there may always be one");
    }
}

/// Another lie may follow the one that was found out, and its Leases have yet to tell.
#[test]
fn after_a_contradiction_leases_are_waited_for_anew() {
    let mut run = Run::new();
    let lying = Control { alive: counts([("a", 2)]), ..borne_out() };
    for _ in 0..100 {
        run.pass(&with(lying.clone(), found(100, [absent("a")])));
    }
    let open = Control { unsettled: counts([("a", 2)]), ..borne_out() };
    for _ in 0..8 {
        assert_eq!(run.words(&with(open.clone(), found(100, [absent("a")]))), "|a");
    }
    assert_eq!(run.words(&with(open, found(100, [absent("a")]))), "a|");
}

#[test]
fn who_was_found_alive_stands_back() {
    let mut run = Run::new();
    let findings = with(borne_out(), found(20, many(11)));
    let first = run.passes(&findings).delete;
    first.iter().for_each(|node| run.guard.revoke(&node.uid, Some(run.now)));
    assert_eq!(*run.guard.grants(), Grants::default());
    assert!(deleted(&run.pass(&findings)).contains(&"n010"), "the one that had no place");
}

/// D13, R7: where no Ready node is left to confirm anything.
#[test]
fn without_ready_nodes_the_share_may_go_window_after_window() {
    for (total, share) in [(1, 1), (2, 1), (19, 1), (20, 1), (39, 1), (40, 2), (100, 5), (2000, 100)] {
        let mut run = Run::new();
        let gone = many(share * 2);
        let ruling = run.passes(&found(total, gone.clone()));
        assert_eq!((ruling.delete.len(), held_by(&ruling, Rule::Share)), (share, share), "of {total}");
        let first = deleted(&ruling).into_iter().map(str::to_owned).collect::<HashSet<_>>();
        run.now += WINDOW;
        let rest = gone.into_iter().filter(|evidence| !first.contains(&evidence.node.uid));
        let ruling = run.pass(&found(total, rest));
        assert_eq!((ruling.delete.len(), ruling.held_back.len()), (share, 0), "of {total}, the next window");
    }
}

#[test]
fn the_share_counts_over_the_window() {
    let mut run = Run::new();
    assert_eq!(run.passes(&found(100, many(3))).delete.len(), 3);
    let late = || ["x", "y", "z"].map(absent);
    run.pass(&found(97, late()));
    assert_eq!(run.words(&found(97, late())), "x y|z", "three and two are five");
    run.now += WINDOW;
    assert_eq!(run.words(&found(97, late())), "x y z|", "the first are forgotten");
}

/// The share is one of the most nodes within the window.
#[test]
fn a_cluster_that_shrinks_keeps_its_share() {
    let mut run = Run::new();
    run.pass(&found(100, []));
    assert_eq!(run.passes(&found(20, many(9))).delete.len(), 5);
    run.now += WINDOW;
    assert_eq!(run.pass(&found(20, many(9))).delete.len(), 1);
}

#[test]
fn a_person_may_vouch_for_single_nodes() {
    let mut run = Run::new();
    run.pass(&found(3, ["a", "b", "c"].map(absent)));
    assert_eq!(run.words(&found(3, ["a", "b", "c"].map(absent))), "a|b c");
    assert_eq!(run.words(&found(2, [vouched("b"), absent("c")])), "b|c");
    let mut run = Run::new();
    assert_eq!(run.words(&found(3, [vouched("a")])), "|", "it still has to be confirmed");
}

/// A new process knows neither the provider nor Leases: it is as careful as with a new suspect.
#[test]
fn a_new_process_waits_for_leases() {
    let mut run = Run::new();
    let open = Control { unsettled: counts([("a", 2)]), ..borne_out() };
    assert_eq!(held_by(&run.passes(&with(open, found(100, many(1)))), Rule::Unsettled), 1);
    let lying = Control { alive: counts([("a", 2)]), ..borne_out() };
    assert_eq!(held_by(&run.pass(&with(lying, found(100, many(1)))), Rule::Contradiction), 1);
}

#[test]
fn a_deletion_that_failed_takes_no_second_place() {
    let mut run = Run::new();
    run.pass(&found(20, [absent("a")]));
    for _ in 0..5 {
        assert_eq!(run.words(&found(20, [absent("a")])), "a|");
    }
    run.pass(&found(20, [absent("a"), absent("b")]));
    assert_eq!(run.words(&found(20, [absent("a"), absent("b")])), "a|b", "but a second node does");
}
