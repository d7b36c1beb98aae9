//! What a fault sees of the world it is done in, and what it makes of a call.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cloudprovider_sdk::proto::{GetLoadBalancerResponse, InstanceResult, NodeRef};
use jiff::Timestamp;
use parking_lot::Mutex;
use tonic::Status;

use super::{Answer, Subject};
use crate::{
    cloud::{Cloud, State},
    fault::aims_at,
    provider::{Advertised, Clock},
};

/// The world that all calls share.
pub(crate) struct World {
    pub(crate) cloud: Cloud,
    pub(crate) clock: Clock,
    pub(crate) advertised: Advertised,
    pub(crate) memory: Memory,
}

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
    pub(crate) read_balancers: Mutex<HashMap<String, (prost_types::Timestamp, GetLoadBalancerResponse)>>,
}

impl World {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Looks at the cloud as it is now.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.cloud.read(self.now(), look)
    }

    /// Changes the cloud behind everybody's back.
    pub(crate) fn alter<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.cloud.alter(self.now(), act)
    }

    /// A number that was never given before.
    pub(crate) fn count(&self) -> u64 {
        self.memory.count.fetch_add(1, Ordering::Relaxed)
    }
}

/// One fault, about to be done to one call.
pub(crate) struct Shot<'a> {
    pub(crate) world: &'a World,
    pub(crate) subjects: &'a [Subject],
    pub(crate) on: &'a [String],
    /// The variant of a breach; never empty for one that has variants.
    pub(crate) variant: &'a str,
    /// The number of the frame, for a stream.
    pub(crate) frame: u64,
}

impl Shot<'_> {
    /// Whether the fault is meant for the item with this key.
    pub(crate) fn hits(&self, key: &str) -> bool {
        self.on.is_empty()
            || self.subjects.iter().any(|subject| subject.key == key && aims_at(self.on, subject))
    }

    /// Whether it is meant for one of these names.
    pub(crate) fn hits_named<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> bool {
        let subject = Subject { key: String::new(), names: names.into_iter().cloned().collect() };
        aims_at(self.on, &subject)
    }
}

/// How a call ends: with an answer or a status.
pub(crate) type Outcome = Result<Answer, Status>;

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
    /// It is answered with this error.
    pub(crate) fn fail(error: impl Into<Status>) -> Self {
        Self::Answer(Box::new(Err(error.into())))
    }

    /// It is answered with this.
    pub(crate) fn answer(answer: Answer) -> Self {
        Self::Answer(Box::new(Ok(answer)))
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
}

impl std::fmt::Debug for World {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("World").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// Subjects are found once a call, and only when somebody asks.
pub(crate) type Subjects = Arc<[Subject]>;
