//! The `ccm-host` process: exit code 0 after a clean end, 1 after a command line mistake or a failure.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "answers to the person at the command line")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use ccm_host::{
    assembly,
    manager::{
        self,
        flags::{self, Request, Settings},
        logging, process,
        traces::Traces,
    },
};

/// Returns memory after the peak of the first synchronisation, which the system's allocator does not.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Blocking calls still under way at the end are abandoned after this.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match flags::parse(std::env::args_os().skip(1)) {
        Ok(Request::Print(text)) => {
            println!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Request::Run(settings)) => match start(*settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("error: {mistake}"));
            ExitCode::FAILURE
        }
    }
}

fn start(settings: Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let traces = {
        let _entered = runtime.enter();
        Traces::start(&settings.traces)
    };
    let (traces, without) = traces.map_or_else(|error| (None, Some(error)), |traces| (traces, None));
    logging::init(&settings.logging, traces.as_ref()).context("logging cannot be set up")?;
    if let Some(error) = without {
        tracing::warn!(error = format!("{error:#}"), "no traces are sent");
    }
    tracing::info!(version = manager::VERSION, commit = manager::COMMIT, "starting");
    for (name, value) in &settings.flags {
        tracing::info!("FLAG: --{name}={value:?}");
    }
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    // A second call would fail, but nothing has installed one before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = runtime.block_on(process::run(settings, assembly::start));
    if let Some(traces) = traces {
        traces.end();
    }
    runtime.shutdown_timeout(LEFT_BEHIND);
    result
}
