//! The directory of a control plane: in memory if there is enough, else in the temporary directory.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// In many containers `/dev/shm` has 64 MiB, which etcd's first log file alone would fill.
const ENOUGH: u64 = 1 << 30;

/// A path that does not exist yet, below `root` if given. Absolute, for the servers' flags.
pub(crate) fn fresh_dir(root: Option<&Path>) -> PathBuf {
    let root = root.map_or_else(default_root, Path::to_owned);
    let root = fs::canonicalize(&root).unwrap_or(root);
    root.join(format!("control-plane-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}

fn default_root() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if usable(memory) { memory.to_owned() } else { env::temp_dir() }
}

fn usable(dir: &Path) -> bool {
    let writable =
        rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    writable && rustix::fs::statvfs(dir).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= ENOUGH)
}
