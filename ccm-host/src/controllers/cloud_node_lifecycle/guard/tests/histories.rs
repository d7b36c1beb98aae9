//! Whatever a provider says, and however it comes to say it.

use proptest::prelude::*;

use super::*;

/// What happens in one pass.
#[derive(Debug, Clone)]
struct Step {
    /// Seconds since the pass before, besides the period.
    pause: u64,
    /// The provider is well.
    well: bool,
    /// For each node, whether it is said to be absent; beyond the end, nobody is.
    said: Vec<bool>,
    uncertain: usize,
    /// Nodes that join.
    join: usize,
    /// Another process takes over before.
    restart: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let said = prop_oneof![
        2 => Just(vec![]),
        2 => prop::collection::vec(prop::bool::weighted(0.03), 0..150),
        1 => prop::collection::vec(prop::bool::weighted(0.5), 0..150),
        1 => Just(vec![true; 150]),
    ];
    let pause = prop_oneof![4 => Just(0), 1 => 0..700_u64];
    (pause, prop::bool::weighted(0.9), said, 0..3_usize, 0..4_usize, prop::bool::weighted(0.1)).prop_map(
        |(pause, well, said, uncertain, join, restart)| Step { pause, well, said, uncertain, join, restart },
    )
}

/// Several steps alike, since a deletion takes repetition.
fn history() -> impl Strategy<Value = (usize, Vec<Step>)> {
    let phase = (step(), 1..5_usize).prop_map(|(step, times)| vec![step; times]);
    (1..120_usize, prop::collection::vec(phase, 1..30).prop_map(|phases| phases.concat()))
}

/// The cluster as it really is.
struct World {
    nodes: Vec<String>,
    joined: usize,
    now: Instant,
    /// How many nodes there were, pass by pass.
    totals: Vec<(Instant, usize)>,
    deleted: Vec<Instant>,
}

impl World {
    fn new(nodes: usize) -> Self {
        let mut world = Self {
            nodes: Vec::new(),
            joined: 0,
            now: Instant::now(),
            totals: Vec::new(),
            deleted: Vec::new(),
        };
        world.join(nodes);
        world
    }

    fn join(&mut self, count: usize) {
        for _ in 0..count {
            self.nodes.push(format!("n{}", self.joined));
            self.joined += 1;
        }
    }

    fn findings(&self, step: &Step) -> Findings {
        let absent: Vec<_> = self
            .nodes
            .iter()
            .zip(&step.said)
            .filter(|(_, said)| **said)
            .map(|(uid, _)| absent(uid))
            .collect();
        Findings { uncertain: step.uncertain, ..found(self.nodes.len(), absent) }
    }

    fn carry_out(&mut self, ruling: &Ruling) {
        let before = self.nodes.len();
        self.nodes.retain(|uid| !ruling.delete.contains(uid));
        let gone = before - self.nodes.len();
        self.deleted.extend(std::iter::repeat_n(self.now, gone));
    }

    /// Within the window that ends now: how many went, and how many may go by the most nodes there were in it.
    fn gone_and_allowed(&self) -> (usize, usize) {
        let within = |at: &Instant| self.now.duration_since(*at) < WINDOW;
        let gone = self.deleted.iter().filter(|at| within(at)).count();
        let most =
            self.totals.iter().filter(|(at, _)| within(at)).map(|(_, total)| *total).max().unwrap_or(0);
        (gone, (most / 20).max(1))
    }
}

proptest! {
    /// D13.
    #[test]
    fn never_more_than_the_share_goes_within_a_window((nodes, steps) in history()) {
        let mut world = World::new(nodes);
        let mut guard = Guard::new(rules());
        let mut said_before: HashSet<String> = HashSet::new();
        for step in steps {
            world.now += PERIOD + Duration::from_secs(step.pause);
            world.join(step.join);
            if step.restart {
                let grants = guard.grants().clone();
                guard = Guard::new(rules());
                guard.recall(&grants);
                said_before.clear();
            }
            if !step.well {
                guard.distrust();
                said_before.clear();
                continue;
            }
            world.totals.push((world.now, world.nodes.len()));
            let findings = world.findings(&step);
            let ruling = guard.rule(world.now, &findings);
            let said: HashSet<String> = findings.absent.iter().map(|evidence| evidence.uid.clone()).collect();
            prop_assert!(ruling.delete.is_subset(&said), "only what is absent now goes");
            prop_assert!(ruling.delete.is_subset(&said_before), "and was in the pass before");
            prop_assert!(!guard.is_latched() || ruling.delete.is_empty(), "latched is latched");
            prop_assert!(guard.is_latched() || ruling.held_back.is_empty());
            world.carry_out(&ruling);
            let (gone, allowed) = world.gone_and_allowed();
            prop_assert!(gone <= allowed, "{gone} went within the window, {allowed} may");
            said_before = said;
        }
    }

    /// A provider that ends up saying of every node that it is absent, all at once or bit by bit.
    #[test]
    fn a_liar_costs_at_most_the_share(nodes in 1..120_usize, pace in 1..120_usize, passes in 1..300_usize) {
        let mut world = World::new(nodes);
        let mut guard = Guard::new(rules());
        let all = world.nodes.clone();
        for pass in 1..=passes {
            world.now += PERIOD;
            let said = all.iter().take(pass * pace).filter(|uid| world.nodes.contains(uid));
            let findings = found(world.nodes.len(), said.map(|uid| absent(uid)));
            let ruling = guard.rule(world.now, &findings);
            world.carry_out(&ruling);
        }
        let gone = nodes - world.nodes.len();
        // One node may always go, so of very few nodes one goes each window.
        let windows = (passes * 5).div_ceil(600);
        let share = if nodes < 40 { windows } else { nodes / 20 };
        prop_assert!(gone <= share, "{gone} of {nodes} in {windows} windows");
    }
}
