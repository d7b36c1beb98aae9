//! Random histories of truth, lies, silence and scale-down, over restarts, in zones that may lose all their nodes: no
//! living node is ever deleted, and every dead one is without a person's help. Each machine has a clock of its own, up to
//! five minutes off; kubelets write into their Leases what they like; and one node has a stale provider ID.
//!
//! A node is alive while its instance is, though its kubelet may be cut off. If such a node is denied, only the
//! provider's answers about Ready nodes speak for it; so the provider lies only while that can be detected.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::cloud_node_lifecycle::{
    decide::Presence,
    witnesses::{Denials, Leases, Life, MOST, sample, too_many},
};
use ccm_kube::patch::NodeLease;

/// After this much silence, kube-controller-manager reports a node's readiness as unknown.
const SILENCE: Duration = Duration::from_secs(50);
/// How long it takes a kubelet that was cut off to report that it is ready.
const RETURN: Duration = Duration::from_secs(10);
/// Clocks are off by no more than this many seconds.
const OFF: i64 = 300;

/// How the provider answers in a phase.
#[derive(Debug, Clone, Copy)]
enum Provider {
    Honest,
    DeniesAll,
    DeniesZone(usize),
    /// Denies one in that many, always the same.
    DeniesSome(usize),
    KnowsNothing,
    Unwell,
}

/// What a kubelet writes as the time of its renewals.
#[derive(Debug, Clone, Copy)]
enum Writes {
    Time,
    /// Later times of a day that only Go knows.
    Future,
    /// Ever earlier dates.
    Backwards,
    /// The same in each renewal, or none: it hides its life, and only that it dies is held against it. Its Lease is to
    /// last for ever.
    Constant(Option<&'static str>),
}

#[derive(Debug, Clone)]
struct Phase {
    passes: usize,
    provider: Provider,
    /// Number of instances that end.
    die: usize,
    join: usize,
    /// A zone whose instances all end.
    outage: Option<usize>,
    /// Autoscalers announce which instances end.
    announced: bool,
    /// Number of living kubelets that report that they are not ready.
    ailing: usize,
    /// Number of living kubelets that cannot be heard.
    cut_off: usize,
    restart: bool,
}

fn phase() -> impl Strategy<Value = Phase> {
    let provider = prop_oneof![
        4 => Just(Provider::Honest),
        2 => Just(Provider::DeniesAll),
        1 => (0..4_usize).prop_map(Provider::DeniesZone),
        2 => (2..6_usize).prop_map(Provider::DeniesSome),
        1 => Just(Provider::KnowsNothing),
        1 => Just(Provider::Unwell),
    ];
    let ends = (0..12_usize, prop::option::weighted(0.1, 0..4_usize), any::<bool>());
    let kubelets = (0..4_usize, 0..4_usize);
    (1..40_usize, provider, ends, 0..4_usize, kubelets, prop::bool::weighted(0.1)).prop_map(
        |(passes, provider, (die, outage, announced), join, (ailing, cut_off), restart)| Phase {
            passes,
            provider,
            die,
            join,
            outage,
            announced,
            ailing,
            cut_off,
            restart,
        },
    )
}

fn writes() -> impl Strategy<Value = Writes> {
    prop_oneof![
        6 => Just(Writes::Time),
        1 => Just(Writes::Future),
        1 => Just(Writes::Backwards),
        1 => prop::option::of(prop_oneof![Just("1970-01-01T00:00:00.000000Z"), Just("9999-12-31T23:59:59.999999Z")])
            .prop_map(Writes::Constant),
    ]
}

#[derive(Debug)]
struct Machine {
    node: Arc<Node>,
    number: usize,
    /// Its kubelet's clock, ahead of the true time.
    off: SignedDuration,
    writes: Writes,
    died: Option<Instant>,
    cut_off: Option<Instant>,
    /// When it could be heard again.
    returned: Option<Instant>,
    is_given_up: bool,
    is_ailing: bool,
    /// The node's provider ID is not its instance's: the provider denies it and is right.
    is_stale: bool,
}

impl Machine {
    /// When its kubelet was last heard.
    fn silent_since(&self) -> Option<Instant> {
        self.died.into_iter().chain(self.cut_off).min()
    }

