//! The metrics of the process: one registry, filled by every part at start, encoded on each scrape.
//!
//! In: [`Metrics::register`] from each part, and `/proc` for `process_*`, the metrics common to Prometheus client
//! libraries, which are left out if they cannot be read. Out: OpenMetrics text. Names follow upstream where upstream has
//! the metric.

use std::fs;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::{COMMIT, VERSION};
use ccm_base::metric::{Declare, MetricLabels};
use ccm_reconcile::Registration;

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label `manager` of `running_managed_controllers`, as upstream's dashboards expect it.
const MANAGER: &str = "cloud-controller-manager";

/// The registry and the metrics of the manager itself; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<RwLock<Registry>>,
    running: Family<MetricLabels<2>, Gauge>,
    skipped: Family<MetricLabels<1>, Gauge>,
}

/// Keeps the sample of a controller at 1; dropping it, even in a panic, sets it to 0.
#[derive(Debug)]
pub struct Sample {
    gauge: Gauge,
}

impl Default for Metrics {
    /// A registry with the metrics of the process: build, resources, running controllers.
    fn default() -> Self {
        let mut registry = Registry::default();
        let running = registry
            .metric("running_managed_controllers", "Whether a controller runs (1) or has stopped (0)");
        let skipped = registry.metric(
            "ccm_controller_skipped",
            "Whether an enabled controller is waiting for a provider that serves it (1)",
        );
        let build = [
            ("version", VERSION),
            ("commit", COMMIT),
            ("os", std::env::consts::OS),
            ("arch", std::env::consts::ARCH),
        ];
        registry.register("ccm_build", "Build information of this process", Info::new(build.to_vec()));
        registry.register_collector(Box::new(ProcessCollector));
        Self { registry: Arc::new(RwLock::new(registry)), running, skipped }
    }
}

