//! `provider-conformance`: tests whether a provider keeps the contract.

use std::process::ExitCode;

use clap::Parser as _;
use provider_conformance::cli::Arguments;

fn main() -> ExitCode {
    provider_conformance::cli::main(Arguments::parse())
}
