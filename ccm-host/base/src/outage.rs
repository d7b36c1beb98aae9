//! Reports problems with the apiserver only when they last; a short restart is not worth a log line.
//!
//! In: each failure and each success. Out: since when it lasts, and why. An apiserver that starts refuses everybody until
//! it has read tokens, roles and bindings: a refusal counts only if it lasts, too.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::clock;

/// How long a problem must last.
pub const LASTING: Duration = Duration::from_secs(10);

/// The problem, if there is one.
#[derive(Debug, Default)]
pub struct Outage(Option<Problem>);

#[derive(Debug)]
struct Problem {
    at: Instant,
    since: Timestamp,
    why: String,
}

impl Outage {
    /// Notes a failure. True if the problem lasts.
    pub fn failed(&mut self, why: String) -> bool {
        match &mut self.0 {
            Some(problem) => problem.why = why,
            None => self.0 = Some(Problem { at: Instant::now(), since: clock::now(), why }),
        }
        self.lasting().is_some()
    }

    /// Notes a success. Returns how long the problem was there.
    pub fn ended(&mut self) -> Option<Duration> {
        self.0.take().map(|problem| problem.at.elapsed())
    }

    /// The last failure, however short the problem has been there.
    pub fn why(&self) -> Option<&str> {
        self.0.as_ref().map(|problem| problem.why.as_str())
    }

    /// Since when the problem lasts, and why.
    pub fn lasting(&self) -> Option<String> {
        let problem = self.0.as_ref().filter(|problem| problem.at.elapsed() >= LASTING)?;
        Some(format!("since {:.0}: {}", problem.since, problem.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_told_once_it_lasts() {
        let mut outage = Outage::default();
        let mut fails = |why: &str| outage.failed(why.to_owned());
        assert!(!fails("a"));
        tokio::time::sleep(LASTING / 2).await;
        assert!(!fails("b"));
        assert_eq!(outage.why(), Some("b"));
        assert_eq!(outage.ended(), Some(LASTING / 2));
        assert_eq!(outage.ended(), None);
        assert!(!outage.failed("c".to_owned()));
        tokio::time::sleep(LASTING).await;
        assert!(outage.failed("d".to_owned()));
        assert!(outage.lasting().unwrap().ends_with("Z: d"));
    }
}
