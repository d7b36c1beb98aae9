//! The metrics of the process: one registry, filled by every part at start, encoded on each scrape.
//!
//! In: [`Metrics::register`] from each part. Out: OpenMetrics text. Names follow upstream where upstream has the
//! metric.

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::build_info;
use super::process_metrics::ProcessCollector;
use crate::controllers::Registration;

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label `manager` of `running_managed_controllers`, as upstream's dashboards expect it.
const MANAGER: &str = "cloud-controller-manager";

/// The registry and the metrics of the manager itself; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<RwLock<Registry>>,
    running: Family<RunningLabels, Gauge>,
    skipped: Family<SkippedLabels, Gauge>,
}

/// Keeps the sample of a controller at 1; dropping it, even in a panic, sets it to 0.
#[derive(Debug)]
pub struct Sample {
    gauge: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SkippedLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunningLabels {
    name: &'static str,
    manager: &'static str,
}

impl Metrics {
    /// A registry with the metrics of the process: build, resources, running controllers.
    #[must_use]
    pub fn new() -> Self {
        let running = Family::<RunningLabels, Gauge>::default();
        let mut registry = Registry::default();
        registry.register(
            "running_managed_controllers",
            "Whether a controller runs (1) or has stopped (0)",
            running.clone(),
        );
        let skipped = Family::<SkippedLabels, Gauge>::default();
        registry.register(
            "ccm_controller_skipped",
            "Whether an enabled controller is waiting for a provider that serves it (1)",
            skipped.clone(),
        );
        let build = [
            ("version", build_info::VERSION),
            ("commit", build_info::COMMIT),
            ("os", std::env::consts::OS),
            ("arch", std::env::consts::ARCH),
        ];
        registry.register("ccm_build", "Build information of this process", Info::new(build.to_vec()));
        registry.register_collector(Box::new(ProcessCollector::default()));
        Self { registry: Arc::new(RwLock::new(registry)), running, skipped }
    }

    /// Lets a part add its metrics, even while scrapes are already served.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.write())
    }

    /// Marks a controller as running until the returned value is dropped. One that never ran has no sample.
    #[must_use]
    pub fn running(&self, controller: &Registration) -> Sample {
        let labels = RunningLabels { name: controller.short_name, manager: MANAGER };
        let gauge = self.running.get_or_create_owned(&labels);
        gauge.set(1);
        Sample { gauge }
    }

    /// Marks a controller as waiting for a provider that serves it, until the returned value is dropped.
    #[must_use]
    pub fn skipped(&self, controller: &Registration) -> Sample {
        let labels = SkippedLabels { name: controller.short_name };
        let gauge = self.skipped.get_or_create_owned(&labels);
        gauge.set(1);
        Sample { gauge }
    }

    /// All metrics as OpenMetrics text.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.read())?;
        Ok(text)
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        self.gauge.set(0);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use crate::controllers::{cloud_node, service_lb};

    /// manager.md 5.1.
    #[test]
    fn running_controllers_have_upstreams_labels() {
        let metrics = Metrics::new();
        assert!(!metrics.encode().unwrap().contains("running_managed_controllers{"));
        let _running = metrics.running(&cloud_node::REGISTRATION);
        drop(metrics.running(&service_lb::REGISTRATION));
        let text = metrics.encode().unwrap();
        for line in [
            r#"running_managed_controllers{name="cloud-node",manager="cloud-controller-manager"} 1"#,
            r#"running_managed_controllers{name="service",manager="cloud-controller-manager"} 0"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn has_the_build_and_the_process() {
        let text = Metrics::new().encode().unwrap();
        assert!(text.contains(&format!(r#"ccm_build_info{{version="{}""#, build_info::VERSION)), "{text}");
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn parts_register_late() {
        let metrics = Metrics::new();
        let calls: Counter = Counter::default();
        metrics.register(|registry| registry.register("calls", "Calls made", calls.clone()));
        calls.inc();
        assert!(metrics.encode().unwrap().contains("calls_total 1\n"));
    }
}
