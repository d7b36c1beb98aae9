//! Faults as data: what is done, and to which calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{breach, contract::Method, duration::Time};

/// A fault and when it is done. From text, or from JSON by `TryFrom`, it is known to make sense.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What is done.
    #[serde(flatten)]
    pub kind: FaultKind,
    /// To which RPC; to each that it fits when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// To which nodes, Services, routes or volumes, by name or id; one that ends in `*` is a prefix. Empty: to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// To how many calls; without end when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// How many calls are let pass before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<u32>,
    /// To which share of calls, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
}

/// What is done to a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FaultKind {
    /// The call waits.
    Latency {
        /// How long at least.
        time: Time,
        /// How much longer at most.
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
        /// When to come back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Time>,
        /// The work is done all the same.
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
        /// The work is done all the same.
        #[serde(default)]
        after_work: bool,
    },
    /// The cloud throttles.
    Throttle {
        /// When to come back.
        #[serde(default = "second")]
        retry_after: Time,
    },
    /// No work, and no answer before the deadline.
    Hang,
    /// The work is done; the stream is reset, or nothing is answered before the deadline.
    LostAnswer {
        /// Nothing is answered.
        #[serde(default)]
        silent: bool,
    },
    /// A part of the cloud could not be asked: half of a list, the named nodes of a batch.
    Partial {
        /// The part.
        #[serde(default = "somewhere")]
        location: String,
    },
    /// A lie: what lives is said to be absent, with authority; lists leave it out.
    Absent,
    /// A lie about a machine's state.
    State {
        /// Its name, for example `STOPPED`, or a number.
        state: String,
    },
    /// Answers about machines are not authoritative.
    NotAuthoritative,
    /// An error beside each item.
    ItemError {
        /// Its reason.
        reason: String,
        /// When to come back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Time>,
    },
    /// The work is not begun; it is said to go on.
    InProgress {
        /// When to come back.
        #[serde(default = "second")]
        retry_after: Time,
    },
    /// Machines run but cannot be described yet.
    MetadataNotReady {
        /// When to come back.
        #[serde(default = "second")]
        retry_after: Time,
    },
    /// The process aborts in mid-call.
    Crash {
        /// After the work, before the answer.
        #[serde(default)]
        after_work: bool,
    },
    /// A watch leaves changes out.
    DropChanges,
    /// A watch breaks off.
    CutWatch {
        /// After so many frames.
        #[serde(default)]
        frames: u64,
    },
    /// A rule of the contract is broken.
    Breach {
        /// The rule's tag.
        rule: String,
        /// In which way; the first one when empty.
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
    /// To which RPCs; empty: to all.
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
    kind("latency", &["time", "jitter"], "the call waits before its work"),
    kind("error", &["reason", "message", "retry_after", "after_work"], "an error of the contract"),
    kind("status", &["code", "message", "after_work"], "a bare status without ErrorInfo"),
    kind("throttle", &["retry_after"], "RATE_LIMITED with RetryInfo"),
    kind("hang", &[], "no work and no answer before the deadline"),
    kind("lost-answer", &["silent"], "the work is done, the answer is lost: stream reset, or silence"),
    kind(
        "partial",
        &["location"],
        "a part of the cloud is unreachable: half of a list, the named nodes of a batch",
    )
    .to(PARTS),
    kind("absent", &[], "a lie: ABSENT with authority for what lives; lists leave it out").to(ABSENCES),
    kind("state", &["state"], "a lie about the state of machines, by name or number")
        .to(&[Method::BatchGetInstances, Method::ListInstances]),
    kind("not-authoritative", &[], "answers about machines are not authoritative").to(BATCH),
    kind("item-error", &["reason", "retry_after"], "an error beside each item of a batch")
        .to(Method::BATCHES),
    kind("in-progress", &["retry_after"], "the work is not begun and said to go on").to(Method::CHANGES),
    kind("metadata-not-ready", &["retry_after"], "machines run but cannot be described yet").to(BATCH),
    kind("crash", &["after_work"], "the process aborts in mid-call"),
    kind("drop-changes", &[], "a watch leaves changes out").to(WATCH),
    kind("cut-watch", &["frames"], "a watch breaks off after so many frames").to(WATCH),
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

    /// Whether it can do anything to an RPC.
    pub(super) fn fits(&self, method: Method) -> bool {
        let methods = match self {
            Self::Breach { rule, .. } => breach::named(rule).map(|breach| breach.methods),
            _ => KINDS.iter().find(|kind| kind.name == self.name()).map(|kind| kind.methods),
        };
        methods.is_some_and(|methods| methods.is_empty() || methods.contains(&method))
    }
}

impl Fault {
    /// A fault that is done to every call that it fits.
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
