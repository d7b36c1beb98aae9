//! Spreads the Ensures after a restart of the host: where the cloud cannot store a digest, only an Ensure can tell
//! the state of a balancer that exists.
//!
//! In: a lane that is about to be ensured. Out: how long it waits for its turn.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    act::Act,
    lane::{Lane, Presence, Taken},
};
use crate::kube::service::ObjectKey;

/// Time between two turns: a thousand balancers take less than four minutes.
const APART: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Takeover(Mutex<HashMap<String, Turns>>);

#[derive(Debug, Default)]
struct Turns {
    next: Option<Instant>,
    given: HashMap<ObjectKey, Instant>,
}

impl Turns {
    /// Time until this Service's turn; `None` means that its turn is now, and is used up.
    fn wait(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let next = &mut self.next;
        let turn = *self.given.entry(key.clone()).or_insert_with(|| {
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + APART);
            turn
        });
        if turn <= now {
            self.given.remove(key);
            return None;
        }
        Some(turn - now)
    }
}

impl Act<'_> {
    /// How long an Ensure must wait for its turn; `None` means not at all.
    pub(super) fn turn_of(&self, lane: &Taken) -> Option<Duration> {
        let lane = lane.as_ref().filter(|lane| is_untold(lane))?;
        let providers = &self.controller.parts.providers;
        let info = providers.by_name(lane.holder.as_deref()?)?.info()?;
        if info.durable_digest {
            return None;
        }
        let mut turns = self.controller.takeover.0.lock();
        turns.entry(info.name.clone()).or_default().wait(self.key, Instant::now())
    }
}

/// The balancer exists, but neither a list nor an Ensure of this process reported its state.
fn is_untold(lane: &Lane) -> bool {
    lane.presence == Presence::Present && lane.applied.is_none() && lane.made_as.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_one_turn_and_keeps_it() {
        let (start, mut turns) = (Instant::now(), Turns::default());
        let key = |name: &str| ObjectKey::new("ns", name);
        assert_eq!(turns.wait(&key("a"), start), None);
        assert_eq!(turns.wait(&key("b"), start), Some(APART));
        assert_eq!(turns.wait(&key("c"), start), Some(2 * APART));
        assert_eq!(turns.wait(&key("b"), start + APART / 2), Some(APART / 2));
        assert_eq!(turns.wait(&key("b"), start + APART), None);
        let later = start + 10 * APART;
        assert_eq!(turns.wait(&key("c"), later), None);
        assert_eq!((turns.wait(&key("d"), later), turns.given.len()), (None, 0), "after a pause: at once");
    }
}
