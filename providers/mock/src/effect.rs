//! What a fault does to the calls that it meets: a row in the tables of kinds and of breaches. What it can see of a call,
//! and how it changes its course.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cloudprovider_sdk::proto::{InstanceResult, NodeRef, Service};
use jiff::Timestamp;
use parking_lot::Mutex;
use prost::Name;
use prost_reflect::{DynamicMessage, Value as Field};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tonic::Status;

use crate::{
    advertised::Advertised,
    cloud::{Balancer, Cloud, State, timestamp},
    contract::{Message, Method, Subject, text},
    duration,
};

type Ask = fn(&mut Message, &Shot<'_>);
type Before = fn(&mut Message, &Shot<'_>) -> Turn;
type After = fn(&Message, &mut Reply, &Shot<'_>);

/// A kind of fault, or one way to break the contract.
#[derive(Debug)]
pub struct Effect {
    /// The kind; of a breach, the rule's tag, or our own name for a sentence without a tag.
    pub name: &'static str,
    /// The keys of a kind; the variants of a breach, the first being the default.
    pub choices: &'static [&'static str],
    /// What happens.
    pub what: &'static str,
    /// The RPCs it can affect; empty means all.
    pub(crate) methods: &'static [&'static Method],
    /// Changes the request.
    pub(crate) ask: Ask,
    /// May prevent the work.
    pub(crate) before: Before,
    /// Changes the answer, or one frame of a stream.
    pub(crate) after: After,
}

/// An effect on all RPCs that does nothing yet.
pub(crate) const fn effect(name: &'static str, what: &'static str) -> Effect {
    let (ask, before, after): (Ask, Before, After) = (|_, _| {}, |_, _| Turn::GoOn, |_, _, _| {});
    Effect { name, choices: &[], what, methods: &[], ask, before, after }
}

impl Effect {
    /// Whether it can affect an RPC.
    pub(crate) fn fits(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(&method)
    }

    pub(crate) const fn to(self, methods: &'static [&'static Method]) -> Self {
        Self { methods, ..self }
    }

    pub(crate) const fn ways(self, choices: &'static [&'static str]) -> Self {
        Self { choices, ..self }
    }

    /// It changes the request.
    pub(crate) const fn asked(self, ask: Ask) -> Self {
        Self { ask, ..self }
    }

    /// It may prevent the work.
    pub(crate) const fn early(self, before: Before) -> Self {
        Self { before, ..self }
    }

    /// It changes the answer.
    pub(crate) const fn late(self, after: After) -> Self {
        Self { after, ..self }
    }
}

/// The keys of a kind with their values; `fault::text` has checked them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options(pub(crate) Map<String, Value>);

impl Options {
    /// A text; empty if it is absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// A flag; false if it is absent.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A number; 0 if it is absent.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A duration, if it is present.
    pub(crate) fn time(&self, key: &str) -> Option<Duration> {
        duration::parse(self.text(key)).ok()
    }
}

/// What faults remember from call to call.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    count: AtomicU64,
    /// The first answer about each node, which is repeated from then on.
    pub(crate) first_answers: Mutex<HashMap<String, InstanceResult>>,
    /// Backend sets received, by digest.
    pub(crate) sets: Mutex<Vec<(String, Vec<NodeRef>)>>,
    /// Digests received with an Ensure.
    pub(crate) digests: Mutex<HashSet<String>>,
    /// Services whose answer got lost.
    pub(crate) lost_answers: Mutex<HashSet<String>>,
    /// Leaders that led before: cluster uid, scope, epoch.
    pub(crate) leaders: Mutex<HashSet<(String, String, u64)>>,
    /// Services whose balancers are being ensured.
    pub(crate) under_way: Mutex<Vec<Service>>,
    /// The health check port that a balancer had, by id.
    pub(crate) checks: Mutex<HashMap<String, i32>>,
    /// When a watch last told of a change.
    pub(crate) last_change: Mutex<Option<Timestamp>>,
    /// Balancers that get duplicated.
    pub(crate) doubled: Mutex<HashSet<String>>,
    /// Services whose balancer was created since the provider started.
    pub(crate) made_here: Mutex<HashSet<String>>,
    /// Balancers as last read, and when.
    pub(crate) read_balancers: Mutex<HashMap<String, (Timestamp, Message)>>,
}

