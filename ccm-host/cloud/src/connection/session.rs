//! The connection to one process of a provider, and what that process reported: its advertised limits and intervals
//! have the contract's defaults where it gave none.
//!
//! A session is bound to one socket, and so to one process and one epoch: once the socket is lost, everything in here
//! is void.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloudprovider_proto::{
    defaults,
    discovery::v1::GetInfoResponse,
    v1alpha1::{self as pb, Capability, instances_client::InstancesClient},
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{client::Grpc, transport::Channel};

use super::{connect::Connection, negotiate::Served};
use crate::findings::{Findings, duration, rule, shown};
use crate::{
    CloudError, ProviderInfo,
    call::limit::most_of_a_kind,
    is_reserved_label,
    method::{Kind, Method},
    sent_sets::SentSets,
};
use ccm_base::text::cut;
use ccm_kube::{Keep, KeySet, node::PROVIDED_NODE_IP, service::SOURCE_RANGES};

/// What the provider's clock showed, or less than that: when its answer arrived, more time had passed there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) shown: Duration,
    pub(super) at: Instant,
}

impl Reading {
    /// What it shows that much later than now.
    pub(super) fn after(self, time: Duration) -> Duration {
        self.shown.saturating_add(self.at.elapsed()).saturating_add(time)
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) channel: Channel,
    /// Cancelled when the socket is lost.
    pub(crate) lost: CancellationToken,
    pub(crate) info: Arc<ProviderInfo>,
    pub(crate) served: Served,
    pub(crate) capabilities: pb::GetCapabilitiesResponse,
    pub(crate) limits: pb::Limits,
    pub(super) intervals: Intervals,
    /// By name of the RPC.
    pub(crate) deadlines: HashMap<String, Duration>,
    pub(crate) wants: Arc<pb::Wants>,
    /// The maximum message size, either way.
    pub(crate) message_bytes: usize,
    /// The sets of backends that the process already has.
    pub(crate) sets: SentSets,
    /// The most items of a batch, by service: now, and as advertised.
    most_items: HashMap<&'static str, (AtomicUsize, usize)>,
    /// Advertised RPCs that turned out not to be served.
    pub(crate) refused: Mutex<HashSet<&'static str>>,
    /// The last reading of its clock.
    pub(super) clock: Mutex<Option<Reading>>,
}

impl Session {
    /// What the process reported, with the contract's defaults where it gave nothing.
    pub(super) fn new(
        connection: Connection,
        hello: GetInfoResponse,
        served: Served,
        capabilities: pb::GetCapabilitiesResponse,
        findings: &mut Findings,
    ) -> Self {
        let limits = sane(capabilities.limits.clone().unwrap_or_default(), findings);
        let intervals = Intervals::of(capabilities.intervals.as_ref(), findings);
        let wants = wants(capabilities.wants.clone().unwrap_or_default(), findings);
        let mut info = info(introduced(hello, findings), &served, &capabilities, &wants, &intervals);
        info.balancers_at_once = most_of_a_kind(&limits, &kinds(&info));
        let most = |service, advertised| (service, (AtomicUsize::new(batch(advertised)), batch(advertised)));
        let sets = SentSets::new(has(&capabilities, Capability::BackendSetsByDigest));
        Self {
            channel: connection.channel,
            lost: connection.lost,
            info: Arc::new(info),
            served,
            intervals,
            wants: Arc::new(wants),
            deadlines: deadlines(&limits.deadlines, findings),
            sets,
            message_bytes: message_bytes(limits.max_message_bytes),
            most_items: HashMap::from([
                most("Instances", limits.max_batch_instances),
                most("LoadBalancers", limits.max_batch_load_balancers),
                most("Routes", limits.max_batch_routes),
                most("Volumes", limits.max_batch_volumes),
            ]),
            limits,
            capabilities,
            refused: Mutex::new(HashSet::new()),
            clock: Mutex::default(),
        }
    }

    pub(crate) fn client(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_encoding_message_size(self.message_bytes)
    }

