//! What a process has used, as the kernel counts.

use std::fs;

use anyhow::{Context as _, Result};

/// Clock ticks a second; Linux has shown 100 to programs on every architecture for decades.
const TICKS: f64 = 100.0;

/// Processor seconds in user and kernel mode.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold blanks; it ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    Ok((ticks(11).context("utime")? + ticks(12).context("stime")?) / TICKS)
}

/// The largest resident size so far, in MiB.
pub(crate) fn peak_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib / 1024.0)
}