impl Memory {
    /// A number that it never returned before.
    pub(crate) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

/// One fault that meets one call.
pub(crate) struct Shot<'a> {
    pub(crate) cloud: &'a Arc<Cloud>,
    pub(crate) now: Timestamp,
    pub(crate) advertised: &'a Advertised,
    pub(crate) memory: &'a Memory,
    pub(crate) method: &'static Method,
    pub(crate) subjects: &'a [Subject],
    pub(crate) on: &'a [String],
    /// The variant of a breach; never empty if the breach has variants.
    pub(crate) variant: &'a str,
    pub(crate) options: &'a Options,
    /// The frame's number, for a stream.
    pub(crate) frame: u64,
}

impl Shot<'_> {
    /// Reads the cloud as it is now.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.cloud.read(self.now, look)
    }

    /// The present balancer of the request's Service.
    pub(crate) fn balancer_of(&self, request: &Message) -> Option<Balancer> {
        let (cluster_uid, uid) = (request.cluster_uid(), request.service()?.uid);
        let ours = |balancer: &&Balancer| balancer.cluster_uid == cluster_uid && balancer.service_uid == uid;
        self.look(|state| state.balancers().find(ours).cloned())
    }

    /// Whether calls of the cloud take their time.
    pub(crate) fn is_slow(&self) -> bool {
        self.look(|state| state.conditions.latency_ms > 0)
    }

    /// Changes the cloud behind the provider's back.
    pub(crate) fn alter<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.cloud.alter(self.now, act)
    }

    /// The time of the call, as a message of the contract.
    pub(crate) fn timestamp(&self) -> Option<prost_types::Timestamp> {
        Some(timestamp(self.now))
    }

    /// An answer that has every requested key and nothing else.
    pub(crate) fn blank(&self) -> Outcome {
        Message::blank(self.method, self.subjects.iter().map(|subject| subject.key.clone()))
    }

    /// Whether the fault targets the item with this key.
    pub(crate) fn hits(&self, key: &str) -> bool {
        self.on.is_empty()
            || self.subjects.iter().any(|subject| subject.key == key && subject.is_among(self.on))
    }

    /// Whether it targets this part of an answer: items of a batch have keys, entries of a list have names.
    pub(crate) fn means(&self, part: &DynamicMessage) -> bool {
        match text(part, "key").or_else(|| text(part, "service_uid")) {
            Some(key) => self.hits(&key),
            None => text(part, "node_name").is_none() || self.names(part),
        }
    }

    /// Whether it targets this entry of a list.
    pub(crate) fn names(&self, entry: &DynamicMessage) -> bool {
        Subject::of(entry).is_among(self.on)
    }
}

/// How a call ends: with an answer or a status.
pub(crate) type Outcome = Result<Message, Status>;

/// How a call continues before its work.
pub(crate) enum Turn {
    /// It continues.
    GoOn,
    /// It is answered without work.
    Answer(Box<Outcome>),
    /// It is never answered.
    Hang,
    /// The work is done long after the deadline. The caller hears in time that the deadline passed, or hears nothing.
    TooLate {
        /// Whether the caller hears.
        told: bool,
    },
    /// It continues if the caller still waits a moment later.
    IfAwaited,
}

impl Turn {
    /// Answers with this outcome.
    pub(crate) fn answer(outcome: Outcome) -> Self {
        Self::Answer(Box::new(outcome))
    }

    /// Answers with this error.
    pub(crate) fn fail(error: impl Into<Status>) -> Self {
        Self::answer(Err(error.into()))
    }
}

/// An answer on its way out.
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// Bytes to append to the encoded message.
    pub(crate) tail: Vec<u8>,
    pub(crate) delivery: Delivery,
}

/// How an answer is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Unchanged.
    Send,
    /// Not at all: the stream is reset.
    Reset,
    /// Not at all: the caller hears nothing.
    Silent,
    /// This frame is omitted.
    Drop,
    /// Late; if the caller has disconnected by then, this balancer stays half made.
    OrHalve(String),
}

impl Reply {
    pub(crate) fn new(outcome: Outcome) -> Self {
        Self { outcome, tail: Vec::new(), delivery: Delivery::Send }
    }

    /// The entries of a list that may omit some.
    pub(crate) fn entries(&mut self) -> Option<&mut Vec<Field>> {
        let answer = self.outcome.as_mut().ok()?;
        let list = ["instances", "load_balancers", "routes"].into_iter().find(|list| answer.knows(list))?;
        answer.list(list)
    }

    /// Changes every part of the answer that has this type and that the fault targets.
    pub(crate) fn each<T: Name + Default>(&mut self, shot: &Shot<'_>, change: impl FnMut(&mut T)) {
        if let Ok(answer) = &mut self.outcome {
            answer.each_where(|part| shot.means(part), change);
        }
    }
}
