//! `provider-mock`: a cloud that needs no cloud.

use std::process::ExitCode;

use clap::Parser as _;
use provider_mock::cli::{Arguments, Work};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            provider_mock::cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.work() {
        Work::Serve(options) => {
            cloudprovider_sdk::telemetry::init(options.serve.log_format, &options.serve.log_level)?;
            runtime.block_on(provider_mock::serve::run(*options))
        }
        Work::Admin(admin) => runtime.block_on(provider_mock::cli::admin(*admin)),
    }
}
