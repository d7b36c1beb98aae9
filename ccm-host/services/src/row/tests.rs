use super::*;
use crate::slots::Rank;
use ccm_kube::fixtures::service;

fn row() -> Row {
    Row::new(at("web"), service("web").key, Known::Unsure)
}

fn at(name: &str) -> RowKey {
    RowKey::new(&format!("{name}-uid"), "cloud")
}

fn add(rows: &Rows, name: &str) {
    rows.change(&at(name), &service(name).key, |_| {});
}

#[test]
fn a_revision_grows_only_with_the_wanted_state() {
    let mut row = row();
    assert_eq!(row.revision(Some("a"), 1_000), 1_000, "starts at the clock");
    assert_eq!(row.revision(Some("a"), 2_000), 1_000, "the same call again");
    assert_eq!(row.revision(Some("b"), 2_000), 2_000);
    assert_eq!(row.revision(Some("a"), 1_500), 2_001, "grows though the clock went back");
    assert_eq!(row.revision(None, 3_000), 3_000, "to be gone is a state");
    assert_eq!(row.revision(None, 4_000), 3_000);
}

#[test]
fn a_stale_revision_is_replaced_by_a_new_one() {
    let mut row = row();
    row.revision(Some("a"), 1_000);
    row.is_stale();
    assert_eq!(row.revision(Some("a"), 500), 1_001_001);
    assert_eq!(row.revision(Some("a"), 2_000), 1_001_001);
    // The newer one was made by a clock that was two hours ahead.
    let newer = 2 * 3600 * 1_000_000;
    let tries = (1..).find(|_| {
        row.is_stale();
        row.revision(Some("a"), 3_000) > newer
    });
    assert!(tries.is_some_and(|tries| tries <= 14), "{tries:?}");
}

/// F3: nodes that come and go do not send a Service to the end of the line.
#[test]
fn other_nodes_make_no_other_attempt() {
    let attempt = |end| {
        let at = Instant::now();
        Attempt { digest: "c-s-b".to_owned(), of_backends: false, end, at, since: at, until: Some(at) }
    };
    let rank = |end, digest| crate::run::rank(Some(&attempt(end)), digest);
    assert_eq!(rank(End::InProgress, "c-s-b2"), Rank::Poll);
    assert_eq!(rank(End::Failed, "c-s-b2"), Rank::Retry);
    assert_eq!(rank(End::Failed, "c-s2-b"), Rank::First, "an edit");
}

/// The cases that upstream tests its service cache for.
#[test]
fn rows_are_made_listed_and_dropped() {
    let rows = Rows::default();
    assert!(rows.get(&at("a")).is_none(), "CACHE-1: nothing is known at first");
    add(&rows, "a");
    assert!(rows.get(&at("a")).is_some(), "CACHE-3, CACHE-5");
    add(&rows, "b");
    let mut keys: Vec<_> = rows.all().iter().map(|row| row.at.clone()).collect();
    keys.sort();
    assert_eq!(keys, [at("a"), at("b")], "CACHE-4");
    let mut seen = 0;
    rows.for_each(|_| seen += 1);
    assert_eq!(seen, 2, "CACHE-6");
    rows.remove(&at("a"));
    assert!(rows.of(&service("a").key).is_empty() && rows.all().len() == 1, "CACHE-2");
}

/// A recreated Service has a row beside that of the former one.
#[test]
fn a_name_has_the_rows_of_all_its_services() {
    let rows = Rows::default();
    add(&rows, "web");
    let former = RowKey::new("former-uid", "cloud");
    rows.change(&former, &service("web").key, |_| {});
    assert_eq!(rows.of(&service("web").key).len(), 2);
    rows.remove(&at("web"));
    assert_eq!(rows.of(&service("web").key)[0].at, former);
}

/// SW-12: no two calls ever change one balancer.
#[test]
fn a_balancer_has_one_call_at_a_time() {
    let rows = Rows::default();
    add(&rows, "a");
    let busy = rows.begin(&at("a"), true);
    assert!(busy.is_some() && rows.begin(&at("a"), true).is_none());
    drop(busy);
    assert!(rows.begin(&at("a"), true).is_some());
}

/// F15: a list that began before a call ended knows less, also about a row that is gone since.
#[test]
fn a_list_from_before_changes_nothing() {
    let rows = Rows::default();
    let learn = |since| rows.learn(&at("a"), &service("a").key, since, Heard::Something, |_| {}).is_some();
    let before = rows.turn();
    assert!(learn(before), "nothing happened");
    let busy = rows.begin(&at("a"), true);
    assert!(!learn(rows.turn()), "a call is under way");
    drop(busy);
    assert!(!learn(before) && learn(rows.turn()));
    let before = rows.turn();
    rows.remove(&at("a"));
    assert!(!learn(before), "it was removed meanwhile");
    rows.listed("cloud");
    assert!(learn(before), "a later list has ended");
}

/// An update makes no balancer, so a list without one is believed beside it.
#[test]
fn only_a_call_that_may_make_a_balancer_outweighs_its_absence() {
    let rows = Rows::default();
    add(&rows, "a");
    let learn = |since, heard| rows.learn(&at("a"), &service("a").key, since, heard, |_| {}).is_some();
    for makes in [false, true] {
        let before = rows.turn();
        let busy = rows.begin(&at("a"), makes);
        assert!(!learn(rows.turn(), Heard::Something));
        assert_eq!(learn(rows.turn(), Heard::Absence), !makes, "it may make one: {makes}");
        drop(busy);
        assert!(!learn(before, Heard::Something));
        assert_eq!(learn(before, Heard::Absence), !makes, "it may have made one: {makes}");
        assert!(learn(rows.turn(), Heard::Absence));
    }
}

/// F6, F13: what an attempt without an answer did, only an answer can tell.
#[test]
fn a_list_settles_no_open_attempt() {
    let now = Instant::now();
    for (end, of_backends, want) in [
        (End::Failed, false, Doubt::default()),
        (End::InProgress, false, Doubt { service: true, backends: true, of_person: false }),
        (End::Unknown, false, Doubt { service: true, backends: true, of_person: false }),
        (End::Unknown, true, Doubt { service: false, backends: true, of_person: false }),
    ] {
        let mut row = row();
        row.is_applied(Goal::Wanted, "c-s-b".to_owned(), &Arc::new(service("web")));
        row.asked(&Arc::new(service("web")), if of_backends { "c-s-b2" } else { "c-s2-b2" }, of_backends);
        let attempt =
            Attempt { digest: "c-s2-b2".to_owned(), of_backends, end, at: now, since: now, until: Some(now) };
        row.failed(Goal::Wanted, attempt);
        assert!(!row.is_listed_as("c-s-b"));
        assert_eq!(row.applied().unwrap().doubt, want, "{end:?}");
        row.is_listed_as("c-s3-b3");
        assert_eq!(row.applied().unwrap().doubt, want, "{end:?}, another digest");
    }
}

#[test]
fn what_was_refused_gets_a_second_chance() {
    let now = Instant::now();
    for (until, want) in [(None, true), (Some(now), false)] {
        let mut row = row();
        let attempt = Attempt {
            digest: String::new(),
            of_backends: false,
            end: End::Failed,
            at: now,
            since: now,
            until,
        };
        row.failed(Goal::Wanted, attempt);
        assert_eq!((row.reconsider(), row.tried.wanted.is_none()), (want, want));
    }
}
