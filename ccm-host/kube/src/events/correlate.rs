//! Decides which events are new, which are repeats, and which are too many. Pure; time is an argument.
//!
//! The rules and numbers are client-go's: more than ten different messages about one thing within ten
//! minutes are combined into one event; the same event again is a higher count; one object may raise 25
//! events at once and then one every five minutes.

use std::{borrow::Cow, collections::HashMap, collections::HashSet, hash::Hash, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{EventType, Raised, Regarding};
use ccm_base::bucket::Bucket;

/// Maximum entries of each kind of memory.
const REMEMBERED: usize = 4096;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const SPAM_BURST: f64 = 25.0;
const SPAM_REFILL: Duration = Duration::from_secs(300);
const COMBINED: &str = "(combined from similar events): ";

/// The memory behind the rules.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    similar: LruMap<Topic, Similar>,
    seen: LruMap<(Topic, String), Occurrence>,
    budgets: LruMap<(&'static str, Regarding), Bucket>,
    last_nanos: i128,
}

/// The common part of similar events.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Topic {
    component: &'static str,
    regarding: Regarding,
    type_: EventType,
    reason: Cow<'static, str>,
}

#[derive(Debug)]
struct Similar {
    messages: HashSet<String>,
    last: Instant,
}

/// The place of an event in the sequence of its repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    /// Name of the Event object.
    pub(super) name: String,
    pub(super) first: Timestamp,
    /// Above one, the object exists and is patched.
    pub(super) count: u32,
}

impl Correlator {
    /// How to write it; `None` if there are too many events about the object. One of too many that are similar then says
    /// that it stands for them.
    pub(super) fn correlate(&mut self, raised: &mut Raised, now: Instant) -> Option<Occurrence> {
        let topic = Topic {
            component: raised.component,
            regarding: raised.regarding.clone(),
            type_: raised.type_,
            reason: raised.reason.clone(),
        };
        let key = self.combine(topic, &mut raised.message, now);
        let name = self.fresh_name(raised);
        let seen = self.seen.entry(key, || Occurrence { name, first: raised.at, count: 0 });
        seen.count = seen.count.saturating_add(1);
        let occurrence = seen.clone();
        (!self.exhausted(raised, now)).then_some(occurrence)
    }

    /// Counts different messages about one topic; beyond the limit they share one event.
    fn combine(&mut self, topic: Topic, message: &mut String, now: Instant) -> (Topic, String) {
        let similar = self.similar.entry(topic.clone(), || Similar { messages: HashSet::new(), last: now });
        if now.saturating_duration_since(similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.len() >= SIMILAR && !similar.messages.contains(message) {
            message.insert_str(0, COMBINED);
            return (topic, COMBINED.to_owned());
        }
        similar.messages.insert(message.clone());
        (topic, message.clone())
    }

    fn exhausted(&mut self, raised: &Raised, now: Instant) -> bool {
        let key = (raised.component, raised.regarding.clone());
        let full = || Bucket::full(1.0 / SPAM_REFILL.as_secs_f64(), SPAM_BURST, now);
        self.budgets.entry(key, full).take(now).is_some()
    }

    /// The object's name and the time, made unique within this process.
    fn fresh_name(&mut self, raised: &Raised) -> String {
        self.last_nanos = raised.at.as_nanosecond().max(self.last_nanos + 1);
        format!("{}.{:x}", raised.regarding.name, self.last_nanos)
    }
}

/// A map that forgets its least recently used entries.
#[derive(Debug)]
struct LruMap<K, V> {
    entries: HashMap<K, (u64, V)>,
    clock: u64,
}

impl<K, V> Default for LruMap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> LruMap<K, V> {
    fn entry(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        if self.entries.len() >= REMEMBERED && !self.entries.contains_key(&key) {
            self.forget_oldest_half();
        }
        let clock = self.clock;
        let (used, value) = self.entries.entry(key).or_insert_with(|| (clock, new()));
        *used = clock;
        value
    }

    /// Drops half at once, so that a flood of new keys does not cost a search each.
    fn forget_oldest_half(&mut self) {
        let mut used: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        used.sort_unstable();
        let middle = used.get(used.len() / 2).copied().unwrap_or(0);
        self.entries.retain(|_, (used, _)| *used >= middle);
    }
}
