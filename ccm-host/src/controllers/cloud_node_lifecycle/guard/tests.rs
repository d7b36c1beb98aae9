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
    Evidence { uid: uid.to_owned(), age: GRACE, vouched: false }
}

fn vouched(uid: &str) -> Evidence {
    Evidence { vouched: true, ..absent(uid) }
}

fn young(uid: &str) -> Evidence {
    Evidence { age: GRACE - Duration::from_secs(1), ..absent(uid) }
}

fn found(total: usize, absent: impl IntoIterator<Item = Evidence>) -> Findings {
    Findings { total, absent: absent.into_iter().collect(), ..Findings::default() }
}

fn many(count: usize) -> Vec<Evidence> {
    (0..count).map(|index| absent(&format!("n{index}"))).collect()
}

/// A guard whose passes are a period apart.
struct Run {
    guard: Guard,
    now: Instant,
}

impl Run {
    fn new() -> Self {
        Self { guard: Guard::new(rules()), now: Instant::now() }
    }

    fn pass(&mut self, findings: &Findings) -> Ruling {
        self.now += PERIOD;
        self.guard.rule(self.now, findings)
    }

    /// Sorted names of what may go, and of what is held back.
    fn words(&mut self, findings: &Findings) -> String {
        let Ruling { delete, held_back, turned } = self.pass(findings);
        let sorted = |set: HashSet<String>| {
            let mut list: Vec<_> = set.into_iter().collect();
            list.sort();
            list.join(" ")
        };
        let turned = turned.map_or(String::new(), |turn| format!(" {turn:?}"));
        format!("{}|{}{turned}", sorted(delete), sorted(held_back))
    }
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
fn answers_too_close_together_count_once() {
    let (mut guard, start) = (Guard::new(rules()), Instant::now());
    let findings = found(100, [absent("a")]);
    for second in [0, 1, 2, 4] {
        assert_eq!(guard.rule(start + Duration::from_secs(second), &findings), Ruling::default(), "{second}");
    }
    assert_eq!(guard.rule(start + PERIOD, &findings).delete.len(), 1);
}

#[test]
fn a_young_node_stays() {
    let mut run = Run::new();
    for _ in 0..10 {
        assert_eq!(
            run.words(&found(100, [young("a"), vouched("b")].map(|e| Evidence { age: young("").age, ..e }))),
            "|"
        );
    }
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

#[test]
fn as_many_as_the_share_may_go_but_always_one() {
    for (total, allowed) in [(1, 1), (2, 1), (19, 1), (20, 1), (39, 1), (40, 2), (100, 5), (2000, 100)] {
        let mut run = Run::new();
        run.pass(&found(total, many(allowed)));
        let ruling = run.pass(&found(total, many(allowed)));
        assert_eq!((ruling.delete.len(), run.guard.is_latched()), (allowed, false), "{allowed} of {total}");
        let mut run = Run::new();
        run.pass(&found(total, many(allowed + 1)));
        let ruling = run.pass(&found(total, many(allowed + 1)));
        assert_eq!(ruling.delete.len(), 0, "{} of {total}", allowed + 1);
        assert_eq!((ruling.held_back.len(), ruling.turned), (allowed + 1, Some(Turn::Latched)));
    }
}

#[test]
fn the_share_counts_over_the_window() {
    let mut run = Run::new();
    run.pass(&found(100, many(3)));
    assert_eq!(run.pass(&found(100, many(3))).delete.len(), 3);
    let late = || [absent("x"), absent("y"), absent("z")];
    run.pass(&found(97, late()));
    let ruling = run.pass(&found(97, late()));
    assert_eq!(
        (ruling.delete.len(), ruling.held_back.len()),
        (0, 3),
        "three and three are more than five of a hundred"
    );
    run.now += WINDOW;
    assert_eq!(
        run.words(&found(97, late())),
        "| Released",
        "the first three are forgotten, and there is room again"
    );
    assert_eq!(run.words(&found(97, late())), "|", "confirmed anew");
    assert_eq!(run.words(&found(97, late())), "x y z|");
}

#[test]
fn latched_it_stays_until_the_answers_recover() {
    let mut run = Run::new();
    run.pass(&found(100, many(6)));
    assert_eq!(run.pass(&found(100, many(6))).turned, Some(Turn::Latched));
    for _ in 0..500 {
        let ruling = run.pass(&found(100, many(6)));
        assert_eq!(
            (ruling.delete.len(), ruling.held_back.len(), ruling.turned),
            (0, 6, None),
            "no time heals it"
        );
    }
    let uncertain = Findings { uncertain: 6, ..found(100, []) };
    assert_eq!(run.pass(&uncertain).turned, None, "not knowing is no recovery");
    let mixed = Findings { uncertain: 3, ..found(100, many(3)) };
    assert_eq!(run.pass(&mixed).turned, None);
    assert_eq!(run.pass(&found(100, many(5))).turned, Some(Turn::Released), "no more than might go");
    assert!(!run.guard.is_latched());
    run.pass(&found(100, many(5)));
    assert_eq!(run.pass(&found(100, many(5))).delete.len(), 5);
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
    let mut run = Run::new();
    let before = Findings { held_back_before: true, ..found(100, many(6)) };
    assert_eq!(run.pass(&before).turned, Some(Turn::Latched), "the nodes still show it");
    let mut run = Run::new();
    let recovered = Findings { held_back_before: true, ..found(100, many(1)) };
    assert_eq!(run.pass(&recovered).turned, Some(Turn::Released));
    assert_eq!(run.pass(&recovered).turned, None, "only the first pass asks");
    assert!(!run.guard.is_latched());
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
