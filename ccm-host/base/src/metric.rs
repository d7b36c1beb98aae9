//! Declares metrics, so that name, help and buckets of each stand beside its field.

use std::sync::Arc;

use prometheus_client::{
    metrics::{
        family::{Family, MetricConstructor},
        histogram::Histogram,
    },
    registry::{Metric, Registry},
};

/// How many there are, as a gauge takes it.
pub fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Labels with their names, in the order in which they are served.
pub type MetricLabels<const N: usize, V = &'static str> = [(&'static str, V); N];

/// The labels of what is counted for each provider: its name first.
pub type OfProvider<const N: usize = 0, V = &'static str> = (MetricLabels<1, Arc<str>>, MetricLabels<N, V>);

pub fn of_provider<const N: usize, V>(
    provider: impl Into<Arc<str>>,
    rest: MetricLabels<N, V>,
) -> OfProvider<N, V> {
    ([("provider", provider.into())], rest)
}

/// Upper bounds of a histogram's buckets, in ascending order.
#[derive(Debug, Clone, Copy)]
pub struct Buckets(pub &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// A histogram for each set of labels.
pub type Histograms<L> = Family<L, Histogram, Buckets>;

/// Makes a metric and registers it. The library appends `_total` to counters.
pub trait Declare {
    /// A counter or a gauge, or a family of them.
    fn metric<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M;

    fn histogram(&mut self, name: &str, help: &str, buckets: Buckets) -> Histogram;

    fn histograms<L>(&mut self, name: &str, help: &str, buckets: Buckets) -> Histograms<L>
    where
        Histograms<L>: Metric + Clone,
        L: Clone + std::hash::Hash + Eq;
}

impl Declare for Registry {
    fn metric<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.register(name, help, metric.clone());
        metric
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: Buckets) -> Histogram {
        let metric = buckets.new_metric();
        self.register(name, help, metric.clone());
        metric
    }

    fn histograms<L>(&mut self, name: &str, help: &str, buckets: Buckets) -> Histograms<L>
    where
        Histograms<L>: Metric + Clone,
        L: Clone + std::hash::Hash + Eq,
    {
        let metrics = Family::new_with_constructor(buckets);
        self.register(name, help, metrics.clone());
        metrics
    }
}
