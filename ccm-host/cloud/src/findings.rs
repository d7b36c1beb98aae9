//! What was found wrong with an answer: a sentence for each thing dropped, and the contract rule that was broken. Rules
//! are named after the `[R:...]` tags of the proto.

use cloudprovider_proto::scrub;

/// Rule names as used in metrics.
pub(crate) mod rule {
    pub(crate) const ADDRESS_UNIQUE: &str = "address-unique";
    pub(crate) const ADDRESS_VALID: &str = "address-valid";
    pub(crate) const ADVERTISED_WORKS: &str = "advertised-works";
    pub(crate) const ANNOTATION_PREFIX: &str = "annotation-prefix";
    pub(crate) const BATCH_KEYS: &str = "batch-keys";
    pub(crate) const CAPABILITIES_CONSTANT: &str = "capabilities-constant";
    pub(crate) const DISCOVERY_EPOCH: &str = "discovery-epoch";
    pub(crate) const DISCOVERY_NAME: &str = "discovery-name";
    pub(crate) const DISCOVERY_PREFIX: &str = "discovery-prefix";
    pub(crate) const INGRESS_VALID: &str = "ingress-valid";
    pub(crate) const LABEL_RESERVED: &str = "label-reserved";
    pub(crate) const LABEL_VALID: &str = "label-valid";
    pub(crate) const LIST_UNREACHABLE: &str = "list-unreachable";
    pub(crate) const OBSERVED_AT: &str = "observed-at";
    pub(crate) const PAGE_WALK_ENDS: &str = "page-walk-ends";
    pub(crate) const PROVIDER_ID_PREFIX: &str = "provider-id-prefix";
    pub(crate) const READ_THROUGH: &str = "read-through";
    pub(crate) const RETRY_AFTER_POSITIVE: &str = "retry-after-positive";
    pub(crate) const ROUTE_CANONICAL: &str = "route-canonical";
    pub(crate) const ROUTE_ECHO_TARGET: &str = "route-echo-target";
    pub(crate) const ROUTE_OWNERSHIP: &str = "route-ownership";
    pub(crate) const WATCH_BOOKMARK: &str = "watch-bookmark";
    pub(crate) const WATCH_STARTED: &str = "watch-started";

    // Rules without a tag in the proto: they follow from the comment of a field, or from the limits of Kubernetes.
    pub(crate) const ANSWER_BOUNDS: &str = "answer-bounds";
    pub(crate) const CONDITION_VALID: &str = "condition-valid";
    pub(crate) const DURATION_BOUNDS: &str = "duration-bounds";
    pub(crate) const EVENT_VALID: &str = "event-valid";
    pub(crate) const INSTANCE_REQUIRED: &str = "instance-required";
    pub(crate) const LIST_KEYS: &str = "list-keys";
    pub(crate) const OWNERSHIP_REQUIRED: &str = "ownership-required";
    pub(crate) const POD_CIDR_VALID: &str = "pod-cidr-valid";
    pub(crate) const ROUTE_REQUIRED: &str = "route-required";
    pub(crate) const SERVICE_REF: &str = "service-ref";
    pub(crate) const TOKEN_ISSUED: &str = "token-issued";
    pub(crate) const UNKNOWN_ENUM: &str = "unknown-enum";
}

/// Maximum sentences reported for one answer; metrics count every finding.
const MOST_SENTENCES: usize = 32;
const LONGEST_SENTENCE: usize = 512;

/// Everything found wrong with an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) rejected: Vec<String>,
    /// For metrics: one entry per broken rule, repeats included.
    pub(crate) rules: Vec<&'static str>,
}

impl Findings {
    pub(crate) fn reject(&mut self, rule: &'static str, sentence: String) {
        self.rules.push(rule);
        if self.rejected.len() < MOST_SENTENCES {
            self.rejected.push(shown(&sentence, LONGEST_SENTENCE));
        }
    }

    /// Records a fault that does not affect the reader of the answer.
    pub(crate) fn count(&mut self, rule: &'static str) {
        self.rules.push(rule);
    }

