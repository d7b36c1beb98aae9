//! The figures of one subject: printed for people, checked against limits, and compared with a peer's.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

/// One figure.
#[derive(Debug, Clone)]
struct Figure {
    name: String,
    value: f64,
    decimals: usize,
    /// The limits of `--check`. Only counts have limits: seconds and bytes on shared machines are noise.
    limit: Option<RangeInclusive<u64>>,
}

/// The figures of one phase.
#[derive(Debug)]
pub(crate) struct Phase {
    title: String,
    figures: Vec<Figure>,
}

/// All phases of one subject.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Phase>);

impl Phase {
    /// A phase without figures yet.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), figures: Vec::new() }
    }

    /// The same figures under another title.
    pub(crate) fn titled(self, title: String) -> Self {
        Self { title, ..self }
    }

    /// A measured value, printed with this many decimals.
    pub(crate) fn value(&mut self, name: impl Into<String>, value: f64, decimals: usize) {
        self.figures.push(Figure { name: name.into(), value, decimals, limit: None });
    }

    /// A number of calls or requests.
    pub(crate) fn count(&mut self, name: impl Into<String>, count: u64) {
        self.value(name, count as f64, 0);
    }

    /// A count that `--check` requires within these limits.
    pub(crate) fn gate(&mut self, name: impl Into<String>, count: u64, limit: RangeInclusive<u64>) {
        self.count(name, count);
        if let Some(last) = self.figures.last_mut() {
            last.limit = Some(limit);
        }
    }

    /// Each method or kind of request by name, indented below the total.
    pub(crate) fn counts<'a>(&mut self, counts: impl IntoIterator<Item = (&'a str, u64)>) {
        for (name, count) in counts {
            self.count(format!("  {name}"), count);
        }
    }
}

impl Report {
    /// Prints the phase as soon as it has ended, and keeps it.
    pub(crate) fn add(&mut self, phase: Phase) {
        println!("\n{}", phase.title);
        for figure in &phase.figures {
            println!("  {:<62} {:>10.*}", figure.name, figure.decimals, figure.value);
        }
        self.0.push(phase);
    }

    /// Fails with all counts outside their limits.
    pub(crate) fn check(&self) -> Result<()> {
        let broken = self.0.iter().flat_map(|phase| {
            phase.figures.iter().filter_map(|figure| {
                let limit = figure.limit.as_ref()?;
                let stays = limit.contains(&(figure.value as u64));
                (!stays).then(|| {
                    let (name, least, most) = (figure.name.trim(), limit.start(), limit.end());
                    format!("{}: {name} is {}, not within {least} and {most}", phase.title, figure.value)
                })
            })
        });
        let broken: Vec<_> = broken.collect();
        ensure!(broken.is_empty(), "{}", broken.join("\n"));
        Ok(())
    }

    /// Prints both subjects' values, and the ratio of the first to the peer.
    pub(crate) fn compare(&self, peer: &Self) {
        println!("\n{:<64} {:>10} {:>10} {:>7}", "", "host", "upstream", "ratio");
        for phase in &self.0 {
            let Some(other) = peer.0.iter().find(|other| other.title == phase.title) else { continue };
            println!("{}", phase.title);
            for figure in &phase.figures {
                let Some(its) = other.figures.iter().find(|its| its.name == figure.name) else { continue };
                let (decimals, ratio) = (figure.decimals, figure.value / its.value);
                println!(
                    "  {:<62} {:>10.decimals$} {:>10.decimals$} {ratio:>7.2}",
                    figure.name, figure.value, its.value
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_beyond_their_limits_fail_the_check() {
        let mut phase = Phase::new("a phase");
        phase.value("seconds", 1e9, 1);
        phase.gate("calls", 3, 0..=3);
        let mut report = Report(vec![phase]);
        report.check().unwrap();
        report.0[0].gate("writes", 4, 0..=3);
        let error = report.check().unwrap_err().to_string();
        assert_eq!(error, "a phase: writes is 4, not within 0 and 3");
    }
}
