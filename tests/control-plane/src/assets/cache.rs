//! One build for all processes of a user: a directory per recipe, filled under a lock and moved into place when
//! complete.

use std::{
    env, fs,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{build, build::Progress, recipe::Recipe};

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The folder with the recipe's programs.
pub(super) fn find_or_build(recipe: &Recipe) -> Result<PathBuf> {
    find_or_build_in(&cache_dir()?, &recipe.fingerprint(), |dir, lock| build::build(recipe, dir, lock))
}

/// `$XDG_CACHE_HOME`, or `.cache` in the home directory.
fn cache_dir() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME is set: no place to keep what is built")?;
    Ok(base.join("ccm-host").join("control-plane"))
}

/// `build` fills an empty directory. It also receives the lock, which processes that outlive this one must hold.
fn find_or_build_in(
    cache: &Path,
    name: &str,
    build: impl FnOnce(&Path, &File) -> Result<()>,
) -> Result<PathBuf> {
    let complete = cache.join(name);
    if !complete.is_dir() {
        fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let lock = lock(&cache.join(format!("{name}.lock")))?;
        build_unless_built(&complete, &lock, build)?;
    }
    Ok(complete)
}

/// Builds under the lock, unless another process did so while this one waited for it.
fn build_unless_built(
    complete: &Path,
    lock: &File,
    build: impl FnOnce(&Path, &File) -> Result<()>,
) -> Result<()> {
    if complete.is_dir() {
        return Ok(());
    }
    let unfinished = complete.with_added_extension("unfinished");
    fresh(&unfinished)?;
    build(&unfinished, lock)?;
    fs::rename(&unfinished, complete).with_context(|| format!("cannot move to {}", complete.display()))
}

/// Removes what an interrupted build left behind.
fn fresh(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))
}

fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut progress = Progress::new(format!("waiting for another process that builds {}", path.display()));
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => progress.tick(),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use anyhow::bail;
    use tempfile::TempDir;

    use super::*;

    fn pretend(dir: &Path, _: &File) -> Result<()> {
        Ok(fs::write(dir.join("etcd"), "")?)
    }

    #[test]
    fn several_at_once_build_once() {
        let cache = TempDir::new().unwrap();
        let built = AtomicUsize::new(0);
        let start = || {
            find_or_build_in(cache.path(), "x", |dir, lock| {
                built.fetch_add(1, Ordering::SeqCst);
                pretend(dir, lock)
            })
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap().unwrap(), cache.path().join("x"));
            }
        });
        assert_eq!(built.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_was_built_while_waiting_for_the_lock_is_not_built_again() {
        let cache = TempDir::new().unwrap();
        let lock = lock(&cache.path().join("lock")).unwrap();
        let complete = cache.path().join("x");
        fs::create_dir(&complete).unwrap();
        build_unless_built(&complete, &lock, |_, _| bail!("built again")).unwrap();
    }

    #[test]
    fn the_lock_is_held_for_as_long_as_a_process_that_it_was_handed_to_lives() {
        let cache = TempDir::new().unwrap();
        let path = cache.path().join("lock");
        let held = lock(&path).unwrap();
        let mut heir = Command::new("sleep").arg("60").stdin(held.try_clone().unwrap()).spawn().unwrap();
        drop(held);
        let second = File::create(&path).unwrap();
        assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
        heir.kill().unwrap();
        heir.wait().unwrap();
        second.try_lock().unwrap();
    }

    #[test]
    fn a_build_that_failed_half_way_is_never_used() {
        let cache = TempDir::new().unwrap();
        let half = |dir: &Path, _: &File| {
            fs::write(dir.join("etcd"), "")?;
            bail!("out of disk")
        };
        assert_eq!(find_or_build_in(cache.path(), "x", half).unwrap_err().to_string(), "out of disk");
        assert!(find_or_build_in(cache.path(), "x", pretend).is_ok());
    }
}
