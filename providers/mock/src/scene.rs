//! What a fault sees of the world it is done in, and what it makes of a call.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicU64, Ordering},
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
};

/// What some faults have to remember.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    count: AtomicU64,
    /// The first answer about each node, to be given ever after.
    pub(crate) first_answers: Mutex<HashMap<String, InstanceResult>>,
    /// Sets of backends that came, by digest.
    pub(crate) sets: Mutex<Vec<(String, Vec<NodeRef>)>>,
    /// Digests that an Ensure brought.
    pub(crate) digests: Mutex<HashSet<String>>,
    /// Services whose answer was lost.
    pub(crate) lost_answers: Mutex<HashSet<String>>,
    /// Balancers that get a double.
    pub(crate) doubled: Mutex<HashSet<String>>,
    /// Services whose balancer was made since the provider started.
    pub(crate) made_here: Mutex<HashSet<String>>,
    /// Balancers as they were read last, and when.
    pub(crate) read_balancers: Mutex<HashMap<String, (Timestamp, Message)>>,
}

impl Memory {
    /// A number that was never given before.
    pub(crate) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

/// One fault, about to be done to one call.
pub(crate) struct Shot<'a> {
    pub(crate) cloud: &'a Cloud,
    pub(crate) now: Timestamp,
    pub(crate) advertised: &'a Advertised,
    pub(crate) memory: &'a Memory,
    pub(crate) method: Method,
    pub(crate) subjects: &'a [Subject],
    pub(crate) on: &'a [String],
    /// The variant of a breach; never empty for one that has variants.
    pub(crate) variant: &'a str,
    /// The number of the frame, for a stream.
    pub(crate) frame: u64,
}

impl Shot<'_> {
    /// Looks at the cloud as it is now.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.cloud.read(self.now, look)
    }

    /// Changes the cloud behind everybody's back.
    pub(crate) fn alter<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.cloud.alter(self.now, act)
    }

    /// The time of the call, as an answer says it.
    pub(crate) fn timestamp(&self) -> Option<prost_types::Timestamp> {
        Some(timestamp(self.now))
    }

    /// An answer that says nothing of anything that was asked for.
    pub(crate) fn blank(&self) -> Outcome {
        Message::blank(self.method, self.subjects.iter().map(|subject| subject.key.clone()))
    }

    /// Whether the fault is meant for the item with this key.
    pub(crate) fn hits(&self, key: &str) -> bool {
        self.on.is_empty()
            || self.subjects.iter().any(|subject| subject.key == key && subject.is_among(self.on))
    }

    /// Whether it is meant for one of these names.
    pub(crate) fn hits_named<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> bool {
        let subject = Subject { key: String::new(), names: names.into_iter().cloned().collect() };
        subject.is_among(self.on)
    }

    /// Whether it is meant for this part of an answer: items of a batch have keys, machines of a list names.
    pub(crate) fn means(&self, part: &DynamicMessage) -> bool {
        match text(part, "key").or_else(|| text(part, "service_uid")) {
            Some(key) => self.hits(&key),
            None => text(part, "node_name").is_none_or(|name| self.hits_named([&name])),
        }
    }
}

/// How a call ends: with an answer or a status.
pub(crate) type Outcome = Result<Message, Status>;

/// What becomes of a call before its work.
pub(crate) enum Turn {
    /// It goes on.
    GoOn,
    /// It is answered without any work.
    Answer(Box<Outcome>),
    /// It is never answered.
    Hang,
    /// The work is done long after the deadline. The caller hears in time that the deadline passed, or never anything.
    TooLate {
        /// Whether the caller hears.
        told: bool,
    },
    /// It goes on if the caller still waits a moment later.
    IfAwaited,
    /// The process ends.
    Crash,
}

impl Turn {
    /// It is answered so.
    pub(crate) fn answer(outcome: Outcome) -> Self {
        Self::Answer(Box::new(outcome))
    }

    /// It is answered with this error.
    pub(crate) fn fail(error: impl Into<Status>) -> Self {
        Self::answer(Err(error.into()))
    }
}

/// An answer on its way out.
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// Bytes to be put behind the encoded message.
    pub(crate) tail: Vec<u8>,
    pub(crate) delivery: Delivery,
}

/// How an answer is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As it is.
    Send,
    /// Not at all: the stream is reset.
    Reset,
    /// Not at all: nothing is said.
    Silent,
    /// This frame is left out.
    Drop,
    /// Late; a caller who went away leaves this balancer half made.
    OrHalve(String),
    /// The process ends first.
    Crash,
}

impl Reply {
    pub(crate) fn new(outcome: Outcome) -> Self {
        Self { outcome, tail: Vec::new(), delivery: Delivery::Send }
    }

    /// Changes every part of the answer that is of this type and that the fault is meant for.
    pub(crate) fn each<T: Named>(&mut self, shot: &Shot<'_>, change: impl FnMut(&mut T)) {
        if let Ok(answer) = &mut self.outcome {
            answer.each_where(|part| shot.means(part), change);
        }
    }
}