    /// For the watch: each of its frames names one instance.
    pub(crate) fn instances(&self) -> InstancesClient<Channel> {
        InstancesClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_FRAME)
    }

    /// The most items of one batch.
    pub(crate) fn most_items(&self, method: &Method) -> usize {
        self.most_items.get(method.service).map_or(1, |(most, _)| most.load(Ordering::Relaxed))
    }

    /// Halves the next batches after one of this many items was too large.
    pub(crate) fn too_large(&self, method: &Method, items: usize) {
        if let Some((most, _)) = self.most_items.get(method.service) {
            most.fetch_min((items / 2).max(1), Ordering::Relaxed);
        }
    }

    /// Halves the next batches after one of this many items took too long: down to an eighth of what was advertised,
    /// since a cloud that was slow for a while must not be asked item by item ever after.
    pub(crate) fn too_slow(&self, method: &Method, items: usize) {
        if let Some((most, advertised)) = self.most_items.get(method.service) {
            most.fetch_min((items / 2).max(advertised / 8).max(1), Ordering::Relaxed);
        }
    }

    /// Whether the RPC may be called in this epoch.
    pub(crate) fn serves(&self, method: &Method) -> bool {
        self.served.has(method.service) && !self.refuses(method)
    }

    /// Whether the RPC turned out not to be served.
    pub(crate) fn refuses(&self, method: &Method) -> bool {
        self.refused.lock().contains(method.name)
    }

    /// Marks an RPC as not served, whatever was advertised. True the first time.
    pub(crate) fn refuse(&self, method: &Method) -> bool {
        self.refused.lock().insert(method.name)
    }

    /// Rejects what was made for a former process of the provider that wanted to know less or other things: the caches
    /// may not hold yet what this one wants, and a digest is not of it.
    pub(crate) fn is_told(&self, made_for: &pb::Wants, method: &Method) -> Result<(), CloudError> {
        let why = "the provider was replaced, and wants to know more: the host reads that first";
        let is_same = std::ptr::eq(&*self.wants, made_for) || *self.wants == *made_for;
        if is_same { Ok(()) } else { Err(CloudError::unavailable(method.name, why)) }
    }

    /// The node fields that the provider wants of route targets; with addresses if routes hold these.
    pub(crate) fn route_target(&self) -> pb::NodeFields {
        let fields = self.wants.route_target.clone().unwrap_or_default();
        pb::NodeFields { addresses: fields.addresses || self.info.route_node_addresses, ..fields }
    }
}

fn has(answer: &pb::GetCapabilitiesResponse, capability: Capability) -> bool {
    answer.capabilities.contains(&capability.into())
}

fn keep(labels: &[String], annotations: &[String]) -> Keep {
    Keep { labels: KeySet::patterns(labels), annotations: KeySet::patterns(annotations) }
}

fn info(
    hello: GetInfoResponse,
    served: &Served,
    capabilities: &pb::GetCapabilitiesResponse,
    wants: &pb::Wants,
    intervals: &Intervals,
) -> ProviderInfo {
    let can = |capability| has(capabilities, capability);
    let nodes = [&wants.identity, &wants.backend, &wants.route_target];
    let mut keep_of_nodes = Keep::default();
    for fields in nodes.into_iter().flatten() {
        keep_of_nodes = keep_of_nodes.union(&keep(&fields.labels, &fields.annotations));
        if fields.provided_node_ips {
            keep_of_nodes = keep_of_nodes.union(&keep(&[], &[PROVIDED_NODE_IP.to_owned()]));
        }
    }
    let reads_kubelets_words = wants.identity.as_ref().is_some_and(reads_kubelets_words);
    let service = wants.service.clone().unwrap_or_default();
    // Written annotations must be visible, or the host could never tell that a write is done.
    let written = |prefixes: &[String]| {
        let patterns: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}*")).collect();
        keep(&[], &patterns)
    };
    let keep_of_nodes = keep_of_nodes.union(&written(&wants.node_annotation_writes));
    let mut keep_of_services =
        keep(&service.labels, &service.annotations).union(&written(&wants.service_annotation_writes));
    let load_balancers = served.has("LoadBalancers");
    if load_balancers {
        keep_of_services = keep_of_services.union(&keep(&[], &[SOURCE_RANGES.to_owned()]));
    }
    // Without an epoch a restart is undetectable: every connection counts as one.
    let epoch = match hello.process_epoch {
        none if none.is_empty() => uuid::Uuid::new_v4().to_string(),
        epoch => cut(&epoch, LONGEST_NAME).into_owned(),
    };
    ProviderInfo {
        name: shown(&hello.name, LONGEST_NAME),
        vendor_version: shown(&hello.vendor_version, LONGEST_NAME),
        epoch,
        provider_id_prefixes: hello.provider_id_prefixes,
        instances: served.has("Instances"),
        load_balancers,
        routes: served.has("Routes"),
        route_node_addresses: can(Capability::RouteNodeAddresses),
        watch_instances: can(Capability::InstancesWatch),
        names_are_keys: can(Capability::InstancesKeyedByName),
        pod_cidrs: can(Capability::InstancePodCidrs),
        ssh_keys: can(Capability::SshKeys),
        volumes: served.has("Volumes"),
        load_balancer_classes: capabilities.load_balancer_classes.clone(),
        default_load_balancer_class: !capabilities.no_default_load_balancer_class,
        route_ownership: can(Capability::RouteOwnership),
        durable_digest: can(Capability::DurableDigest),
        keep_of_nodes,
        reads_kubelets_words,
        keep_of_services,
        balancers_at_once: 0,
        instance_sweep: intervals.instance_sweep,
    }
}

