//! `provider-mock`: a cloud that needs no cloud.

use std::process::ExitCode;

use clap::Parser;
use provider_mock::{admin, serve};

/// A complete cloud in memory behind the CloudProvider contract.
#[derive(Debug, Parser)]
#[command(name = "provider-mock", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    options: serve::Options,
    #[command(subcommand)]
    work: Option<Work>,
}

#[derive(Debug, clap::Subcommand)]
enum Work {
    Admin(Box<admin::Command>),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            // If stderr is gone too, nobody can be told.
            let _told = writeln!(std::io::stderr().lock(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.work {
        Some(Work::Admin(command)) => runtime.block_on(command.run()),
        None => {
            let options = arguments.options;
            cloudprovider_sdk::telemetry::init(options.serve.log_format, &options.serve.log_level)?;
            runtime.block_on(serve::run(options))
        }
    }
}
