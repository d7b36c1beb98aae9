//! Limits the concurrency and the rate of calls to a provider, by class of call.
//!
//! In: the provider's advertised limits, and how calls ended. Out: permits. Calls of one kind get permits in the order
//! in which they asked; among waiting kinds, the one served longest ago is next. A kind with calls under way leaves one
//! permit for each kind that has none, so that calls which take minutes hold up only their own kind. When the cloud
//! throttles, what shares the exhausted quota pauses, or the whole class if that is unknown; an overloaded provider gets half
//! the concurrency for a while.

#[cfg(test)]
mod tests;

use std::{pin::pin, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::method::{Class, Kind, Method};
use ccm_base::bucket::Bucket;

/// The longest wait for a paused class; if more time is left, the call is refused with a retry delay.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Caps the pause that the cloud asks for: another throttled call costs less than a class that does nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long an overloaded provider gets reduced concurrency before it doubles again.
const RELIEF: Duration = Duration::from_secs(30);
/// Caps the concurrency that a provider advertises.
const MOST_AT_ONCE: u32 = 1024;

/// The limits of one provider.
#[derive(Debug)]
pub(crate) struct Limiter {
    reads: Arc<Gate>,
    mutations: Arc<Gate>,
}

impl Limiter {
    pub(crate) fn new() -> Self {
        let gate = |at_once| Arc::new(Gate::new(at_once));
        Self {
            reads: gate(defaults::MAX_CONCURRENT_READS),
            mutations: gate(defaults::MAX_CONCURRENT_MUTATIONS),
        }
    }

    /// Takes over the advertised limits and the kinds of calls that the provider serves.
    pub(crate) fn configure(&self, limits: &pb::Limits, kinds: &[Kind], now: Instant) {
        let or = |value, default| if value == 0 { default } else { value };
        let reads = or(limits.max_concurrent_reads, defaults::MAX_CONCURRENT_READS);
        let reading: Vec<_> = kinds.iter().copied().filter(|kind| kind.reads()).collect();
        self.reads.configure(reads, limits.reads, &reading, now);
        let mutations = or(limits.max_concurrent_mutations, defaults::MAX_CONCURRENT_MUTATIONS);
        let changing: Vec<_> = kinds.iter().copied().filter(|kind| kind.mutates()).collect();
        self.mutations.configure(mutations, limits.mutations, &changing, now);
    }

    /// Waits for permission to call; if the class is paused for long, refuses with the time left.
    pub(crate) async fn permit(&self, method: &Method) -> Result<Permit, Duration> {
        match self.gate(method.class) {
            Some(gate) => gate.permit(Kind::of(method)).await,
            None => Ok(Permit(None)),
        }
    }

    /// Waits until a call that already holds a permit may be repeated.
    pub(crate) async fn once_more(&self, method: &Method) {
        let Some(gate) = self.gate(method.class) else { return };
        let token = || gate.state.lock().bucket.as_mut().and_then(|bucket| bucket.take(Instant::now()));
        while let Some(wait) = token() {
            sleep(wait).await;
        }
    }

    /// Pauses what the cloud throttles: calls of this class to the services that `scope` names, or all of the class.
    /// Returns by how much the pause grew.
    pub(crate) fn pause(&self, class: Class, scope: &str, pause: Duration, now: Instant) -> Duration {
        let is_named = |kind: &Kind| scope.split(',').any(|name| name.trim() == kind.service());
        let named: Vec<Kind> = Kind::ALL.into_iter().filter(is_named).collect();
        let paused = if named.is_empty() { &Kind::ALL[..] } else { &named };
        self.gate(class).map_or(Duration::ZERO, |gate| gate.pause(paused, pause.min(LONGEST_PAUSE), now))
    }

    /// Lifts all pauses: a new process answers, and nothing is known of how the cloud treats its calls.
    pub(crate) fn lift_pauses(&self) {
        for gate in [&self.reads, &self.mutations] {
            gate.state.lock().paused_until = Default::default();
            gate.changed.notify_waiters();
        }
    }

    /// Halves the concurrency of an overloaded provider.
    pub(crate) fn overloaded(&self, now: Instant) {
        self.reads.overloaded(now);
        self.mutations.overloaded(now);
    }

    fn gate(&self, class: Class) -> Option<&Arc<Gate>> {
        match class {
            Class::Local => None,
            Class::Read => Some(&self.reads),
            Class::Mutation => Some(&self.mutations),
        }
    }
}

/// How many calls of one kind that change the cloud get a permit while calls of the others are idle.
pub(crate) fn most_of_a_kind(limits: &pb::Limits, kinds: &[Kind]) -> usize {
    let limit = match limits.max_concurrent_mutations {
        0 => defaults::MAX_CONCURRENT_MUTATIONS,
        limit => limit.min(MOST_AT_ONCE),
    };
    let others = u32::try_from(kinds.iter().filter(|kind| kind.mutates()).count()).unwrap_or(u32::MAX);
    let left_to_others = others.saturating_sub(1).min(limit.saturating_sub(1) / 2);
    usize::try_from(limit - left_to_others).unwrap_or(usize::MAX)
}

/// Permission to make one call; dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Permit(Option<(Arc<Gate>, Kind)>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((gate, kind)) = &self.0 {
            gate.state.lock().shares.ended(*kind);
            gate.changed.notify_waiters();
        }
    }
}

