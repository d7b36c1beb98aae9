//! Histograms with fixed buckets, in the form that the metrics library's families need.

use prometheus_client::metrics::{family::MetricConstructor, histogram::Histogram};

/// Upper bounds of the buckets, in ascending order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets(pub(crate) &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}
