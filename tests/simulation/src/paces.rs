//! Whether calls kept to the rates that the provider advertised: concurrent calls, and calls per second.

use cloudprovider_sdk::{
    contract::defaults,
    proto::{Limits, RateLimit},
};
use provider_mock::calls::Call;

/// Clocks and queues on the way may bring calls this much closer together, in calls.
const SLACK: f64 = 0.5;

/// The violations in one host's calls over a line without delays, in order of arrival.
pub fn exceeded(calls: &[Call], limits: &Limits) -> Option<String> {
    let or = |value: u32, default| if value == 0 { default } else { value };
    let reads = or(limits.max_concurrent_reads, defaults::MAX_CONCURRENT_READS);
    let mutations = or(limits.max_concurrent_mutations, defaults::MAX_CONCURRENT_MUTATIONS);
    let of = |is: fn(&str) -> bool| calls.iter().filter(move |call| is(&call.method));
    too_many(of(is_read), reads)
        .or_else(|| too_many(of(is_mutation), mutations))
        .or_else(|| too_fast(of(is_read), limits.reads.as_ref()))
        .or_else(|| too_fast(of(is_mutation), limits.mutations.as_ref()))
}

/// Watches are not reads: they cost the cloud nothing.
fn is_read(method: &str) -> bool {
    ["BatchGetInstances", "ListInstances", "GetLoadBalancer", "ListLoadBalancers", "ListRoutes"]
        .contains(&method)
}

/// Whether a call changes the cloud.
pub fn is_mutation(method: &str) -> bool {
    let all = [
        "EnsureLoadBalancer",
        "BatchUpdateLoadBalancers",
        "DeleteLoadBalancer",
        "BatchEnsureRoutes",
        "BatchDeleteRoutes",
    ];
    all.contains(&method)
}

fn too_many<'a>(calls: impl Iterator<Item = &'a Call>, most: u32) -> Option<String> {
    let mut ends: Vec<i128> = Vec::new();
    for call in calls {
        let begun = call.at.as_nanosecond();
        // A call that began when another one ended came after it.
        ends.retain(|end| *end > begun);
        ends.push(call.took_ms.map_or(i128::MAX, |took| begun + i128::from(took) * 1_000_000));
        if ends.len() > most as usize {
            return Some(format!(
                "{} at {} is one of {} at once, of {most}",
                call.method,
                call.at,
                ends.len()
            ));
        }
    }
    None
}

fn too_fast<'a>(calls: impl Iterator<Item = &'a Call>, rate: Option<&RateLimit>) -> Option<String> {
    let rate = rate?;
    let (mut left, mut last) = (f64::from(rate.burst), None);
    for call in calls {
        let since = last.replace(call.at).map_or(0.0, |last| call.at.duration_since(last).as_secs_f64());
        left = (left + since * rate.per_second).min(f64::from(rate.burst)) - 1.0;
        if left < -SLACK {
            return Some(format!(
                "{} at {} is faster than {} a second",
                call.method, call.at, rate.per_second
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn call(method: &str, at: i64, took: u64) -> Call {
        let at = Timestamp::from_millisecond(at).unwrap();
        serde_json::from_value(json!({
            "sequence": 1, "at": at, "method": method, "peer": "", "request_id": "", "cluster_uid": "", "epoch": 0, "items": 1,
            "keys": [], "code": "OK", "reason": "", "took_ms": took, "faults": [],
        }))
        .unwrap()
    }

    #[test]
    fn calls_at_once_and_calls_a_second_are_counted_by_class() {
        let few = Limits { max_concurrent_mutations: 1, ..Limits::default() };
        let slow = Limits { reads: Some(RateLimit { per_second: 2.0, burst: 2 }), ..Limits::default() };
        let (ensure, list) = (|at| call("EnsureLoadBalancer", at, 100), |at| call("ListRoutes", at, 1));
        for (calls, limits, want) in [
            (vec![ensure(0), list(50), ensure(100)], &few, false),
            (vec![ensure(0), ensure(99)], &few, true),
            (vec![list(0), list(0), list(500), list(1000)], &slow, false),
            (vec![list(0), list(0), list(1)], &slow, true),
            (vec![ensure(0), ensure(0), ensure(1)], &slow, false),
        ] {
            assert_eq!(exceeded(&calls, limits).is_some(), want, "{calls:?}");
        }
    }
}