    fn hides(&self) -> bool {
        matches!(self.writes, Writes::Constant(_))
    }
}

/// The parameters of a world.
#[derive(Debug, Clone)]
struct Plan {
    nodes: usize,
    zones: usize,
    seed: u64,
    /// Of all Leases.
    duration: u32,
    writes: Vec<Writes>,
    /// The provider's clock, ahead of the true time, in seconds.
    off: i64,
}

fn plan() -> impl Strategy<Value = Plan> {
    let writes = prop::collection::vec(writes(), 1..20);
    let size = (1..70_usize, 1..5_usize);
    (size, any::<u64>(), 10..=120_u32, writes, -OFF..=OFF).prop_map(
        |((nodes, zones), seed, duration, writes, off)| Plan { nodes, zones, seed, duration, writes, off },
    )
}

struct World {
    plan: Plan,
    machines: Vec<Machine>,
    joined: usize,
    /// The true time since the start, which no machine's clock shows.
    start: Instant,
    now: Instant,
    guard: Guard,
    denials: Denials,
    leases: Leases,
    rng: fastrand::Rng,
}

impl World {
    fn new(plan: Plan) -> Self {
        let (rng, now) = (fastrand::Rng::with_seed(plan.seed), Instant::now());
        let mut world = Self {
            machines: Vec::new(),
            joined: 0,
            start: now,
            now: now + Duration::from_secs(1_000),
            guard: Guard::new(rules()),
            denials: Denials::default(),
            leases: Leases::default(),
            rng,
            plan,
        };
        world.join(world.plan.nodes);
        let stale = world.rng.usize(..world.machines.len());
        world.machines[stale].is_stale = true;
        world
    }

    fn join(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.joined;
            let zone = format!("zone-{}", number % self.plan.zones);
            let node = node(&format!("n{number:03}")).with_label(ZONE[0], &zone).with_provider_id("x://1");
            self.machines.push(Machine {
                node: Arc::new(node),
                number,
                off: SignedDuration::from_secs(self.rng.i64(-OFF..=OFF)),
                writes: self.plan.writes[number % self.plan.writes.len()],
                died: None,
                cut_off: None,
                returned: None,
                is_given_up: false,
                is_ailing: false,
                is_stale: false,
            });
            self.joined += 1;
        }
    }

    fn begin(&mut self, phase: &Phase) {
        self.join(phase.join);
        for _ in 0..phase.die.min(self.machines.len()) {
            let index = self.rng.usize(..self.machines.len());
            self.end(index, phase.announced);
        }
        for index in 0..self.machines.len() {
            if phase.outage == Some(self.machines[index].number % self.plan.zones) {
                self.end(index, false);
            }
        }
        for machine in &mut self.machines {
            machine.is_ailing = false;
            machine.returned = machine.cut_off.take().map(|_| self.now);
        }
        for _ in 0..phase.ailing.min(self.machines.len()) {
            let index = self.rng.usize(..self.machines.len());
            self.machines[index].is_ailing = true;
        }
        for _ in 0..phase.cut_off.min(self.machines.len()) {
            let index = self.rng.usize(..self.machines.len());
            // Of a stale one nothing at all would show that it is alive.
            let machine = &mut self.machines[index];
            machine.cut_off = (!machine.is_stale).then_some(self.now);
        }
        if phase.restart {
            let grants = self.guard.grants().clone();
            self.guard = Guard::new(rules());
            self.guard.recall(&grants);
            (self.denials, self.leases) = (Denials::default(), Leases::default());
        }
    }

    fn end(&mut self, index: usize, announced: bool) {
        let machine = &mut self.machines[index];
        machine.is_given_up |= announced && machine.died.is_none();
        machine.died.get_or_insert(self.now);
    }

    /// Reconnects kubelets that are cut off, if a lie about them could not be detected.
    fn reconnect_where_nobody_could_tell(&mut self, provider: Provider) {
        let ready: Vec<_> = self.machines.iter().filter(|one| self.readiness(one) == "True").collect();
        let asked: Vec<_> = ready.iter().filter(|one| !one.is_given_up).collect();
        let speaks = |one: &Machine| one.silent_since().is_none() && !one.hides() && !one.is_stale;
        let found = asked.iter().filter(|one| self.says(one, provider) == Presence::Found).count();
        let exposed = asked.iter().filter(|one| speaks(one) && self.says(one, provider) == Presence::Denied);
        let exposed = exposed.count();
        let can_be_told = match provider {
            Provider::Honest | Provider::KnowsNothing | Provider::Unwell => true,
            Provider::DeniesAll => exposed > 0,
            // None of the zone is found.
            Provider::DeniesZone(_) => asked.len() <= MOST && exposed > 0,
            Provider::DeniesSome(_) => asked.len() <= MOST && too_many(exposed, found),
        };
        if !can_be_told {
            self.machines.iter_mut().for_each(|one| (one.cut_off, one.returned) = (None, None));
        }
    }

