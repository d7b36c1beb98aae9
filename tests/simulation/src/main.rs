//! `cargo simulate`: many seeds, or one of them with its log.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "answers to the person at the command line")]

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use simulation::{
    fleet::{Fleet, Outcome},
    plan::Plan,
    record::Record,
    run, scale,
};

#[derive(Debug, Parser)]
#[command(about = "The host between an apiserver and a cloud in memory, under faults from a seed")]
struct Arguments {
    #[command(subcommand)]
    work: Option<Work>,
    /// How many seeds to run.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    one: One,
}

#[derive(Debug, Clone, Args)]
struct One {
    /// Run only this seed, and show its plan and its log.
    #[arg(long)]
    seed: Option<u64>,
    /// Steps to omit, by their numbers in the plan.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Measure what the host costs with this many nodes; needs `--release`, and the host's binary next to this program.
    Scale(scale::Arguments),
    /// Run one seed in this process and print its outcome; the environment must name the seed, too.
    #[command(name = "one", hide = true)]
    Here {
        #[command(flatten)]
        one: One,
        /// Print the log.
        #[arg(long)]
        log: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match work(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { work, seeds, from, one } = arguments;
    match work {
        Some(Work::Here { one, log }) => return here(&one, log),
        Some(Work::Scale(arguments)) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(scale::measure(&arguments, |line| println!("{line}")))?;
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let program = std::env::current_exe()?;
    if let Some(seed) = one.seed {
        let without = one.without.join(",");
        let status = Command::new(program)
            .args(["one", "--log", "--seed", &seed.to_string(), "--without", &without])
            .env("SIMULATION_SEED", seed.to_string())
            .status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let began = std::time::Instant::now();
    let failures = Fleet::new(program).run_all(from..from + seeds, |line| eprintln!("{line}"))?;
    for failure in &failures {
        println!("\n{}", failure.report());
    }
    println!("\n{seeds} seeds from {from}, {} failed, {:.1?}", failures.len(), began.elapsed());
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn here(one: &One, log: bool) -> Result<ExitCode> {
    let seed = one.seed.context("which seed? give --seed")?;
    let without = one.without.iter().filter(|text| !text.is_empty()).map(|text| text.parse());
    let plan = Plan::of(seed).without(&without.collect::<Result<Vec<usize>, _>>()?);
    let record: Record = run::run(&plan)?;
    if log {
        println!("{plan}");
        record.lines().iter().for_each(|line| println!("{line}"));
    }
    let outcome = Outcome::of(&record);
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(if outcome.rule.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
