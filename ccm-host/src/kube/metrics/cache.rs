//! Metrics of the watch caches.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

/// Metrics of all caches.
#[derive(Debug, Clone, Default)]
pub struct CacheMetrics {
    objects: Family<Kind, Gauge>,
    last_event: Family<Kind, Seconds>,
    lists: Family<Kind, Counter>,
    errors: Family<Kind, Counter>,
    watching: Family<Kind, Gauge>,
}

impl CacheMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("ccm_cache_objects", "Objects held in the watch cache", self.objects.clone());
        registry.register(
            "ccm_cache_last_event_timestamp_seconds",
            "Time of the last watch event, in seconds since the epoch",
            self.last_event.clone(),
        );
        registry.register("ccm_cache_lists", "Complete lists seen by the watch cache", self.lists.clone());
        registry.register(
            "ccm_cache_watch_errors",
            "Failed lists and watches, which are retried",
            self.errors.clone(),
        );
        registry.register(
            "ccm_cache_watching",
            "Whether the watch is open (1); while it is 0, changes go unnoticed",
            self.watching.clone(),
        );
    }

    /// The series of one kind.
    #[must_use]
    pub fn of_kind(&self, kind: &'static str) -> KindCacheMetrics {
        let kind = Kind { kind };
        KindCacheMetrics {
            objects: self.objects.get_or_create_owned(&kind),
            last_event: self.last_event.get_or_create_owned(&kind),
            lists: self.lists.get_or_create_owned(&kind),
            errors: self.errors.get_or_create_owned(&kind),
            watching: self.watching.get_or_create_owned(&kind),
        }
    }
}

/// Metrics of one cache.
#[derive(Debug, Clone)]
pub struct KindCacheMetrics {
    objects: Gauge,
    last_event: Seconds,
    pub(in crate::kube) lists: Counter,
    pub(in crate::kube) errors: Counter,
    pub(in crate::kube) watching: Gauge,
}

impl KindCacheMetrics {
    /// Records an event and the number of objects after it.
    pub(in crate::kube) fn seen(&self, objects: usize) {
        self.objects.set(i64::try_from(objects).unwrap_or(i64::MAX));
        self.last_event.set(crate::clock::now().as_duration().as_secs_f64());
    }
}
