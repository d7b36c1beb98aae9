//! Decides which kind of call is next under a shared limit.

use crate::cloud::method::Kind;

/// The calls of one class, by kind.
#[derive(Debug, Default)]
pub(super) struct Shares {
    kinds: [Share; Kind::COUNT],
    admitted: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// The provider serves this kind.
    may_be: bool,
    under_way: u32,
    waits: bool,
    /// The number of its last admission.
    served: u64,
}

impl Shares {
    pub(super) fn may_be(&mut self, kinds: &[Kind]) {
        self.kinds.iter_mut().for_each(|share| share.may_be = false);
        for kind in kinds {
            self.kinds[*kind as usize].may_be = true;
        }
    }

    pub(super) fn waits(&mut self, kind: Kind, waits: bool) {
        self.kinds[kind as usize].waits = waits;
    }

    pub(super) fn begun(&mut self, kind: Kind) {
        self.admitted += 1;
        let share = &mut self.kinds[kind as usize];
        share.under_way += 1;
        share.served = self.admitted;
    }

    pub(super) fn ended(&mut self, kind: Kind) {
        self.kinds[kind as usize].under_way -= 1;
    }

    /// Whether a waiting kind gets the next permit under this limit.
    pub(super) fn is_turn_of(&self, kind: Kind, limit: u32) -> bool {
        let mine = kind as usize;
        let goes_before = |(index, share): (usize, &Share)| {
            index != mine && share.waits && share.served < self.kinds[mine].served && self.fits(index, limit)
        };
        self.fits(mine, limit) && !self.kinds.iter().enumerate().any(goes_before)
    }

    /// Whether a permit is free beyond those reserved for other kinds.
    fn fits(&self, index: usize, limit: u32) -> bool {
        let free = limit.saturating_sub(self.kinds.iter().map(|share| share.under_way).sum());
        let idle = |share: &&Share| share.may_be && share.under_way == 0;
        // The first call of a kind takes the permit reserved for it.
        let left_to_others = if self.kinds[index].under_way == 0 {
            0
        } else {
            u32::try_from(self.kinds.iter().filter(idle).count()).unwrap_or(u32::MAX)
        };
        // With few permits, one kind may hold all but one.
        free > left_to_others.min(limit.saturating_sub(1) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 4] = [Kind::LoadBalancers, Kind::Updates, Kind::Deletions, Kind::Routes];

    fn shares() -> Shares {
        let mut shares = Shares::default();
        shares.may_be(&ALL);
        shares
    }

    fn take(shares: &mut Shares, kind: Kind, limit: u32) -> u32 {
        (0..limit)
            .take_while(|_| {
                let turn = shares.is_turn_of(kind, limit);
                if turn {
                    shares.begun(kind);
                }
                turn
            })
            .count() as u32
    }

    /// S4.
    #[test]
    fn each_kind_finds_a_permit_however_many_another_wants() {
        let mut shares = shares();
        assert_eq!(take(&mut shares, Kind::LoadBalancers, 8), 5);
        for kind in [Kind::Deletions, Kind::Routes, Kind::Updates] {
            assert_eq!(take(&mut shares, kind, 8), 1, "{kind:?}");
        }
        assert_eq!(take(&mut shares, Kind::Deletions, 8), 0, "all are taken");
        shares.ended(Kind::LoadBalancers);
        assert_eq!(take(&mut shares, Kind::Deletions, 8), 1, "none is left to a kind that has its own");
    }

    #[test]
    fn nothing_is_left_to_kinds_that_cannot_be() {
        let mut shares = Shares::default();
        shares.may_be(&[Kind::LoadBalancers]);
        assert_eq!(take(&mut shares, Kind::LoadBalancers, 8), 8);
    }

    #[test]
    fn few_permits_are_used_all_the_same() {
        for (limit, most) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(take(&mut shares(), Kind::LoadBalancers, limit), most, "of {limit}");
        }
    }

    #[test]
    fn of_the_kinds_that_wait_the_one_served_longest_ago_is_next() {
        let mut shares = shares();
        let two = [Kind::LoadBalancers, Kind::Deletions];
        two.iter().for_each(|kind| shares.waits(*kind, true));
        let mut order = Vec::new();
        for _ in 0..6 {
            let next = *two.iter().find(|kind| shares.is_turn_of(**kind, 1)).unwrap();
            shares.begun(next);
            shares.ended(next);
            order.push(next);
        }
        assert_eq!(order[..2], order[2..4]);
        assert_eq!(order[..2], order[4..]);
        assert_ne!(order[0], order[1]);
        shares.waits(Kind::LoadBalancers, false);
        assert!((0..3).all(|_| {
            let turn = shares.is_turn_of(Kind::Deletions, 1);
            shares.begun(Kind::Deletions);
            shares.ended(Kind::Deletions);
            turn
        }));
    }
}
