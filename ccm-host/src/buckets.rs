//! Histograms with fixed buckets, as a family of the metrics library wants to make them.

use prometheus_client::metrics::{family::MetricConstructor, histogram::Histogram};

/// The upper ends of the buckets, the smallest first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets(pub(crate) &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}
