//! Gathers questions that are asked at about the same time into one call.
//!
//! In: single questions, each in a lane (questions of one lane may share a call) and with a key. Out: the answer to
//! each. The implementation of [`Batched`] decides what a call is, how many questions fit into one, and when an answer
//! that is already under way is good enough for a later question.
//!
//! ```text
//! ask ──► pending of its lane ──► due (see `Pace`) ──► permit ──► as many as fit ──► call ──► answers
//!             ▲ same key: one item      ▲ while there is none, more gather
//! ```
//!
//! A caller that gives up costs the others nothing: its question is dropped unless another caller asked it too, and a
//! call that no caller waits for is cancelled.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    fmt::{self, Debug},
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tracing::Instrument as _;

use ccm_base::trace::{self, Askers};

/// Lanes unused for this long are forgotten.
const FORGET_LANE: Duration = Duration::from_secs(60);

/// A kind of question that can share a call.
pub(crate) trait Batched: Send + Sync + 'static {
    /// Only questions of the same lane may share a call.
    type Lane: Clone + Eq + Hash + Debug + Send + Sync + 'static;
    /// Identifies the subject of a question.
    type Key: Clone + Eq + Hash + Debug + Send + Sync + 'static;
    type Question: Clone + Send + Sync + 'static;
    /// The answer to one question.
    type Answer: Clone + Send + Sync + 'static;
    /// Permission to make one call.
    type Turn: Send + 'static;

    /// The maximum number of questions in one call.
    fn most(&self) -> usize;

    /// Whether an answer asked for in lane `other`, `age` ago, is good enough for a question in lane `asked`.
    fn serves(&self, other: &Self::Lane, asked: &Self::Lane, age: Duration) -> bool;

    /// Whether two questions with the same key ask the same.
    fn same(&self, a: &Self::Question, b: &Self::Question) -> bool;

    /// Waits for permission to make a call.
    fn turn(&self) -> impl Future<Output = Self::Turn> + Send;

    /// Makes one call and lands each answer as soon as it arrives.
    fn call(
        &self,
        lane: &Self::Lane,
        items: Vec<(Self::Key, Self::Question)>,
        turn: Self::Turn,
        landing: &Landing<'_, Self>,
    ) -> impl Future<Output = ()> + Send
    where
        Self: Sized;

    /// The answer given to a question that got none, and why.
    fn lost(&self, why: &'static str) -> Self::Answer;
}

const UNANSWERED: &str = "the provider's response does not contain this item exactly once";
const PANICKED: &str = "the task that made the call panicked: a bug of the host";

/// Gathers questions into calls.
pub(crate) struct Batcher<B: Batched> {
    pub(super) batched: B,
    state: Mutex<State<B>>,
}

struct State<B: Batched> {
    lanes: HashMap<B::Lane, Lane<B>>,
    /// Calls under way, by key.
    flying: HashMap<B::Key, Vec<Flying<B>>>,
    calls: u64,
}

struct Flying<B: Batched> {
    call: u64,
    since: Instant,
    lane: B::Lane,
    question: B::Question,
    answer: Slot<B>,
}

/// Holds the answer to an item once it arrives.
type Slot<B> = Arc<watch::Sender<Option<<B as Batched>::Answer>>>;

/// The questions of one call.
type Questions<B> = Vec<(<B as Batched>::Key, <B as Batched>::Question)>;

/// A call that is about to be made.
struct Departure<B: Batched> {
    call: u64,
    lane: B::Lane,
    items: HashMap<B::Key, Queued<B>>,
}

/// Collects the answers of one call.
pub(crate) struct Landing<'a, B: Batched> {
    batcher: &'a Batcher<B>,
    departure: &'a Departure<B>,
}

