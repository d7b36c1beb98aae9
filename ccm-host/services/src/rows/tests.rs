use super::*;
use ccm_kube::fixtures::service;

fn at(name: &str) -> RowKey {
    RowKey::new(&format!("{name}-uid"), "cloud")
}

fn add(rows: &Rows, name: &str) {
    rows.change(&at(name), &service(name).key, |_| {});
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
    rows.remove(&at("a"));
    add(&rows, "a");
    assert!(rows.begin(&at("a"), true).is_none(), "nor in a row made anew");
    drop(busy);
    assert!(rows.begin(&at("a"), true).is_some());
}

/// F15: a list that began before a call ended knows less, also about a row that is gone since.
#[test]
fn a_list_from_before_changes_nothing() {
    let rows = Rows::default();
    let learn = |since| rows.learn(&at("a"), &service("a").key, since, false, |_| {}).is_some();
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
    let learn =
        |since, is_absence| rows.learn(&at("a"), &service("a").key, since, is_absence, |_| {}).is_some();
    for makes in [false, true] {
        let before = rows.turn();
        let busy = rows.begin(&at("a"), makes);
        assert!(!learn(rows.turn(), false));
        assert_eq!(learn(rows.turn(), true), !makes, "it may make one: {makes}");
        drop(busy);
        assert!(!learn(before, false));
        assert_eq!(learn(before, true), !makes, "it may have made one: {makes}");
        assert!(learn(rows.turn(), true));
    }
}