/// The kinds of calls that the provider serves.
pub(super) fn kinds(info: &ProviderInfo) -> Vec<Kind> {
    let all: [(bool, &[Kind]); 3] = [
        (info.instances, &[Kind::Instances]),
        (info.load_balancers, &[Kind::LoadBalancers, Kind::Updates, Kind::Deletions]),
        (info.routes, &[Kind::Routes]),
    ];
    all.into_iter().filter(|(served, _)| *served).flat_map(|(_, kinds)| kinds).copied().collect()
}

/// The labels that NodeRestriction keeps from kubelets. Of Kubernetes' own they may write some, and all others.
const RESTRICTED: &str = "node-restriction.kubernetes.io/";

/// Whether a provider that is sent these fields learns what a kubelet may have written in its own Node.
fn reads_kubelets_words(fields: &pb::NodeFields) -> bool {
    let of_kubelet = |label: &String| !label.starts_with(RESTRICTED);
    fields.addresses
        || fields.provided_node_ips
        || !fields.annotations.is_empty()
        || fields.labels.iter().any(of_kubelet)
}

/// Caps the batch size that a provider advertises.
const LARGEST_BATCH: u32 = 5000;
/// The lowest rate accepted, in calls per second: one a minute.
const SLOWEST: f64 = 1.0 / 60.0;
const SMALLEST_MESSAGE: u32 = 4 << 20;
/// Maximum keys in one list of labels or annotations.
const MOST_KEYS: usize = 256;
/// Maximum length of a label or annotation key: a subdomain, a slash and a name; or a part of that and a star.
const LONGEST_KEY: usize = 318;
/// Maximum length of `Wants.load_balancer_settings`.
const LONGEST_SETTINGS: usize = 64;
/// What a provider says of itself is cut to this many bytes.
const LONGEST_NAME: usize = 253;

/// Maximum prefixes of a provider's IDs, and the maximum length of each.
const MOST_PREFIXES: usize = 16;
const LONGEST_PREFIX: usize = 253;

/// The intervals that a provider advertised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intervals {
    pub(super) bookmark: Duration,
    pub(super) watch_max_age: Duration,
    pub(super) instance_sweep: Option<Duration>,
}

impl Intervals {
    fn of(given: Option<&pb::Intervals>, findings: &mut Findings) -> Self {
        let given = given.copied().unwrap_or_default();
        let mut within = |bounds, value: Option<_>| duration::within(bounds, value?, findings);
        Self {
            bookmark: within(duration::BOOKMARK, given.bookmark_interval)
                .unwrap_or(defaults::BOOKMARK_INTERVAL),
            watch_max_age: within(duration::WATCH_AGE, given.watch_max_age)
                .unwrap_or(defaults::WATCH_MAX_AGE),
            instance_sweep: within(duration::SWEEP, given.instance_sweep),
        }
    }
}

/// Deadlines, by RPC name.
fn deadlines(given: &[pb::MethodDeadline], findings: &mut Findings) -> HashMap<String, Duration> {
    let read = |one: &pb::MethodDeadline| {
        Some((one.method.clone(), duration::within(duration::DEADLINE, one.deadline?, findings)?))
    };
    given.iter().filter_map(read).collect()
}

/// What the process says of itself, with a plausible number of prefixes that provider IDs can have.
fn introduced(mut hello: GetInfoResponse, findings: &mut Findings) -> GetInfoResponse {
    let prefixes = &mut hello.provider_id_prefixes;
    let before = prefixes.len();
    let is_shown = |prefix: &str| !prefix.contains(char::is_control);
    prefixes.retain(|prefix| (1..=LONGEST_PREFIX).contains(&prefix.len()) && is_shown(prefix));
    prefixes.truncate(MOST_PREFIXES);
    if prefixes.len() < before {
        findings.count(rule::ANSWER_BOUNDS);
    }
    hello
}

