//! The series of one provider.

use std::time::Duration;

use super::{
    Arc, Class, ClassLabels, CloudMetrics, EndLabels, Findings, Gauge, InfoLabels, MethodLabels,
    ProviderLabels, ProviderStatus, RpcLabels, RuleLabels, Served, VersionLabels, log::CallLog, rule,
};
use crate::cloud::{CloudError, call::method::Method};

/// Characters of a reported version that a label holds.
const LONGEST_VERSION: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct ProviderMetrics {
    all: CloudMetrics,
    provider: Arc<str>,
    log: Arc<parking_lot::Mutex<CallLog>>,
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
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
    pub(crate) fn log(&self) -> parking_lot::MutexGuard<'_, CallLog> {
        self.log.lock()
    }

    pub(crate) fn failed(&self, error: &CloudError) {
        self.log().failed(error);
    }

    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    fn labels(&self) -> ProviderLabels {
        ProviderLabels { provider: Arc::clone(&self.provider) }
    }

    fn method(&self, method: &Method) -> MethodLabels {
        MethodLabels { provider: Arc::clone(&self.provider), method: method.name }
    }

    pub(crate) fn begin(&self, method: &Method, items: Option<usize>) -> InFlight {
        let labels = self.method(method);
        if let Some(items) = items {
            self.all.batch_sizes.get_or_create(&labels).observe(items as f64);
        }
        let gauge = self.all.in_flight.get_or_create_owned(&labels);
        gauge.inc();
        InFlight(gauge)
    }

    pub(crate) fn ended(&self, method: &Method, code: &'static str, reason: &'static str, took: Duration) {
        let labels = RpcLabels {
            provider: Arc::clone(&self.provider),
            service: method.service,
            method: method.name,
            code,
            reason,
        };
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
        let labels = EndLabels { provider: Arc::clone(&self.provider), end };
        self.all.watch_streams.get_or_create(&labels).inc();
    }

    /// Counts a broken rule.
    pub(crate) fn violation(&self, rule: &'static str) {
        let labels = RuleLabels { provider: Arc::clone(&self.provider), rule };
        self.all.violations.get_or_create(&labels).inc();
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
        let labels = ClassLabels { provider: Arc::clone(&self.provider), class };
        self.all.rate_limited.get_or_create(&labels).inc_by(pause.as_secs_f64());
    }

    /// Shows the version that the provider reports, instead of the former one.
    pub(crate) fn introduced(&self, before: Option<&str>, now: &str) {
        let labels = |version: &str| InfoLabels {
            provider: Arc::clone(&self.provider),
            version: version.chars().take(LONGEST_VERSION).collect(),
        };
        if let Some(before) = before {
            self.all.infos.remove(&labels(before));
        }
        self.all.infos.get_or_create(&labels(now)).set(1);
    }

    pub(crate) fn negotiated(&self, before: &Served, now: &Served) {
        let labels = |&(service, version): &(&'static str, &'static str)| VersionLabels {
            provider: Arc::clone(&self.provider),
            service,
            version,
        };
        for gone in before.versions.iter().filter(|version| !now.versions.contains(version)) {
            self.all.versions.remove(&labels(gone));
        }
        for spoken in &now.versions {
            self.all.versions.get_or_create(&labels(spoken)).set(1);
        }
    }
}