impl<B: Batched> Landing<'_, B> {
    /// Whether anybody still waits for the answer to this question. Nobody joins one that was given up.
    pub(crate) fn is_awaited(&self, key: &B::Key) -> bool {
        self.departure.items.get(key).is_some_and(|item| item.answer.receiver_count() > 0)
    }

    /// Hands these answers to their callers. Only the first answer to an item counts.
    pub(crate) fn land(&self, answers: impl IntoIterator<Item = (B::Key, B::Answer)>) {
        for (key, answer) in answers {
            let Some(item) = self.departure.items.get(&key) else { continue };
            self.batcher.state.lock().land_one(self.departure.call, &key);
            item.answer.send_if_modified(|slot| {
                let is_first = slot.is_none();
                if is_first {
                    *slot = Some(answer);
                }
                is_first
            });
        }
    }
}

impl<B: Batched> Debug for Batcher<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Batcher").finish_non_exhaustive()
    }
}

impl<B: Batched> Batcher<B> {
    pub(crate) fn new(batched: B) -> Arc<Self> {
        let state = State { lanes: HashMap::new(), flying: HashMap::new(), calls: 0 };
        Arc::new(Self { batched, state: Mutex::new(state) })
    }

    /// Asks one question and waits for its answer.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        lane: B::Lane,
        key: B::Key,
        question: B::Question,
    ) -> B::Answer {
        let mut answer = self.enqueue(lane, key, question);
        let arrived = answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        arrived.unwrap_or_else(|| self.batched.lost(PANICKED))
    }

    fn enqueue(
        self: &Arc<Self>,
        lane: B::Lane,
        key: B::Key,
        question: B::Question,
    ) -> watch::Receiver<Option<B::Answer>> {
        let now = Instant::now();
        let batched = &self.batched;
        let mut state = self.state.lock();
        if let Some(shared) = state.share(batched, &lane, &key, &question, now) {
            return shared;
        }
        state.lanes.retain(|_, lane| lane.driven || !lane.is_older_than(FORGET_LANE, now));
        let entry = state.lanes.entry(lane.clone()).or_insert_with(Lane::new);
        let receiver = entry.push(key, question, now);
        if entry.len() >= batched.most() {
            entry.full.notify_one();
        }
        if !std::mem::replace(&mut entry.driven, true) {
            let full = Arc::clone(&entry.full);
            drop(state);
            tokio::spawn(keep_driving(Arc::clone(self), lane, full));
        }
        receiver
    }
}

impl<B: Batched> State<B> {
    /// Joins a pending question or a call under way whose answer is good enough.
    fn share(
        &mut self,
        batched: &B,
        asked: &B::Lane,
        key: &B::Key,
        question: &B::Question,
        now: Instant,
    ) -> Option<watch::Receiver<Option<B::Answer>>> {
        for (lane, pending) in &mut self.lanes {
            if (lane == asked || batched.serves(lane, asked, Duration::ZERO))
                && let Some(receiver) = pending.join(batched, key, question)
            {
                return Some(receiver);
            }
        }
        let flying = self.flying.get(key)?;
        let good = |flight: &&Flying<B>| {
            let age = now.saturating_duration_since(flight.since);
            // A call that no caller waits for is being cancelled.
            flight.answer.receiver_count() > 0
                && batched.serves(&flight.lane, asked, age)
                && batched.same(&flight.question, question)
        };
        flying.iter().find(good).map(|flight| flight.answer.subscribe())
    }

    fn land(&mut self, departure: &Departure<B>) {
        for key in departure.items.keys() {
            self.land_one(departure.call, key);
        }
    }

    fn land_one(&mut self, call: u64, key: &B::Key) {
        if let Some(flights) = self.flying.get_mut(key) {
            flights.retain(|flight| flight.call != call);
            if flights.is_empty() {
                self.flying.remove(key);
            }
        }
    }
}

/// A panic is a bug of the host: callers waiting in the lane get an error, and the next question restarts the lane.
async fn keep_driving<B: Batched>(batcher: Arc<Batcher<B>>, lane: B::Lane, full: Arc<Notify>) {
    let driving = drive(Arc::clone(&batcher), lane.clone(), full);
    if AssertUnwindSafe(driving).catch_unwind().await.is_err() {
        batcher.state.lock().lanes.remove(&lane);
    }
}

