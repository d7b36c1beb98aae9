//! The host's process, and its resource usage as the kernel counts it.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;

use super::cluster::Cluster;

/// Clock ticks per second; Linux has reported 100 to programs on every architecture for decades.
const TICKS: f64 = 100.0;
/// A process that uses less processor time is idle.
const IDLE: f64 = 0.02;
/// A process that is idle for this long is done.
const WINDOW: Duration = Duration::from_secs(3);
/// Rate limits of the host itself must not slow it down.
const FLAGS: [&str; 10] = [
    "--leader-elect=false",
    "--secure-port=0",
    "--controllers=*,nodeipam",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.0.0.0/8",
    "--service-cluster-ip-range=192.168.0.0/16",
    "--kube-api-qps=100000",
    "--kube-api-burst=100000",
    "--concurrent-node-syncs=32",
    "--concurrent-service-syncs=32",
];

/// Ends when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Mutex<Child>,
    /// The usage of the phases so far.
    counted: Mutex<f64>,
}

impl Process {
    pub(super) fn start(host: &Path, cluster: &Cluster, flags: &[String]) -> Result<Self> {
        let child = Command::new(host)
            .args(FLAGS)
            .args([
                format!("--master=http://{}", cluster.apiserver),
                format!("--provider=mock={}", cluster.provider),
            ])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(fs::File::create(std::env::temp_dir().join("ccm-host-scale.log"))?)
            .spawn()
            .with_context(|| format!("cannot start {}", host.display()))?;
        Ok(Self { child: Mutex::new(child), counted: Mutex::new(0.0) })
    }

    pub(super) fn is_running(&self) -> Result<bool> {
        Ok(self.child.lock().try_wait()?.is_none())
    }

    /// The usage before the phase that begins; the start of the process belongs to its first one.
    pub(super) fn cpu_at_begin(&self) -> f64 {
        *self.counted.lock()
    }

    /// The usage since.
    pub(super) fn take_cpu(&self, begin: f64) -> Result<f64> {
        let now = self.cpu_seconds()?;
        *self.counted.lock() = now;
        Ok(now - begin)
    }

    /// Waits until the host is nearly idle.
    pub(super) async fn idle(&self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut before = self.cpu_seconds()?;
        loop {
            tokio::time::sleep(WINDOW).await;
            let now = self.cpu_seconds()?;
            if now - before <= IDLE * WINDOW.as_secs_f64() {
                return Ok(());
            }
            before = now;
            ensure!(begun.elapsed() < patience, "the host is still busy after {patience:?}");
        }
    }

    /// The largest resident size so far.
    pub(super) fn peak_mib(&self) -> Result<f64> {
        self.mib("VmHWM:")
    }

    /// The resident size.
    pub(super) fn resident_mib(&self) -> Result<f64> {
        self.mib("VmRSS:")
    }

    fn mib(&self, name: &'static str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.lock().id()))?;
        let line = status.lines().find(|line| line.starts_with(name)).context(name)?;
        let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib / 1024.0)
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.lock().id()))?;
        // The name may contain spaces; it ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        Ok((ticks(11).context("utime")? + ticks(12).context("stime")?) / TICKS)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ended = child.kill();
        let _reaped = child.wait();
    }
}
