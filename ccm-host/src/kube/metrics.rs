//! The metrics of all communication with the apiserver, registered once.
//!
//! Names, labels and buckets of `workqueue_*` and `rest_client_*` are upstream's, so that existing
//! dashboards work. The library appends `_total` to counters.

mod cache;
pub(super) mod client;
mod events;
mod queue;

use prometheus_client::registry::Registry;

pub use cache::{CacheMetrics, KindCacheMetrics};
pub use client::ClientMetrics;
pub(super) use events::Discarded;
pub use events::EventMetrics;
pub(super) use queue::InFlight;
pub use queue::{QueueMetrics, QueueSample, QueueSeries};

/// All metrics of this module. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct KubeMetrics {
    pub client: ClientMetrics,
    pub cache: CacheMetrics,
    pub queue: QueueMetrics,
    pub events: EventMetrics,
}

impl KubeMetrics {
    /// Registers all of them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.client.register(registry);
        metrics.cache.register(registry);
        metrics.queue.register(registry);
        metrics.events.register(registry);
        metrics
    }
}