/// Sends what gathers in one lane until the lane is empty.
async fn drive<B: Batched>(batcher: Arc<Batcher<B>>, lane: B::Lane, full: Arc<Notify>) {
    loop {
        let wait = {
            let mut state = batcher.state.lock();
            let Some(entry) = state.lanes.get_mut(&lane) else { return };
            entry.drop_abandoned();
            if entry.len() == 0 {
                entry.driven = false;
                return;
            }
            let now = Instant::now();
            if entry.len() >= batcher.batched.most() { None } else { entry.due().filter(|due| *due > now) }
        };
        if let Some(due) = wait {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = full.notified() => {}
            }
            continue;
        }
        let turn = batcher.batched.turn().await;
        if let Some((departure, questions)) = batcher.depart(&lane) {
            let span = trace::batch(departure.items.values().map(|item| &item.askers));
            tokio::spawn(fly(Arc::clone(&batcher), departure, questions, turn).instrument(span));
        }
    }
}

impl<B: Batched> Batcher<B> {
    fn depart(&self, lane: &B::Lane) -> Option<(Departure<B>, Questions<B>)> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let items = state.lanes.get_mut(lane)?.take(self.batched.most(), now);
        if items.is_empty() {
            return None;
        }
        state.calls += 1;
        let call = state.calls;
        for (key, item) in &items {
            state.flying.entry(key.clone()).or_default().push(Flying {
                call,
                since: now,
                lane: lane.clone(),
                question: item.question.clone(),
                answer: Arc::clone(&item.answer),
            });
        }
        let questions = items.iter().map(|(key, item)| (key.clone(), item.question.clone())).collect();
        Some((Departure { call, lane: lane.clone(), items: items.into_iter().collect() }, questions))
    }

    /// Ends when no caller waits for any item; from then on the items cannot be joined.
    async fn abandoned(&self, departure: &Departure<B>) {
        loop {
            for item in departure.items.values() {
                item.answer.closed().await;
            }
            let mut state = self.state.lock();
            // Somebody may have joined the first item while this waited for the last.
            if departure.items.values().all(|item| item.answer.receiver_count() == 0) {
                state.land(departure);
                return;
            }
        }
    }
}

async fn fly<B: Batched>(
    batcher: Arc<Batcher<B>>,
    departure: Departure<B>,
    questions: Questions<B>,
    turn: B::Turn,
) {
    let landing = Landing { batcher: &batcher, departure: &departure };
    let call = batcher.batched.call(&departure.lane, questions, turn, &landing);
    let why = tokio::select! {
        ended = AssertUnwindSafe(call).catch_unwind() => if ended.is_ok() { UNANSWERED } else { PANICKED },
        () = batcher.abandoned(&departure) => return,
    };
    landing.land(departure.items.keys().map(|key| (key.clone(), batcher.batched.lost(why))));
}

struct Lane<B: Batched> {
    order: VecDeque<B::Key>,
    items: HashMap<B::Key, Queued<B>>,
    pace: Pace,
    first: Option<Instant>,
    last: Instant,
    /// A task is sending this lane's questions.
    driven: bool,
    /// Notified when a call would be full.
    full: Arc<Notify>,
}

/// A question with at least one caller waiting for it.
struct Queued<B: Batched> {
    question: B::Question,
    answer: Slot<B>,
    askers: Askers,
}

impl<B: Batched> Lane<B> {
    fn new() -> Self {
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

    fn len(&self) -> usize {
        self.items.len()
    }

    fn is_older_than(&self, age: Duration, now: Instant) -> bool {
        self.items.is_empty() && now.saturating_duration_since(self.last) > age
    }

    /// Adds a question that is not waiting in this lane yet.
    fn push(
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
    fn join(
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

    fn due(&self) -> Option<Instant> {
        self.first.map(|first| self.pace.due(first, self.last))
    }

    /// Drops questions that no caller waits for.
    fn drop_abandoned(&mut self) {
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
    fn take(&mut self, most: usize, now: Instant) -> Vec<(B::Key, Queued<B>)> {
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
const WIDEST: Duration = Duration::from_millis(200);

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