#[derive(Debug)]
struct Gate {
    state: Mutex<State>,
    /// One queue per kind, locked by the next call of that kind: fair.
    queues: [tokio::sync::Mutex<()>; Kind::ALL.len()],
    /// Wakes the next call of each kind.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    limit: u32,
    effective: u32,
    relief_until: Option<Instant>,
    shares: Shares,
    bucket: Option<Bucket>,
    /// By kind.
    paused_until: [Option<Instant>; Kind::ALL.len()],
}

/// Whether the next call of a kind may start.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Now,
    After(Duration),
    WhenItChanges,
    Refused(Duration),
}

/// The next call of a kind, until it starts or is dropped.
struct NextCall<'a> {
    gate: &'a Gate,
    kind: Kind,
}

impl Drop for NextCall<'_> {
    fn drop(&mut self) {
        self.gate.state.lock().shares.waits(self.kind, false);
        // It may have been ahead of others.
        self.gate.changed.notify_waiters();
    }
}

impl Gate {
    fn new(limit: u32) -> Self {
        Self {
            state: Mutex::new(State {
                limit,
                effective: limit,
                relief_until: None,
                shares: Shares::default(),
                bucket: None,
                paused_until: Default::default(),
            }),
            queues: Default::default(),
            changed: Notify::new(),
        }
    }

    async fn permit(self: &Arc<Self>, kind: Kind) -> Result<Permit, Duration> {
        let _first = self.queues[kind as usize].lock().await;
        self.state.lock().shares.waits(kind, true);
        let _next = NextCall { gate: self, kind };
        loop {
            let mut changed = pin!(self.changed.notified());
            // Enabled before the state is read, so that no change is missed.
            changed.as_mut().enable();
            let admission = self.state.lock().admit(kind, Instant::now());
            match admission {
                Admission::Now => return Ok(Permit(Some((Arc::clone(self), kind)))),
                Admission::Refused(left) => return Err(left),
                Admission::WhenItChanges => changed.await,
                Admission::After(wait) => {
                    // Re-read the state, whichever comes first.
                    let _ = tokio::time::timeout(wait, changed).await;
                }
            }
        }
    }

