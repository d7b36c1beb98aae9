//! Where in AWS's network instances are: `DescribeInstanceTopology`, a page of instances a call, one call a second.
//!
//! In: instances. Out: for each its layers, none, or that it is not known yet. Most types have no answer: some instances of a
//! type are asked about first, and the type left alone for a day if there is none.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

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
/// How many of a type are asked about to know whether it has answers: those of one page. One alone may be shutting down.
const SOME: usize = 20;
/// For how long after its start AWS may not know yet where an instance is.
const YOUNG: Duration = Duration::from_secs(600);
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

/// The layers of instances, from the top.
type Answers = HashMap<String, Vec<String>>;

#[derive(Debug)]
pub(super) struct Topology {
    cloud: Cloud,
    required: Regex,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The layers from the top, and until when they are believed.
    layers: HashMap<Start, (Vec<String>, Instant)>,
    /// Types with an answer for one of their instances.
    supported: HashSet<String>,
    /// Types without, and until when that is believed.
    unsupported: HashMap<String, Instant>,
    /// Since when the whole region has no answer, or these credentials may not ask.
    refused: Option<Instant>,
    /// When it was asked in vain, or refused to answer.
    silent: Option<Instant>,
}

impl Known {
    fn layers(&self, instance: &Instance, now: Instant) -> Option<&Vec<String>> {
        let (layers, until) = self.layers.get(&start(instance))?;
        (now < *until).then_some(layers)
    }

    fn left_alone(&self, kind: &str, now: Instant) -> bool {
        // Whoever could ask before may be able to again, and nodes keep what they have.
        let is_refused = self.refused.is_some_and(|since| now.duration_since(since) < VALID);
        is_refused && !self.supported.contains(kind)
            || self.unsupported.get(kind).is_some_and(|until| now < *until)
    }
}

impl Topology {
    pub(super) fn new(cloud: Cloud, types: &str) -> anyhow::Result<Self> {
        let required = Regex::new(if types.is_empty() { REQUIRED } else { types })?;
        Ok(Self { cloud, required, known: Mutex::default() })
    }

    /// Asks about those of these instances that are not known, each once.
    pub(super) async fn learn(&self, instances: &[&Instance], until: Deadline) -> Result<(), Failure> {
        let until = until.within(PATIENCE);
        let mut asked = HashSet::new();
        loop {
            let next = self.next(instances, &mut asked);
            if next.is_empty() {
                return Ok(());
            }
            let mut answers = Answers::new();
            let outcome = self.ask(&next, &mut answers, until).await;
            let is_whole = outcome.is_ok();
            self.keep(next.into_iter().filter(|one| is_whole || answers.contains_key(id(one))), &answers);
            let Err(failure) = outcome else { continue };
            let mut known = self.known.lock();
            if failure.code() == "UnsupportedOperation" || failure.is_denied() {
                tracing::warn!(
                    code = failure.code(),
                    "nodes get no labels of the network: EC2 does not tell them"
                );
                (known.refused, known.silent) = (Some(Instant::now()), Some(Instant::now()));
                return Ok(());
            }
            if failure.is_silence() {
                known.silent = Some(Instant::now());
            }
            return Err(failure);
        }
    }

    /// All pages of an answer: EC2 tells of some twenty instances at once, also where it was asked about more.
    async fn ask(&self, about: &[&Instance], answers: &mut Answers, until: Deadline) -> Result<(), Failure> {
        let ids: Vec<_> = about.iter().map(|one| id(one).to_owned()).collect();
        let mut token = None;
        loop {
            let asked = self.cloud.ec2.describe_instance_topology().set_instance_ids(Some(ids.clone()));
            let asked = asked.set_next_token(token).send();
            let answer = self.cloud.calls.make(Action::DescribeInstanceTopology, until, asked).await?;
            token = answer.next_token().filter(|token| !token.is_empty()).map(str::to_owned);
            let told = answer.instances.unwrap_or_default().into_iter();
            answers.extend(
                told.filter_map(|one| Some((one.instance_id?, one.network_nodes.unwrap_or_default()))),
            );
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// The next to ask about: of a type that is not known to have answers some, of the others all.
    fn next<'a>(&self, instances: &[&'a Instance], asked: &mut HashSet<&'a str>) -> Vec<&'a Instance> {
        let known = self.known.lock();
        let now = Instant::now();
        if known.silent.is_some_and(|since| now.duration_since(since) < SILENCE) {
            return Vec::new();
        }
        let mut tried: HashMap<&str, usize> = HashMap::new();
        let open = instances.iter().copied().filter(|one| {
            let kind = kind(one);
            is_running(one)
                && known.layers(one, now).is_none()
                && !known.left_alone(kind, now)
                && (self.required.is_match(kind) || known.supported.contains(kind) || {
                    let tried = tried.entry(kind).or_default();
                    *tried += 1;
                    *tried <= SOME
                })
                // Two nodes may have one instance.
                && asked.insert(id(one))
        });
        open.take(AT_ONCE).collect()
    }

    fn keep<'a>(&self, asked: impl Iterator<Item = &'a Instance> + Clone, answers: &Answers) {
        let mut known = self.known.lock();
        let now = Instant::now();
        known.layers.retain(|_, (_, until)| now < *until);
        known.unsupported.retain(|_, until| now < *until);
        for one in asked.clone().filter(|one| answers.contains_key(id(one))) {
            known.supported.insert(kind(one).to_owned());
            known.unsupported.remove(kind(one));
        }
        for one in asked {
            let (answer, is_supported) = (answers.get(id(one)), known.supported.contains(kind(one)));
            // Of a young one, EC2 may not know it yet; an old one without an answer is shutting down, say.
            let until = now + if answer.is_none() && is_young(one) { YOUNG } else { VALID };
            if answer.is_some() || self.required.is_match(kind(one)) || is_supported {
                // Of a type with answers, there will be one.
                if answer.is_some() || !is_supported || !is_young(one) {
                    known.layers.insert(start(one), (answer.cloned().unwrap_or_default(), until));
                }
                continue;
            }
            let before = known.unsupported.entry(kind(one).to_owned()).or_insert(until);
            *before = until.max(*before);
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

fn id(instance: &Instance) -> &str {
    instance.instance_id().unwrap_or_default()
}

fn start(instance: &Instance) -> Start {
    (id(instance).to_owned(), instance.launch_time().copied())
}

fn is_young(instance: &Instance) -> bool {
    let since = instance.launch_time().and_then(|at| SystemTime::try_from(*at).ok());
    since.and_then(|since| since.elapsed().ok()).is_some_and(|age| age < YOUNG)
}

fn kind(instance: &Instance) -> &str {
    instance.instance_type().map(|kind| kind.as_str()).unwrap_or_default()
}

fn is_running(instance: &Instance) -> bool {
    instance.state().and_then(|state| state.name()) == Some(&InstanceStateName::Running)
}
