//! Metrics of shadow mode.

use std::{collections::BTreeMap, sync::Arc};

use ccm_state::shadow::{Row, Standing};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    controller: String,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    differences: Family<Of, Gauge>,
    held_back: Family<Of, Counter>,
    agreed: Family<Of, Counter>,
    /// The controllers that ever had a difference: theirs go back to zero.
    known: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Metrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ccm_shadow_differences",
            "In shadow mode: fields and calls that this host would change and the other controller manager does not",
            metrics.differences.clone(),
        );
        registry.register(
            "ccm_shadow_held_back",
            "In shadow mode: writes and calls held back, repeats included",
            metrics.held_back.clone(),
        );
        registry.register(
            "ccm_shadow_agreed",
            "In shadow mode: fields and calls held back that the other controller manager then did as well",
            metrics.agreed.clone(),
        );
        metrics
    }

    /// From now on its metrics are there, with zero.
    pub fn starts(&self, controller: &str) {
        let of = Of { controller: controller.to_owned() };
        self.known.lock().entry(controller.to_owned()).or_default();
        drop(self.differences.get_or_create(&of));
        drop(self.held_back.get_or_create(&of));
        drop(self.agreed.get_or_create(&of));
    }

    pub(super) fn held_back(&self, controller: &str) {
        self.held_back.get_or_create(&Of { controller: controller.to_owned() }).inc();
    }

    pub(super) fn agreed(&self, controller: &str) {
        self.agreed.get_or_create(&Of { controller: controller.to_owned() }).inc();
    }

    pub(super) fn shown(&self, rows: &[Row]) {
        let mut known = self.known.lock();
        known.values_mut().for_each(|count| *count = 0);
        for row in rows.iter().filter(|row| row.standing == Standing::Differs) {
            *known.entry(row.controller.clone()).or_default() += 1;
        }
        for (controller, count) in &*known {
            self.differences.get_or_create(&Of { controller: controller.clone() }).set(*count);
        }
    }
}
