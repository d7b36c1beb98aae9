//! Metrics: what became of volumes, and of reviews by the webhook.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeMetrics {
    volumes: Family<Result, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
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
        self.volumes.get_or_create(&Result { result }).inc();
    }
}

/// The metrics of the webhook.
#[derive(Debug, Clone, Default)]
pub(super) struct AdmissionMetrics {
    reviews: Family<Result, Counter>,
}

impl AdmissionMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "persistent_volume_label_webhook_reviews",
            "Reviews of new PersistentVolumes: labelled, unchanged, or left to the controller (unlabelled, late, busy); invalid ones were refused",
            metrics.reviews.clone(),
        );
        metrics
    }

    pub(super) fn count(&self, result: &'static str) {
        self.reviews.get_or_create(&Result { result }).inc();
    }
}
