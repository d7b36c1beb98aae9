//! Limits the concurrency and the rate of calls to a provider, by class of call.
//!
//! In: the provider's advertised limits, and how calls ended. Out: permits. Calls of one kind get permits in the order
//! in which they asked; among waiting kinds, the one served longest ago is next. A kind with calls under way leaves one
//! permit for each kind that has none, so that calls which take minutes hold up only their own kind. When the cloud
//! throttles, the whole class pauses; an overloaded provider gets half the concurrency for a while.

mod bucket;
mod share;
#[cfg(test)]
mod tests;

use std::{pin::pin, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use self::{bucket::Bucket, share::Shares};
use super::method::{Class, Kind, Method};

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
pub(super) struct Limiter {
    reads: Arc<Gate>,
    mutations: Arc<Gate>,
}

impl Limiter {
    pub(super) fn new() -> Self {
        let gate = |at_once| Arc::new(Gate::new(at_once));
        Self {
            reads: gate(defaults::MAX_CONCURRENT_READS),
            mutations: gate(defaults::MAX_CONCURRENT_MUTATIONS),
        }
    }

    /// Takes over the advertised limits and the kinds of calls that the provider serves.
    pub(super) fn configure(&self, limits: &pb::Limits, kinds: &[Kind], now: Instant) {
        let or = |value, default| if value == 0 { default } else { value };
        let reads = or(limits.max_concurrent_reads, defaults::MAX_CONCURRENT_READS);
        let reading: Vec<_> = kinds.iter().copied().filter(|kind| kind.reads()).collect();
        self.reads.configure(reads, limits.reads, &reading, now);
        let mutations = or(limits.max_concurrent_mutations, defaults::MAX_CONCURRENT_MUTATIONS);
        let changing: Vec<_> = kinds.iter().copied().filter(|kind| kind.mutates()).collect();
        self.mutations.configure(mutations, limits.mutations, &changing, now);
    }

    /// Waits for permission to call; if the class is paused for long, refuses with the time left.
    pub(super) async fn permit(&self, method: &Method) -> Result<Permit, Duration> {
        match self.gate(method.class) {
            Some(gate) => gate.permit(method.kind()).await,
            None => Ok(Permit(None)),
        }
    }

    /// Waits until a call that already holds a permit may be repeated.
    pub(super) async fn once_more(&self, method: &Method) {
        let Some(gate) = self.gate(method.class) else { return };
        let token = || gate.state.lock().bucket.as_mut().and_then(|bucket| bucket.take(Instant::now()));
        while let Some(wait) = token() {
            sleep(wait).await;
        }
    }

    /// Pauses a class that the cloud throttles. Returns by how much the pause grew.
    pub(super) fn pause(&self, class: Class, pause: Duration, now: Instant) -> Duration {
        self.gate(class).map_or(Duration::ZERO, |gate| gate.pause(pause.min(LONGEST_PAUSE), now))
    }

    /// Lifts all pauses: a new process answers, and nothing is known of how the cloud treats its calls.
    pub(super) fn lift_pauses(&self) {
        for gate in [&self.reads, &self.mutations] {
            gate.state.lock().paused_until = None;
            gate.changed.notify_waiters();
        }
    }

    /// Halves the concurrency of an overloaded provider.
    pub(super) fn overloaded(&self, now: Instant) {
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

/// Permission to make one call; dropping it ends the call.
#[derive(Debug)]
pub(super) struct Permit(Option<(Arc<Gate>, Kind)>);

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
    queues: [tokio::sync::Mutex<()>; Kind::COUNT],
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
    paused_until: Option<Instant>,
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
struct Next<'a> {
    gate: &'a Gate,
    kind: Kind,
}

impl Drop for Next<'_> {
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
                paused_until: None,
            }),
            queues: Default::default(),
            changed: Notify::new(),
        }
    }

    async fn permit(self: &Arc<Self>, kind: Kind) -> Result<Permit, Duration> {
        let _first = self.queues[kind as usize].lock().await;
        self.state.lock().shares.waits(kind, true);
        let _next = Next { gate: self, kind };
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
        let same = state.bucket.as_ref().map(|bucket| bucket.rate) == rate.filter(bucket::is_valid);
        if !same {
            state.bucket = rate.filter(bucket::is_valid).map(|rate| Bucket::full(rate, now));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn pause(&self, pause: Duration, now: Instant) -> Duration {
        let mut state = self.state.lock();
        let until = now + pause;
        let before = state.paused_until.unwrap_or(now).max(now);
        state.paused_until = Some(until.max(before));
        drop(state);
        self.changed.notify_waiters();
        until.saturating_duration_since(before)
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
        if let Some(left) = self.paused_until.map(|until| until.saturating_duration_since(now))
            && !left.is_zero()
        {
            return if left > LONGEST_WAIT { Admission::Refused(left) } else { Admission::After(left) };
        }
        self.recover(now);
        if !self.shares.is_turn_of(kind, self.effective) {
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
