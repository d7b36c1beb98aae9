//! Random histories of truth, lies, silence and scale-down, over restarts, in zones that may lose all their nodes: no
//! living node is ever deleted, and every dead one is without a person's help, unless the provider contradicts
//! itself.
//!
//! A node is alive while its instance is, though its kubelet may be cut off. If such a node is denied, only the
//! provider's answers about Ready nodes speak for it; so the provider lies only while that can be detected.

use std::sync::Arc;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::{
    controllers::cloud_node_lifecycle::{
        control::{Denials, Life, life, sample},
        decide::{Presence, ZONES, zone},
    },
    kube::{fixtures::node, node::Node, patch::NodeLease},
};

/// Milliseconds between two renewals.
const KUBELET: usize = 10_000;
/// After this much silence a node is no longer Ready.
const SILENCE: SignedDuration = SignedDuration::from_secs(50);
/// Ready nodes in a control group: all, in clusters of this size.
const ASKED: usize = 20;

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

impl Phase {
    /// One node joins, and nothing else happens.
    fn calm() -> Self {
        Self {
            passes: 0,
            provider: Provider::Honest,
            die: 0,
            join: 1,
            outage: None,
            announced: false,
            ailing: 0,
            cut_off: 0,
            restart: false,
        }
    }
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

struct Machine {
    node: Arc<Node>,
    number: usize,
    died: Option<Timestamp>,
    cut_off: Option<Timestamp>,
    is_given_up: bool,
    is_ailing: bool,
}

impl Machine {
    /// When its kubelet was last heard.
    fn silent_since(&self) -> Option<Timestamp> {
        self.died.into_iter().chain(self.cut_off).min()
    }
}

struct World {
    machines: Vec<Machine>,
    zones: usize,
    joined: usize,
    now: Timestamp,
    instant: Instant,
    guard: Guard,
    denials: Denials,
    /// The rules that nodes show in their condition.
    shown: HashSet<Rule>,
    rng: fastrand::Rng,
}

impl World {
    fn new(nodes: usize, zones: usize, seed: u64) -> Self {
        let mut world = Self {
            machines: Vec::new(),
            zones,
            joined: 0,
            now: Timestamp::from_second(1_000_000).unwrap(),
            instant: Instant::now(),
            guard: Guard::new(rules()),
            denials: Denials::default(),
            shown: HashSet::new(),
            rng: fastrand::Rng::with_seed(seed),
        };
        world.join(nodes);
        world
    }

    fn join(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.joined;
            let zone = format!("zone-{}", number % self.zones);
            let node = node(&format!("n{number:03}")).with_label(ZONES[0], &zone).with_provider_id("x://1");
            self.machines.push(Machine {
                node: Arc::new(node),
                number,
                died: None,
                cut_off: None,
                is_given_up: false,
                is_ailing: false,
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
            if phase.outage == Some(self.machines[index].number % self.zones) {
                self.end(index, false);
            }
        }
        for machine in &mut self.machines {
            (machine.is_ailing, machine.cut_off) = (false, None);
        }
        for _ in 0..phase.ailing.min(self.machines.len()) {
            let index = self.rng.usize(..self.machines.len());
            self.machines[index].is_ailing = true;
        }
        for _ in 0..phase.cut_off.min(self.machines.len()) {
            let index = self.rng.usize(..self.machines.len());
            self.machines[index].cut_off = Some(self.now);
        }
        if phase.restart {
            let grants = self.guard.grants().clone();
            self.guard = Guard::new(rules());
            self.guard.recall(&grants);
            self.denials = Denials::default();
        }
    }

    fn end(&mut self, index: usize, announced: bool) {
        let machine = &mut self.machines[index];
        machine.is_given_up |= announced && machine.died.is_none();
        machine.died.get_or_insert(self.now);
    }

    /// Reconnects kubelets that are cut off, if a lie about them could not be detected.
    fn reconnect_where_nobody_could_tell(&mut self, provider: Provider) {
        let ready: Vec<_> = self.machines.iter().filter(|machine| self.is_ready(machine)).collect();
        let is_exposed =
            |one: &Machine| one.silent_since().is_none() && self.says(one, provider) != Presence::Found;
        let exposed = ready.iter().filter(|one| is_exposed(one)).count();
        let can_be_told = match provider {
            Provider::Honest | Provider::KnowsNothing | Provider::Unwell => true,
            Provider::DeniesAll => exposed > 0,
            Provider::DeniesZone(_) | Provider::DeniesSome(_) => ready.len() <= ASKED && exposed > 0,
        };
        if !can_be_told {
            self.machines.iter_mut().for_each(|machine| machine.cut_off = None);
        }
    }

    fn pause(&mut self, time: Duration) {
        self.now += time;
        self.instant += time;
    }

    fn says(&self, machine: &Machine, provider: Provider) -> Presence {
        let truth = machine.died.is_none();
        let found = match provider {
            Provider::Honest => truth,
            Provider::DeniesAll => false,
            Provider::DeniesZone(zone) => truth && machine.number % self.zones != zone,
            Provider::DeniesSome(one_in) => truth && !machine.number.is_multiple_of(one_in),
            Provider::KnowsNothing | Provider::Unwell => return Presence::Unknown,
        };
        if found { Presence::Found } else { Presence::Denied(self.now) }
    }

    fn is_ready(&self, machine: &Machine) -> bool {
        let is_heard = machine.silent_since().is_none_or(|since| self.now.duration_since(since) < SILENCE);
        !machine.is_ailing && is_heard
    }

    fn machine(&self, uid: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.node.uid == uid).unwrap()
    }

