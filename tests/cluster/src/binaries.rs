//! The shipped binaries, built once by cargo.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail};

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

/// The folder with `ccm-host` and `provider-mock`, up to date. Cargo is asked once per process.
pub(crate) fn folder(profile: Profile) -> Result<PathBuf> {
    let built =
        BUILT[profile as usize].get_or_init(|| build(profile, &PARTS).map_err(|error| format!("{error:#}")));
    match built {
        Ok(folder) => Ok(folder.clone()),
        Err(error) => bail!("{error}"),
    }
}

/// The checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `ccmctl`, up to date. Built apart: only tests of it need it.
pub(crate) fn ccmctl() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let program = build(Profile::Dev, &["ccmctl"]).map(|folder| folder.join("ccmctl"));
        program.map_err(|error| format!("{error:#}"))
    });
    built.clone().map_err(|error| anyhow::anyhow!(error))
}

/// Cargo, without what an outer `cargo run` or `cargo test` says of our package: ring's build script reads that, would run
/// again, and everything above it would be compiled again.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

fn build(profile: Profile, names: &[&str]) -> Result<PathBuf> {
    let mut command = cargo();
    command.current_dir(root()).args(["build", "--quiet"]);
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    // Without a choice of packages the features are those of the whole workspace, as in `cargo test`: nothing is compiled
    // again. What is shipped has its own.
    if profile == Profile::Release {
        command.arg("--release").args(names.iter().flat_map(|name| ["-p", name]));
    }
    let status = command.status().with_context(|| format!("cannot run cargo to build {names:?}"))?;
    if !status.success() {
        bail!("cargo could not build {names:?} ({status}); its output stands above");
    }
    Ok(target().join(if profile == Profile::Release { "release" } else { "debug" }))
}
