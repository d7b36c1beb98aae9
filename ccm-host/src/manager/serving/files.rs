//! Files that somebody else replaces while we run, such as a mounted Secret.
//!
//! Looked at when what they hold is used, at most once a second: a process that nobody talks to reads nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

const OFTEN_ENOUGH: Duration = Duration::from_secs(1);

/// Some files that belong together.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    seen: Vec<Option<Stamp>>,
    looked: Instant,
}

/// Which version of a file it was: inode, length, time of the change.
type Stamp = (u64, u64, i64, i64);

impl Files {
    /// These files, as they are now.
    pub(super) fn new(paths: &[&Path]) -> Self {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        Self { seen: stamps(&paths), paths, looked: Instant::now() }
    }

    /// Whether one of them was replaced since the last time that this said so.
    pub(super) fn changed(&mut self) -> bool {
        if self.looked.elapsed() < OFTEN_ENOUGH {
            return false;
        }
        self.looked = Instant::now();
        let now = stamps(&self.paths);
        std::mem::replace(&mut self.seen, now) != self.seen
    }
}

/// Through links, which is how Secrets are replaced.
fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    };
    paths.iter().map(stamp).collect()
}

/// What a file holds.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