    /// Reads an enum value; an unknown number becomes zero and is counted.
    pub(crate) fn known<E: TryFrom<i32> + Default>(&mut self, number: i32) -> E {
        E::try_from(number).unwrap_or_else(|_| {
            self.count(rule::UNKNOWN_ENUM);
            E::default()
        })
    }
}

/// A text of a provider, as people may see it: without what looks like a secret, since not every provider uses an SDK that
/// takes it out, cut to `most` bytes at a character boundary, and with spaces for control characters.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let clean: String = scrub::text(cut(text, LONGEST_SCRUBBED))
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    cut(&clean, most).to_owned()
}

/// Maximum bytes of a text that are searched for secrets; the rest is never shown.
const LONGEST_SCRUBBED: usize = 64 << 10;

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Durations sent by a provider, clamped to what the host accepts.
pub(crate) mod duration {
    use std::{ops::RangeInclusive, time::Duration};

    use super::{Findings, rule};

    /// The range of durations that the host follows exactly; anything outside is clamped to it.
    type Bounds = RangeInclusive<Duration>;

    const HOUR: u64 = 3600;

    /// Retry delays: no busy loop, and at most an hour.
    pub(crate) const RETRY: Bounds = bounds(100, HOUR);
    /// Call deadlines; each RPC also has its own maximum.
    pub(crate) const DEADLINE: Bounds = bounds(50, HOUR);
    /// Time between two bookmarks of a watch.
    pub(crate) const BOOKMARK: Bounds = bounds(100, 600);
    /// Maximum age of a watch stream.
    pub(crate) const WATCH_AGE: Bounds = bounds(1000, 24 * HOUR);
    /// Time between two sweeps over all instances.
    pub(crate) const SWEEP: Bounds = bounds(10_000, 24 * HOUR);

    const fn bounds(shortest_millis: u64, longest_seconds: u64) -> Bounds {
        Duration::from_millis(shortest_millis)..=Duration::from_secs(longest_seconds)
    }

    /// Clamps a duration to its bounds; `None` if it is not positive.
    pub(crate) fn within(
        bounds: Bounds,
        given: prost_types::Duration,
        findings: &mut Findings,
    ) -> Option<Duration> {
        // prost negates negative durations, which overflows for `i64::MIN`.
        let given = Some(given).filter(|given| given.seconds >= 0)?;
        let given = Duration::try_from(given).ok().filter(|given| !given.is_zero())?;
        let kept = given.clamp(*bounds.start(), *bounds.end());
        if kept != given {
            findings.count(rule::DURATION_BOUNDS);
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        duration::{RETRY, within},
        *,
    };
    use std::time::Duration;

    #[test]
    fn texts_are_cut_between_characters_and_hold_no_control_characters() {
        for (text, most, want) in
            [("abc", 9, "abc"), ("abc", 2, "ab"), ("aä", 2, "a"), ("a\nb\u{7}", 9, "a b ")]
        {
            assert_eq!(shown(text, most), want, "{text:?}");
        }
        let secret = "login failed: password=hunter22 at https://me:hunter22@cloud";
        assert_eq!(
            shown(secret, 99),
            "login failed: password=[redacted] at https://[redacted]@cloud",
            "core L4"
        );
    }

    /// N7.
    #[test]
    fn durations_are_bounded_on_both_sides() {
        let rows = [
            ((0, 0), None, 0),
            ((-3, 0), None, 0),
            ((i64::MIN, i32::MIN), None, 0),
            ((0, 300), Some(Duration::from_millis(100)), 1),
            ((0, 100_000_000), Some(Duration::from_millis(100)), 0),
            ((7, 5), Some(Duration::new(7, 5)), 0),
            ((3600, 0), Some(Duration::from_secs(3600)), 0),
            ((3600, 1), Some(Duration::from_secs(3600)), 1),
            ((i64::MAX, i32::MAX), Some(Duration::from_secs(3600)), 1),
        ];
        for ((seconds, nanos), want, counted) in rows {
            let mut findings = Findings::default();
            let given = prost_types::Duration { seconds, nanos };
            assert_eq!(within(RETRY, given, &mut findings), want, "{given:?}");
            assert_eq!(findings.rules.len(), counted, "{given:?}");
        }
    }
}