    fn says(&self, machine: &Machine, provider: Provider) -> Presence {
        let truth = machine.died.is_none() && !machine.is_stale;
        let found = match provider {
            Provider::Honest => truth,
            Provider::DeniesAll => false,
            Provider::DeniesZone(zone) => truth && machine.number % self.plan.zones != zone,
            Provider::DeniesSome(one_in) => truth && !machine.number.is_multiple_of(one_in),
            Provider::KnowsNothing | Provider::Unwell => return Presence::Unknown,
        };
        if found { Presence::Found } else { Presence::Denied }
    }

    /// How often, and when last, the kubelet renewed its Lease. Each does so at its own time.
    fn renewals(&self, machine: &Machine) -> (u32, Instant) {
        let every = Duration::from_secs(u64::from(self.plan.duration)) / 4;
        let own = self.start + every * u32::try_from(machine.number % 7).unwrap() / 7;
        let until = machine.silent_since().unwrap_or(self.now);
        let count =
            u32::try_from(until.saturating_duration_since(own).as_millis() / every.as_millis()).unwrap();
        (count, own + every * count)
    }

    fn lease(&self, machine: &Machine) -> NodeLease {
        let (count, at) = self.renewals(machine);
        let base = Timestamp::from_second(1_000_000).unwrap();
        let renewed = match machine.writes {
            Writes::Time => Some((base + (at - self.start) + machine.off).to_string()),
            Writes::Future => Some(format!("9999-12-31T23:{:02}:{:02}Z", count / 60 % 60, count % 60)),
            Writes::Backwards => Some((base - Duration::from_secs(count.into())).to_string()),
            Writes::Constant(time) => time.map(str::to_owned),
        };
        let duration = if machine.hides() { u64::MAX } else { self.plan.duration.into() };
        NodeLease { renewed, duration: Duration::from_secs(duration) }
    }

    /// The status of its condition Ready.
    fn readiness(&self, machine: &Machine) -> &'static str {
        let (_, heard) = self.renewals(machine);
        let returns = machine.returned.is_some_and(|at| self.now - at < RETURN);
        match machine.silent_since() {
            Some(_) if self.now - heard >= SILENCE => "Unknown",
            _ if returns => "Unknown",
            _ if machine.is_ailing => "False",
            _ => "True",
        }
    }

    fn machine(&self, uid: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.node.uid == uid).unwrap()
    }

    fn hear(&mut self, uid: &str) -> Duration {
        let lease = self.lease(self.machine(uid));
        self.leases.heard(self.now, uid, Some(&lease))
    }

    /// Runs one check; returns what it found.
    fn look(&mut self, provider: Provider, with_control: bool) -> (Vec<Evidence>, Control) {
        let (mut ready, mut absent) = (Vec::new(), Vec::new());
        let off = SignedDuration::from_secs(self.plan.off);
        let observed_at = Timestamp::from_second(1_000_000).unwrap() + (self.now - self.start) + off;
        for machine in &self.machines {
            let node = &machine.node;
            match self.says(machine, provider) {
                _ if self.readiness(machine) == "True" => {
                    ready.extend((!machine.is_given_up).then(|| Arc::clone(node)));
                }
                Presence::Denied => absent.push(Evidence {
                    node: Arc::clone(node),
                    given_up: machine.is_given_up,
                    observed_at,
                    ..absent_in("", "")
                }),
                Presence::Unknown | Presence::Found => {}
            }
        }
        self.denials.only(&ready);
        let zones = absent.iter().map(|evidence| zone(&evidence.node)).collect();
        let group = if with_control { sample(&ready, &zones, &self.denials, &mut self.rng) } else { vec![] };
        let mut control = Control { ready: ready.len(), asked: !group.is_empty(), ..Control::default() };
        for node in group {
            let presence = self.says(self.machine(&node.uid), provider);
            if presence == Presence::Found {
                *control.found.entry(zone(&node).to_owned()).or_default() += 1;
            }
            let Some((since, _)) = self.denials.heard(self.now, &node, presence) else { continue };
            control.settle = control.settle.max(self.hear(&node.uid));
            let counts = match self.leases.life(self.now, &node.uid, since, false) {
                Life::Alive => &mut control.alive,
                Life::Unsettled => &mut control.unsettled,
                Life::Silent => continue,
            };
            *counts.entry(zone(&node).to_owned()).or_default() += 1;
        }
        (absent, control)
    }

    /// Runs one pass; returns the living nodes it deleted.
    fn pass(&mut self, provider: Provider) -> Vec<String> {
        self.now += PERIOD;
        if matches!(provider, Provider::Unwell) {
            self.guard.distrust();
            return vec![];
        }
        self.reconnect_where_nobody_could_tell(provider);
        let (mut absent, mut control) = (Vec::new(), Control::default());
        for turn in 0..2 {
            if turn > 0 {
                self.now += PERIOD;
            }
            let is_suspect = |one: &Machine| self.guard.first_denied(&one.node.uid).is_some();
            let with_control =
                self.machines.iter().any(|one| self.readiness(one) != "True" && is_suspect(one));
            let seen;
            (absent, seen) = self.look(provider, with_control);
            control.ready = seen.ready;
            control.then(seen);
            self.guard.confirm(self.now, &absent);
            if !self.guard.wants_another_look(with_control) {
                break;
            }
        }
        let ruling = self.guard.rule(self.now, self.machines.len(), &absent, &control);
        let mut killed = Vec::new();
        for node in ruling.delete {
            let uid = &node.uid;
            let denied = self.guard.first_denied(uid).unwrap();
            self.hear(uid);
            let machine = self.machine(uid);
            let unheard = self.readiness(machine) == "Unknown" && control.unsettled.is_empty();
            match self.leases.life(self.now, uid, denied, unheard) {
                Life::Alive | Life::Unsettled => self.guard.revoke(uid, Some(self.now)),
                Life::Silent => {
                    let is_wrong = machine.died.is_none() && !(machine.hides() && machine.cut_off.is_none());
                    killed.extend(is_wrong.then(|| format!("{machine:?}")));
                    self.machines.retain(|machine| machine.node.uid != *uid);
                }
            }
        }
        killed
    }

    fn dead(&self) -> usize {
        self.machines.iter().filter(|machine| machine.died.is_some()).count()
    }
}

