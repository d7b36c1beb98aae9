//! Checks a provider's answers before anybody acts on them.
//!
//! In: messages as received. Out: plain values that hold only valid data, and [`Findings`]: one sentence for each thing
//! dropped, and the contract rule that was broken. Rules are named after the `[R:...]` tags of the proto. An unknown
//! enum number is read as zero, the safe branch.

mod address;
mod balancer;
pub(super) mod duration;
mod effects;
mod ingress;
mod instance;
mod label;
mod route;
mod text;
mod volume;

pub(super) use balancer::{balancer, ensured, is_nobodys, listed};
pub(super) use effects::{events, in_progress};
pub(super) use instance::{Asked, answer};
pub(super) use route::{ensured_route, route};
pub(super) use text::shown;
pub(super) use volume::volume;

/// Rule names as used in metrics.
pub(super) mod rule {
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

/// Maximum labels, or addresses, of an instance: more than any node has, far fewer than an object can hold.
const MOST: usize = 256;
/// Maximum sentences reported for one answer; metrics count every finding.
const MOST_SENTENCES: usize = 32;
const LONGEST_SENTENCE: usize = 512;

/// Everything found wrong with an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) rejected: Vec<String>,
    /// For metrics: one entry per broken rule, repeats included.
    pub(super) rules: Vec<&'static str>,
}

impl Findings {
    pub(super) fn reject(&mut self, rule: &'static str, sentence: String) {
        self.rules.push(rule);
        if self.rejected.len() < MOST_SENTENCES {
            self.rejected.push(shown(&sentence, LONGEST_SENTENCE));
        }
    }

    /// Records a fault that does not affect the reader of the answer.
    pub(super) fn count(&mut self, rule: &'static str) {
        self.rules.push(rule);
    }

    /// Reads an enum value; an unknown number becomes zero and is counted.
    pub(super) fn known<E: TryFrom<i32> + Default>(&mut self, number: i32) -> E {
        E::try_from(number).unwrap_or_else(|_| {
            self.count(rule::UNKNOWN_ENUM);
            E::default()
        })
    }
}
