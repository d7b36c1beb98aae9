//! Builds commands of this checkout's Go modules.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// Builds a command if necessary, and returns its path.
pub fn built(module: &str, package: &str, name: &str) -> Result<PathBuf> {
    let folder = programs::target().join("go");
    fs::create_dir_all(&folder)?;
    // Tests of several binaries may build at once, and one may run what another is building.
    let lock = File::create(folder.join(format!("{name}.lock")))?;
    lock.lock()?;
    let (made, new) = (folder.join(name), folder.join(format!("{name}.new")));
    let status = Command::new("go")
        .current_dir(programs::root().join(module))
        .args(["build", "-o"])
        .arg(&new)
        .arg(package)
        .status()
        .context("cannot run go; install Go 1.26 or newer")?;
    ensure!(status.success(), "go could not build {package} of {module} ({status}); its output stands above");
    fs::rename(&new, &made)?;
    Ok(made)
}
