//! Advertised limits and intervals, with the contract's defaults where the provider gives none.

use std::{collections::HashMap, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use crate::cloud::check::{Findings, duration, rule};

/// Caps the batch size that a provider advertises.
const LARGEST_BATCH: u32 = 5000;
/// The lowest rate accepted, in calls per second: one a minute.
const SLOWEST: f64 = 1.0 / 60.0;
const SMALLEST_MESSAGE: u32 = 4 << 20;
/// Maximum keys in one list of labels or annotations.
const MOST_KEYS: usize = 256;
/// Maximum length of a label or annotation key: a subdomain, a slash and a name; or a part of that and a star.
const LONGEST_KEY: usize = 318;

/// The intervals that a provider advertised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intervals {
    pub(super) bookmark: Duration,
    pub(super) watch_max_age: Duration,
    pub(super) instance_sweep: Option<Duration>,
}

impl Intervals {
    pub(super) fn of(given: Option<&pb::Intervals>, findings: &mut Findings) -> Self {
        let given = given.copied().unwrap_or_default();
        let mut within = |bounds, value: Option<_>| duration::within(bounds, value?, findings);
        Self {
            bookmark: within(duration::BOOKMARK, given.bookmark_interval)
                .unwrap_or(defaults::BOOKMARK_INTERVAL),
            watch_max_age: within(duration::WATCH_AGE, given.watch_max_age)
                .unwrap_or(defaults::WATCH_MAX_AGE),
            instance_sweep: within(duration::SWEEP, given.instance_sweep),
        }
    }
}

/// Deadlines, by RPC name.
pub(super) fn deadlines(given: &[pb::MethodDeadline], findings: &mut Findings) -> HashMap<String, Duration> {
    let read = |one: &pb::MethodDeadline| {
        Some((one.method.clone(), duration::within(duration::DEADLINE, one.deadline?, findings)?))
    };
    given.iter().filter_map(read).collect()
}

/// The provider's wanted fields, with each list cut to a plausible size.
pub(super) fn wants(mut given: pb::Wants, findings: &mut Findings) -> pb::Wants {
    let pb::Wants {
        identity,
        backend,
        route_target,
        service,
        service_annotation_writes,
        service_condition_writes,
    } = &mut given;
    let nodes = [identity, backend, route_target].into_iter().flatten();
    let nodes = nodes.flat_map(|fields| [&mut fields.labels, &mut fields.annotations, &mut fields.taints]);
    let services = service.iter_mut().flat_map(|fields| [&mut fields.labels, &mut fields.annotations]);
    for keys in nodes.chain(services).chain([service_annotation_writes, service_condition_writes]) {
        let before = keys.len();
        keys.retain(|key| key.len() <= LONGEST_KEY);
        keys.truncate(MOST_KEYS);
        if keys.len() < before {
            findings.count(rule::ANSWER_BOUNDS);
        }
    }
    given
}

/// Raises a rate that is too low to be meant.
pub(super) fn sane(mut limits: pb::Limits, findings: &mut Findings) -> pb::Limits {
    for rate in [&mut limits.reads, &mut limits.mutations].into_iter().flatten() {
        if rate.per_second > 0.0 && rate.per_second < SLOWEST {
            rate.per_second = SLOWEST;
            findings.count(rule::DURATION_BOUNDS);
        }
    }
    limits
}

/// Maximum items of a batch.
pub(super) fn batch(advertised: u32) -> usize {
    let items = if advertised == 0 { defaults::MAX_BATCH } else { advertised.min(LARGEST_BATCH) };
    items as usize
}

/// Maximum bytes of a message.
pub(super) fn message_bytes(advertised: u32) -> usize {
    let bytes = match advertised {
        0 => defaults::MAX_MESSAGE_BYTES,
        some => some.clamp(SMALLEST_MESSAGE, defaults::HARD_MAX_MESSAGE_BYTES),
    };
    bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_advertised_has_a_default_and_what_is_stays_sane() {
        for (advertised, want) in [(0, 500), (1, 1), (700, 700), (1_000_000, 5000)] {
            assert_eq!(batch(advertised), want, "{advertised}");
        }
        for (advertised, want) in [(0, 16 << 20), (1, 4 << 20), (20 << 20, 20 << 20), (u32::MAX, 64 << 20)] {
            assert_eq!(message_bytes(advertised), want, "{advertised}");
        }
        let absent = Intervals::of(None, &mut Findings::default());
        assert_eq!(absent.bookmark, Duration::from_secs(30));
        assert_eq!(absent.instance_sweep, None);
        let zero = prost_types::Duration::default();
        let given =
            pb::Intervals { bookmark_interval: Some(zero), instance_sweep: Some(zero), ..Default::default() };
        assert_eq!(Intervals::of(Some(&given), &mut Findings::default()), absent);
    }

    /// N7.
    #[test]
    fn what_a_provider_wants_to_know_is_what_a_person_could_have_written() {
        let keys =
            |count: usize| (0..count).map(|number| format!("example.com/{number}")).collect::<Vec<_>>();
        let many = pb::NodeFields {
            labels: keys(1000),
            annotations: vec!["x".repeat(5000)],
            taints: keys(300),
            ..Default::default()
        };
        let few = pb::ServiceFields {
            labels: vec!["app".into()],
            annotations: keys(MOST_KEYS),
            ..Default::default()
        };
        let mut findings = Findings::default();
        let given = pb::Wants { backend: Some(many), service: Some(few.clone()), ..Default::default() };
        let kept = wants(given, &mut findings);
        let backend = kept.backend.unwrap();
        let kept_keys = [backend.labels.len(), backend.annotations.len(), backend.taints.len()];
        assert_eq!(kept_keys, [MOST_KEYS, 0, MOST_KEYS]);
        assert_eq!(kept.service, Some(few));
        assert_eq!(findings.rules, [rule::ANSWER_BOUNDS; 3]);
    }

    #[test]
    fn paces_have_a_floor_and_a_ceiling() {
        let seconds = Duration::from_secs;
        let intervals = |seconds, nanos| {
            let every = Some(prost_types::Duration { seconds, nanos });
            let (bookmark_interval, watch_max_age, instance_sweep) = (every, every, every);
            let mut findings = Findings::default();
            let given =
                pb::Intervals { bookmark_interval, watch_max_age, instance_sweep, ..Default::default() };
            let read = Intervals::of(Some(&given), &mut findings);
            assert_eq!(findings.rules, [rule::DURATION_BOUNDS; 3]);
            (read.bookmark, read.watch_max_age, read.instance_sweep)
        };
        assert_eq!(intervals(0, 300), (Duration::from_millis(100), seconds(1), Some(seconds(10))));
        let day = seconds(24 * 3600);
        assert_eq!(intervals(i64::MAX, 0), (seconds(600), day, Some(day)));

        let mut findings = Findings::default();
        let rate = |per_second| Some(pb::RateLimit { per_second, burst: 1 });
        let limits = pb::Limits { reads: rate(1e-300), mutations: rate(0.5), ..Default::default() };
        let sane = sane(limits, &mut findings);
        assert_eq!((sane.reads, sane.mutations), (rate(SLOWEST), rate(0.5)));
        assert_eq!(findings.rules, [rule::DURATION_BOUNDS]);
    }
}
