//! From the outcomes of cases to profiles to one word.

use serde::{Deserialize, Serialize};

use super::{CaseReport, Report};
use crate::case::{Level, Profile, Stop};

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Verdict {
    /// The provider kept the contract.
    Pass,
    /// The provider broke the contract.
    Fail {
        /// What the contract requires.
        expected: String,
        /// What happened instead.
        seen: String,
    },
    /// The provider does not advertise this.
    NotAdvertised {
        /// What is not advertised.
        why: String,
    },
    /// It could not be tested.
    NotRun {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// The outcome in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "FAIL",
            Self::NotAdvertised { .. } => "not-advertised",
            Self::NotRun { .. } => "not-run",
        }
    }
}

impl From<Stop> for Verdict {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed { expected, seen } => Self::Fail { expected, seen },
            Stop::NotRun(why) => Self::NotRun { why },
            Stop::NotAdvertised(why) => Self::NotAdvertised { why },
        }
    }
}

/// Why the remaining cases of a run were not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EarlyEnd {
    /// Somebody interrupted it.
    #[error("the run was interrupted")]
    Interrupted,
    /// The provider is gone, or hangs.
    #[error("the provider does not answer any more since {since}")]
    Silence {
        /// The case after which it stopped answering.
        since: &'static str,
    },
    /// What the provider does from then on is the cloud's doing.
    #[error("the cloud is still disturbed since {since}: the hook failed that ends it")]
    Disturbed {
        /// The case after which it stayed so.
        since: &'static str,
    },
    /// `--fail-fast`.
    #[error("a case failed before, and --fail-fast was given")]
    FirstFailure,
}

impl Serialize for EarlyEnd {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The verdict of a run, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conformance {
    /// Every core case of everything advertised passed, and no case failed.
    Conformant,
    /// A case failed, whatever its level.
    NotConformant,
    /// No case failed, but core cases were not run, or something was left behind.
    Incomplete,
}

impl Conformance {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Conformant => "conformant",
            Self::NotConformant => "NOT CONFORMANT",
            Self::Incomplete => "incomplete",
        }
    }

    fn of<'a>(cases: impl Iterator<Item = &'a CaseReport>) -> Self {
        let mut all = Self::Conformant;
        for case in cases {
            match case.verdict {
                Verdict::Fail { .. } => return Self::NotConformant,
                Verdict::NotRun { .. } if case.level == Level::Core => all = Self::Incomplete,
                Verdict::NotRun { .. } | Verdict::Pass | Verdict::NotAdvertised { .. } => {}
            }
        }
        all
    }
}

/// The outcome of a profile.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProfileReport {
    /// The profile.
    pub profile: Profile,
    /// The verdict; none if the profile is not advertised.
    pub verdict: Option<Conformance>,
    /// How many passed.
    pub passed: usize,
    /// How many failed.
    pub failed: usize,
    /// How many are not advertised.
    pub not_advertised: usize,
    /// How many were not run.
    pub not_run: usize,
}

impl Report {
    /// The verdict of the run.
    pub fn conformance(&self) -> Conformance {
        match Conformance::of(self.cases.iter()) {
            Conformance::Conformant if !self.left.is_empty() => Conformance::Incomplete,
            verdict => verdict,
        }
    }

    /// The verdict in words, which name the filter: what was not chosen has not been shown.
    pub fn verdict_words(&self) -> String {
        let word = self.conformance().word();
        match self.filter.as_slice() {
            [] => word.to_owned(),
            words => format!("{word} in the cases of --filter {}", words.join(",")),
        }
    }

    /// The outcome of each profile that has cases.
    pub fn profiles(&self) -> Vec<ProfileReport> {
        let of = |profile: Profile| self.cases.iter().filter(move |case| case.profile == profile);
        let report = |profile: Profile| {
            let count = |word: &str| of(profile).filter(|case| case.verdict.word() == word).count();
            let not_advertised = count("not-advertised");
            let advertised = not_advertised < of(profile).count();
            ProfileReport {
                profile,
                verdict: advertised.then(|| Conformance::of(of(profile))),
                passed: count("pass"),
                failed: count("FAIL"),
                not_advertised,
                not_run: count("not-run"),
            }
        };
        Profile::ALL.into_iter().filter(|profile| of(*profile).next().is_some()).map(report).collect()
    }

    /// How many cases have this outcome.
    pub fn count(&self, word: &str) -> usize {
        self.cases.iter().filter(|case| case.verdict.word() == word).count()
    }
}
