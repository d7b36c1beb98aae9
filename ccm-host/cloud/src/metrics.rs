//! Metrics of calls to providers. Every series carries the provider's name on the command line.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_state::{CallError, Calls};
use cloudprovider_proto::code_name;
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{
    CloudError, ProviderStatus,
    connection::negotiate::Served,
    method::{Class, Method},
};
use crate::findings::{Findings, rule};
use ccm_base::{
    clock,
    metric::{Buckets, Declare, Histograms, MetricLabels, OfProvider, of_provider},
};

/// Metrics of all providers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CloudMetrics {
    durations: Histograms<OfProvider<4>>,
    batch_sizes: Histograms<OfProvider<1>>,
    in_flight: Family<OfProvider<1>, Gauge>,
    connected: Family<OfProvider, Gauge>,
    serving: Family<OfProvider, Gauge>,
    epoch_changes: Family<OfProvider, Counter>,
    connect_failures: Family<OfProvider, Counter>,
    reordered: Family<OfProvider, Counter>,
    watch_missed: Family<OfProvider, Counter>,
    watch_streams: Family<OfProvider<1>, Counter>,
    violations: Family<OfProvider<1>, Counter>,
    rate_limited: Family<OfProvider<1>, Counter<f64, std::sync::atomic::AtomicU64>>,
    versions: Family<OfProvider<2>, Gauge>,
    infos: Family<OfProvider<1, String>, Gauge>,
}

const SECONDS: Buckets = Buckets(&[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0,
]);
const ITEMS: Buckets = Buckets(&[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0]);

impl CloudMetrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            durations: registry.histograms(
                "cloudprovider_rpc_duration_seconds",
                "Duration of calls to a provider, by outcome",
                SECONDS,
            ),
            batch_sizes: registry.histograms("cloudprovider_rpc_batch_size", "Items per batch", ITEMS),
            in_flight: registry.metric("cloudprovider_rpcs_in_flight", "Calls in flight"),
            connected: registry.metric("cloudprovider_connected", "Whether the provider is connected (1)"),
            serving: registry.metric(
                "cloudprovider_serving",
                "Whether the provider is healthy enough for destructive work (1)",
            ),
            epoch_changes: registry
                .metric("cloudprovider_epoch_changes", "Restarts of the provider that the host noticed"),
            connect_failures: registry
                .metric("cloudprovider_connect_failures", "Failed connections and handshakes"),
            reordered: registry.metric(
                "cloudprovider_batch_reordered",
                "Batches answered in a different order, which is allowed",
            ),
            watch_missed: registry
                .metric("cloudprovider_watch_missed", "Changes that a sweep found and the watch had missed"),
            watch_streams: registry.metric("cloudprovider_watch_streams", "Ended watch streams, by reason"),
            violations: registry.metric(
                "cloudprovider_contract_violations",
                "Violations of the contract by a provider, by rule",
            ),
            rate_limited: registry.metric(
                "cloudprovider_rate_limited_seconds",
                "Time for which calls were paused because the cloud throttles",
            ),
            versions: registry
                .metric("cloudprovider_negotiated_version", "Negotiated version of each service (1)"),
            infos: registry
                .metric("cloudprovider_provider_info", "Version that the provider reports of itself (1)"),
        }
    }

    /// Counts a change that a sweep found and this provider's watch did not report.
    pub fn watch_missed(&self, provider: &str) {
        self.watch_missed.get_or_create(&of_provider(provider, [])).inc();
    }
}

/// Characters of a reported version that a label holds.
const LONGEST_VERSION: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct ProviderMetrics {
    all: CloudMetrics,
    provider: Arc<str>,
    log: Arc<Mutex<CallLog>>,
}

impl ProviderMetrics {
    pub(crate) fn new(all: CloudMetrics, provider: &str) -> Self {
        let new = Self { all, provider: provider.into(), log: Arc::default() };
        // From zero, so that `increase` sees the first.
        drop(new.all.epoch_changes.get_or_create(&new.labels()));
        drop(new.all.watch_missed.get_or_create(&new.labels()));
        new
    }

