//! A cluster of machines for manual use: starts one, prints how to use it, and stays until Ctrl-C.
#![allow(clippy::print_stdout, reason = "prints for people")]

use std::env;

use anyhow::{Result, bail};
use clap::Parser;
use test_cluster::machines::{MachinesOptions, in_a_room, missing};
use tokio::signal::unix::{SignalKind, signal};

/// A cluster of machines, until Ctrl-C.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Machines of the control plane.
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u8).range(..=MOST))]
    control_plane: u8,
    /// Other machines.
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u8).range(..=MOST))]
    workers: u8,
    #[command(subcommand)]
    instead: Option<Instead>,
}

/// Of each kind: the switch has addresses for twice as many.
const MOST: i64 = 99;

#[derive(Debug, clap::Subcommand)]
enum Instead {
    /// Says why there can be no cluster here, and fails, if there can be none.
    Check,
}

fn main() -> Result<()> {
    let Arguments { control_plane, workers, instead } = Arguments::parse();
    if let Some(Instead::Check) = instead {
        return missing().map_or(Ok(()), |missing| bail!("{missing}"));
    }
    let options = MachinesOptions { control_plane, workers, ..MachinesOptions::default() };
    let again: Vec<String> = env::args().skip(1).collect();
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    in_a_room(
        &again,
        || Ok(()),
        async || {
            let machines = options.start().await?;
            // Before anything is printed, since whoever reads it may interrupt at once.
            let mut interrupt = signal(SignalKind::interrupt())?;
            println!("# on each machine, a shell with kubectl for the administrator; Ctrl-C ends everything");
            for machine in machines.all() {
                println!("{}", machines.shell(machine));
            }
            interrupt.recv().await;
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn read(words: &str) -> Result<(u8, u8), String> {
        let read = Arguments::try_parse_from(format!("machines {words}").split_whitespace());
        read.map(|read| (read.control_plane, read.workers)).map_err(|error| error.to_string())
    }

    #[test]
    fn as_many_machines_as_have_addresses_are_taken() {
        assert_eq!(read(""), Ok((1, 1)));
        assert_eq!(read("3"), Ok((3, 1)));
        assert_eq!(read("99 99"), Ok((99, 99)));
        for (words, value) in [("100", "100"), ("1 100", "100"), ("200 100", "200"), ("1 256", "256")] {
            let said = read(words).unwrap_err();
            assert!(said.contains(&format!("'{value}'")) && said.contains("0..=99"), "{words}: {said}");
        }
        assert!(read("check").is_ok() && read("check 1").is_err() && read("one").is_err());
    }
}