/// The provider's wanted fields, with each list cut to a plausible size.
fn wants(mut given: pb::Wants, findings: &mut Findings) -> pb::Wants {
    let pb::Wants {
        identity,
        backend,
        route_target,
        service,
        service_annotation_writes,
        service_condition_writes,
        node_annotation_writes,
        load_balancer_settings,
    } = &mut given;
    let nodes = [identity, backend, route_target].into_iter().flatten();
    let nodes = nodes.flat_map(|fields| [&mut fields.labels, &mut fields.annotations, &mut fields.taints]);
    let services = service.iter_mut().flat_map(|fields| [&mut fields.labels, &mut fields.annotations]);
    let writes = [service_annotation_writes, service_condition_writes, &mut *node_annotation_writes];
    for keys in nodes.chain(services).chain(writes) {
        let before = keys.len();
        // An empty prefix would be that of every annotation.
        keys.retain(|key| (1..=LONGEST_KEY).contains(&key.len()));
        keys.truncate(MOST_KEYS);
        if keys.len() < before {
            findings.count(rule::ANSWER_BOUNDS);
        }
    }
    let before = node_annotation_writes.len();
    // Whatever is under them is the provider's, and goes if the provider does not want it.
    node_annotation_writes.retain(|prefix| prefix.contains('/') && !is_reserved_label(prefix));
    node_annotation_writes.truncate(MOST_PREFIXES);
    if node_annotation_writes.len() < before {
        findings.count(rule::ANSWER_BOUNDS);
    }
    // Every digest is made of it.
    if load_balancer_settings.len() > LONGEST_SETTINGS {
        load_balancer_settings.clear();
        findings.count(rule::ANSWER_BOUNDS);
    }
    given
}

/// Raises a rate that is too low to be meant.
fn sane(mut limits: pb::Limits, findings: &mut Findings) -> pb::Limits {
    for rate in [&mut limits.reads, &mut limits.mutations].into_iter().flatten() {
        if rate.per_second > 0.0 && rate.per_second < SLOWEST {
            rate.per_second = SLOWEST;
            findings.count(rule::DURATION_BOUNDS);
        }
    }
    limits
}

/// Maximum bytes of a frame of the watch.
const LARGEST_FRAME: usize = 1 << 20;

/// Maximum items of a batch.
fn batch(advertised: u32) -> usize {
    let items = if advertised == 0 { defaults::MAX_BATCH } else { advertised.min(LARGEST_BATCH) };
    items as usize
}

