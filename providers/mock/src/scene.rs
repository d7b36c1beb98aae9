//! What a fault can see, and how it changes the course of a call.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cloudprovider_sdk::proto::{InstanceResult, NodeRef};
use jiff::Timestamp;
use parking_lot::Mutex;
use prost_reflect::DynamicMessage;
use tonic::Status;

use crate::{
    advertised::Advertised,
    cloud::{Cloud, State, timestamp},
    contract::{Message, Method, Named, Subject, text},
    options::Options,
};

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
    pub(crate) method: Method,
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

    /// Whether it targets one of these names.
    pub(crate) fn hits_named<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> bool {
        let subject = Subject { key: String::new(), names: names.into_iter().cloned().collect() };
        subject.is_among(self.on)
    }

    /// Whether it targets this part of an answer: items of a batch have keys, instances of a list have names.
    pub(crate) fn means(&self, part: &DynamicMessage) -> bool {
        match text(part, "key").or_else(|| text(part, "service_uid")) {
            Some(key) => self.hits(&key),
            None => text(part, "node_name").is_none_or(|name| self.hits_named([&name])),
        }
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
    /// The process aborts.
    Crash,
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
    /// The process aborts first.
    Crash,
}

impl Reply {
    pub(crate) fn new(outcome: Outcome) -> Self {
        Self { outcome, tail: Vec::new(), delivery: Delivery::Send }
    }

    /// Changes every part of the answer that has this type and that the fault targets.
    pub(crate) fn each<T: Named>(&mut self, shot: &Shot<'_>, change: impl FnMut(&mut T)) {
        if let Ok(answer) = &mut self.outcome {
            answer.each_where(|part| shot.means(part), change);
        }
    }
}
