//! Faults on demand, at any moment: for one client or for all of them.

use std::{fmt, sync::Arc, time::Duration};

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{asked::Asked, refusal::Refusal};

/// What happens to one request, instead of or in addition to the usual.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is processed this much later, and then as usual.
    Delay(Duration),
    /// It is applied, but answered this much later.
    AnswerAfter(Duration),
    /// It is not applied but refused.
    Refuse(Refusal),
    /// It is applied, but answered with this refusal, as on a timeout between the apiserver and etcd.
    RefuseAfter(Refusal),
    /// It is not applied; the connection breaks.
    Lose,
    /// It is applied; the connection breaks before the answer.
    LoseAnswer,
    /// It is not applied and never answered.
    Hang,
    /// It is applied and never answered.
    HangAfter,
    /// It is not applied; these bytes are the answer.
    Answer {
        /// The HTTP status.
        code: u16,
        /// Anything, JSON or not.
        body: Bytes,
    },
    /// The client receives the head and half of the body, and nothing more.
    Stall,
    /// A watch ends after this many lines.
    EndWatch {
        /// Without a value, at once.
        after: usize,
        /// How it ends.
        cut: Cut,
    },
}

/// How a watch ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As if it had timed out.
    End,
    /// The connection breaks, in the middle of a line.
    Break,
    /// Nothing more arrives, not even an end.
    Silence,
}

/// Which state a client sees where it accepts an older one: LIST and GET with resourceVersion 0, watches, streaming
/// lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// The newest state.
    #[default]
    Current,
    /// The state of this many writes ago.
    Behind(u64),
    /// The state of a replica that stopped following at this version.
    StoppedAt(u64),
    /// The state of this long ago.
    Late(Duration),
}

type Interceptor = Arc<Mutex<dyn FnMut(&Asked) -> Option<Fault> + Send>>;

/// The faults of one client, or of all. Cheap to clone. Changes take effect at once, even on open watches.
#[derive(Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    switched: watch::Sender<()>,
}

#[derive(Default)]
pub(crate) struct State {
    delays: [Duration; 2],
    view: View,
    no_streaming_lists: bool,
    silent: bool,
    cuts: u64,
    cut: Option<Cut>,
    interceptors: Vec<(u64, Interceptor)>,
    numbered: u64,
}

/// The faults that apply to one client: its own and everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bearing {
    /// Before and after the request is applied.
    pub(crate) delays: [Duration; 2],
    pub(crate) view: View,
    pub(crate) streaming_lists: bool,
    pub(crate) silent: bool,
    /// Counts cuts; a watch ends when this differs from its value when the watch began.
    pub(crate) cuts: [u64; 2],
    pub(crate) cut: [Option<Cut>; 2],
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Faults")
            .field("view", &state.view)
            .field("silent", &state.silent)
            .field("interceptors", &state.interceptors.len())
            .finish_non_exhaustive()
    }
}

impl Faults {
    pub(crate) fn new(switched: watch::Sender<()>) -> Self {
        Self { state: Arc::default(), switched }
    }

    /// Delays every request by this much before it is applied, and its answer by this much.
    pub fn latency(&self, before: Duration, after: Duration) {
        self.state.lock().delays = [before, after];
    }

    /// Sets which state clients see where they accept an older one.
    pub fn view(&self, view: View) {
        self.state.lock().view = view;
        self.switched.send_replace(());
    }

    /// Whether streaming lists are supported; open watches stay.
    pub fn streaming_lists(&self, on: bool) {
        self.state.lock().no_streaming_lists = !on;
    }

    /// Keeps watches open but silent. They deliver what they missed once they may speak again.
    pub fn silence_watches(&self, on: bool) {
        self.state.lock().silent = on;
        self.switched.send_replace(());
    }

    /// Ends all open watches.
    pub fn cut_watches(&self, cut: Cut) {
        let mut state = self.state.lock();
        state.cuts += 1;
        state.cut = Some(cut);
        drop(state);
        self.switched.send_replace(());
    }

    /// Calls `interceptor` for every request before it is processed. It may change the world, and returns a fault or
    /// none; the first that is not a delay counts. It stays until the returned value is dropped.
    pub fn intercept(
        &self,
        interceptor: impl FnMut(&Asked) -> Option<Fault> + Send + 'static,
    ) -> Interception {
        let mut state = self.state.lock();
        state.numbered += 1;
        let number = state.numbered;
        state.interceptors.push((number, Arc::new(Mutex::new(interceptor))));
        Interception { faults: Some(self.clone()), number }
    }

    /// Gives the next request that `matches` this fault.
    pub fn next(&self, matches: impl Fn(&Asked) -> bool + Send + 'static, fault: Fault) {
        let mut fault = Some(fault);
        self.intercept(move |asked| if matches(asked) { fault.take() } else { None }).stay();
    }

    /// Gives all requests that `matches` this fault, until it is cleared.
    pub fn every(&self, matches: impl Fn(&Asked) -> bool + Send + 'static, fault: Fault) -> Interception {
        self.intercept(move |asked| matches(asked).then(|| fault.clone()))
    }

    /// Clears all faults. Watches that were cut stay so.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        let (cuts, cut, numbered) = (state.cuts, state.cut, state.numbered);
        *state = State { cuts, cut, numbered, ..State::default() };
        drop(state);
        self.switched.send_replace(());
    }

    /// The faults that the interceptors return for a request, in order, up to the first that is not a delay.
    pub(crate) fn told(&self, asked: &Asked) -> Vec<Fault> {
        // They run without the lock, since they may change faults.
        let interceptors: Vec<_> =
            self.state.lock().interceptors.iter().map(|(_, one)| one.clone()).collect();
        let mut faults = Vec::new();
        for interceptor in interceptors {
            if let Some(fault) = (*interceptor.lock())(asked) {
                let last = !matches!(fault, Fault::Delay(_));
                faults.push(fault);
                if last {
                    break;
                }
            }
        }
        faults
    }

    /// Combines these faults with everybody's.
    pub(crate) fn with(&self, all: &Self) -> Bearing {
        let (own, all) = (self.state.lock(), all.state.lock());
        Bearing {
            delays: [own.delays[0] + all.delays[0], own.delays[1] + all.delays[1]],
            view: if own.view == View::Current { all.view } else { own.view },
            streaming_lists: !own.no_streaming_lists && !all.no_streaming_lists,
            silent: own.silent || all.silent,
            cuts: [own.cuts, all.cuts],
            cut: [own.cut, all.cut],
        }
    }
}

impl Bearing {
    /// How a watch that began under `before` has been cut since, if it was.
    pub(crate) fn cut_since(&self, before: &Self) -> Option<Cut> {
        (0..2).find(|at| self.cuts[*at] != before.cuts[*at]).and_then(|at| self.cut[at])
    }
}

/// An active interceptor; dropping this removes it.
#[derive(Debug)]
#[must_use = "the interceptor goes with it"]
pub struct Interception {
    faults: Option<Faults>,
    number: u64,
}

impl Interception {
    /// Keeps it until [`Faults::clear`].
    pub fn stay(mut self) {
        self.faults = None;
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        if let Some(faults) = &self.faults {
            faults.state.lock().interceptors.retain(|(number, _)| *number != self.number);
        }
    }
}
