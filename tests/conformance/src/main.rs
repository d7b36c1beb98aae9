//! `provider-conformance`: is this provider one?

use std::process::ExitCode;

use clap::Parser as _;
use provider_conformance::cli::Arguments;

fn main() -> ExitCode {
    provider_conformance::cli::main(Arguments::parse())
}
