use std::sync::Arc;

use super::*;
use crate::{
    record::CONDITION,
    row::{Applied, Orphan, RowKey},
    service::FINALIZER,
};
use ccm_cloud::fake::digest_for;
use ccm_kube::{Condition, fixtures::service};

fn lb() -> Service {
    service("web").load_balancer().with_port("", 80)
}

fn fin(service: Service) -> Service {
    service.with_finalizer(FINALIZER)
}

fn row(provider: &str, known: Known) -> Row {
    let mut row = Row::new(RowKey::new("web-uid", provider), service("web").key, known);
    row.last = Some(Arc::new(lb()));
    row
}

fn asked() -> Known {
    Known::Asked { made_as: Some(digest_for(None)) }
}

fn at(mut row: Row, ip: &str) -> Row {
    row.status.ingress = Some(vec![Ingress { ip: ip.to_owned(), ..Ingress::default() }]);
    row
}

fn served(provider: &str, ip: &str) -> Row {
    let applied =
        Applied { digest: digest_for(None), service: None, needs_ensure: false, doubt: Doubt::default() };
    at(row(provider, Known::Applied(applied)), ip)
}

fn asked_at(provider: &str) -> Row {
    let mut row = row(provider, asked());
    row.is_proven = true;
    row
}

fn published() -> Service {
    fin(lb()).with_ingress_ip("192.0.2.1")
}

fn recorded(provider: &str) -> Service {
    let record = Record::of_row(&row(provider, asked()), false).unwrap();
    let message = record.condition("web-uid").message.into_owned();
    let mut service = fin(lb());
    service.conditions = vec![Condition { type_: CONDITION.to_owned(), message, ..Condition::default() }];
    service
}

fn ours() -> Owner {
    Owner::Ours("cloud".to_owned())
}

const REMOVE: fn(Why) -> Fate = Fate::Remove;

fn setting<'a>(service: Option<&'a Service>, owner: &'a Owner) -> Setting<'a> {
    Setting { service, owner, own: &[], owner_answers: true, delete_orphans: false }
}

#[test]
fn a_balancer_stays_where_it_is_wanted_and_nowhere_else() {
    let known = || row("cloud", asked());
    let rows = [
        ("SW-18", known(), Some(fin(lb())), ours(), Fate::Keep),
        ("SVC-6", known(), Some(fin(service("web"))), ours(), REMOVE(Why::Unwanted)),
        ("SVC-7", known(), Some(fin(lb()).deleting()), ours(), REMOVE(Why::Unwanted)),
        // SW-1: even if the balancer is reported absent, its deletion is requested.
        ("SVC-20", row("cloud", Known::Absent), Some(fin(lb()).deleting()), ours(), REMOVE(Why::Unwanted)),
        ("type changed, finalizer torn off", known(), Some(service("web")), ours(), REMOVE(Why::Unwanted)),
        ("removed already", row("cloud", Known::Removed), Some(fin(lb()).deleting()), ours(), Fate::Keep),
        ("not known whose", known(), Some(fin(lb())), Owner::Undecided(String::new()), Fate::Keep),
        ("SVC-18", known(), Some(lb().uid("new")), ours(), REMOVE(Why::Former)),
        ("SVC-18", row("cloud", Known::Absent), Some(lb().uid("new")), ours(), Fate::Drop),
        ("SVC-17", known(), None, Owner::Others, REMOVE(Why::Vanished)),
        ("SVC-14", row("cloud", Known::Absent), None, Owner::Others, Fate::Drop),
        ("SVC-15", row("cloud", Known::Unsure), None, Owner::Others, Fate::Drop),
        ("asked for at a former provider", asked_at("other"), Some(fin(lb())), ours(), REMOVE(Why::Moved)),
        ("published", at(row("other", asked()), "192.0.2.1"), Some(published()), ours(), REMOVE(Why::Moved)),
        ("recorded", row("other", asked()), Some(recorded("other")), ours(), REMOVE(Why::Moved)),
        ("recorded of its owner", row("other", asked()), Some(recorded("cloud")), ours(), Fate::Keep),
        // F20: a provider that does not own the Service claims a balancer of it.
        ("only listed", at(row("other", asked()), "192.0.2.2"), Some(published()), ours(), Fate::Keep),
        (
            "at a former provider, being deleted",
            row("other", asked()),
            Some(fin(lb()).deleting()),
            ours(),
            REMOVE(Why::Unwanted),
        ),
        ("never was at that provider", row("other", Known::Absent), Some(fin(lb())), ours(), Fate::Drop),
    ];
    for (id, row, service, owner, want) in rows {
        assert_eq!(fate(&row, &setting(service.as_ref(), &owner)), want, "{id}");
    }
    // Differs on purpose: upstream forgets a balancer whose cleanup had been failing.
    let mut failing = row("cloud", Known::Unsure);
    failing.last = Some(Arc::new(fin(service("web"))));
    assert_eq!(fate(&failing, &setting(None, &Owner::Others)), REMOVE(Why::Vanished), "SVC-36");
}

