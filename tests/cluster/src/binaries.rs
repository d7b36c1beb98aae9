//! The shipped binaries, built once by cargo.

use std::{
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
};

use anyhow::{Context as _, Result, bail};
use programs::{cargo, target};

/// How the binaries are built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// Fast to build; what tests and demo use.
    #[default]
    Dev,
    /// What is shipped; what the bench uses.
    Release,
}

static BUILT: [OnceLock<std::result::Result<PathBuf, String>>; 2] = [OnceLock::new(), OnceLock::new()];
const PARTS: [&str; 2] = ["ccm-host", "provider-mock"];

/// The directory of `ccm-host` and `provider-mock`, up to date. Runs cargo once per process.
pub(crate) fn folder(profile: Profile) -> Result<PathBuf> {
    let built =
        BUILT[profile as usize].get_or_init(|| build(profile, &PARTS).map_err(|error| format!("{error:#}")));
    match built {
        Ok(folder) => Ok(folder.clone()),
        Err(error) => bail!("{error}"),
    }
}

/// A program of this checkout that few tests need, up to date. Runs cargo once per process and name.
pub fn program(name: &'static str) -> Result<PathBuf> {
    static BUILT: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains(&name) {
        build(Profile::Dev, &[name])?;
        built.push(name);
    }
    Ok(target().join("debug").join(name))
}

fn build(profile: Profile, names: &[&str]) -> Result<PathBuf> {
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
