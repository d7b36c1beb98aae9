//! How each case of a run ended, on disk as soon as it has: what a run that was cut off need not do again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    report::{CaseReport, Verdict},
    target::Made,
};

/// Whose cases these are: only a run of the same suite against the same provider may go on with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// Version of the suite.
    pub(super) suite: String,
    /// Name of the provider.
    pub(super) provider: String,
    /// Its version.
    pub(super) version: String,
}

/// How one case ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    id: String,
    pub(super) verdict: Verdict,
    pub(super) millis: u64,
    pub(super) made: Made,
}

/// The diary of a run.
#[derive(Debug)]
pub(super) struct Diary {
    path: PathBuf,
    file: File,
}

fn place(folder: &Path, run_id: &str) -> PathBuf {
    folder.join(format!("{run_id}.cases"))
}

/// What a former run need not do again: what passed, and what is not advertised.
///
/// # Errors
///
/// There is no such run, or it was of another suite or provider.
pub(super) fn former(folder: &Path, run_id: &str, subject: &Subject) -> Result<BTreeMap<String, Ended>> {
    let path = place(folder, run_id);
    let text = fs::read_to_string(&path).with_context(|| {
        let shown = path.display();
        format!("cannot read {shown}: run {run_id} has ended, or another --ledger-dir was given to it")
    })?;
    let mut lines = text.lines();
    let was: Subject = serde_json::from_str(lines.next().unwrap_or_default())
        .with_context(|| format!("{} does not begin as a diary", path.display()))?;
    if was != *subject {
        bail!("run {run_id} was {was:?}, and this is {subject:?}: start anew, without --resume");
    }
    // A last line that a kill cut off does not count.
    let ended = lines.filter_map(|line| serde_json::from_str::<Ended>(line).ok());
    let settled = |ended: &Ended| matches!(ended.verdict, Verdict::Pass | Verdict::NotAdvertised { .. });
    Ok(ended.filter(settled).map(|ended| (ended.id.clone(), ended)).collect())
}

impl Diary {
    pub(super) fn begin(folder: &Path, run_id: &str, subject: &Subject) -> Result<Self> {
        let path = place(folder, run_id);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut diary = Self { path, file };
        diary.write(subject)?;
        Ok(diary)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(line)?;
        writeln!(self.file, "{text}").with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Notes how a case ended. What cannot be written is tried again by whoever goes on; that ends no run that has things to
    /// delete.
    pub(super) fn note(&mut self, case: &CaseReport) {
        let millis = u64::try_from(case.millis).unwrap_or(u64::MAX);
        let ended = Ended { id: case.id.to_owned(), verdict: case.verdict.clone(), millis, made: case.made };
        let _tried_again = self.write(&ended);
    }

    /// Nobody will go on with this run.
    pub(super) fn end(self) {
        // If it cannot be removed, it does no harm.
        let _removed = fs::remove_file(&self.path);
    }
}

/// Removes the diary of a run with which nobody goes on any more.
pub fn forget(folder: &Path, run_id: &str) {
    let _removed = fs::remove_file(place(folder, run_id));
}
