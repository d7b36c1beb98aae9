//! The state file: the whole state, written beside the file and renamed into place.
//!
//! A change is answered only after it was written, so that what a caller was told survives a kill. Changes that arrive
//! during a write share the next one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;

use super::State;

/// Where the state is saved: a file, or nowhere.
#[derive(Debug, Default)]
pub struct Store {
    file: Option<PathBuf>,
    /// The generation in the file; locked during a write.
    written: Arc<tokio::sync::Mutex<u64>>,
}

impl Store {
    /// Saves to this file, if there is one.
    pub fn at(file: Option<PathBuf>) -> Self {
        Self { file, ..Self::default() }
    }

    /// Reads the file; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// It cannot be read, or does not hold a cloud.
    pub fn load(&self) -> anyhow::Result<Option<State>> {
        let Some(path) = &self.file else { return Ok(None) };
        let shown = path.display();
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read state file {shown}"))?,
        };
        serde_json::from_slice(&text).map(Some).with_context(|| {
            format!("state file {shown} does not hold a cloud; move it away to start with an empty one")
        })
    }

    /// Returns once this generation, or a later one, is in the file. Takes the snapshot only when it writes.
    pub(super) async fn save(
        &self,
        generation: u64,
        take: impl FnOnce() -> (u64, serde_json::Result<Vec<u8>>),
    ) -> anyhow::Result<()> {
        let Some(path) = self.file.clone() else { return Ok(()) };
        let mut written = Arc::clone(&self.written).lock_owned().await;
        if *written >= generation {
            return Ok(());
        }
        let (generation, text) = take();
        let shown = path.display().to_string();
        // Whoever waits for it may go: the next one must not write meanwhile.
        let writing = tokio::task::spawn_blocking(move || {
            write(&path, &text?)?;
            *written = generation;
            Ok(())
        });
        writing
            .await
            .unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
            .with_context(|| format!("cannot write state file {shown}; check its directory and free space"))
    }
}

/// Writes beside the file and renames, so that a reader sees the old or the new file, never a part.
pub(crate) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cloud::{Cloud, NewInstances, Settings};

    #[tokio::test]
    async fn what_was_answered_stands_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.json");
        let store = || Store::at(Some(path.clone()));
        assert!(store().load().unwrap().is_none());
        let now = jiff::Timestamp::UNIX_EPOCH;
        let cloud = Arc::new(Cloud::new(State::new(Settings::default()), store()));
        let many: Vec<_> = (0..20)
            .map(|number| {
                let cloud = Arc::clone(&cloud);
                tokio::spawn(async move {
                    let wish = NewInstances::named(format!("n{number}"));
                    cloud.change(now, |state| state.create_instances(&wish, now)).await.unwrap().unwrap();
                })
            })
            .collect();
        for one in many {
            one.await.unwrap();
        }
        let back = store().load().unwrap().unwrap().restored(Settings::default());
        assert_eq!(back.instances().count(), 20);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("cloud.json");
        let cloud = Cloud::new(State::new(Settings::default()), Store::at(Some(path)));
        let now = jiff::Timestamp::UNIX_EPOCH;
        let outcome = cloud.change(now, |state| state.create_instances(&NewInstances::many(1), now)).await;
        assert!(outcome.unwrap_err().to_string().starts_with("cannot write state file"));
    }

    #[test]
    fn other_content_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.json");
        fs::write(&path, "no cloud").unwrap();
        assert!(Store::at(Some(path)).load().unwrap_err().to_string().contains("does not hold a cloud"));
    }
}
