//! The guard by table, and over random histories of a cluster whose provider may lie.

use super::*;

mod histories;

const PERIOD: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(600);
const GRACE: Duration = Duration::from_secs(300);

fn rules() -> Rules {
    Rules { grace: GRACE, confirmations: 2, spacing: PERIOD, max_share: 0.05, window: WINDOW }
}

fn absent(uid: &str) -> Evidence {
    Evidence {
        uid: uid.to_owned(),
        zone: "a".to_owned(),
        age: GRACE,
        vouched: false,
        given_up: false,
        observed_at: Timestamp::UNIX_EPOCH,
    }
}

fn vouched(uid: &str) -> Evidence {
    Evidence { vouched: true, ..absent(uid) }
}

fn young(uid: &str) -> Evidence {
    Evidence { age: GRACE - Duration::from_secs(1), ..absent(uid) }
}

fn dark(uid: &str) -> Evidence {
    Evidence { zone: "dark".to_owned(), ..absent(uid) }
}

/// Findings without Ready nodes.
fn found(total: usize, absent: impl IntoIterator<Item = Evidence>) -> Findings {
    Findings { total, absent: absent.into_iter().collect(), ..Findings::default() }
}

fn many(count: usize) -> Vec<Evidence> {
    (0..count).map(|index| absent(&format!("n{index:03}"))).collect()
}

