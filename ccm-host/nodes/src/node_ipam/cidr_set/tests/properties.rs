//! Compares the set with a model, a list of sets, for any order of events.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Number of blocks in the set under test.
const SIZE: u128 = 16;

#[derive(Debug, Clone)]
enum Step {
    Allocate(u8),
    Occupy(u8, Blocks),
    Release(u8, Blocks),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let owner = 0..4_u8;
    let blocks = (0..SIZE, 0..SIZE).prop_map(|(a, b)| Blocks { first: a.min(b), last: a.max(b) });
    let step = prop_oneof![
        3 => owner.clone().prop_map(Step::Allocate),
        1 => (owner.clone(), blocks.clone()).prop_map(|(owner, blocks)| Step::Occupy(owner, blocks)),
        2 => (owner, blocks).prop_map(|(owner, blocks)| Step::Release(owner, blocks)),
    ];
    proptest::collection::vec(step, 0..60)
}

#[derive(Default)]
struct Model(Vec<BTreeSet<u8>>);

impl Model {
    fn of(&mut self, blocks: Blocks) -> &mut [BTreeSet<u8>] {
        &mut self.0[usize::try_from(blocks.first).unwrap()..=usize::try_from(blocks.last).unwrap()]
    }

    fn occupied(&self) -> u128 {
        self.0.iter().filter(|owners| !owners.is_empty()).count() as u128
    }
}

fn owner(number: u8) -> BlockOwner {
    node(&number.to_string())
}

proptest! {
    #[test]
    fn no_block_is_given_twice_and_none_is_lost(steps in steps()) {
        let mut set = set("10.0.0.0/20", 24);
        let mut model = Model(vec![BTreeSet::new(); 16]);
        for step in steps {
            let before = model.occupied();
            match step {
                Step::Allocate(number) => match set.free() {
                    Some(free) => {
                        set.take(free, &owner(number));
                        let owners = &mut model.of(Blocks::one(free))[0];
                        prop_assert!(owners.is_empty(), "{} was given twice", free);
                        owners.insert(number);
                    }
                    None => prop_assert_eq!(before, SIZE, "a free block was not found"),
                },
                Step::Occupy(number, blocks) => {
                    let fresh = set.occupy(blocks, &owner(number));
                    model.of(blocks).iter_mut().for_each(|owners| owners.extend([number]));
                    prop_assert_eq!(fresh, model.occupied() - before);
                }
                Step::Release(number, blocks) => {
                    let freed = set.release(blocks, &owner(number));
                    model.of(blocks).iter_mut().for_each(|owners| owners.retain(|other| *other != number));
                    prop_assert_eq!(freed, before - model.occupied());
                }
            }
            prop_assert_eq!(set.occupied, model.occupied());
            for (block, owners) in (0..SIZE).zip(&model.0) {
                let others = set.others(Blocks::one(block), &BlockOwner::Services);
                let want: Vec<_> = owners.iter().map(|number| owner(*number)).collect();
                prop_assert_eq!(others, want.iter().collect::<Vec<_>>(), "block {}", block);
            }
        }
    }
}