/// SW-3, SW-4.
#[test]
fn what_others_own_goes_only_if_it_is_certainly_ours() {
    let class = || lb().with_class("other/lb");
    let rows = [
        ("SVC-31", row("cloud", Known::Asked { made_as: None }), class(), Fate::Keep),
        ("SW-3", row("cloud", asked()), fin(class()), REMOVE(Why::Handover)),
        ("provider gave up the class", row("cloud", asked()), fin(lb()), Fate::Keep),
        ("SVC-32", row("cloud", asked()), fin(lb()).deleting(), REMOVE(Why::Handover)),
        ("SVC-32", row("cloud", asked()), lb().deleting(), Fate::Keep),
    ];
    for (id, row, service, want) in rows {
        assert_eq!(fate(&row, &setting(Some(&service), &Owner::Others)), want, "{id}");
    }
}

/// S1, F1: what is published is never removed as left behind.
#[test]
fn of_two_balancers_the_one_that_serves_stays() {
    let named = || lb().with_annotation(PROVIDER_ANNOTATION, "cloud");
    let publishes = |service: Service, ip: &str| service.with_ingress_ip(ip);
    let (one, two) = ("192.0.2.1", "192.0.2.2");
    let rows = [
        (
            "left behind",
            served("other", two),
            served("cloud", one),
            publishes(lb(), one),
            REMOVE(Why::LeftBehind),
        ),
        ("published", served("other", two), served("cloud", one), publishes(lb(), two), Fate::Keep),
        (
            "the same, seen twice",
            served("other", one),
            served("cloud", one),
            publishes(lb(), one),
            Fate::Keep,
        ),
        (
            "no address is known",
            row("other", asked()),
            served("cloud", one),
            publishes(lb(), one),
            Fate::Keep,
        ),
        (
            "the other is not done",
            served("other", two),
            at(row("cloud", asked()), one),
            publishes(lb(), one),
            Fate::Keep,
        ),
        (
            "moved",
            served("other", two),
            at(row("cloud", asked()), one),
            publishes(named(), two),
            REMOVE(Why::Moved),
        ),
    ];
    for (id, row, at_owner, service, want) in rows {
        let (owner, own) = (ours(), [Arc::new(at_owner)]);
        let setting = Setting { own: &own, ..setting(Some(&service), &owner) };
        assert_eq!(fate(&row, &setting), want, "{id}");
    }
}

#[test]
fn an_orphan_goes_only_if_two_sweeps_found_it_and_it_was_asked_for() {
    let found = |sightings| {
        let mut row = row("cloud", asked());
        row.last = None;
        row.orphan = Some(Orphan { id: "lb-1".to_owned(), sightings });
        row
    };
    let other = lb().uid("new");
    for (sightings, asked_for, want) in
        [(1, true, Fate::Keep), (2, true, REMOVE(Why::Orphaned)), (2, false, Fate::Keep)]
    {
        for service in [None, Some(&other)] {
            let owner = ours();
            let setting = Setting { delete_orphans: asked_for, ..setting(service, &owner) };
            assert_eq!(fate(&found(sightings), &setting), want, "{sightings} {asked_for}");
        }
    }
}

/// What only a list says holds up no deletion, whatever address it shows; what certainly was there does.
#[test]
fn a_deletion_waits_for_what_the_service_certainly_had() {
    let (going, staying, owner) = (published().deleting(), published(), ours());
    let claim = || at(row("other", asked()), "192.0.2.1");
    for (id, row, had_elsewhere, want) in [
        ("claimed, and had elsewhere", claim(), true, Why::LeftBehind),
        ("nowhere else", claim(), false, Why::Unwanted),
        ("asked for here, too", asked_at("other"), true, Why::Unwanted),
    ] {
        let own = if had_elsewhere { vec![Arc::new(asked_at("cloud"))] } else { Vec::new() };
        let setting = Setting { own: &own, ..setting(Some(&going), &owner) };
        assert_eq!(fate(&row, &setting), REMOVE(want), "{id}");
    }
    for (owner_answers, want) in [(true, REMOVE(Why::Moved)), (false, Fate::Keep)] {
        let setting = Setting { owner_answers, ..setting(Some(&staying), &owner) };
        assert_eq!(fate(&claim(), &setting), want, "its new provider answers: {owner_answers}");
    }
}
