//! Files that somebody else replaces while the host runs, such as a mounted Secret.
//!
//! Checked when their contents are used, at most once a second: an idle process reads nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

const OFTEN_ENOUGH: Duration = Duration::from_secs(1);

/// Files that belong together.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    seen: Vec<Option<Stamp>>,
    looked: Instant,
}

/// The version of a file: inode, length, modification time.
type Stamp = (u64, u64, i64, i64);

impl Files {
    /// These files in their current version.
    pub(super) fn new(paths: &[&Path]) -> Self {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        Self { seen: stamps(&paths), paths, looked: Instant::now() }
    }

    /// Whether any file was replaced since the last check that reported it.
    pub(super) fn changed(&mut self) -> bool {
        if self.looked.elapsed() < OFTEN_ENOUGH {
            return false;
        }
        self.looked = Instant::now();
        let now = stamps(&self.paths);
        std::mem::replace(&mut self.seen, now) != self.seen
    }
}

/// Follows links, which is how Secrets are replaced.
fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    };
    paths.iter().map(stamp).collect()
}

/// Reads a whole file.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