/// There are Ready nodes, and one of zone a was found.
fn borne_out() -> Control {
    Control { ready: 9, found: ["a".to_owned()].into(), contradictions: 0, unsettled: 0 }
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
        self.guard.rule(self.now, findings)
    }

    /// Runs two passes with the same findings; returns the second ruling.
    fn passes(&mut self, findings: &Findings) -> Ruling {
        self.pass(findings);
        self.pass(findings)
    }

    /// Sorted names of nodes to delete, and of those held back.
    fn words(&mut self, findings: &Findings) -> String {
        let Ruling { delete, held_back, turns } = self.pass(findings);
        let mut delete: Vec<_> = delete.into_iter().collect();
        delete.sort();
        let mut held: Vec<_> = held_back.into_keys().collect();
        held.sort();
        let turns: String = turns.iter().map(|turn| format!(" {turn:?}")).collect();
        format!("{}|{}{turns}", delete.join(" "), held.join(" "))
    }
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
    assert_eq!(run.guard.rule(too_soon, &found(100, [later])).delete.len(), 0);
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
    assert!(!run.guard.is_suspect("a"));
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
fn with_a_control_group_nodes_go_at_a_pace_and_nothing_latches() {
    for (total, gone, a_minute) in [(30, 5, 5), (100, 10, 10), (30, 25, 10), (300, 100, 30)] {
        let mut run = Run::new();
        let findings = with(borne_out(), found(total, many(gone)));
        let ruling = run.passes(&findings);
        assert_eq!(ruling.delete.len(), a_minute, "{gone} of {total}");
        assert_eq!(held_by(&ruling, Rule::Pace), gone - a_minute, "{gone} of {total}");
        assert!(!run.guard.is_latched());
        assert_eq!(run.pass(&findings).delete, ruling.delete, "a retry takes no second place");
        run.now += Duration::from_secs(60);
        let rest = findings.absent.iter().filter(|evidence| !ruling.delete.contains(&evidence.uid)).cloned();
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
    assert_eq!(run.guard.grants().len(), 2);
}

/// E1.
#[test]
fn a_zone_without_a_found_node_has_the_share() {
    let mut run = Run::new();
    let absent = || ["a", "b"].map(absent).into_iter().chain(["u", "v", "w"].map(dark));
    let ruling = run.passes(&with(borne_out(), found(40, absent())));
    assert_eq!((ruling.delete.len(), held_by(&ruling, Rule::Share)), (4, 1));
    run.now += WINDOW;
    assert_eq!(
        run.words(&with(borne_out(), found(36, [dark("w")]))),
        "w|",
        "the next window, without a person"
    );
}

/// E1, N9.
#[test]
fn a_contradiction_holds_everybody_until_two_passes_are_clean() {
    let mut run = Run::new();
    let lying = with(Control { contradictions: 1, ..borne_out() }, found(100, [absent("a"), vouched("b")]));
    run.pass(&lying);
    assert_eq!(run.words(&lying), "b|a", "but whom a person vouches for");
    let clean = with(borne_out(), found(100, [absent("a")]));
    assert_eq!(run.words(&clean), "|a");
    assert_eq!(run.words(&lying), "|a", "from the beginning");
    assert_eq!(run.words(&clean), "|a");
    assert_eq!(run.words(&clean), "a| Settled");
}

#[test]
fn who_finds_no_ready_node_is_not_believed() {
    let mut run = Run::new();
    let blind = with(Control { ready: 9, ..Control::default() }, found(100, [absent("a")]));
    for _ in 0..200 {
        assert_eq!(run.pass(&blind).delete.len(), 0);
    }
    assert_eq!(held_by(&run.pass(&blind), Rule::NoneFound), 1);
    assert_eq!(run.words(&with(borne_out(), found(100, [absent("a")]))), "a|");
}

#[test]
fn leases_of_denied_nodes_are_waited_for_and_not_for_ever() {
    let mut run = Run::new();
    let open = with(Control { unsettled: 1, ..borne_out() }, found(100, [absent("a")]));
    run.pass(&open);
    for _ in 0..3 {
        assert_eq!(held_by(&run.pass(&open), Rule::Unsettled), 1);
    }
    assert_eq!(run.words(&open), "a|", "in a cluster that is renewed there may always be one");
}

#[test]
fn who_was_found_alive_stands_back() {
    let mut run = Run::new();
    let findings = with(borne_out(), found(20, many(11)));
    let first = run.passes(&findings).delete;
    first.iter().for_each(|uid| run.guard.found_alive(uid));
    assert!(run.guard.grants().is_empty());
    assert!(run.pass(&findings).delete.contains("n010"), "the one that had no place");
}

/// D13: the share and the latch, where no Ready node is left to confirm anything.
#[test]
fn without_ready_nodes_as_many_as_the_share_may_go_but_always_one() {
    for (total, allowed) in [(1, 1), (2, 1), (19, 1), (20, 1), (39, 1), (40, 2), (100, 5), (2000, 100)] {
        let mut run = Run::new();
        let ruling = run.passes(&found(total, many(allowed)));
        assert_eq!((ruling.delete.len(), run.guard.is_latched()), (allowed, false), "{allowed} of {total}");
        let mut run = Run::new();
        let ruling = run.passes(&found(total, many(allowed + 1)));
        assert_eq!(ruling.delete.len(), 0, "{} of {total}", allowed + 1);
        assert_eq!((held_by(&ruling, Rule::Latch), ruling.turns), (allowed + 1, vec![Turn::Latched]));
    }
}

#[test]
fn the_share_counts_over_the_window() {
    let mut run = Run::new();
    assert_eq!(run.passes(&found(100, many(3))).delete.len(), 3);
    let late = || [absent("x"), absent("y"), absent("z")];
    let ruling = run.passes(&found(97, late()));
    assert_eq!((ruling.delete.len(), ruling.held_back.len()), (0, 3), "three and three are more than five");
    run.now += WINDOW;
    assert_eq!(run.words(&found(97, late())), "| Released", "the first three are forgotten: there is room");
    assert_eq!(run.words(&found(97, late())), "|", "confirmed anew");
    assert_eq!(run.words(&found(97, late())), "x y z|");
}

#[test]
fn latched_it_stays_until_the_answers_recover() {
    let mut run = Run::new();
    assert_eq!(run.passes(&found(100, many(6))).turns, [Turn::Latched]);
    for _ in 0..500 {
        let ruling = run.pass(&found(100, many(6)));
        assert_eq!(
            (ruling.delete.len(), ruling.held_back.len(), ruling.turns),
            (0, 6, vec![]),
            "no time heals it"
        );
    }
    let uncertain = Findings { uncertain: 6, ..found(100, []) };
    assert_eq!(run.pass(&uncertain).turns, [], "not knowing is no recovery");
    let mixed = Findings { uncertain: 3, ..found(100, many(3)) };
    assert_eq!(run.pass(&mixed).turns, []);
    assert_eq!(run.pass(&found(100, many(5))).turns, [Turn::Released], "no more than might go");
    assert_eq!(run.passes(&found(100, many(5))).delete.len(), 5);
}

/// E1: only a control group without contradictions releases the latch.
#[test]
fn latched_it_stays_until_ready_nodes_bear_the_provider_out() {
    let mut run = Run::new();
    run.passes(&found(100, many(50)));
    let all = || found(100, many(50));
    let blind = Control { ready: 9, ..Control::default() };
    for control in [
        blind,
        Control { contradictions: 1, ..borne_out() },
        borne_out(),
        Control { unsettled: 1, ..borne_out() },
    ] {
        run.pass(&with(control, all()));
        assert!(run.guard.is_latched());
    }
    assert_eq!(run.pass(&with(borne_out(), all())).turns, [Turn::Released]);
    assert_eq!(run.passes(&with(borne_out(), all())).delete.len(), 10);
}

#[test]
fn a_person_may_vouch_for_single_nodes() {
    let mut run = Run::new();
    run.pass(&found(3, [absent("a"), absent("b")]));
    assert_eq!(run.words(&found(3, [absent("a"), absent("b")])), "|a b Latched");
    assert_eq!(run.words(&found(3, [vouched("a"), absent("b")])), "a|b");
    assert_eq!(run.words(&found(2, [absent("b")])), "| Released", "what is left is not too much");
    run.pass(&found(2, [absent("b")]));
    assert_eq!(run.words(&found(2, [absent("b")])), "b|", "what a person vouched for took no place");
    let mut run = Run::new();
    assert_eq!(run.words(&found(3, [vouched("a")])), "|", "it still has to be confirmed");
}

#[test]
fn a_new_process_is_no_less_careful() {
    let after = |rule: Rule, findings: Findings| Findings { held_before: [rule].into(), ..findings };
    let mut run = Run::new();
    let turns = run.pass(&after(Rule::Latch, found(100, many(6)))).turns;
    assert_eq!(turns, [Turn::Latched], "the nodes still show it");
    let mut run = Run::new();
    let recovered = after(Rule::Latch, found(100, many(1)));
    assert_eq!(run.pass(&recovered).turns, [Turn::Latched, Turn::Released]);
    assert_eq!(run.pass(&recovered).turns, [], "only the first pass asks");
    let mut run = Run::new();
    let contradicted = after(Rule::Contradiction, with(borne_out(), found(100, many(1))));
    assert_eq!(held_by(&run.passes(&contradicted), Rule::Contradiction), 0, "two clean passes");
    let mut run = Run::new();
    let paced = after(Rule::Pace, with(borne_out(), found(100, many(1))));
    assert_eq!(run.passes(&paced).delete.len(), 1);
}

#[test]
fn a_deletion_that_failed_takes_no_second_place() {
    let mut run = Run::new();
    run.pass(&found(20, [absent("a")]));
    for _ in 0..5 {
        assert_eq!(run.words(&found(20, [absent("a")])), "a|");
    }
    run.pass(&found(20, [absent("a"), absent("b")]));
    assert_eq!(run.words(&found(20, [absent("a"), absent("b")])), "|a b Latched", "but a second node does");
}
