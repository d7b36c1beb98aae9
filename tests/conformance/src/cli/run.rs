//! `run`.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use futures::FutureExt as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{INCOMPLETE, INTERRUPTED, NO_PROVIDER, TargetArguments};
use crate::{
    cases, ledger,
    report::{Conformance, EarlyEnd, Report, Screen},
    run::{Filter, Options, RunError, StopSignal, run},
};

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Only cases of this profile or rule, or with this text in their id. Repeat it, or separate several by commas.
    #[arg(long, value_delimiter = ',')]
    filter: Vec<String>,
    /// Write conformance.json, conformance.xml (JUnit) and conformance.md into this directory.
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
    /// Make the same random choices as the run that printed this number.
    #[arg(long)]
    seed: Option<u64>,
    /// How many balancers may stand at once, as far as the account's quota and your purse go. A case that needs more is
    /// not run.
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    max_balancers: usize,
    /// How long one case may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = super::seconds)]
    case_timeout: Duration,
    /// Go on with a run that was cut off: its id, which it printed when it began. What it left behind is deleted first.
    #[arg(long, value_name = "RUN_ID")]
    resume: Option<String>,
    /// Stop at the first case that fails.
    #[arg(long)]
    fail_fast: bool,
    /// Directory of the ledger during the run.
    #[arg(long, value_name = "DIR")]
    ledger_dir: Option<PathBuf>,
}

impl RunArguments {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let options = Options {
            scenario: self.target.scenario()?,
            endpoint: self.target.endpoint,
            tls_folder: self.target.tls_dir,
            ledger_folder: self.ledger_dir.unwrap_or_else(ledger::default_folder),
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
            filter: Filter::new(self.filter)?,
            max_balancers: self.max_balancers,
            case_timeout: self.case_timeout,
            resume: self.resume,
            fail_fast: self.fail_fast,
        };
        let mut screen = Screen::terminal();
        let report = run(options, cases::all(), interrupted()?, &mut |progress| screen.show(&progress)).await;
        let report = match report {
            Ok(report) => report,
            Err(RunError::Here(error)) => return Err(error),
            Err(RunError::NoProvider(error)) => return Ok(no_provider(&error)),
        };
        report.summary(io::stdout())?;
        if let Some(folder) = &self.report_dir {
            report.write(folder)?;
        }
        Ok(ExitCode::from(exit_code(&report)))
    }
}

#[expect(clippy::print_stderr, reason = "the reason why there is no report")]
fn no_provider(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("provider-conformance: {error}");
    ExitCode::from(NO_PROVIDER)
}

fn exit_code(report: &Report) -> u8 {
    match (report.ended_early, report.conformance()) {
        (Some(EarlyEnd::Interrupted), _) => INTERRUPTED,
        (Some(EarlyEnd::Silence { .. }), _) => NO_PROVIDER,
        (_, Conformance::Conformant) => 0,
        (_, Conformance::NotConformant) => 1,
        (_, Conformance::Incomplete) => INCOMPLETE,
    }
}

/// Resolves on Ctrl-C or SIGTERM.
fn interrupted() -> Result<StopSignal> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let either = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    Ok(either.boxed().shared())
}
