//! The shipped binaries, built once by cargo.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, anyhow, bail};
use programs::{cargo, target};

/// How the binaries are built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Fast to build; what tests and demo use.
    #[default]
    Dev,
    /// What is shipped; what the bench uses.
    Release,
}

/// What was built, or why it could not be: also a failure is not tried again.
static BUILT: Mutex<BTreeMap<(Profile, String), Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
const PARTS: [&str; 2] = ["ccm-host", "provider-mock"];

/// The directory of `ccm-host` and `provider-mock`, up to date.
pub(crate) fn folder(profile: Profile) -> anyhow::Result<PathBuf> {
    built(profile, &PARTS)
}

/// A program of this checkout that few tests need, up to date.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    Ok(built(Profile::Dev, &[name])?.join(name))
}

/// The directory of these programs. Runs cargo once per process.
fn built(profile: Profile, names: &[&str]) -> anyhow::Result<PathBuf> {
    let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all
        .entry((profile, names.join(" ")))
        .or_insert_with(|| build(profile, names).map_err(|error| format!("{error:#}")));
    known.clone().map_err(|error| anyhow!(error))
}

fn build(profile: Profile, names: &[&str]) -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet"]);
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    // Release binaries have their own features.
    if profile == Profile::Release {
        command.arg("--release").args(names.iter().flat_map(|name| ["-p", name]));
    }
    let status = command.status().with_context(|| format!("cannot run cargo to build {names:?}"))?;
    if !status.success() {
        bail!("cargo could not build {names:?} ({status}); its output stands above");
    }
    Ok(target().join(if profile == Profile::Release { "release" } else { "debug" }))
}