impl Metrics {
    /// Lets a part add its metrics, even while scrapes are already served.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.write())
    }

    /// Marks a controller as running until the returned value is dropped. One that never ran has no sample.
    #[must_use]
    pub fn running(&self, controller: &Registration) -> Sample {
        let labels = [("name", controller.short_name), ("manager", MANAGER)];
        let gauge = self.running.get_or_create_owned(&labels);
        gauge.set(1);
        Sample { gauge }
    }

    /// Marks a controller as waiting for a provider that serves it, until the returned value is dropped.
    #[must_use]
    pub fn skipped(&self, controller: &Registration) -> Sample {
        let labels = [("name", controller.short_name)];
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

/// `process_*`: the kernel's data about this process, read on each scrape.
#[derive(Debug)]
struct ProcessCollector;

/// The contents of `/proc/self/stat`, in readable units.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: i64,
    /// Since boot.
    started_seconds: f64,
    virtual_bytes: i64,
    resident_bytes: i64,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(stat) = read_stat() {
            counter(&mut encoder, "process_cpu_seconds", "User and system CPU time spent", stat.cpu_seconds)?;
            gauge(
                &mut encoder,
                "process_resident_memory_bytes",
                "Resident memory size",
                stat.resident_bytes,
            )?;
            gauge(&mut encoder, "process_virtual_memory_bytes", "Virtual memory size", stat.virtual_bytes)?;
            gauge(&mut encoder, "process_threads", "Threads", stat.threads)?;
            if let Some(boot) = boot_seconds() {
                gauge(
                    &mut encoder,
                    "process_start_time_seconds",
                    "Start time since the Unix epoch",
                    boot + stat.started_seconds,
                )?;
            }
        }
        if let Some((received, sent)) =
            fs::read_to_string("/proc/self/net/netstat").ok().as_deref().and_then(octets)
        {
            counter(
                &mut encoder,
                "process_network_receive_bytes",
                "Bytes received by the network of the process",
                received,
            )?;
            counter(
                &mut encoder,
                "process_network_transmit_bytes",
                "Bytes sent by the network of the process",
                sent,
            )?;
        }
        if let Some(count) = open_fds() {
            gauge(&mut encoder, "process_open_fds", "Open file descriptors", count)?;
        }
        if let Some(most) = most_fds() {
            gauge(&mut encoder, "process_max_fds", "Largest number of open file descriptors", most)?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), std::fmt::Error> {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

fn read_stat() -> Option<Stat> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    #[expect(clippy::cast_precision_loss, reason = "clock ticks a second are about a hundred")]
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = i64::try_from(rustix::param::page_size()).ok()?;
    parse_stat(&text, ticks, page)
}

/// Field numbers are those of proc(5); the command in field 2 may contain anything, even spaces and parentheses.
fn parse_stat(text: &str, ticks_per_second: f64, page_bytes: i64) -> Option<Stat> {
    let after_command = text.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_command.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let seconds = |number: usize| Some(field(number)?.parse::<f64>().ok()? / ticks_per_second);
    let whole = |number: usize| field(number)?.parse::<i64>().ok();
    Some(Stat {
        cpu_seconds: seconds(14)? + seconds(15)?,
        threads: whole(20)?,
        started_seconds: seconds(22)?,
        virtual_bytes: whole(23)?,
        resident_bytes: whole(24)? * page_bytes,
    })
}

/// Bytes in and out of the network namespace: a table is a line of names and a line of values.
fn octets(netstat: &str) -> Option<(f64, f64)> {
    let mut rows = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, values) = (rows.next()?, rows.next()?);
    let value = |wanted: &str| {
        names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    Some((value("InOctets")?, value("OutOctets")?))
}

/// When the machine booted, since the Unix epoch.
fn boot_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn open_fds() -> Option<i64> {
    // One of them is the open directory itself.
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok().map(|count| count - 1)
}

fn most_fds() -> Option<i64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    i64::try_from(limit.current?).ok()
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use ccm_nodes::cloud_node;

    /// manager.md 5.1.
    #[test]
    fn running_controllers_have_upstreams_labels() {
        let metrics = Metrics::default();
        assert!(!metrics.encode().unwrap().contains("running_managed_controllers{"));
        let _running = metrics.running(&cloud_node::REGISTRATION);
        drop(metrics.running(&ccm_services::REGISTRATION));
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
        let text = Metrics::default().encode().unwrap();
        assert!(text.contains(&format!(r#"ccm_build_info{{version="{VERSION}""#)), "{text}");
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn parts_register_late() {
        let metrics = Metrics::default();
        let calls: Counter = Counter::default();
        metrics.register(|registry| registry.register("calls", "Calls made", calls.clone()));
        calls.inc();
        assert!(metrics.encode().unwrap().contains("calls_total 1\n"));
    }

    #[test]
    fn reads_the_fields_of_proc() {
        let text = "42 (a ) b) S 1 1 1 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 7 0 1000 8192 3 184467 rest";
        let stat = Stat {
            cpu_seconds: 2.0,
            threads: 7,
            started_seconds: 10.0,
            virtual_bytes: 8192,
            resident_bytes: 12288,
        };
        assert_eq!(parse_stat(text, 100.0, 4096), Some(stat));
        assert_eq!(parse_stat("42 (cut", 100.0, 4096), None);
        assert_eq!(parse_stat("42 (cut) S 1", 100.0, 4096), None);
    }

    #[test]
    fn reads_the_octets_of_the_network() {
        let text = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 3 4 5\n";
        assert_eq!(octets(text), Some((4.0, 5.0)));
        assert_eq!(octets("IpExt: InOctets\n"), None);
        assert!(octets(&fs::read_to_string("/proc/self/net/netstat").unwrap()).is_some());
    }

    #[test]
    fn this_process_has_plausible_numbers() {
        let stat = read_stat().unwrap();
        assert!(stat.resident_bytes > 100_000 && stat.virtual_bytes >= stat.resident_bytes, "{stat:?}");
        assert!(stat.threads >= 1);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - (boot_seconds().unwrap() + stat.started_seconds);
        assert!((-2.0..86_400.0).contains(&age), "age {age}");
        assert!((1..=most_fds().unwrap_or(i64::MAX)).contains(&open_fds().unwrap()));
    }
}
