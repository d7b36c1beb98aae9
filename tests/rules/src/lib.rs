//! Rules of the workspace that a machine checks.
//!
//! In: the workspace as cargo sees it and the files of the checkout. Out: sentences that name each breach. The rules
//! themselves are the tests in `tests/`.

pub mod spec_ids;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below `directory` whose name has this ending, without build output and installed packages.
pub fn files(directory: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | "node_modules" | ".venv" | ".git") {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
