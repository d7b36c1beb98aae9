use super::*;
use ccm_kube::fixtures::service;
use ccm_reconcile::Rank;

fn row() -> Row {
    Row::new(RowKey::new("web-uid", "cloud"), service("web").key, Known::Unsure)
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
        assert_eq!((row.reconsider(), row.tried.is_empty()), (want, want));
    }
}
