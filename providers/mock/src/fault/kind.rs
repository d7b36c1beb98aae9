//! Faults as data: their effect, and the calls that they meet.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{breach, contract::Method, duration::Time};

/// A fault and the calls it meets. Parsing text, or JSON with `TryFrom`, validates it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Its effect.
    #[serde(flatten)]
    pub kind: FaultKind,
    /// The RPC it meets; by default every RPC that it can affect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The nodes, Services, routes or volumes it targets, by name or id; a trailing `*` makes a prefix. Empty targets all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// How many calls it meets; unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// How many calls pass before the first it meets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<u32>,
    /// The share of calls it meets, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
}

/// The effect of a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FaultKind {
    /// The call waits.
    Latency {
        /// The minimum delay.
        time: Time,
        /// The maximum additional delay.
        #[serde(default)]
        jitter: Time,
    },
    /// An error of the contract.
    Error {
        /// Its reason, for example `RATE_LIMITED`.
        reason: String,
        /// Its message.
        #[serde(default)]
        message: String,
        /// When to retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Time>,
        /// The work is done nevertheless.
        #[serde(default)]
        after_work: bool,
    },
    /// A bare status, which proves nothing.
    Status {
        /// Its code, for example `NOT_FOUND`.
        code: String,
        /// Its message.
        #[serde(default)]
        message: String,
        /// The work is done nevertheless.
        #[serde(default)]
        after_work: bool,
    },
    /// The cloud throttles.
    Throttle {
        /// When to retry.
        #[serde(default = "second")]
        retry_after: Time,
    },
    /// No work, and no answer before the deadline.
    Hang,
    /// The work is done, but the stream is reset, or there is no answer before the deadline.
    LostAnswer {
        /// No answer instead of a reset.
        #[serde(default)]
        silent: bool,
    },
    /// A part of the cloud cannot be queried: half of a list, or the named nodes of a batch.
    Partial {
        /// The unreachable location.
        #[serde(default = "somewhere")]
        location: String,
    },
    /// A lie: living instances are authoritatively absent, and lists omit them.
    Absent,
    /// A lie about an instance's state.
    State {
        /// Its name, for example `STOPPED`, or a number.
        state: String,
    },
    /// Answers about instances are not authoritative.
    NotAuthoritative,
    /// An error for each item.
    ItemError {
        /// Its reason.
        reason: String,
        /// When to retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Time>,
    },
    /// The work is not started but reported as in progress.
    InProgress {
        /// When to retry.
        #[serde(default = "second")]
        retry_after: Time,
    },
    /// Instances run but cannot be described yet.
    MetadataNotReady {
        /// When to retry.
        #[serde(default = "second")]
        retry_after: Time,
    },
    /// The process aborts during the call.
    Crash {
        /// After the work, before the answer.
        #[serde(default)]
        after_work: bool,
    },
    /// A watch omits changes.
    DropChanges,
    /// A watch ends.
    CutWatch {
        /// After this many frames.
        #[serde(default)]
        frames: u64,
    },
    /// A rule of the contract is broken.
    Breach {
        /// The rule's tag.
        rule: String,
        /// The variant; empty means the first.
        #[serde(default)]
        variant: String,
    },
}

/// A kind of fault, for tables and checks.
#[derive(Debug, Clone, Copy)]
pub struct KindInfo {
    /// Its name.
    pub name: &'static str,
    /// Its own keys.
    pub keys: &'static [&'static str],
    /// What it does.
    pub what: &'static str,
    /// The RPCs it can affect; empty means all.
    methods: &'static [Method],
}

impl KindInfo {
    const fn to(self, methods: &'static [Method]) -> Self {
        Self { methods, ..self }
    }
}

