use fastrand::Rng;

use super::*;
use crate::balancers::names;

fn listener(random: &mut Rng, port: i32) -> Listener {
    let secure = random.bool();
    Listener {
        port,
        protocol: if secure { "SSL" } else { "TCP" }.to_owned(),
        node_port: 30_000 + port + random.i32(0..2),
        node_protocol: "TCP".to_owned(),
        certificate: if secure { format!("arn:{}", random.u8(0..2)) } else { String::new() },
    }
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn wish(random: &mut Rng) -> Wanted {
    let count = random.usize(1..=3);
    let ports = random.choose_multiple([80, 443, 53], count);
    Wanted {
        name: "a1".to_owned(),
        tags: texts(&[(names::OWNER_TAG, "us"), (names::SERVICE_TAG, &random.bool().to_string())]),
        listeners: ports.into_iter().map(|port| listener(random, port)).collect(),
        tls_policy: random.choice(["", "one", "two"]).unwrap().to_owned(),
        proxy: random.bool(),
        attributes: texts(&[("cross_zone.enabled", &random.bool().to_string())]),
        health: Health { interval: random.i32(5..7), ..Health::default() },
        ..Wanted::default()
    }
}

fn place(random: &mut Rng) -> Place {
    // Two subnets in each of three zones, of which a balancer has one.
    let zones = ["a", "b", "c"].map(|zone| [1, 2].map(|number| (format!("{zone}{number}"), zone.to_owned())));
    let count = random.usize(1..=3);
    let chosen = random.choose_multiple(zones.clone(), count);
    Place {
        subnets: chosen.into_iter().map(|two| random.choice(two).unwrap().0).collect(),
        zones: zones.into_iter().flatten().collect(),
        groups: vec![random.choice(["sg-1", "sg-2"]).unwrap().to_owned()],
    }
}

fn backends(random: &mut Rng) -> Backends {
    let from = random.usize(0..20);
    let ids = |count: usize| (from..from + count).map(|at| format!("i-{at:03}")).collect();
    Backends { all: ids(random.usize(0..30)), not_now: ids(random.usize(0..5)) }
}

type Wish = (Wanted, Place, Backends);

fn run((wanted, place, backends): &Wish, actual: &mut Option<Balancer>, most: usize) {
    for taken in 0.. {
        if taken == most {
            return;
        }
        let Some(step) = next(wanted, place, backends, actual.as_ref()) else { return };
        let before = actual.clone();
        after(actual, &step, wanted, "dns");
        judge(&step, wanted, before.as_ref(), actual.as_ref().unwrap(), place);
        assert!(taken < 100, "it does not end: {step:?}");
    }
}

/// What must hold at every moment.
fn judge(step: &Step, wanted: &Wanted, before: Option<&Balancer>, after: &Balancer, place: &Place) {
    let zones: BTreeSet<_> = after.subnets.iter().map(|subnet| &place.zones[subnet]).collect();
    assert_eq!(zones.len(), after.subnets.len(), "two subnets of a zone: {step:?}");
    let ports: BTreeSet<_> = after.listeners.iter().map(|open| open.is.port).collect();
    assert_eq!(ports.len(), after.listeners.len(), "two listeners of a port: {step:?}");
    for open in &after.listeners {
        let name = open.policies.first();
        assert!(name.is_none_or(|name| after.policies.contains(name)), "an unknown policy: {step:?}");
    }
    assert!(after.proxied.is_empty() || after.policies.contains(PROXY), "{step:?}");
    let Some(before) = before else { return };
    for open in &before.listeners {
        let stays = wanted.listeners.iter().any(|one| {
            (one.port, one.node_port, &one.protocol) == (open.is.port, open.is.node_port, &open.is.protocol)
        });
        assert!(!stays || ports.contains(&open.is.port), "a port was closed that could stay: {step:?}");
    }
}

/// Two wishes, one after the other, and a moment.
fn for_many(check: impl Fn([Wish; 2], usize)) {
    for seed in 0..500 {
        let random = &mut Rng::with_seed(seed);
        let two = [(); 2].map(|()| (wish(random), place(random), backends(random)));
        check(two, random.usize(0..20));
    }
}

/// From whatever was left of one wish, the next one comes true, and then nothing is left to do.
#[test]
fn whatever_aws_has_becomes_what_is_wanted() {
    for_many(|[first, second], stop| {
        let mut actual = None;
        run(&first, &mut actual, stop);
        run(&second, &mut actual, usize::MAX);
        let (wanted, place, backends) = &second;
        let mut actual = actual.unwrap();
        let mut is: Vec<_> = actual.listeners.iter().map(|open| open.is.clone()).collect();
        let mut listeners = wanted.listeners.clone();
        is.sort_by_key(|one| one.port);
        listeners.sort_by_key(|one| one.port);
        assert_eq!(is, listeners);
        let node_ports: BTreeSet<_> = listeners.iter().map(|one| one.node_port).collect();
        assert_eq!(actual.proxied, if wanted.proxy { node_ports } else { BTreeSet::new() });
        if !wanted.tls_policy.is_empty() {
            actual.listeners.retain(|open| !open.is.certificate.is_empty());
            assert!(actual.listeners.iter().all(|open| open.policies == [tls_policy(&wanted.tls_policy)]));
        }
        assert_eq!((&actual.subnets, &actual.groups), (&place.subnets, &place.groups));
        assert_eq!(
            (&actual.health, missing(&wanted.attributes, &actual.attributes)),
            (&wanted.health, Texts::new())
        );
        assert!(actual.instances.is_subset(&backends.all));
        assert!(backends.all.difference(&backends.not_now).all(|id| actual.instances.contains(id)));
    });
}

/// Whoever is killed after any step and begins anew ends where it would have ended.
#[test]
fn a_kill_after_any_step_changes_nothing_about_the_end() {
    for_many(|[first, second], stop| {
        let mut actual = None;
        run(&first, &mut actual, usize::MAX);
        let mut killed = actual.clone();
        run(&second, &mut actual, usize::MAX);
        run(&second, &mut killed, stop);
        run(&second, &mut killed, usize::MAX);
        assert_eq!(actual, killed);
    });
}

/// For the user's tags there may be no room.
#[test]
fn whose_a_balancer_is_is_told_first_and_other_tags_are_no_step() {
    let wanted = Wanted {
        tags: texts(&[(names::OWNER_TAG, "us"), (names::SERVICE_TAG, "shop/web"), ("team", "shop")]),
        listeners: vec![Listener { port: 80, node_port: 30_080, ..Listener::default() }],
        ..Wanted::default()
    };
    let place = Place { subnets: BTreeSet::new(), zones: BTreeMap::new(), groups: Vec::new() };
    let (backends, mut actual) = (Backends::default(), Some(Balancer::default()));
    let mut steps = Vec::new();
    while let Some(step) = next(&wanted, &place, &backends, actual.as_ref()) {
        after(&mut actual, &step, &wanted, "");
        steps.push(step);
    }
    let whose = texts(&[(names::OWNER_TAG, "us"), (names::SERVICE_TAG, "shop/web")]);
    assert_eq!(steps, [Step::Tag(whose), Step::CreateListeners(wanted.listeners.clone())]);
}
