//! The resource usage of processes, as the kernel counts it.

use std::fs;

use anyhow::{Context as _, Result};
use test_cluster::peak_mib;

use crate::report::Phase;

/// Clock ticks per second; Linux has reported 100 to programs on every architecture for decades.
const TICKS: f64 = 100.0;

/// The usage of some processes together so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    cpu_seconds: f64,
    peak_mib: f64,
}

impl Usage {
    /// The usage of these processes.
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        pids.iter().try_fold(Self::default(), |sum, pid| {
            Ok(Self {
                cpu_seconds: sum.cpu_seconds + cpu_seconds(*pid)?,
                peak_mib: sum.peak_mib + peak_mib(*pid)?,
            })
        })
    }

    /// Processor seconds since then.
    pub(crate) fn cpu_since(self, before: Self) -> f64 {
        self.cpu_seconds - before.cpu_seconds
    }

    pub(crate) fn add_to(self, phase: &mut Phase) {
        phase.value("CPU seconds", self.cpu_seconds, 2);
        phase.value("peak memory, MiB", self.peak_mib, 1);
    }
}

/// Processor seconds in user and kernel mode.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may contain spaces; it ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    Ok((ticks(11).context("utime")? + ticks(12).context("stime")?) / TICKS)
}
