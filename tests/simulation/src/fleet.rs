//! Many seeds, each in its own process, so that process-wide state is new for each of them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{plan::Plan, record::Record, shrink::shrink};

/// A run that takes longer hangs: on a paused clock, time costs nothing.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of runs for shrinking one seed.
const BUDGET: usize = 150;
/// The number of failing seeds that are shrunk; the others are only named.
const SHRUNK: usize = 3;
/// The interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(10);
/// The environment variable that `random.c` reads.
const SEED: &str = "SIMULATION_SEED";

/// The outcome of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The rule that was broken.
    pub rule: Option<String>,
    /// How it was broken.
    pub what: String,
    /// How long it took on the paused clock.
    pub seconds: f64,
    /// The number of lines in its log.
    pub lines: usize,
    /// A hash of all lines.
    pub fingerprint: u64,
}

impl Outcome {
    /// The outcome of this record.
    pub fn of(record: &Record) -> Self {
        let (violation, lines) = (record.violation(), record.lines());
        let mut hasher = DefaultHasher::new();
        lines.hash(&mut hasher);
        Self {
            rule: violation.as_ref().map(|violation| violation.rule.to_owned()),
            what: violation.map(|violation| violation.what).unwrap_or_default(),
            seconds: lines
                .last()
                .and_then(|line| line.split_whitespace().next()?.parse().ok())
                .unwrap_or_default(),
            lines: lines.len(),
            fingerprint: hasher.finish(),
        }
    }
}

/// A seed that broke a rule.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The broken rule.
    pub outcome: Outcome,
    /// The steps that can be omitted; none if it was not shrunk.
    pub without: Vec<usize>,
}

/// The program that runs one seed in a process.
#[derive(Debug, Clone)]
pub struct Fleet {
    program: PathBuf,
}

impl Fleet {
    /// Runs seeds with this program, which is `simulate`.
    pub fn new(program: impl AsRef<Path>) -> Self {
        Self { program: program.as_ref().to_owned() }
    }

    /// Runs one seed without some of its steps.
    ///
    /// # Errors
    /// The process cannot be started or prints nothing.
    pub fn run(&self, seed: u64, without: &[usize]) -> Result<Outcome> {
        let without: Vec<String> = without.iter().map(ToString::to_string).collect();
        let mut child = Command::new(&self.program)
            .args(["one", "--seed", &seed.to_string(), "--without", &without.join(",")])
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                return Ok(dead("nothing hangs", format!("no end after {PATIENCE:?} of real time")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        child.stdout.take().context("its output")?.read_to_string(&mut said)?;
        let status = child.wait()?;
        Ok(serde_json::from_str(said.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| dead("nothing panics", format!("the process ended with {status}"))))
    }

    /// Runs many seeds, as many at a time as there are processors, and prints progress.
    ///
    /// # Errors
    /// Processes cannot be started.
    pub fn run_all(
        &self,
        seeds: std::ops::Range<u64>,
        tell: impl Fn(&str) + Send + Sync,
    ) -> Result<Vec<Failure>> {
        let (next, began) = (Arc::new(AtomicU64::new(seeds.start)), Instant::now());
        let (failures, told) = (Mutex::new(BTreeMap::new()), Mutex::new(began));
        let workers = thread::available_parallelism().map_or(2, usize::from);
        thread::scope(|scope| {
            let work = || -> Result<()> {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return Ok(());
                    }
                    let outcome = self.run(seed, &[])?;
                    if let Some(rule) = &outcome.rule {
                        tell(&format!("seed {seed}: {rule}: {}", shortened(&outcome.what)));
                        lock(&failures).insert(seed, outcome);
                    }
                    let mut last = lock(&told);
                    if last.elapsed() > PROGRESS {
                        *last = Instant::now();
                        let failed = lock(&failures).len();
                        let done = seed + 1 - seeds.start;
                        tell(&format!(
                            "{done} of {} seeds, {failed} failed, {:.0?}",
                            seeds.end - seeds.start,
                            began.elapsed()
                        ));
                    }
                }
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
        })?;
        let failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut shrunk = Vec::new();
        for (at, (seed, outcome)) in failures.into_iter().enumerate() {
            let without = if at < SHRUNK { self.shrink(seed, &outcome) } else { Vec::new() };
            shrunk.push(Failure { seed, outcome, without });
        }
        Ok(shrunk)
    }

    /// The steps that the failure does not need.
    pub fn shrink(&self, seed: u64, outcome: &Outcome) -> Vec<usize> {
        let plan = Plan::of(seed);
        let all: Vec<usize> = plan.steps.iter().chain(&plan.encore).map(|timed| timed.number).collect();
        let others = |kept: &[usize]| -> Vec<usize> {
            all.iter().filter(|one| !kept.contains(one)).copied().collect()
        };
        let fails =
            |kept: &[usize]| self.run(seed, &others(kept)).is_ok_and(|again| again.rule == outcome.rule);
        others(&shrink(&all, BUDGET, fails))
    }
}

impl Failure {
    /// A report for people: what broke, the smallest plan, and how to reproduce it.
    pub fn report(&self) -> String {
        let Self { seed, outcome, without } = self;
        let rule = outcome.rule.as_deref().unwrap_or_default();
        let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
        let leave_out =
            if numbers.is_empty() { String::new() } else { format!(" --without {}", numbers.join(",")) };
        let plan = Plan::of(*seed).without(without);
        format!(
            "seed {seed} breaks the rule \"{rule}\" after {:.1} s: {}\n{plan}\nsee it: cargo simulate -- --seed {seed}{leave_out}",
            outcome.seconds, outcome.what
        )
    }
}

fn dead(rule: &str, what: String) -> Outcome {
    Outcome { rule: Some(rule.to_owned()), what, seconds: 0.0, lines: 0, fingerprint: 0 }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
