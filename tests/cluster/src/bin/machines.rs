//! A cluster of machines for manual use: starts one, prints how to use it, and stays until Ctrl-C.
//! `machines CONTROL_PLANE WORKERS`; one and one without. `machines check` says why there can be none here.
#![allow(clippy::print_stdout, reason = "prints for people")]

use std::env;

use anyhow::{Context as _, Result, bail};
use test_cluster::machines::{MachinesOptions, in_a_room, missing};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "check") {
        return missing().map_or(Ok(()), |missing| bail!("{missing}"));
    }
    let number = |at: usize| match arguments.get(at) {
        None => Ok(1),
        Some(text) => text.parse().with_context(|| format!("{text:?} is no number of machines, 0 to 99")),
    };
    let options =
        MachinesOptions { control_plane: number(0)?, workers: number(1)?, ..MachinesOptions::default() };
    let again: Vec<&str> = arguments.iter().map(String::as_str).collect();
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
