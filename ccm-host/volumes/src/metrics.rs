//! Metrics: what became of volumes, and of reviews by the webhook.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use ccm_base::metric::Declare;

/// One counter by result: of the controller, or of its webhook. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Results {
    results: Family<Result, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

impl Results {
    pub(super) fn of_volumes(registry: &mut Registry) -> Self {
        Self {
            results: registry.metric(
                "persistent_volume_label_controller_volumes",
                "PersistentVolumes that were labelled; ccm_reports has those that were not, and why",
            ),
        }
    }

    pub(super) fn of_reviews(registry: &mut Registry) -> Self {
        Self {
            results: registry.metric(
                "persistent_volume_label_webhook_reviews",
                "Reviews of new PersistentVolumes: labelled, unchanged, or left to the controller (unlabelled, late); busy and invalid ones were refused",
            ),
        }
    }

    pub(super) fn count(&self, result: &'static str) {
        self.results.get_or_create(&Result { result }).inc();
    }
}
