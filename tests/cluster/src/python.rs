//! Installs this checkout's Python providers.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// Installs what a provider needs into its `.venv`, pinned, and returns the script that starts it.
pub fn installed(provider: &str) -> Result<PathBuf> {
    let folder = programs::root().join(provider).canonicalize()?;
    fs::create_dir_all(programs::target())?;
    // Tests of several binaries may install at once.
    let lock = File::create(programs::target().join("python.lock"))?;
    lock.lock()?;
    let status = Command::new(folder.join("tools"))
        .status()
        .with_context(|| format!("cannot run {provider}/tools"))?;
    ensure!(
        status.success(),
        "{provider}/tools failed ({status}); it needs Python 3.11 or newer with venv and pip, its output stands above"
    );
    Ok(folder.join("serve"))
}