    fn life(&self, machine: &Machine, denied_at: Timestamp) -> Life {
        // Each kubelet renews at its own time.
        let alive_until = machine.silent_since().unwrap_or(self.now);
        let late = SignedDuration::from_millis(i64::try_from(machine.number * 777 % KUBELET).unwrap());
        let lease = NodeLease { renewed: Some(alive_until - late), duration: Duration::from_secs(40) };
        life(Some(&lease), denied_at, self.now)
    }

    /// Runs one check; returns the findings for the guard.
    fn look(&mut self, provider: Provider, with_control: bool) -> Findings {
        let held_before = self.shown.clone();
        let mut findings = Findings { total: self.machines.len(), held_before, ..Findings::default() };
        let (mut ready, mut presences) = (Vec::new(), HashMap::new());
        for machine in &self.machines {
            let presence = self.says(machine, provider);
            presences.insert(machine.node.uid.clone(), presence);
            match presence {
                _ if self.is_ready(machine) => ready.push(Arc::clone(&machine.node)),
                Presence::Denied(observed_at) => findings.absent.push(Evidence {
                    zone: zone(&machine.node).to_owned(),
                    given_up: machine.is_given_up,
                    observed_at,
                    ..absent(&machine.node.uid)
                }),
                Presence::Unknown => findings.uncertain += 1,
                Presence::Found => {}
            }
        }
        self.denials.only(&ready);
        findings.control.ready = ready.len();
        let zones = findings.absent.iter().map(|evidence| evidence.zone.clone()).collect();
        let group = if with_control { sample(&ready, &zones, &self.denials, &mut self.rng) } else { vec![] };
        for node in group {
            let presence = presences[&node.uid];
            self.denials.heard(&node, presence);
            if presence == Presence::Found {
                findings.control.found.insert(zone(&node).to_owned());
            }
            let since = self.denials.since(&node);
            match since.map(|since| self.life(self.machine(&node.uid), since)) {
                Some(Life::Alive) => findings.control.contradictions += 1,
                Some(Life::Unsettled) => findings.control.unsettled += 1,
                Some(Life::Silent) | None => {}
            }
        }
        findings
    }

    /// Runs one pass; returns the living nodes it deleted.
    fn pass(&mut self, provider: Provider) -> Vec<String> {
        self.pause(PERIOD);
        if matches!(provider, Provider::Unwell) {
            self.guard.distrust();
            return vec![];
        }
        self.reconnect_where_nobody_could_tell(provider);
        let mut findings = Findings::default();
        for turn in 0..2 {
            if turn > 0 {
                self.pause(PERIOD);
            }
            let with_control = self.machines.iter().any(|machine| self.guard.is_suspect(&machine.node.uid));
            findings = self.look(provider, with_control);
            self.guard.confirm(self.instant, &findings.absent);
            if !self.guard.wants_another_look(with_control) {
                break;
            }
        }
        let ruling = self.guard.rule(self.instant, &findings);
        self.shown = ruling.held_back.values().copied().filter(|rule| !rule.is_brief()).collect();
        let mut killed = Vec::new();
        for uid in ruling.delete {
            let denied_at = self.guard.first_denied(&uid).unwrap();
            match self.life(self.machine(&uid), denied_at) {
                Life::Alive => self.guard.found_alive(&uid),
                Life::Unsettled => self.guard.revoke(&uid),
                Life::Silent => {
                    if self.machine(&uid).died.is_none() {
                        killed.push(uid.clone());
                    }
                    self.machines.retain(|machine| machine.node.uid != uid);
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
    /// E1, D13.
    #[test]
    fn no_living_node_goes_and_every_dead_one_does(
        nodes in 1..70_usize,
        zones in 1..5_usize,
        seed: u64,
        phases in prop::collection::vec(phase(), 1..12),
    ) {
        let mut world = World::new(nodes, zones, seed);
        for phase in &phases {
            world.begin(phase);
            for _ in 0..phase.passes {
                let killed = world.pass(phase.provider);
                prop_assert!(killed.is_empty(), "{killed:?} were alive: {phase:?}");
            }
        }
        // From now on the provider is honest, and one node is Ready: no person is needed.
        world.begin(&Phase::calm());
        let mut passes = 0;
        while world.dead() > 0 {
            let killed = world.pass(Provider::Honest);
            prop_assert!(killed.is_empty(), "{killed:?}");
            passes += 1;
            prop_assert!(passes < 20_000, "{} dead nodes are left", world.dead());
        }
        let living = world.machines.len();
        prop_assert_eq!(living, world.machines.iter().filter(|machine| machine.died.is_none()).count());
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
                evidence.uid[1..].parse::<usize>().is_ok_and(|number| number < pass * pace)
            });
            let ruling = run.pass(&found(left.len(), said.cloned()));
            left.retain(|evidence| !ruling.delete.contains(&evidence.uid));
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