const fn kind(name: &'static str, keys: &'static [&'static str], what: &'static str) -> KindInfo {
    KindInfo { name, keys, what, methods: &[] }
}

const BATCH: &[Method] = &[Method::BatchGetInstances];
const WATCH: &[Method] = &[Method::WatchInstances];
const PARTS: &[Method] =
    &[Method::BatchGetInstances, Method::ListInstances, Method::ListLoadBalancers, Method::ListRoutes];
const ABSENCES: &[Method] = &[
    Method::BatchGetInstances,
    Method::ListInstances,
    Method::ListLoadBalancers,
    Method::ListRoutes,
    Method::GetLoadBalancer,
    Method::BatchGetVolumeLabels,
];

/// All kinds of faults.
pub const KINDS: [KindInfo; 17] = [
    kind("latency", &["time", "jitter"], "the call is delayed"),
    kind("error", &["reason", "message", "retry_after", "after_work"], "an error of the contract"),
    kind("status", &["code", "message", "after_work"], "a bare status without ErrorInfo"),
    kind("throttle", &["retry_after"], "RATE_LIMITED with RetryInfo"),
    kind("hang", &[], "no work and no answer before the deadline"),
    kind(
        "lost-answer",
        &["silent"],
        "the work is done, but the answer is lost: the stream is reset, or nothing is sent",
    ),
    kind(
        "partial",
        &["location"],
        "a part of the cloud is unreachable: half of a list, or the named nodes of a batch",
    )
    .to(PARTS),
    kind("absent", &[], "a lie: living instances are authoritatively ABSENT, and lists omit them")
        .to(ABSENCES),
    kind("state", &["state"], "a lie about the state of instances, by name or number")
        .to(&[Method::BatchGetInstances, Method::ListInstances]),
    kind("not-authoritative", &[], "answers about instances are not authoritative").to(BATCH),
    kind("item-error", &["reason", "retry_after"], "an error for each item of a batch").to(Method::BATCHES),
    kind("in-progress", &["retry_after"], "the work is not started but reported as in progress")
        .to(Method::CHANGES),
    kind("metadata-not-ready", &["retry_after"], "instances run but cannot be described yet").to(BATCH),
    kind("crash", &["after_work"], "the process aborts during the call"),
    kind("drop-changes", &[], "a watch omits changes").to(WATCH),
    kind("cut-watch", &["frames"], "a watch ends after this many frames").to(WATCH),
    kind("breach", &["rule", "variant"], "a rule of the contract is broken"),
];

/// Keys of every kind.
pub const COMMON_KEYS: [&str; 5] = ["method", "on", "times", "skip", "probability"];

impl FaultKind {
    /// Its name.
    pub fn name(&self) -> &'static str {
        let written = serde_json::to_value(self).unwrap_or_default();
        KINDS.iter().find(|kind| written["kind"] == kind.name).map_or("", |kind| kind.name)
    }

    /// Whether it can affect an RPC.
    pub(super) fn fits(&self, method: Method) -> bool {
        let methods = match self {
            Self::Breach { rule, .. } => breach::named(rule).map(|breach| breach.methods),
            _ => KINDS.iter().find(|kind| kind.name == self.name()).map(|kind| kind.methods),
        };
        methods.is_some_and(|methods| methods.is_empty() || methods.contains(&method))
    }
}

impl Fault {
    /// A fault that meets every call that it can affect.
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, method: None, on: Vec::new(), times: None, skip: None, probability: None }
    }

    /// A few words for the call log.
    pub fn label(&self) -> String {
        match &self.kind {
            FaultKind::Error { reason, .. } | FaultKind::ItemError { reason, .. } => {
                format!("{} {reason}", self.kind.name())
            }
            FaultKind::Status { code, .. } => format!("status {code}"),
            FaultKind::State { state } => format!("state {state}"),
            FaultKind::Breach { rule, variant } if variant.is_empty() => format!("breach {rule}"),
            FaultKind::Breach { rule, variant } => format!("breach {rule}/{variant}"),
            other => other.name().to_owned(),
        }
    }
}

fn second() -> Time {
    Time(Duration::from_secs(1))
}

fn somewhere() -> String {
    "mock-unreachable".to_owned()
}
