//! The life of the process: the order in which parts start, and how the process ends.
//!
//! 1. signals are caught, so that nothing is ever cut off in the middle;
//! 2. health and metrics are served: `/livez` answers, `/readyz` says what the process waits for;
//! 3. the parts start, in the order that the caller's `start` lists;
//! 4. the process runs until it is asked to stop or a task fails;
//! 5. work is drained, then its support ends, then serving. A second signal ends all of that at once.
//!
//! In: [`Settings`] and the list of parts. Out: `Ok` for a clean end, otherwise the first failure.

use anyhow::bail;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::flags::Settings;
use super::process::{Failures, Process};

/// Runs the process to its end.
///
/// `start` starts the parts in turn, announces each with [`Process::waiting_for`], and returns when all run; a signal
/// or a failing task ends it early.
pub async fn run(
    settings: Settings,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut signals = StopSignals::install()?;
    until(settings, start, async || signals.next().await).await
}

/// Like [`run`], with other reasons to stop: `stop` names the first, and its next return ends the draining.
///
/// # Errors
/// As [`run`].
pub async fn until(
    settings: Settings,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
    stop: impl AsyncFnMut() -> &'static str,
) -> anyhow::Result<()> {
    let (process, failures) = Process::new(settings);
    process.serve().await?;
    supervise(&process, failures, start, stop).await
}

async fn supervise(
    process: &Process,
    mut failures: Failures,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
    mut signal: impl AsyncFnMut() -> &'static str,
) -> anyhow::Result<()> {
    let end = tokio::select! {
        error = keep_running(process, start) => Err(error),
        Some(error) = failures.recv() => Err(error),
        name = signal() => Ok(name),
    };
    let result = match end {
        Ok(name) => {
            tracing::info!(signal = name, "asked to stop, draining");
            Ok(())
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ending because a part failed");
            Err(error)
        }
    };
    tokio::select! {
        () = process.shut_down() => result,
        name = signal() => bail!("{name} while draining: ending at once"),
    }
}

/// Starts the parts; returns only with the error if that fails.
async fn keep_running(
    process: &Process,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
) -> anyhow::Error {
    match start(process).await {
        Ok(()) => {
            process.started();
            std::future::pending().await
        }
        Err(error) => error,
    }
}

/// The two signals that ask a process to stop.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Catches these signals from now on, so that they no longer end the process by themselves.
    fn install() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal and names it.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests;
