//! What a fault sees of the world it is done in, and what it makes of a call.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cloudprovider_sdk::proto::{GetLoadBalancerResponse, InstanceResult, NodeRef};
use parking_lot::Mutex;
use tonic::Status;

use super::{Answer, Subject};
use crate::{fault::aims_at, mock::Mock};

/// The world that all calls share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) mock: Mock,
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

impl Memory {
    /// A number that was never given before.
    pub(crate) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

/// One fault, about to be done to one call.
pub(crate) struct Shot<'a> {
    pub(crate) mock: &'a Mock,
    pub(crate) memory: &'a Memory,
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

/// Subjects are found once a call, and only when somebody asks.
pub(crate) type Subjects = Arc<[Subject]>;
