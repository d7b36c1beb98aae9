//! `bench`.

use std::{io::Write as _, process::ExitCode, rc::Rc, time::Duration};

use anyhow::Result;
use clap::Args;

use super::TargetArguments;
use crate::{bench, ledger, provider::introduce, scenario::Scenario, session::Session, target::Wire};

#[derive(Debug, Args)]
pub(super) struct BenchArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Number of calls of each RPC.
    #[arg(long, default_value_t = 200)]
    calls: usize,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

impl BenchArguments {
    pub(super) async fn run(self) -> Result<ExitCode> {
        // It measures what a caller sees, waits and all.
        let scenario = Scenario { patience: Duration::ZERO, ..self.target.scenario()? };
        let wire = Wire::new(self.target.endpoint, self.target.tls_dir);
        let provider = introduce(&wire).await?;
        let session = Rc::new(Session::begin(wire, provider, scenario, &ledger::default_folder(), 0)?);
        let measured = bench::measure(&session, self.calls).await;
        let left = session.clean(|_| true).await;
        let mut out = std::io::stdout();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&measured)?)?;
        } else {
            bench::table(&measured, &mut out)?;
        }
        for left in &left {
            writeln!(out, "left behind: {}: {}", left.what, left.why)?;
        }
        if let Ok(session) = Rc::try_unwrap(session) {
            session.ledger.into_inner().end();
        }
        Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
