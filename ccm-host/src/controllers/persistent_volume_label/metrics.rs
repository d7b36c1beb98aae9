//! Metrics: what became of volumes.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeMetrics {
    volumes: Family<Volume, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Volume {
    result: &'static str,
}

impl VolumeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "persistent_volume_label_controller_volumes",
            "PersistentVolumes that were labelled, or not: not_found, contested, failed, refused; differs and invalid count labels that were left out",
            metrics.volumes.clone(),
        );
        metrics
    }

    pub(super) fn count(&self, result: &'static str) {
        self.volumes.get_or_create(&Volume { result }).inc();
    }
}
