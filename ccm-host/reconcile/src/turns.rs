//! Divides the places of a controller among providers: one that hangs leaves the others theirs.
//!
//! In: keys, each with the provider whose answer it waits for. Out: a place, or a place in line: a key without one is queued
//! again when its turn comes.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use ccm_kube::queue::{Key, WorkQueue};

#[derive(Debug)]
pub(super) struct Turns<K: Key> {
    queue: WorkQueue<K>,
    /// The places of each provider.
    places: usize,
    /// By provider.
    lines: Mutex<HashMap<String, Line<K>>>,
}

/// The keys of one provider.
#[derive(Debug)]
struct Line<K> {
    taken: usize,
    waiting: VecDeque<K>,
    stands: HashSet<K>,
    /// Those that were queued again, each for a place.
    woken: HashSet<K>,
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self { taken: 0, waiting: VecDeque::new(), stands: HashSet::new(), woken: HashSet::new() }
    }
}

impl<K: Key> Line<K> {
    /// The first one, which has its turn.
    fn wake(&mut self) -> Option<K> {
        let next = self.waiting.pop_front()?;
        self.stands.remove(&next);
        self.woken.insert(next.clone());
        Some(next)
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct TakenPlace<K: Key> {
    turns: Arc<Turns<K>>,
    /// `None` if the key waits for no provider.
    provider: Option<String>,
}

impl<K: Key> Turns<K> {
    pub(super) fn new(queue: WorkQueue<K>, at_once: usize, providers: usize) -> Arc<Self> {
        let places = (at_once / providers.max(1)).max(1);
        Arc::new(Self { queue, places, lines: Mutex::default() })
    }

    /// `None` if the provider's places are taken: the key stands in line now.
    pub(super) fn take(self: &Arc<Self>, provider: Option<&str>, key: &K) -> Option<TakenPlace<K>> {
        let mut lines = self.lines.lock();
        for (of, line) in &mut *lines {
            // Its object may be gone, or another provider's: then the next in line has the turn.
            if line.woken.remove(key)
                && Some(of.as_str()) != provider
                && let Some(next) = line.wake()
            {
                self.queue.add(next);
            }
        }
        if let Some(provider) = provider {
            let line = lines.entry(provider.to_owned()).or_default();
            if line.taken >= self.places {
                if line.stands.insert(key.clone()) {
                    line.waiting.push_back(key.clone());
                }
                return None;
            }
            line.taken += 1;
        }
        Some(TakenPlace { turns: Arc::clone(self), provider: provider.map(str::to_owned) })
    }
}

impl<K: Key> Drop for TakenPlace<K> {
    fn drop(&mut self) {
        let mut lines = self.turns.lines.lock();
        let Some(line) = self.provider.as_ref().and_then(|provider| lines.get_mut(provider)) else { return };
        line.taken -= 1;
        if let Some(next) = line.wake() {
            self.turns.queue.add(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use ccm_kube::{
        KubeMetrics,
        queue::{self, Backoff, Outcome},
    };

    #[tokio::test(start_paused = true)]
    async fn each_provider_has_its_places_and_the_others_stand_in_line() {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(1) };
        let queue = WorkQueue::new("test", backoff, &KubeMetrics::default().queue);
        let turns = Turns::new(queue.clone(), 4, 2);
        let (seen, cancel) = (Arc::new(Mutex::new(Vec::new())), CancellationToken::new());
        let called = Arc::clone(&seen);
        tokio::spawn(queue::run(queue, 9, cancel.clone(), move |key: String| {
            called.lock().push(key);
            std::future::ready(Outcome::Done)
        }));
        let take = |provider, key: &str| turns.take(Some(provider), &key.to_owned());
        let (first, second) = (take("a", "k1"), take("a", "k2"));
        assert!(first.is_some() && second.is_some());
        for key in ["k3", "k4", "k3"] {
            assert!(take("a", key).is_none());
        }
        assert!(take("b", "k5").is_some() && turns.take(None, &"k6".to_owned()).is_some());
        let moment = || tokio::time::sleep(Duration::from_millis(1));
        for held in [first, second] {
            drop(held);
            moment().await;
        }
        assert_eq!(*seen.lock(), ["k3", "k4"], "each once, in its turn");
        let held = [take("a", "k1"), take("a", "k2")];
        assert!(take("a", "gone").is_none() && take("a", "k7").is_none());
        let [first, _second] = held;
        drop(first);
        moment().await;
        assert!(turns.take(None, &"gone".to_owned()).is_some());
        moment().await;
        assert_eq!(seen.lock()[2..], ["gone", "k7"], "who uses no turn leaves it to the next");
        cancel.cancel();
    }
}
