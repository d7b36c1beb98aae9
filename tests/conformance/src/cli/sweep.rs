//! `sweep`: deletes what an aborted run left behind.

use std::{cell::RefCell, io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::{
    ledger::{self, Ledger},
    run::forget,
    scenario::Scenario,
    target::{Endpoint, Wire},
};

#[derive(Debug, Args)]
pub(super) struct SweepArguments {
    /// The ledger of the run.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run_id", "ledger_dir"])]
    ledger: Option<PathBuf>,
    /// The id of the run, which it printed when it began; its ledger is in the directory of ledgers.
    #[arg(long, value_name = "ID", required_unless_present = "ledger")]
    run_id: Option<String>,
    /// Directory of ledgers.
    #[arg(long, value_name = "DIR")]
    ledger_dir: Option<PathBuf>,
    /// Where the provider listens now, if not where it listened during the run.
    #[arg(long)]
    endpoint: Option<Endpoint>,
    /// Directory with ca.crt, tls.crt and tls.key, for https endpoints.
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,
    /// The scenario of the run, whose hooks terminate instances.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
}

impl SweepArguments {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let folder = self.ledger_dir.unwrap_or_else(ledger::default_folder);
        let of_run = self.run_id.map(|id| folder.join(format!("{id}.jsonl")));
        let path = self.ledger.or(of_run).context("say which run: --ledger FILE or --run-id ID")?;
        let (ledger, header) = Ledger::reopen(&path)?;
        let endpoint = match self.endpoint {
            Some(endpoint) => endpoint,
            None => header.endpoint.parse()?,
        };
        let scenario =
            self.scenario.as_deref().map_or_else(|| Ok(Scenario::default()), Scenario::from_file)?;
        let (open, ledger) = (ledger.open().len(), RefCell::new(ledger));
        let left = ledger::clean(&Wire::new(endpoint, self.tls_dir), &scenario, &ledger, |_| true).await;
        ledger.into_inner().end();
        if let Some(folder) = path.parent() {
            forget(folder, &header.run_id);
        }
        let mut out = std::io::stdout();
        for left in &left {
            writeln!(out, "left behind: {}: {}", left.what, left.why)?;
        }
        writeln!(out, "run {}: {} of {open} things are gone", header.run_id, open - left.len())?;
        Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