    fn configure(&self, limit: u32, rate: Option<pb::RateLimit>, kinds: &[Kind], now: Instant) {
        let mut state = self.state.lock();
        let limit = limit.min(MOST_AT_ONCE);
        if state.limit != limit {
            state.limit = limit;
            state.effective = limit;
            state.relief_until = None;
        }
        state.shares.may_be(kinds);
        // A reconnect does not refill the bucket.
        let rate = rate.and_then(believed);
        if state.bucket.as_ref().map(Bucket::rate) != rate {
            state.bucket = rate.map(|(per_second, burst)| Bucket::full(per_second, burst, now));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn pause(&self, kinds: &[Kind], pause: Duration, now: Instant) -> Duration {
        let mut state = self.state.lock();
        let until = now + pause;
        let grew = kinds.iter().map(|kind| {
            let paused = &mut state.paused_until[*kind as usize];
            let before = paused.unwrap_or(now).max(now);
            *paused = Some(until.max(before));
            until.saturating_duration_since(before)
        });
        let grew = grew.max().unwrap_or_default();
        drop(state);
        self.changed.notify_waiters();
        grew
    }

    fn overloaded(&self, now: Instant) {
        let mut state = self.state.lock();
        // Concurrent calls report the same overload: count it once.
        let just_now =
            state.relief_until.is_some_and(|until| until.saturating_duration_since(now) > RELIEF * 9 / 10);
        if !just_now {
            state.effective = (state.effective / 2).max(1);
            state.relief_until = Some(now + RELIEF);
        }
    }
}

impl State {
    fn admit(&mut self, kind: Kind, now: Instant) -> Admission {
        if let Some(left) = self.paused_until[kind as usize].map(|until| until.saturating_duration_since(now))
            && !left.is_zero()
        {
            return if left > LONGEST_WAIT { Admission::Refused(left) } else { Admission::After(left) };
        }
        self.recover(now);
        // Who has to wait for the end of a pause keeps nobody else waiting.
        let may_go = |index: usize| self.paused_until[index].is_none_or(|until| until <= now);
        if !self.shares.is_turn_of(kind, self.effective, may_go) {
            return match self.relief_until {
                Some(until) => Admission::After(until.saturating_duration_since(now)),
                None => Admission::WhenItChanges,
            };
        }
        if let Some(wait) = self.bucket.as_mut().and_then(|bucket| bucket.take(now)) {
            return Admission::After(wait);
        }
        self.shares.begun(kind);
        Admission::Now
    }

    /// Doubles the concurrency after each relief period, up to the limit.
    fn recover(&mut self, now: Instant) {
        while let Some(until) = self.relief_until.filter(|until| *until <= now) {
            self.effective = self.effective.saturating_mul(2).min(self.limit);
            self.relief_until = (self.effective < self.limit).then_some(until + RELIEF);
        }
    }
}

/// Tokens per second and the burst; `None` if the rate is not finite and positive.
fn believed(rate: pb::RateLimit) -> Option<(f64, f64)> {
    let is_rate = rate.per_second.is_finite() && rate.per_second > 0.0;
    is_rate.then(|| (rate.per_second, f64::from(rate.burst.max(1))))
}

/// The calls of one class, by kind.
#[derive(Debug, Default)]
struct Shares {
    kinds: [KindShare; Kind::ALL.len()],
    admitted: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct KindShare {
    /// The provider serves this kind.
    may_be: bool,
    under_way: u32,
    waits: bool,
    /// The number of its last admission.
    served: u64,
}

impl Shares {
    fn may_be(&mut self, kinds: &[Kind]) {
        self.kinds.iter_mut().for_each(|share| share.may_be = false);
        for kind in kinds {
            self.kinds[*kind as usize].may_be = true;
        }
    }

    fn waits(&mut self, kind: Kind, waits: bool) {
        self.kinds[kind as usize].waits = waits;
    }

    fn begun(&mut self, kind: Kind) {
        self.admitted += 1;
        let share = &mut self.kinds[kind as usize];
        share.under_way += 1;
        share.served = self.admitted;
    }

    fn ended(&mut self, kind: Kind) {
        self.kinds[kind as usize].under_way -= 1;
    }

    /// Whether a waiting kind gets the next permit under this limit.
    fn is_turn_of(&self, kind: Kind, limit: u32, may_go: impl Fn(usize) -> bool) -> bool {
        let mine = kind as usize;
        let goes_before = |(index, share): (usize, &KindShare)| {
            let is_next = share.waits && share.served < self.kinds[mine].served;
            index != mine && is_next && may_go(index) && self.fits(index, limit)
        };
        self.fits(mine, limit) && !self.kinds.iter().enumerate().any(goes_before)
    }

    /// Whether a permit is free beyond those reserved for other kinds.
    fn fits(&self, index: usize, limit: u32) -> bool {
        let free = limit.saturating_sub(self.kinds.iter().map(|share| share.under_way).sum());
        let idle = |share: &&KindShare| share.may_be && share.under_way == 0;
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
