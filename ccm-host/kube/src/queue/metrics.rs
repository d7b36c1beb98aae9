//! Metrics of the work queues, under client-go's names.
//!
//! Depth and unfinished work are computed on scrape, from the queues that are still alive.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};

use ccm_base::metric::{Buckets, Declare, Histograms, MetricLabels};

/// 10 ns to 10 s, in powers of ten.
const DURATIONS: Buckets = Buckets(&[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0]);

/// A queue that can be sampled.
pub(super) trait InFlight: fmt::Debug + Send + Sync {
    fn sample(&self) -> ccm_state::Queue;
}

/// Metrics of all queues.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    adds: Family<MetricLabels<1>, Counter>,
    retries: Family<MetricLabels<1>, Counter>,
    queue_duration: Histograms<MetricLabels<1>>,
    work_duration: Histograms<MetricLabels<1>>,
    live: Arc<Mutex<Vec<Weak<dyn InFlight>>>>,
}

/// Metrics of one queue.
#[derive(Debug, Clone)]
pub struct QueueSeries {
    pub(super) adds: Counter,
    pub(super) retries: Counter,
    pub(super) queue_duration: Histogram,
    pub(super) work_duration: Histogram,
}

impl QueueMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let live = Arc::default();
        registry.register_collector(Box::new(Scrape(Arc::clone(&live))));
        Self {
            adds: registry.metric("workqueue_adds", "Total number of adds handled by workqueue"),
            retries: registry.metric("workqueue_retries", "Total number of retries handled by workqueue"),
            queue_duration: registry.histograms(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
                DURATIONS,
            ),
            work_duration: registry.histograms(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes",
                DURATIONS,
            ),
            live,
        }
    }

    /// The series of one queue.
    pub fn of_queue(&self, name: &'static str) -> QueueSeries {
        let name = [("name", name)];
        QueueSeries {
            adds: self.adds.get_or_create_owned(&name),
            retries: self.retries.get_or_create_owned(&name),
            queue_duration: self.queue_duration.get_or_create_owned(&name),
            work_duration: self.work_duration.get_or_create_owned(&name),
        }
    }

    /// The state of all queues, by name.
    pub fn samples(&self) -> Vec<ccm_state::Queue> {
        samples(&self.live)
    }

    /// Includes a queue in every scrape for as long as it lives.
    pub(super) fn watch(&self, queue: &Arc<dyn InFlight>) {
        let mut live = self.live.lock();
        live.retain(|queue| queue.strong_count() > 0);
        live.push(Arc::downgrade(queue));
    }
}

/// One sample per name: of two queues with the same name the younger counts.
fn samples(live: &Mutex<Vec<Weak<dyn InFlight>>>) -> Vec<ccm_state::Queue> {
    let queues: Vec<_> = live.lock().iter().filter_map(Weak::upgrade).collect();
    let mut samples: Vec<_> = queues.iter().map(|queue| queue.sample()).collect();
    samples.reverse();
    samples.sort_by(|one, other| one.name.cmp(&other.name));
    samples.dedup_by(|one, other| one.name == other.name);
    samples
}

#[derive(Debug)]
struct Scrape(Arc<Mutex<Vec<Weak<dyn InFlight>>>>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let samples = samples(&self.0);
        type Value = fn(&ccm_state::Queue) -> f64;
        let gauges: [(&str, &str, Value); 3] = [
            ("workqueue_depth", "Current depth of workqueue", |sample| sample.depth as f64),
            (
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
                |sample| sample.unfinished_seconds,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How many seconds the longest running processor for workqueue has been running",
                |sample| sample.longest_seconds,
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for sample in &samples {
                ConstGauge::new(value(sample))
                    .encode(family.encode_family(&[("name", sample.name.as_str())])?)?;
            }
        }
        Ok(())
    }
}
