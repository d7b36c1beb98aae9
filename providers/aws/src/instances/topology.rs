//! Where in AWS's network instances are: `DescribeInstanceTopology`, a hundred instances a call, one call a second.
//!
//! In: instances. Out: for each its layers, none, or that it is not known yet. Most types have no answer: one instance of a
//! type is asked about first, and the type left alone for a day if there is none.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{Instance, InstanceStateName};
use cloudprovider_sdk::{ProviderError, Result};
use parking_lot::Mutex;
use regex_lite::Regex;
use tokio::time::Instant;

use crate::api::{Action, Deadline, Failure};
use crate::cloud::Cloud;

/// AWS documents no limit. More are refused ("the maximum is 100").
const AT_ONCE: usize = 100;
/// For how long an answer holds, also that there is none for a type or for the region.
const VALID: Duration = Duration::from_secs(24 * 3600);
/// How soon to ask again after a failure.
const SOON: Duration = Duration::from_secs(30);
/// How long everything else waits for places in the network.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long nobody waits again after there was no answer.
const SILENCE: Duration = Duration::from_secs(60);
/// The types whose nodes are not ready without an answer, as the published provider has them.
const REQUIRED: &str = "^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\\.[0-9a-z]*)$";

/// An instance that starts again may be elsewhere.
type Start = (String, Option<DateTime>);

#[derive(Debug)]
pub(super) struct Topology {
    cloud: Cloud,
    required: Regex,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The layers from the top, and when they were read.
    layers: HashMap<Start, (Vec<String>, Instant)>,
    /// Types with an answer for one of their instances.
    supported: HashSet<String>,
    /// Types without, and since when.
    unsupported: HashMap<String, Instant>,
    /// Since when the whole region has no answer, or these credentials may not ask.
    refused: Option<Instant>,
    /// When it was asked in vain.
    silent: Option<Instant>,
}

impl Known {
    fn layers(&self, instance: &Instance, now: Instant) -> Option<&Vec<String>> {
        let (layers, read) = self.layers.get(&start(instance))?;
        (now.duration_since(*read) < VALID).then_some(layers)
    }

    fn left_alone(&self, kind: &str, now: Instant) -> bool {
        let lately = |since: &Instant| now.duration_since(*since) < VALID;
        self.refused.as_ref().is_some_and(lately) || self.unsupported.get(kind).is_some_and(lately)
    }
}

impl Topology {
    pub(super) fn new(cloud: Cloud, types: &str) -> anyhow::Result<Self> {
        let required = Regex::new(if types.is_empty() { REQUIRED } else { types })?;
        Ok(Self { cloud, required, known: Mutex::default() })
    }

    /// Asks about those of these instances that are not known.
    pub(super) async fn learn(&self, instances: &[&Instance], until: Deadline) -> Result<(), Failure> {
        let until = until.within(PATIENCE);
        loop {
            let next = self.next(instances);
            if next.is_empty() {
                return Ok(());
            }
            let ids = next.iter().map(|one| one.instance_id().unwrap_or_default().to_owned());
            let asked =
                self.cloud.ec2.describe_instance_topology().set_instance_ids(Some(ids.collect())).send();
            match self.cloud.calls.make(Action::DescribeInstanceTopology, until, asked).await {
                Ok(answer) => {
                    let layers =
                        answer.instances.unwrap_or_default().into_iter().filter_map(|one| {
                            Some((one.instance_id?, one.network_nodes.unwrap_or_default()))
                        });
                    self.keep(&next, layers.collect());
                }
                Err(failure) if failure.code() == "UnsupportedOperation" || failure.is_denied() => {
                    tracing::warn!(
                        code = failure.code(),
                        "nodes get no labels of the network: EC2 does not tell them"
                    );
                    self.known.lock().refused = Some(Instant::now());
                    return Ok(());
                }
                Err(failure) => {
                    if failure.is_silence() {
                        self.known.lock().silent = Some(Instant::now());
                    }
                    return Err(failure);
                }
            }
        }
    }

    /// The next to ask about: of a type that is not known to have answers one, of the others all.
    fn next<'a>(&self, instances: &[&'a Instance]) -> Vec<&'a Instance> {
        let known = self.known.lock();
        let now = Instant::now();
        if known.silent.is_some_and(|since| now.duration_since(since) < SILENCE) {
            return Vec::new();
        }
        // Two nodes may have one instance.
        let (mut named, mut tried) = (HashSet::new(), HashSet::new());
        let open = instances.iter().copied().filter(|one| {
            let kind = kind(one);
            is_running(one)
                && named.insert(one.instance_id())
                && known.layers(one, now).is_none()
                && !known.left_alone(kind, now)
                && (self.required.is_match(kind)
                    || known.supported.contains(kind)
                    || tried.insert(kind.to_owned()))
        });
        open.take(AT_ONCE).collect()
    }

    fn keep(&self, asked: &[&Instance], mut answers: HashMap<String, Vec<String>>) {
        let mut known = self.known.lock();
        let now = Instant::now();
        known.layers.retain(|_, (_, read)| now.duration_since(*read) < VALID);
        for one in asked {
            let answer = answers.remove(one.instance_id().unwrap_or_default());
            if answer.is_some() {
                known.supported.insert(kind(one).to_owned());
            } else if !self.required.is_match(kind(one)) && !known.supported.contains(kind(one)) {
                known.unsupported.insert(kind(one).to_owned(), now);
                continue;
            }
            // Without an answer: it is shutting down, say.
            known.layers.insert(start(one), (answer.unwrap_or_default(), now));
        }
    }

    /// The layers of an instance. Where they are not known, an old node waits, and so keeps what it has; a young one waits
    /// only if it needs them.
    pub(super) fn of(&self, instance: &Instance, is_young: bool) -> Result<Vec<String>> {
        let (known, now) = (self.known.lock(), Instant::now());
        let kind = kind(instance);
        let waits = (!is_young || self.required.is_match(kind)) && is_running(instance);
        match known.layers(instance, now) {
            Some(layers) => Ok(layers.clone()),
            None if waits && !known.left_alone(kind, now) => Err(ProviderError::metadata_not_ready(SOON)),
            None => Ok(Vec::new()),
        }
    }
}

fn start(instance: &Instance) -> Start {
    (instance.instance_id().unwrap_or_default().to_owned(), instance.launch_time().copied())
}

fn kind(instance: &Instance) -> &str {
    instance.instance_type().map(|kind| kind.as_str()).unwrap_or_default()
}

fn is_running(instance: &Instance) -> bool {
    instance.state().and_then(|state| state.name()) == Some(&InstanceStateName::Running)
}
