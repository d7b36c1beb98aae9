//! The questions waiting in one lane, in order of arrival, and when they are due.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{Batched, Slot};
use ccm_base::trace::Askers;

pub(super) struct Lane<B: Batched> {
    order: VecDeque<B::Key>,
    items: HashMap<B::Key, Queued<B>>,
    pace: Pace,
    first: Option<Instant>,
    last: Instant,
    /// A task is sending this lane's questions.
    pub(super) driven: bool,
    /// Notified when a call would be full.
    pub(super) full: Arc<Notify>,
}

/// A question with at least one caller waiting for it.
pub(super) struct Queued<B: Batched> {
    pub(super) question: B::Question,
    pub(super) answer: Slot<B>,
    pub(super) askers: Askers,
}

impl<B: Batched> Lane<B> {
    pub(super) fn new() -> Self {
        Self {
            order: VecDeque::new(),
            items: HashMap::new(),
            pace: Pace::default(),
            first: None,
            last: Instant::now(),
            driven: false,
            full: Arc::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_older_than(&self, age: Duration, now: Instant) -> bool {
        self.items.is_empty() && now.saturating_duration_since(self.last) > age
    }

    /// Adds a question that is not waiting in this lane yet.
    pub(super) fn push(
        &mut self,
        key: B::Key,
        question: B::Question,
        now: Instant,
    ) -> watch::Receiver<Option<B::Answer>> {
        let (answer, receiver) = watch::channel(None);
        self.first.get_or_insert(now);
        self.last = now;
        self.order.push_back(key.clone());
        let mut item = Queued { question, answer: Arc::new(answer), askers: Askers::default() };
        item.askers.note();
        self.items.insert(key, item);
        receiver
    }

    /// Joins a question that is already waiting. The newer version of the question is sent.
    pub(super) fn join(
        &mut self,
        batched: &B,
        key: &B::Key,
        question: &B::Question,
    ) -> Option<watch::Receiver<Option<B::Answer>>> {
        let item = self.items.get_mut(key)?;
        if !batched.same(&item.question, question) {
            item.question = question.clone();
        }
        item.askers.note();
        Some(item.answer.subscribe())
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.first.map(|first| self.pace.due(first, self.last))
    }

    /// Drops questions that no caller waits for.
    pub(super) fn drop_abandoned(&mut self) {
        let items = &mut self.items;
        self.order.retain(|key| {
            let wanted = items.get(key).is_some_and(|item| item.answer.receiver_count() > 0);
            if !wanted {
                items.remove(key);
            }
            wanted
        });
        if self.items.is_empty() {
            self.first = None;
        }
    }

    /// Takes up to `most` questions, oldest first.
    pub(super) fn take(&mut self, most: usize, now: Instant) -> Vec<(B::Key, Queued<B>)> {
        self.drop_abandoned();
        let full = self.len() >= most;
        let taken: Vec<_> = self
            .order
            .drain(..most.min(self.order.len()))
            .filter_map(|key| self.items.remove(&key).map(|item| (key, item)))
            .collect();
        if let Some(first) = self.first.filter(|_| !taken.is_empty()) {
            self.pace.departed(now, first, self.last, full);
        }
        // The rest keep the old start of the wait; it only matters that they are waiting.
        self.first = self.first.filter(|_| !self.items.is_empty());
        taken
    }
}

/// The silence after which a call is due.
const QUIET: Duration = Duration::from_millis(5);
/// The longest that a first call waits while questions keep coming.
const PATIENCE: Duration = Duration::from_millis(25);
/// Questions that come later than this after a call are not part of a stream. Bounds the rate of such calls.
const IDLE: Duration = Duration::from_millis(50);
/// The largest distance between two calls that are not full.
pub(super) const WIDEST: Duration = Duration::from_millis(200);

/// Decides when a call that is not full is due.
///
/// A lone question waits for [`QUIET`] and no longer. While more questions keep coming the call waits for them, up to
/// [`PATIENCE`]. Under a steady stream, the distance between calls grows, up to [`WIDEST`], for as long as growing
/// gathers more questions: questions that arrive late in the gap between two calls show that the stream goes on by
/// itself. Callers that ask again only after an answer arrive early in the gap and are not held up.
#[derive(Debug)]
struct Pace {
    distance: Duration,
    departed: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { distance: QUIET, departed: None }
    }
}

impl Pace {
    /// When questions are due that arrived between `first` and `last`.
    fn due(&self, first: Instant, last: Instant) -> Instant {
        let quiet = (last + QUIET).min(first + PATIENCE);
        self.departed.map_or(quiet, |departed| quiet.max(departed + self.distance))
    }

    /// Records a call whose questions arrived between `first` and `last`.
    fn departed(&mut self, now: Instant, first: Instant, last: Instant, full: bool) {
        if let Some(before) = self.departed.replace(now) {
            let idle = first > before + IDLE.max(self.distance * 2);
            let late = last.saturating_duration_since(before) >= now.saturating_duration_since(before) / 2;
            self.distance = if idle {
                QUIET
            } else if full {
                // A burst says nothing about a stream.
                self.distance
            } else if late {
                (self.distance * 2).min(WIDEST)
            } else {
                (self.distance / 2).max(QUIET)
            };
        }
    }
}
