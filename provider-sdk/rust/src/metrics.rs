//! Metrics of every RPC, under the same names as in the host.
//!
//! In: the start and end of each RPC, and metrics that a provider registers. Out: OpenMetrics text.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// From a call answered from memory to the longest deadline of the contract.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];
const ITEMS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];

/// The media type of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An RPC, with names from a bounded list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Method {
    pub(crate) service: &'static str,
    pub(crate) method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    service: &'static str,
    method: &'static str,
    code: &'static str,
    reason: &'static str,
}

/// All metrics of one provider.
pub(crate) struct Metrics {
    registry: Registry,
    durations: Family<Outcome, Histogram, fn() -> Histogram>,
    in_flight: Family<Method, Gauge>,
    batches: Family<Method, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// Adds the metrics of this crate to those of the provider.
    pub(crate) fn new(mut registry: Registry) -> Self {
        let durations: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let batches: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(|| Histogram::new(ITEMS));
        let in_flight = Family::default();
        let ours = registry
            .sub_registry_with_prefix("cloudprovider")
            .sub_registry_with_label(("role".into(), "provider".into()));
        ours.register(
            "rpc_duration_seconds",
            "Time from the arrival of an RPC to the head of its answer, by outcome",
            durations.clone(),
        );
        ours.register("rpcs_in_flight", "RPCs that are not answered yet", in_flight.clone());
        ours.register("rpc_batch_size", "Items of a batch as it arrived", batches.clone());
        Self { registry, durations, in_flight, batches }
    }

    pub(crate) fn started(&self, method: Method) {
        self.in_flight.get_or_create(&method).inc();
    }

    pub(crate) fn batch(&self, method: Method, items: usize) {
        self.batches.get_or_create(&method).observe(items as f64);
    }

    pub(crate) fn ended(&self, method: Method, code: &'static str, reason: &'static str, took: Duration) {
        self.in_flight.get_or_create(&method).dec();
        let Method { service, method } = method;
        self.durations.get_or_create(&Outcome { service, method, code, reason }).observe(took.as_secs_f64());
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}