    /// The calls so far, and the last one that failed.
    pub(crate) fn log(&self) -> MutexGuard<'_, CallLog> {
        self.log.lock()
    }

    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    fn with<const N: usize, V>(&self, rest: MetricLabels<N, V>) -> OfProvider<N, V> {
        of_provider(Arc::clone(&self.provider), rest)
    }

    fn labels(&self) -> OfProvider {
        self.with([])
    }

    fn method(&self, method: &Method) -> OfProvider<1> {
        self.with([("method", method.name)])
    }

    fn info(&self, version: &str) -> OfProvider<1, String> {
        self.with([("version", version.chars().take(LONGEST_VERSION).collect())])
    }

    fn version(&self, &(service, version): &(&'static str, &'static str)) -> OfProvider<2> {
        self.with([("service", service), ("version", version)])
    }

    pub(crate) fn begin(&self, method: &Method, items: Option<usize>) {
        let labels = self.method(method);
        if let Some(items) = items {
            self.all.batch_sizes.get_or_create(&labels).observe(items as f64);
        }
        self.all.in_flight.get_or_create(&labels).inc();
    }

    pub(crate) fn ended(&self, method: &Method, code: &'static str, reason: &'static str, took: Duration) {
        self.all.in_flight.get_or_create(&self.method(method)).dec();
        let labels = self.with([
            ("service", method.service),
            ("method", method.name),
            ("code", code),
            ("reason", reason),
        ]);
        self.all.durations.get_or_create(&labels).observe(took.as_secs_f64());
        self.log().ended(method.name, code == "OK", took);
    }

    pub(crate) fn status(&self, status: &ProviderStatus) {
        let (connected, serving) = match status {
            ProviderStatus::Disconnected(_) => (0, 0),
            ProviderStatus::Frozen(_) => (1, 0),
            ProviderStatus::Serving => (1, 1),
        };
        self.all.connected.get_or_create(&self.labels()).set(connected);
        self.all.serving.get_or_create(&self.labels()).set(serving);
    }

    pub(crate) fn epoch_changed(&self) {
        self.all.epoch_changes.get_or_create(&self.labels()).inc();
    }

    pub(crate) fn connect_failed(&self) {
        self.all.connect_failures.get_or_create(&self.labels()).inc();
    }

    pub(crate) fn reordered(&self) {
        self.all.reordered.get_or_create(&self.labels()).inc();
    }

    pub(crate) fn watch_ended(&self, end: &'static str) {
        self.all.watch_streams.get_or_create(&self.with([("end", end)])).inc();
    }

    /// Counts a broken rule.
    pub(crate) fn violation(&self, rule: &'static str) {
        self.all.violations.get_or_create(&self.with([("rule", rule)])).inc();
    }

    /// Checks an answer and counts every finding.
    pub(crate) fn checked<T>(&self, check: impl FnOnce(&mut Findings) -> T) -> T {
        let mut findings = Findings::default();
        let checked = check(&mut findings);
        findings.rules.iter().for_each(|rule| self.violation(rule));
        checked
    }

    /// Counts keys that were not answered exactly once.
    pub(crate) fn wrong_keys(&self, times: usize) {
        (0..times).for_each(|_| self.violation(rule::BATCH_KEYS));
    }

    pub(crate) fn rate_limited(&self, class: Class, pause: Duration) {
        let class = match class {
            Class::Local => "local",
            Class::Read => "read",
            Class::Mutation => "mutation",
        };
        self.all.rate_limited.get_or_create(&self.with([("class", class)])).inc_by(pause.as_secs_f64());
    }

    /// Shows the version that the provider reports, instead of the former one.
    pub(crate) fn introduced(&self, before: Option<&str>, now: &str) {
        if let Some(before) = before {
            self.all.infos.remove(&self.info(before));
        }
        self.all.infos.get_or_create(&self.info(now)).set(1);
    }

    pub(crate) fn negotiated(&self, before: &Served, now: &Served) {
        for gone in before.versions.iter().filter(|version| !now.versions.contains(version)) {
            self.all.versions.remove(&self.version(gone));
        }
        for spoken in &now.versions {
            self.all.versions.get_or_create(&self.version(spoken)).set(1);
        }
    }
}

/// Calls of one method that count as recent.
const RECENT: usize = 128;

/// The recent calls to one provider, by method, for people: counts, how slow, and the last failure.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    methods: BTreeMap<&'static str, Told>,
    last_error: Option<CallError>,
}

#[derive(Debug, Default)]
struct Told {
    count: u64,
    failed: u64,
    seconds: f64,
    /// A ring of the last durations in seconds.
    recent: Vec<f32>,
}

impl CallLog {
    pub(crate) fn ended(&mut self, method: &'static str, ok: bool, took: Duration) {
        let told = self.methods.entry(method).or_default();
        let at = usize::try_from(told.count).unwrap_or_default() % RECENT;
        told.count += 1;
        told.failed += u64::from(!ok);
        told.seconds += took.as_secs_f64();
        match told.recent.get_mut(at) {
            Some(slot) => *slot = took.as_secs_f32(),
            None => told.recent.push(took.as_secs_f32()),
        }
    }

    pub(crate) fn failed(&mut self, error: &CloudError) {
        let code = code_name(error.code);
        let reason = error.reason.map_or_else(String::new, |reason| format!("/{}", reason.wire_name()));
        self.last_error = Some(CallError {
            method: error.method.to_owned(),
            code: format!("{code}{reason}"),
            message: error.message.clone(),
            time: clock::now(),
        });
    }

    pub(crate) fn told(&self) -> (Vec<Calls>, Option<CallError>) {
        let calls = |(method, told): (&&str, &Told)| {
            let mut recent = told.recent.clone();
            recent.sort_by(f32::total_cmp);
            let at = |index: usize| recent.get(index).copied().map(f64::from).unwrap_or_default();
            Calls {
                method: (*method).to_owned(),
                count: told.count,
                failed: told.failed,
                seconds: told.seconds,
                recent_median_seconds: at(recent.len() / 2),
                recent_max_seconds: at(recent.len().saturating_sub(1)),
            }
        };
        (self.methods.iter().map(calls).collect(), self.last_error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_all_calls_and_measures_the_recent_ones() {
        let mut log = CallLog::default();
        log.ended("Get", false, Duration::from_secs(100));
        for _ in 0..RECENT - 1 {
            log.ended("Get", true, Duration::from_secs(2));
        }
        let (calls, _) = log.told();
        assert_eq!((calls[0].count, calls[0].failed, calls[0].recent_max_seconds), (128, 1, 100.0));
        log.ended("Get", true, Duration::from_secs(3));
        let (calls, _) = log.told();
        assert_eq!(
            (calls[0].recent_median_seconds, calls[0].recent_max_seconds),
            (2.0, 3.0),
            "the oldest went"
        );
    }
}
