//! Side effects carried by answers: Events, annotations, conditions and retry times.

use std::collections::{BTreeMap, HashMap};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use super::label;
use crate::findings::{Findings, duration, rule, shown};
use crate::{Effects, InProgress, ProviderEvent, ServiceCondition};
use ccm_base::label::is_key;
use ccm_kube::events::EventType;

const MOST_EVENTS: usize = 8;
const LONGEST_REASON: usize = 63;
/// A quarter of the total size that Kubernetes allows for the annotations of an object.
const MOST_ANNOTATED: usize = 64 << 10;

/// At most eight Events, all acceptable to the apiserver.
pub(super) fn events(given: Vec<pb::ProviderEvent>, findings: &mut Findings) -> Vec<ProviderEvent> {
    let mut kept = Vec::new();
    for event in given {
        if kept.len() == MOST_EVENTS || !is_reason(&event.reason) || event.message.is_empty() {
            findings.count(rule::EVENT_VALID);
            continue;
        }
        let kind = match findings.known(event.r#type) {
            pb::EventType::Warning => EventType::Warning,
            pb::EventType::Unspecified | pb::EventType::Normal => EventType::Normal,
        };
        let message = shown(&event.message, defaults::MAX_MESSAGE_TEXT_BYTES);
        kept.push(ProviderEvent { kind, reason: event.reason, message });
    }
    kept
}

/// Work in progress, with a positive retry time.
pub(crate) fn in_progress(given: pb::InProgress, findings: &mut Findings) -> InProgress {
    let said = given.retry_after.and_then(|given| duration::within(duration::RETRY, given, findings));
    let retry_after = said.unwrap_or_else(|| {
        findings.count(rule::RETRY_AFTER_POSITIVE);
        defaults::IN_PROGRESS_RETRY_AFTER
    });
    InProgress {
        retry_after,
        reason: shown(&given.reason, LONGEST_REASON),
        message: shown(&given.message, defaults::MAX_MESSAGE_TEXT_BYTES),
    }
}

/// What the provider may do to the Service of a balancer.
pub(crate) fn on_service(
    events: Vec<pb::ProviderEvent>,
    writes: Option<pb::ServiceWrites>,
    wants: &pb::Wants,
    findings: &mut Findings,
) -> Effects {
    let writes = writes.unwrap_or_default();
    let prefixes = &wants.service_annotation_writes;
    let removed = removed_annotations(writes.removed_annotations, prefixes, findings);
    let set = annotations(writes.annotations, prefixes, findings);
    let set = set.into_iter().map(|(key, value)| (key, Some(value)));
    Effects {
        events: self::events(events, findings),
        annotations: removed.into_iter().map(|key| (key, None)).chain(set).collect(),
        conditions: conditions(writes.conditions, &wants.service_condition_writes, findings),
    }
}

