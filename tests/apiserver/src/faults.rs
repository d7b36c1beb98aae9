//! Bad days, at will and at any moment: for one client or for all of them.

use std::{fmt, sync::Arc, time::Duration};

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{asked::Asked, refusal::Refusal};

/// What happens to one request, instead of or on top of what would have happened.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is heard so much later, and then as if nothing had been.
    Delay(Duration),
    /// It is applied, and answered so much later.
    AnswerAfter(Duration),
    /// It is not applied but refused.
    Refuse(Refusal),
    /// It is applied, and answered with this all the same, as a timeout between the apiserver and etcd is.
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
    /// The head of the answer comes, and half of the body, and no more.
    Stall,
    /// A watch that ends after so many lines.
    EndWatch {
        /// None is: at once.
        after: usize,
        /// How.
        cut: Cut,
    },
}

/// How a watch ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As if it had timed out.
    End,
    /// The connection breaks, in the middle of a line.
    Break,
    /// Nothing more comes, not even an end.
    Silence,
}

/// Which state a client is shown where it accepts an older one: LIST and GET with resourceVersion 0, watches, streaming
/// lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// The newest one.
    #[default]
    Current,
    /// That of so many writes ago.
    Behind(u64),
    /// That of a replica that stopped following at this version.
    StoppedAt(u64),
    /// That of so long ago.
    Late(Duration),
}

type Interceptor = Arc<Mutex<dyn FnMut(&Asked) -> Option<Fault> + Send>>;

/// The faults of one client, or of all. Cheap to clone. Changes take effect at once, on open watches too.
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

/// What a client has to bear, its own faults and everybody's together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bearing {
    /// Before and after it is applied.
    pub(crate) delays: [Duration; 2],
    pub(crate) view: View,
    pub(crate) streaming_lists: bool,
    pub(crate) silent: bool,
    /// Counts cuts; a watch ends when it differs from when it began.
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

    /// Every request takes so long before it is applied and until it is answered.
    pub fn latency(&self, before: Duration, after: Duration) {
        self.state.lock().delays = [before, after];
    }

    /// Which state is shown where an older one is accepted.
    pub fn view(&self, view: View) {
        self.state.lock().view = view;
        self.switched.send_replace(());
    }

    /// Whether there are streaming lists; open watches stay.
    pub fn streaming_lists(&self, on: bool) {
        self.state.lock().no_streaming_lists = !on;
    }

    /// Whether watches stay open and say nothing. What they missed comes when they may speak again.
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

    /// Asks `interceptor` about every request before it is looked at. It may change the world, and returns a fault or
    /// none; the first that is no delay counts. It stays until the answer of this is dropped.
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

    /// The next request that `matches` gets this fault.
    pub fn next(&self, matches: impl Fn(&Asked) -> bool + Send + 'static, fault: Fault) {
        let mut fault = Some(fault);
        self.intercept(move |asked| if matches(asked) { fault.take() } else { None }).stay();
    }

    /// All requests that `matches` get this fault, until it is cleared.
    pub fn every(&self, matches: impl Fn(&Asked) -> bool + Send + 'static, fault: Fault) -> Interception {
        self.intercept(move |asked| matches(asked).then(|| fault.clone()))
    }

    /// A fair day again. Watches that were cut stay so.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        let (cuts, cut, numbered) = (state.cuts, state.cut, state.numbered);
        *state = State { cuts, cut, numbered, ..State::default() };
        drop(state);
        self.switched.send_replace(());
    }

    /// What the interceptors say to a request: faults in their order, up to the first that is no delay.
    pub(crate) fn told(&self, asked: &Asked) -> Vec<Fault> {
        // They run without the lock: they may switch faults.
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

    /// With those of everybody.
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
    /// How a watch that began under `before` was cut since, if it was.
    pub(crate) fn cut_since(&self, before: &Self) -> Option<Cut> {
        (0..2).find(|at| self.cuts[*at] != before.cuts[*at]).and_then(|at| self.cut[at])
    }
}

/// An interceptor at work; it goes with this.
#[derive(Debug)]
#[must_use = "the interceptor goes with it"]
pub struct Interception {
    faults: Option<Faults>,
    number: u64,
}

impl Interception {
    /// It stays until [`Faults::clear`].
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
