//! What a person sees while cases run, and at the end.

use std::{
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use super::{CaseReport, Report, Verdict};
use crate::run::Progress;

/// Writes progress, line by line.
#[derive(Debug)]
pub struct Screen<W> {
    to: W,
    live: bool,
    done: usize,
    all: usize,
}

impl Screen<io::Stderr> {
    /// Writes to the terminal.
    pub fn terminal() -> Self {
        let to = io::stderr();
        Self { live: to.is_terminal(), to, done: 0, all: 0 }
    }
}

impl<W: Write> Screen<W> {
    /// Prints what happens. A closed screen is no reason to stop.
    pub fn show(&mut self, progress: &Progress<'_>) {
        let _screen_may_be_gone = match progress {
            Progress::Begun { report, cases, estimate: (made, time) } => {
                self.all = *cases;
                let provider = &report.provider;
                writeln!(
                    self.to,
                    "provider {} {} ({}) at {}: {cases} cases, run {}, seed {}\n\
                     about {} balancers and {} instances will be made; it takes {}",
                    provider.name,
                    provider.version,
                    provider.sdk,
                    report.endpoint,
                    report.run_id,
                    report.seed,
                    made.balancers,
                    made.instances,
                    minutes(*time),
                )
            }
            Progress::Case(case) if self.live => {
                write!(self.to, "\r\x1b[K[{}/{}] {} {}", self.done + 1, self.all, case.id, case.title)
                    .and_then(|()| self.to.flush())
            }
            Progress::Case(_) => Ok(()),
            Progress::Ended(case, left) => self.ended(case, *left),
        };
    }

    fn ended(&mut self, case: &CaseReport, left: Duration) -> io::Result<()> {
        self.done += 1;
        if self.live {
            write!(self.to, "\r\x1b[K")?;
        }
        let (id, word, title) = (case.id, case.verdict.word(), case.title);
        let more = if left < A_WHILE { String::new() } else { format!(", {} to go", minutes(left)) };
        let place = format!("[{}/{}{more}]", self.done, self.all);
        match &case.verdict {
            Verdict::Pass => writeln!(self.to, "{place} {word} {id} {title} ({} ms)", case.millis),
            Verdict::NotAdvertised { why } | Verdict::NotRun { why } => {
                writeln!(self.to, "{place} {word} {id} {title}: {why}")
            }
            Verdict::Fail { .. } => {
                writeln!(self.to, "{place} {word} {id} {title} ({} ms)", case.millis)?;
                for rule in &case.contract {
                    let tag = rule.rule.map(|tag| format!("[R:{tag}] ")).unwrap_or_default();
                    writeln!(self.to, "    contract: {tag}{}", rule.sentence)?;
                }
                failure(&mut self.to, case)
            }
        }
    }
}

/// What failed in it, if it did.
fn failure(mut to: impl Write, case: &CaseReport) -> io::Result<()> {
    let Verdict::Fail { expected, seen } = &case.verdict else { return Ok(()) };
    writeln!(to, "    expected: {expected}\n    seen:     {seen}")?;
    writeln!(to, "    remedy:   {}", case.remedy.as_deref().unwrap_or_default())
}

/// From here on, people like to know how long it takes.
const A_WHILE: Duration = Duration::from_secs(120);

fn minutes(time: Duration) -> String {
    format!("about {} min", time.as_secs().div_ceil(60))
}

impl Report {
    /// The last lines.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn summary(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(to)?;
        // Whoever reads the end of a log alone wants to know what failed.
        for case in self.cases.iter().filter(|case| matches!(case.verdict, Verdict::Fail { .. })) {
            writeln!(to, "failed: {} {}", case.id, case.title)?;
            failure(&mut to, case)?;
        }
        for profile in self.profiles() {
            let verdict = profile.verdict.map_or("not advertised", super::Conformance::word);
            let counts =
                format!("{} passed, {} failed, {} not run", profile.passed, profile.failed, profile.not_run);
            writeln!(to, "{:<20} {verdict:<15} {counts}", profile.profile.name())?;
        }
        if let Some(why) = &self.ended_early {
            writeln!(to, "the run ended early: {why}; go on with --resume {}", self.run_id)?;
        }
        for left in &self.left {
            writeln!(to, "left behind: {}: {}", left.what, left.why)?;
        }
        writeln!(
            to,
            "{}: {} cases, {} passed, {} failed, {} not run, {} not advertised, in {:.1} s; {} balancers and {} instances made",
            self.verdict_words(),
            self.cases.len(),
            self.count("pass"),
            self.count("FAIL"),
            self.count("not-run"),
            self.count("not-advertised"),
            self.seconds,
            self.made.balancers,
            self.made.instances
        )
    }
}