/// The annotations to set: valid keys under a prefix that the provider advertised.
pub(super) fn annotations(
    given: HashMap<String, String>,
    prefixes: &[String],
    findings: &mut Findings,
) -> BTreeMap<String, String> {
    let sorted: BTreeMap<_, _> = given.into_iter().collect();
    let mut left = MOST_ANNOTATED;
    let mut fits = |key: &str, value: &str| {
        let rest = left.checked_sub(key.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    sorted
        .into_iter()
        .filter(|(key, value)| {
            if !annotation_is_allowed(key, prefixes, findings) {
                return false;
            }
            if !fits(key, value) {
                let sentence =
                    format!("annotation {key}: the annotations are longer than {MOST_ANNOTATED} bytes");
                findings.reject(rule::ANSWER_BOUNDS, sentence);
                return false;
            }
            true
        })
        .collect()
}

/// The annotations to remove, under the same rule.
fn removed_annotations(mut keys: Vec<String>, prefixes: &[String], findings: &mut Findings) -> Vec<String> {
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| annotation_is_allowed(key, prefixes, findings));
    keys
}

fn annotation_is_allowed(key: &str, prefixes: &[String], findings: &mut Findings) -> bool {
    let advertised = prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
    if !advertised || label::is_of_host(key) || !is_key(&key.to_ascii_lowercase()) {
        findings.reject(
            rule::ANNOTATION_PREFIX,
            format!("annotation {key:?} is not under a prefix that the provider advertised and may write"),
        );
        return false;
    }
    true
}

/// The conditions to set: of advertised types and acceptable to the apiserver.
fn conditions(
    given: Vec<pb::ServiceCondition>,
    types: &[String],
    findings: &mut Findings,
) -> BTreeMap<String, ServiceCondition> {
    let mut kept = BTreeMap::new();
    for pb::ServiceCondition { r#type, status, reason, message } in given {
        let is_its_own = types.contains(&r#type) && !label::is_of_host(&r#type);
        if !is_its_own || !is_key(&r#type) || !is_reason(&reason) {
            let shown = shown(&r#type, LONGEST_REASON);
            let sentence = format!(
                "condition {shown:?} is not of a type that the provider advertised and may write, or has no usable reason"
            );
            findings.reject(rule::CONDITION_VALID, sentence);
            continue;
        }
        let status = match findings.known(status) {
            pb::ConditionStatus::True => "True",
            pb::ConditionStatus::False => "False",
            pb::ConditionStatus::Unspecified => "Unknown",
        };
        let message = shown(&message, defaults::MAX_MESSAGE_TEXT_BYTES);
        kept.insert(r#type, ServiceCondition { status, reason, message });
    }
    kept
}

fn is_reason(text: &str) -> bool {
    text.len() <= LONGEST_REASON
        && text.starts_with(|char: char| char.is_ascii_uppercase())
        && text.chars().all(|char| char.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn conditions_are_of_advertised_types_and_well_formed() {
        let given = |kind: &str, status, reason: &str| pb::ServiceCondition {
            r#type: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: "m".repeat(2000),
        };
        let types = ["x.io/Open".to_owned(), "x.io/with space".to_owned()];
        let mut findings = Findings::default();
        let kept = conditions(
            vec![
                given("x.io/Open", pb::ConditionStatus::False.into(), "Closed"),
                given("Ready", pb::ConditionStatus::True.into(), "Other"),
                given("x.io/with space", pb::ConditionStatus::True.into(), "Spaced"),
                given("x.io/Open", pb::ConditionStatus::True.into(), "not a reason"),
                given("x.io/Open", 77, "Newer"),
            ],
            &types,
            &mut findings,
        );
        let words: Vec<_> =
            kept.iter().map(|(kind, one)| (kind.as_str(), one.status, one.reason.as_str())).collect();
        assert_eq!(words, [("x.io/Open", "Unknown", "Newer")]);
        assert!(kept["x.io/Open"].message.len() <= defaults::MAX_MESSAGE_TEXT_BYTES);
        let broken = rule::CONDITION_VALID;
        assert_eq!(findings.rules, [broken, broken, broken, rule::UNKNOWN_ENUM]);
    }

    #[test]
    fn events_are_few_and_well_formed() {
        let event = |reason: &str| pb::ProviderEvent {
            r#type: pb::EventType::Warning.into(),
            reason: reason.to_owned(),
            message: "m".to_owned(),
        };
        let mut findings = Findings::default();
        let mut given = vec![event("not camel"), event("")];
        given.extend(std::iter::repeat_n(event("Good"), 10));
        let kept = events(given, &mut findings);
        assert_eq!(kept.len(), 8);
        assert_eq!(kept[0].kind, EventType::Warning);
        assert_eq!(findings.rules, [rule::EVENT_VALID; 4]);
    }

    #[test]
    fn a_time_to_ask_again_is_positive() {
        let rows = [(None, 5, 1), (Some((0, 0)), 5, 1), (Some((-3, 0)), 5, 1), (Some((7, 0)), 7, 0)];
        for (given, seconds, broken) in rows {
            let mut findings = Findings::default();
            let retry_after = given.map(|(seconds, nanos)| prost_types::Duration { seconds, nanos });
            let read = in_progress(pb::InProgress { retry_after, ..Default::default() }, &mut findings);
            assert_eq!(read.retry_after, Duration::from_secs(seconds), "{given:?}");
            assert_eq!(findings.rules.len(), broken, "{given:?}");
        }
    }

    #[test]
    fn annotations_stay_under_their_prefixes() {
        let mut findings = Findings::default();
        let given = [
            ("aws.example/id", "1"),
            ("other/id", "2"),
            ("aws.example/b a d", "3"),
            ("cloudprovider.ccm/load-balancer-provider", "victim"),
        ];
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
        let prefixes = ["aws.example/", "cloudprovider.ccm/"].map(str::to_owned);
        let kept = annotations(given, &prefixes, &mut findings);
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), ["aws.example/id"]);
        assert_eq!(findings.rules, [rule::ANNOTATION_PREFIX; 3]);
    }

    #[test]
    fn annotations_are_no_longer_than_an_object_can_hold() {
        let mut findings = Findings::default();
        let given = [("x/a", 10), ("x/b", MOST_ANNOTATED), ("x/c", MOST_ANNOTATED / 2)];
        let given = given.map(|(key, length)| (key.to_owned(), "v".repeat(length))).into_iter().collect();
        let kept = annotations(given, &["x/".to_owned()], &mut findings);
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), ["x/a", "x/c"]);
        assert_eq!(findings.rules, [rule::ANSWER_BOUNDS]);
    }
}
