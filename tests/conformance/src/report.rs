//! The outcome of a run, and its formats for people and machines.

mod junit;
mod markdown;
mod remedy;
mod screen;
mod summary;
mod verdict;

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use serde::Serialize;

pub use remedy::remedy;
pub use screen::Screen;
pub use verdict::{Conformance, EarlyEnd, ProfileReport, Verdict};

use crate::{
    case::{Case, Level, Profile},
    contract,
    ledger::Left,
    run::Filter,
    session::Session,
    target::{Made, Waits},
};

/// The outcome of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// The suite's version.
    pub suite: &'static str,
    /// Where the provider listened.
    pub endpoint: String,
    /// The provider's name, version and SDK, as it reports them.
    pub provider: ProviderReport,
    /// Id of the run.
    pub run_id: String,
    /// The seed of random choices.
    pub seed: u64,
    /// The words that chose the cases; none if all cases were to run.
    pub filter: Vec<String>,
    /// When it began.
    pub began: String,
    /// How long it took.
    pub seconds: f64,
    /// What it waited for, because the provider said that it is temporary.
    pub waits: Waits,
    /// The run that was cut off, whose outcomes it took over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<String>,
    /// What its cases made.
    pub made: Made,
    /// Why the remaining cases were not run, if so.
    pub ended_early: Option<EarlyEnd>,
    /// The outcome of each case, in the order in which they ran.
    pub cases: Vec<CaseReport>,
    /// Objects that could not be deleted.
    #[serde(serialize_with = "left_words")]
    pub left: Vec<Left>,
}

/// The tested provider.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProviderReport {
    /// Its name.
    pub name: String,
    /// Its vendor's version.
    pub version: String,
    /// SDK and version.
    pub sdk: String,
    /// Its services.
    pub services: Vec<String>,
    /// Its capabilities.
    pub capabilities: Vec<String>,
}

/// The outcome of a case.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CaseReport {
    /// For example `INST-03`.
    pub id: &'static str,
    /// Its profile.
    pub profile: Profile,
    /// Its level.
    pub level: Level,
    /// The sentence that holds if it passes.
    pub title: &'static str,
    /// What the contract says.
    pub contract: Vec<RuleReport>,
    /// How it ended.
    pub verdict: Verdict,
    /// What to do about it, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// How long it took.
    pub millis: u128,
    /// What it made.
    pub made: Made,
}

/// A sentence of the contract.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleReport {
    /// The rule's tag, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// Its place and its text.
    pub sentence: String,
}

impl CaseReport {
    /// The result of a case with this outcome.
    pub fn new(case: &Case, verdict: Verdict, took: Duration, made: Made) -> Self {
        let Case { id, profile, level, title, .. } = *case;
        let failed = matches!(verdict, Verdict::Fail { .. });
        let (contract, millis) = (cited(case), took.as_millis());
        let mut report = Self { id, profile, level, title, contract, verdict, remedy: None, millis, made };
        report.remedy = failed.then(|| remedy::of_case(&report));
        report
    }
}

/// The sentences that a case tests.
pub fn cited(case: &Case) -> Vec<RuleReport> {
    let mut cited = Vec::new();
    for rule in case.rules {
        for sentence in contract::sentences(rule) {
            let sentence = format!("{}: {}", sentence.element, sentence.text);
            cited.push(RuleReport { rule: Some(rule), sentence });
        }
    }
    cited.extend(case.words.iter().map(|words| RuleReport { rule: None, sentence: (*words).to_owned() }));
    cited
}

impl Report {
    /// A report without cases yet.
    pub fn begin(session: &Session, filter: &Filter) -> Self {
        let (info, can) = (&session.provider.info, &session.provider.capabilities);
        let provider = ProviderReport {
            name: info.name.clone(),
            version: info.vendor_version.clone(),
            sdk: format!("{} {}", info.sdk_name, info.sdk_version).trim().to_owned(),
            services: info.services.clone(),
            capabilities: can.capabilities().map(|known| known.as_str_name().to_owned()).collect(),
        };
        Self {
            suite: env!("CARGO_PKG_VERSION"),
            endpoint: session.header.endpoint.clone(),
            provider,
            run_id: session.header.run_id.clone(),
            seed: session.seed,
            filter: filter.words().to_vec(),
            began: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            seconds: 0.0,
            waits: Waits::default(),
            resumed: None,
            made: Made::default(),
            ended_early: None,
            cases: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Writes `conformance.json`, `conformance.xml` (JUnit) and `conformance.md`.
    ///
    /// # Errors
    ///
    /// The directory cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let json = serde_json::to_string_pretty(&self.whole())?;
        for (name, text) in [
            ("conformance.json", json),
            ("conformance.xml", junit::text(self)),
            ("conformance.md", markdown::text(self)),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn whole(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Whole<'a> {
            verdict: Conformance,
            profiles: Vec<ProfileReport>,
            #[serde(flatten)]
            report: &'a Report,
        }
        Whole { verdict: self.conformance(), profiles: self.profiles(), report: self }
    }
}

/// Escapes a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn left_words<S: serde::Serializer>(left: &[Left], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(left.iter().map(|left| format!("{}: {}", left.what, left.why)))
}
