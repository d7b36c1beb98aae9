use fastrand::Rng;

use super::*;
use crate::balancers::names;
use crate::balancers::network::wanted::SecurityGroups;

fn health(interval: i32, healthy: i32) -> Health {
    let (port, path) = ("traffic-port".to_owned(), String::new());
    Health { protocol: ProtocolEnum::Tcp, port, path, interval, healthy, unhealthy: healthy }
}

fn listeners(random: &mut Rng) -> Vec<Listener> {
    let protocol = random.choice([ProtocolEnum::Tcp, ProtocolEnum::Udp, ProtocolEnum::TcpUdp]).unwrap();
    let (node_port, tls) = (random.i32(0..2), random.bool());
    let (interval, healthy) = (if random.bool() { 10 } else { 30 }, random.i32(2..4));
    let listener = |port: i32| {
        let tls = tls.then(|| Tls { certificate: "arn:c".to_owned(), policy: String::new() });
        let is = TargetGroup {
            name: format!("g-{port}-{node_port}-{protocol:?}-{interval}"),
            port: 30_000 + port + node_port,
            protocol: protocol.clone(),
            health: health(interval, healthy),
        };
        Listener { port, protocol: protocol.clone(), tls, group: is }
    };
    let count = random.usize(1..=3);
    random.choose_multiple([80, 443, 53], count).into_iter().map(listener).collect()
}

fn wish(random: &mut Rng) -> Wanted {
    let mut flag = || random.bool().to_string();
    let attributes = texts(&[("load_balancing.cross_zone.enabled", &flag())]);
    let group_attributes = texts(&[(STICKY, &flag())]);
    let tags = texts(&[(names::OWNER_TAG, "us"), (names::SERVICE_TAG, &flag())]);
    let listeners = listeners(random);
    let of_udp = listeners.iter().any(|one| is_of_udp(&one.protocol));
    Wanted {
        name: "a1".to_owned(),
        internal: false,
        families: if random.bool() && !of_udp { Families::Dual } else { Families::V4 },
        tags,
        subnets: Vec::new(),
        allocations: Vec::new(),
        private_addresses: Vec::new(),
        attributes,
        group_attributes,
        listeners,
        source_ranges: Vec::new(),
        node_labels: Texts::new(),
        security_groups: SecurityGroups::Own,
    }
}

fn is_of_udp(protocol: &ProtocolEnum) -> bool {
    matches!(protocol, ProtocolEnum::Udp | ProtocolEnum::TcpUdp)
}

fn backends(random: &mut Rng) -> Backends {
    let ids = |count: usize| (0..count).map(|at| format!("i-{at:03}")).collect();
    Backends { all: ids(random.usize(0..230)), not_now: ids(random.usize(0..5)) }
}

fn place() -> Place {
    Place {
        subnets: vec!["subnet-1".to_owned()],
        has_v6: true,
        security_groups: Some(vec!["sg-1".to_owned()]),
    }
}

/// Takes steps, at most as many as given, and returns them. What AWS has is judged after each.
fn run(wanted: &Wanted, backends: &Backends, actual: &mut Actual, most: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < most {
        let Some(step) = next(wanted, &place(), backends, actual) else { break };
        let before = actual.clone();
        actual.after(&step, wanted, &format!("arn:{}:{step:?}", steps.len()));
        judge(&step, backends, &before, actual);
        steps.push(step);
        assert!(steps.len() < 200, "it does not end: {:?}", &steps[190..]);
    }
    steps
}

/// What must hold at every moment.
fn judge(step: &Step, backends: &Backends, before: &Actual, after: &Actual) {
    let Some(balancer) = &after.balancer else { return };
    let of_udp = balancer.listeners.iter().any(|open| is_of_udp(&open.protocol));
    assert!(!(balancer.dual_stack && of_udp), "AWS has no UDP with both families: {step:?}");
    let filled = |arn: &str| {
        let group = after.groups.iter().find(|one| one.arn == arn).expect("a listener's group exists");
        backends.all.difference(&backends.not_now).all(|id| group.targets.contains(id))
    };
    let former = before.balancer.as_ref().map(|one| &one.listeners[..]).unwrap_or_default();
    for open in &balancer.listeners {
        let was = former.iter().find(|one| one.port == open.port);
        let is_new = was.is_none_or(|was| was.group != open.group);
        assert!(!is_new || filled(&open.group), "traffic came to a group without its targets: {step:?}");
    }
    if let Step::Register { targets, .. } | Step::Deregister { targets, .. } = step {
        assert!(targets.len() <= TARGETS, "{} targets in one call", targets.len());
    }
    if let Step::DeleteGroup { group } = step {
        assert!(former.iter().all(|one| one.group != *group), "a group was deleted that serves");
    }
    if let Step::DeleteListener { arn } = step {
        let gone = former.iter().find(|one| one.arn == *arn).unwrap();
        assert!(balancer.listeners.iter().all(|one| one.port != gone.port));
    }
}