proptest! {
    // `PROPTEST_CASES` sets the number of cases.
    /// E1, D13, R7.
    #[test]
    fn no_living_node_goes_and_every_dead_one_does(
        plan in plan(),
        phases in prop::collection::vec(phase(), 1..12),
    ) {
        let mut world = World::new(plan);
        for phase in &phases {
            world.begin(phase);
            for _ in 0..phase.passes {
                let killed = world.pass(phase.provider);
                prop_assert!(killed.is_empty(), "{killed:?} was alive: {phase:?}");
            }
        }
        // From now on the provider is honest, and in each zone there are some Ready nodes: no person is needed.
        let join = 5 * world.plan.zones;
        let calm = Phase {
            passes: 0, provider: Provider::Honest, die: 0, join, outage: None, announced: false, ailing: 0, cut_off: 0,
            restart: false,
        };
        world.begin(&calm);
        let mut passes = 0;
        while world.dead() > 0 {
            let killed = world.pass(Provider::Honest);
            prop_assert!(killed.is_empty(), "{killed:?}");
            passes += 1;
            prop_assert!(passes < 2_000, "{} dead nodes are left", world.dead());
        }
    }

    /// D13: where no Ready node confirms the answers, no more than the share per window is deleted, even over
    /// restarts.
    #[test]
    fn without_a_control_group_a_liar_costs_at_most_the_share(
        nodes in 1..120_usize,
        pace in 1..120_usize,
        passes in 1..300_usize,
    ) {
        let (mut run, mut left) = (Run::new(), many(nodes));
        for pass in 1..=passes {
            let said = left.iter().filter(|evidence| {
                evidence.node.uid[1..].parse::<usize>().is_ok_and(|number| number < pass * pace)
            });
            let ruling = run.pass(&found(left.len(), said.cloned()));
            left.retain(|evidence| !deleted(&ruling).contains(&evidence.node.uid.as_str()));
            if pass % 50 == 0 {
                let grants = run.guard.grants().clone();
                run.guard = Guard::new(rules());
                run.guard.recall(&grants);
            }
        }
        let gone = nodes - left.len();
        // One node may always be deleted, so of very few nodes one is in each window.
        let windows = (passes * 5).div_ceil(600);
        let share = if nodes < 40 { windows } else { nodes / 20 * windows };
        prop_assert!(gone <= share, "{gone} of {nodes} in {windows} windows");
    }
}