/// Maximum bytes of a message.
fn message_bytes(advertised: u32) -> usize {
    let bytes = match advertised {
        0 => defaults::MAX_MESSAGE_BYTES,
        some => some.clamp(SMALLEST_MESSAGE, defaults::HARD_MAX_MESSAGE_BYTES),
    };
    bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_advertised_has_a_default_and_what_is_stays_sane() {
        for (advertised, want) in [(0, 500), (1, 1), (700, 700), (1_000_000, 5000)] {
            assert_eq!(batch(advertised), want, "{advertised}");
        }
        for (advertised, want) in [(0, 16 << 20), (1, 4 << 20), (20 << 20, 20 << 20), (u32::MAX, 64 << 20)] {
            assert_eq!(message_bytes(advertised), want, "{advertised}");
        }
        let absent = Intervals::of(None, &mut Findings::default());
        assert_eq!(absent.bookmark, Duration::from_secs(30));
        assert_eq!(absent.instance_sweep, None);
        let zero = prost_types::Duration::default();
        let given =
            pb::Intervals { bookmark_interval: Some(zero), instance_sweep: Some(zero), ..Default::default() };
        assert_eq!(Intervals::of(Some(&given), &mut Findings::default()), absent);
    }

    /// What a kubelet may write is no proof, whoever reports it.
    #[test]
    fn labels_are_a_kubelets_words_but_for_those_that_are_kept_from_it() {
        let labels = |labels: &[&str]| pb::NodeFields {
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            ..Default::default()
        };
        let rows = [
            (labels(&[]), false),
            (labels(&["node-restriction.kubernetes.io/pool", "node-restriction.kubernetes.io/"]), false),
            (labels(&["node-restriction.kubernetes.io/pool", "example.com/ip"]), true),
            (labels(&["topology.kubernetes.io/zone"]), true),
            (labels(&["*"]), true),
            (pb::NodeFields { addresses: true, ..Default::default() }, true),
        ];
        for (fields, want) in rows {
            assert_eq!(reads_kubelets_words(&fields), want, "{fields:?}");
        }
    }

    /// M3.
    #[test]
    fn a_provider_claims_a_few_prefixes() {
        let many = (0..1000).map(|number| format!("{number}://")).collect::<Vec<_>>();
        for (given, kept, broken) in [
            (many, MOST_PREFIXES, true),
            (vec!["x".repeat(254), String::new(), "x".repeat(253)], 1, true),
            (vec!["aws:///".to_owned()], 1, false),
        ] {
            let mut findings = Findings::default();
            let hello = GetInfoResponse { provider_id_prefixes: given, ..Default::default() };
            assert_eq!(introduced(hello, &mut findings).provider_id_prefixes.len(), kept);
            assert_eq!(findings.rules.contains(&rule::ANSWER_BOUNDS), broken);
        }
    }

    /// It would be the prefix of every annotation.
    #[test]
    fn an_empty_prefix_is_none() {
        let mut findings = Findings::default();
        let service_annotation_writes = vec![String::new(), "aws.example/".to_owned()];
        let kept = wants(pb::Wants { service_annotation_writes, ..Default::default() }, &mut findings);
        assert_eq!(kept.service_annotation_writes, ["aws.example/"]);
        assert_eq!(findings.rules, [rule::ANSWER_BOUNDS]);
    }

    /// N7.
    #[test]
    fn what_a_provider_wants_to_know_is_what_a_person_could_have_written() {
        let keys =
            |count: usize| (0..count).map(|number| format!("example.com/{number}")).collect::<Vec<_>>();
        let many = pb::NodeFields {
            labels: keys(1000),
            annotations: vec!["x".repeat(5000)],
            taints: keys(300),
            ..Default::default()
        };
        let few = pb::ServiceFields {
            labels: vec!["app".into()],
            annotations: keys(MOST_KEYS),
            ..Default::default()
        };
        let mut findings = Findings::default();
        let given = pb::Wants { backend: Some(many), service: Some(few.clone()), ..Default::default() };
        let kept = wants(given, &mut findings);
        let backend = kept.backend.unwrap();
        let kept_keys = [backend.labels.len(), backend.annotations.len(), backend.taints.len()];
        assert_eq!(kept_keys, [MOST_KEYS, 0, MOST_KEYS]);
        assert_eq!(kept.service, Some(few));
        assert_eq!(findings.rules, [rule::ANSWER_BOUNDS; 3]);
    }

    #[test]
    fn settings_are_a_hash_or_a_version() {
        for (length, kept, broken) in [(64, 64, 0), (65, 0, 1)] {
            let mut findings = Findings::default();
            let given = pb::Wants { load_balancer_settings: "x".repeat(length), ..Default::default() };
            let told = wants(given, &mut findings).load_balancer_settings;
            assert_eq!((told.len(), findings.rules.len()), (kept, broken));
        }
    }

    #[test]
    fn paces_have_a_floor_and_a_ceiling() {
        let seconds = Duration::from_secs;
        let intervals = |seconds, nanos| {
            let every = Some(prost_types::Duration { seconds, nanos });
            let (bookmark_interval, watch_max_age, instance_sweep) = (every, every, every);
            let mut findings = Findings::default();
            let given =
                pb::Intervals { bookmark_interval, watch_max_age, instance_sweep, ..Default::default() };
            let read = Intervals::of(Some(&given), &mut findings);
            assert_eq!(findings.rules, [rule::DURATION_BOUNDS; 3]);
            (read.bookmark, read.watch_max_age, read.instance_sweep)
        };
        assert_eq!(intervals(0, 300), (Duration::from_millis(100), seconds(1), Some(seconds(10))));
        let day = seconds(24 * 3600);
        assert_eq!(intervals(i64::MAX, 0), (seconds(600), day, Some(day)));

        let mut findings = Findings::default();
        let rate = |per_second| Some(pb::RateLimit { per_second, burst: 1 });
        let limits = pb::Limits { reads: rate(1e-300), mutations: rate(0.5), ..Default::default() };
        let sane = sane(limits, &mut findings);
        assert_eq!((sane.reads, sane.mutations), (rate(SLOWEST), rate(0.5)));
        assert_eq!(findings.rules, [rule::DURATION_BOUNDS]);
    }
}
