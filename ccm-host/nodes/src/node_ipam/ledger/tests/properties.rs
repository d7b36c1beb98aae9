//! Random histories of nodes: no node is given a block of another, and in the end nothing is lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BLOCKS: usize = 4;

#[derive(Debug, Clone)]
enum Event {
    /// The cache shows a node without CIDRs, or as it is.
    See(u8),
    /// The node requests CIDRs.
    Ask(u8),
    /// The cache shows the CIDRs that were proposed.
    Written(u8),
    /// Someone else writes CIDRs to the node.
    Foreign(u8, u8),
    /// The apiserver refused what was proposed.
    Refused(u8),
    Gone(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let node = 0..6_u8;
    let event = prop_oneof![
        node.clone().prop_map(Event::See),
        node.clone().prop_map(Event::Ask),
        node.clone().prop_map(Event::Ask),
        node.clone().prop_map(Event::Written),
        (node.clone(), 0..5_u8).prop_map(|(node, block)| Event::Foreign(node, block)),
        node.clone().prop_map(Event::Refused),
        node.prop_map(Event::Gone),
    ];
    proptest::collection::vec(event, 0..80)
}

/// The apiserver's nodes: whether known, and their CIDRs.
#[derive(Default)]
struct World {
    nodes: BTreeMap<u8, Option<String>>,
    proposed: BTreeMap<u8, String>,
    waiting: Vec<u8>,
}

impl World {
    fn node(&self, number: u8) -> Option<Node> {
        let cidrs = self.nodes.get(&number)?;
        let cidrs: Vec<_> = cidrs.iter().flat_map(|cidrs| cidrs.split(',')).collect();
        Some(with(&number.to_string(), &cidrs))
    }

    fn is_free(&self, cidr: &str) -> bool {
        let taken = self.nodes.values().flatten().chain(self.proposed.values());
        !taken.flat_map(|cidrs| cidrs.split(',')).any(|taken| taken == cidr)
    }

    fn woken(&mut self, affected: &[String]) {
        self.waiting.retain(|number| !affected.contains(&number.to_string()));
    }
}

proptest! {
    #[test]
    fn nobody_gets_what_somebody_has_and_nothing_is_lost(events in events()) {
        let mut ledger = ledger(&["10.0.0.0/22>24", "a00::/62>64"], &[]);
        let mut world = World::default();
        for event in events {
            match event {
                Event::See(number) => {
                    world.nodes.entry(number).or_default();
                    let effects = ledger.see(&world.node(number).unwrap());
                    world.woken(&effects);
                }
                Event::Ask(number) => {
                    let answer = ledger.ask(&number.to_string());
                    match answer.as_str() {
                        "contested" => {
                            world.proposed.remove(&number);
                            let effects = ledger.give_back(&format!("{number}-uid"));
                            world.woken(&effects);
                        }
                        "nothing" => prop_assert!(world.nodes.get(&number).is_none_or(Option::is_some)),
                        exhausted if exhausted.starts_with("exhausted") => world.waiting.push(number),
                        cidrs => {
                            if world.proposed.remove(&number).is_none_or(|before| before != cidrs) {
                                prop_assert!(cidrs.split(',').all(|cidr| world.is_free(cidr)), "{cidrs}");
                            }
                            world.proposed.insert(number, cidrs.to_owned());
                        }
                    }
                }
                Event::Written(number) => {
                    if let Some(cidrs) = world.proposed.remove(&number) {
                        world.nodes.insert(number, Some(cidrs));
                        let effects = ledger.see(&world.node(number).unwrap());
                        world.woken(&effects);
                    }
                }
                Event::Foreign(number, block) => {
                    if world.nodes.get(&number).is_some_and(Option::is_none) {
                        world.proposed.remove(&number);
                        world.waiting.retain(|other| *other != number);
                        world.nodes.insert(number, Some(format!("10.0.{block}.0/24")));
                        let effects = ledger.see(&world.node(number).unwrap());
                        world.woken(&effects);
                    }
                }
                Event::Refused(number) => {
                    world.proposed.remove(&number);
                    let effects = ledger.give_back(&format!("{number}-uid"));
                    world.woken(&effects);
                }
                Event::Gone(number) => {
                    world.nodes.remove(&number);
                    world.proposed.remove(&number);
                    world.waiting.retain(|other| *other != number);
                    let effects = ledger.leave(&number.to_string());
                    world.woken(&effects);
                }
            }
            let free = |network: &str| (0..BLOCKS).any(|block| world.is_free(&network.replace('#', &block.to_string())));
            let is_free = free("10.0.#.0/24") && (world.is_free("a00::/64") || free("a00:0:0:#::/64"));
            prop_assert!(!is_free || world.waiting.is_empty(), "nodes wait although something is free");
        }
        for number in 0..6 {
            ledger.leave(&number.to_string());
        }
        prop_assert_eq!(ledger.occupied(), [0.0, 0.0]);
    }
}
