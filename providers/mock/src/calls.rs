//! The call log: every RPC received, its subjects, and how it ended.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::contract::Method;

/// How many calls the log keeps; the summary counts all of them.
const CAPACITY: usize = 20_000;
/// How many keys of a call the log shows.
pub(crate) const SHOWN_KEYS: usize = 10;

/// The outcome of a call that is still running.
pub const RUNNING: &str = "RUNNING";
/// The outcome of a call whose caller disconnected, or that was never answered.
pub const GONE: &str = "GONE";

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number, from 1.
    pub sequence: u64,
    /// When it arrived.
    pub at: Timestamp,
    /// Name of the RPC.
    pub method: String,
    /// The caller.
    pub peer: String,
    /// The caller's `x-request-id`.
    pub request_id: String,
    /// Uid of the cluster.
    pub cluster_uid: String,
    /// The leader's epoch, for `Lead` and a mutation; 0 without leader election.
    pub epoch: u64,
    /// How many items it had.
    pub items: u64,
    /// The first few keys.
    pub keys: Vec<String>,
    /// Canonical gRPC code, RUNNING, or GONE.
    pub code: String,
    /// The contract's reason, if it failed.
    pub reason: String,
    /// How long it took; absent while it runs.
    pub took_ms: Option<u64>,
    /// The faults that it met.
    pub faults: Vec<String>,
}

/// Totals of one RPC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodCalls {
    /// Number of calls.
    pub calls: u64,
    /// Number of items in all calls.
    pub items: u64,
    /// Maximum number of concurrent calls.
    pub most_at_once: u64,
    /// How calls ended, by code and reason: `OK`, `UNAVAILABLE RETRY_LATER`.
    pub outcomes: BTreeMap<String, u64>,
    #[serde(skip)]
    running: u64,
}

/// Totals of all RPCs, and of the cloud's own API behind them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSummary {
    /// By name of the RPC.
    pub methods: BTreeMap<String, MethodCalls>,
    /// Uses of the cloud's own API: one per batch, not per item.
    pub cloud: BTreeMap<String, u64>,
}

/// The log.
#[derive(Debug, Default)]
pub struct Calls {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    calls: VecDeque<Call>,
    methods: BTreeMap<String, MethodCalls>,
}

impl Calls {
    /// Records a call that arrives, and returns its number.
    pub(crate) fn begin(&self, method: &Method, mut call: Call) -> u64 {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.last += 1;
        if inner.calls.len() == CAPACITY {
            inner.calls.pop_front();
        }
        (call.sequence, call.method, call.code) = (inner.last, method.name.into(), RUNNING.into());
        let seen = inner.methods.entry(call.method.clone()).or_default();
        seen.calls += 1;
        seen.items += call.items;
        seen.running += 1;
        seen.most_at_once = seen.most_at_once.max(seen.running);
        inner.calls.push_back(call);
        inner.last
    }

    pub(crate) fn end(&self, method: &Method, sequence: u64, code: &str, reason: &str, now: Timestamp) {
        let mut inner = self.inner.lock();
        let first = inner.calls.front().map_or(u64::MAX, |call| call.sequence);
        let at = sequence.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(call) = at.and_then(|at| inner.calls.get_mut(at)) {
            code.clone_into(&mut call.code);
            reason.clone_into(&mut call.reason);
            call.took_ms = u64::try_from(now.duration_since(call.at).as_millis()).ok();
        }
        let outcome = if reason.is_empty() { code.to_owned() } else { format!("{code} {reason}") };
        let seen = inner.methods.entry(method.name.to_owned()).or_default();
        seen.running = seen.running.saturating_sub(1);
        *seen.outcomes.entry(outcome).or_default() += 1;
    }

    /// The newest `limit` calls after a sequence number, of one RPC or of all.
    pub fn list(&self, method: Option<&str>, since: u64, limit: usize) -> Vec<Call> {
        let inner = self.inner.lock();
        let wanted = |call: &&Call| {
            call.sequence > since && method.is_none_or(|method| call.method.eq_ignore_ascii_case(method))
        };
        let mut calls: Vec<_> = inner.calls.iter().rev().filter(wanted).take(limit).cloned().collect();
        calls.reverse();
        calls
    }

    /// Totals of each RPC since the last reset.
    pub fn methods(&self) -> BTreeMap<String, MethodCalls> {
        self.inner.lock().methods.clone()
    }

    /// Forgets all calls; numbering continues.
    pub fn reset(&self) {
        let mut inner = self.inner.lock();
        inner.calls.clear();
        inner.methods.retain(|_, seen| {
            *seen = MethodCalls { running: seen.running, ..MethodCalls::default() };
            seen.running > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::method;

    #[test]
    fn calls_are_counted_by_outcome_and_kept_in_order() {
        let calls = Calls::default();
        let arrive = |items| Call { items, ..Call::default() };
        let now = Timestamp::UNIX_EPOCH;
        let first = calls.begin(&method::LIST_ROUTES, arrive(0));
        let second = calls.begin(&method::BATCH_GET_INSTANCES, arrive(500));
        let third = calls.begin(&method::BATCH_GET_INSTANCES, arrive(2));
        calls.end(&method::BATCH_GET_INSTANCES, second, "OK", "", now);
        calls.end(&method::BATCH_GET_INSTANCES, third, "UNAVAILABLE", "RETRY_LATER", now);
        let codes: Vec<_> = calls.list(None, 0, 10).into_iter().map(|call| call.code).collect();
        assert_eq!(codes, [RUNNING, "OK", "UNAVAILABLE"]);
        assert_eq!(calls.list(Some("batchgetinstances"), second, 10).len(), 1);
        assert_eq!(calls.list(None, 0, 1)[0].sequence, third, "the newest are kept");
        let seen = &calls.methods()["BatchGetInstances"];
        assert_eq!((seen.calls, seen.items, seen.most_at_once), (2, 502, 2));
        assert_eq!(seen.outcomes, [("OK".into(), 1), ("UNAVAILABLE RETRY_LATER".into(), 1)].into());
        calls.reset();
        calls.end(&method::LIST_ROUTES, first, "OK", "", now);
        assert_eq!(calls.list(None, 0, 10), []);
        assert_eq!(calls.begin(&method::LIST_ROUTES, arrive(0)), 4, "numbers go on");
    }
}