fn in_the_end(actual: &Actual) -> impl PartialEq + std::fmt::Debug {
    let balancer = actual.balancer.clone().unwrap();
    let of = |arn: &str| {
        actual.groups.iter().find(|one| one.arn == arn).map(|one| (one.is.clone(), one.targets.clone()))
    };
    let mut listeners: Vec<_> = balancer
        .listeners
        .iter()
        .map(|open| (open.port, format!("{:?} {:?} {:?}", open.protocol, open.tls, of(&open.group))))
        .collect();
    listeners.sort();
    (listeners, balancer.dual_stack, balancer.attributes, actual.groups.len())
}

/// Two wishes with their backends, one after the other, and a moment.
fn for_many(check: impl Fn([(Wanted, Backends); 2], usize)) {
    for seed in 0..300 {
        let random = &mut Rng::with_seed(seed);
        let two = [(); 2].map(|()| (wish(random), backends(random)));
        check(two, random.usize(0..40));
    }
}

/// From whatever was left of one wish, the next one comes true, and then nothing is left to do.
#[test]
fn whatever_aws_has_becomes_what_is_wanted() {
    for_many(|[(first, of_first), (second, of_second)], stop| {
        let mut actual = Actual::default();
        run(&first, &of_first, &mut actual, stop);
        run(&second, &of_second, &mut actual, usize::MAX);
        assert_eq!(next(&second, &place(), &of_second, &actual), None);
        let open = actual.balancer.as_ref().unwrap().listeners.iter().map(|one| one.port);
        assert_eq!(open.collect::<BTreeSet<_>>(), second.listeners.iter().map(|one| one.port).collect());
        assert_eq!(actual.groups.len(), second.listeners.len(), "no group is left over");
        for group in &actual.groups {
            let taken = of_second.all.difference(&of_second.not_now);
            assert!(
                taken.into_iter().all(|id| group.targets.contains(id))
                    && group.targets.is_subset(&of_second.all)
            );
        }
    });
}

/// Whoever is killed after any step and begins anew ends where it would have ended.
#[test]
fn a_kill_after_any_step_changes_nothing_about_the_end() {
    for_many(|[(first, of_first), (second, of_second)], stop| {
        let mut actual = Actual::default();
        run(&first, &of_first, &mut actual, usize::MAX);
        let mut killed = actual.clone();
        run(&second, &of_second, &mut actual, usize::MAX);
        run(&second, &of_second, &mut killed, stop);
        run(&second, &of_second, &mut killed, usize::MAX);
        assert_eq!(in_the_end(&actual), in_the_end(&killed));
    });
}

#[test]
fn targets_leave_before_others_join() {
    let mut group = Group {
        arn: "arn:g".to_owned(),
        is: TargetGroup {
            name: "g".to_owned(),
            port: 30080,
            protocol: ProtocolEnum::Tcp,
            health: health(30, 3),
        },
        attributes: Texts::new(),
        targets: ["i-1".to_owned(), "i-2".to_owned()].into(),
    };
    let backends = Backends {
        all: ["i-2".to_owned(), "i-3".to_owned(), "i-4".to_owned()].into(),
        not_now: ["i-4".to_owned()].into(),
    };
    let mut steps = Vec::new();
    while let Some(step) = of_targets(&group, &backends) {
        group.after(&step);
        steps.push(step);
    }
    let moved = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let (arn, other) = ("arn:g".to_owned(), "arn:g".to_owned());
    assert_eq!(
        steps,
        [
            Step::Deregister { group: arn, targets: moved(&["i-1"]) },
            Step::Register { group: other, targets: moved(&["i-3"]) }
        ]
    );
}

/// For the user's tags there may be no room.
#[test]
fn whose_a_balancer_is_is_told_first_and_other_tags_are_no_step() {
    let random = &mut Rng::with_seed(1);
    let tags = texts(&[(names::OWNER_TAG, "us"), ("team", "shop")]);
    let wanted = Wanted { tags, ..wish(random) };
    let mut actual = Actual { balancer: Some(Balancer::default()), ..Actual::default() };
    let steps = run(&wanted, &backends(random), &mut actual, usize::MAX);
    let whose = Step::Tag(texts(&[(names::OWNER_TAG, "us")]));
    let tags: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Tag(_))).collect();
    assert_eq!((steps.first(), tags.len()), (Some(&whose), 1));
    assert!(steps.len() > 2, "{steps:?}");
}
