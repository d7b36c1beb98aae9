//! The metrics of all communication with the apiserver, registered once.
//!
//! Names, labels and buckets of `workqueue_*` and `rest_client_*` are upstream's, so that existing
//! dashboards work. The library appends `_total` to counters.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::queue::QueueMetrics;
use ccm_base::metric::{Buckets, Declare, Histograms, MetricLabels};

/// All metrics of this module. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KubeMetrics {
    pub client: ClientMetrics,
    pub cache: CacheMetrics,
    pub queue: QueueMetrics,
    pub events: EventMetrics,
}

/// Metrics that are not scraped.
impl Default for KubeMetrics {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}

impl KubeMetrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            client: ClientMetrics::register(registry),
            cache: CacheMetrics::register(registry),
            queue: QueueMetrics::register(registry),
            events: EventMetrics::register(registry),
        }
    }
}

const LATENCY: Buckets = Buckets(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// Upstream's buckets: 64 bytes to 16 MiB.
const SIZES: Buckets = Buckets(&[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
]);

/// By verb and host.
type Measured = Histograms<MetricLabels<2, String>>;

/// Metrics of all clients.
#[derive(Debug, Clone)]
pub struct ClientMetrics {
    pub(super) requests: Family<MetricLabels<3, String>, Counter>,
    pub(super) repeated: Family<MetricLabels<3, String>, Counter>,
    pub(super) duration: Measured,
    pub(super) limiter: Measured,
    pub(super) request_size: Measured,
    pub(super) response_size: Measured,
}

impl ClientMetrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            requests: registry.metric(
                "rest_client_requests",
                "Number of HTTP requests, partitioned by status code, method, and host",
            ),
            repeated: registry.metric(
                "rest_client_request_retries",
                "Number of request retries, partitioned by status code, verb, and host",
            ),
            duration: registry.histograms(
                "rest_client_request_duration_seconds",
                "Request latency in seconds, broken down by verb and host",
                LATENCY,
            ),
            limiter: registry.histograms(
                "rest_client_rate_limiter_duration_seconds",
                "Time spent in the client-side rate limiter in seconds, broken down by verb and host",
                LATENCY,
            ),
            request_size: registry.histograms(
                "rest_client_request_size_bytes",
                "Request size in bytes, broken down by verb and host",
                SIZES,
            ),
            response_size: registry.histograms(
                "rest_client_response_size_bytes",
                "Response size in bytes, broken down by verb and host; watches have none",
                SIZES,
            ),
        }
    }
}

type Count = Gauge<u64, AtomicU64>;
type Seconds = Gauge<f64, AtomicU64>;

/// Metrics of all caches.
#[derive(Debug, Clone)]
pub struct CacheMetrics {
    objects: Family<MetricLabels<1>, Count>,
    last_event: Family<MetricLabels<1>, Seconds>,
    lists: Family<MetricLabels<1>, Counter>,
    errors: Family<MetricLabels<1>, Counter>,
    watching: Family<MetricLabels<1>, Gauge>,
    unreadable: Family<MetricLabels<1>, Count>,
}

impl CacheMetrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            objects: registry.metric("ccm_cache_objects", "Objects held in the watch cache"),
            last_event: registry.metric(
                "ccm_cache_last_event_timestamp_seconds",
                "Time of the last watch event, in seconds since the epoch",
            ),
            lists: registry.metric("ccm_cache_lists", "Complete lists seen by the watch cache"),
            errors: registry.metric("ccm_cache_watch_errors", "Failed lists and watches, which are retried"),
            watching: registry.metric(
                "ccm_cache_watching",
                "Whether the watch is open (1); while it is 0, changes go unnoticed",
            ),
            unreadable: registry.metric(
                "ccm_cache_unreadable_objects",
                "Objects whose present state cannot be read; each keeps its last known state, and the log names it",
            ),
        }
    }

    /// The series of one kind.
    pub fn of_kind(&self, kind: &'static str) -> KindCacheMetrics {
        let kind = [("kind", kind)];
        KindCacheMetrics {
            objects: self.objects.get_or_create_owned(&kind),
            last_event: self.last_event.get_or_create_owned(&kind),
            lists: self.lists.get_or_create_owned(&kind),
            errors: self.errors.get_or_create_owned(&kind),
            watching: self.watching.get_or_create_owned(&kind),
            unreadable: self.unreadable.get_or_create_owned(&kind),
        }
    }
}

/// Metrics of one cache.
#[derive(Debug, Clone)]
pub struct KindCacheMetrics {
    objects: Count,
    last_event: Seconds,
    pub(super) lists: Counter,
    pub(super) errors: Counter,
    pub(super) watching: Gauge,
    pub(super) unreadable: Count,
}

impl KindCacheMetrics {
    /// Records an event and the numbers of objects after it.
    pub(super) fn seen(&self, objects: usize, unreadable: usize) {
        self.objects.set(objects as u64);
        self.unreadable.set(unreadable as u64);
        self.last_event.set(ccm_base::clock::now().as_duration().as_secs_f64());
    }
}

/// Metrics of all recorders.
#[derive(Debug, Clone)]
pub struct EventMetrics {
    pub(super) queued: Gauge,
    pub(super) written: Counter,
    discarded: Family<MetricLabels<1>, Counter>,
}

impl EventMetrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            queued: registry.metric("ccm_events_queued", "Events waiting to be written"),
            written: registry.metric("ccm_events_written", "Events written, including repeats"),
            discarded: registry.metric("ccm_events_discarded", "Events dropped before they were written"),
        }
    }

    /// Why an event is not written: `overflow` of the queue or of a namespace's share of it, `spam` about one object,
    /// `failed` at the apiserver, `namespace` that is being deleted, `shutdown` of the process, `shadow` mode.
    pub(super) fn discard(&self, reason: &'static str) {
        self.discarded.get_or_create(&[("reason", reason)]).inc();
    }
}
