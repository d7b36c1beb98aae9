//! The command line: `run`, `list`, `sweep`, `bench`.

mod bench;
mod knock;
mod list;
mod run;
mod sweep;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};

pub use list::page;

use crate::{scenario::Scenario, target::Endpoint};

/// The conformance suite of the CloudProvider contract.
///
/// Exit codes: 0 conformant; 1 a case failed; 2 wrong usage, or a problem of this machine; 3 no provider could be
/// tested, or it stopped answering; 4 no case failed, but some were not run; 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "provider-conformance", version)]
pub struct Arguments {
    /// List all cases and what they need, and do nothing else.
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Test a provider.
    Run(run::RunArguments),
    /// List all cases and what they need.
    List(list::ListArguments),
    /// Delete what an aborted run left behind.
    Sweep(sweep::SweepArguments),
    /// Measure how long each RPC takes.
    Bench(bench::BenchArguments),
    /// Call a provider as another user. The suite runs this itself.
    #[command(hide = true)]
    Knock(knock::KnockArguments),
}

/// Where the provider listens.
#[derive(Debug, Clone, Args)]
pub struct TargetArguments {
    /// unix:///path/of/the/socket, a path, or https://host:port with --tls-dir.
    #[arg(long, env = "CONFORMANCE_ENDPOINT")]
    endpoint: Endpoint,
    /// Directory with ca.crt, tls.crt and tls.key, for https endpoints.
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,
    /// How to control the cloud, see docs/conformance.md. Without it, cases that need a hook are not run.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
}

impl TargetArguments {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        if matches!(self.endpoint, Endpoint::Tls { .. }) && self.tls_dir.is_none() {
            anyhow::bail!("{} needs --tls-dir DIR with ca.crt, tls.crt and tls.key", self.endpoint);
        }
        self.scenario.as_deref().map_or_else(|| Ok(Scenario::default()), Scenario::from_file)
    }
}

const WRONG_USE: u8 = 2;
const NO_PROVIDER: u8 = 3;
const INCOMPLETE: u8 = 4;
const INTERRUPTED: u8 = 130;

/// Runs the subcommand.
pub fn main(arguments: Arguments) -> ExitCode {
    let command = match (arguments.list, arguments.command) {
        (false, Some(command)) => command,
        (true, _) => Command::List(list::ListArguments::default()),
        (false, None) => {
            use clap::CommandFactory as _;
            let complaint = "say what to do: run, list, sweep or bench";
            Arguments::command().error(clap::error::ErrorKind::MissingSubcommand, complaint).exit();
        }
    };
    // One thread is enough, and makes measurements comparable.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&anyhow::Error::from(error)),
    };
    let done = runtime.block_on(async {
        match command {
            Command::Run(arguments) => arguments.run().await,
            Command::List(arguments) => arguments.run(),
            Command::Sweep(arguments) => arguments.run().await,
            Command::Bench(arguments) => arguments.run().await,
            Command::Knock(arguments) => arguments.run().await,
        }
    });
    done.unwrap_or_else(|error| complain(&error))
}

#[expect(clippy::print_stderr, reason = "the one place where the command line complains")]
fn complain(error: &anyhow::Error) -> ExitCode {
    eprintln!("provider-conformance: {error:#}");
    ExitCode::from(WRONG_USE)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is no number of seconds; use for example 60"))
}
