//! A cloud in a directory, which small providers of any language serve in tests.
//!
//! ```text
//! machines/NAME     one line: "STATE ZONE ADDRESS", for example "running zone-a 10.0.0.1"; or "stopped ..."
//! balancers/NAME    first line: "NAMESPACE/SERVICE", then the name of each node behind it; written by the provider
//! outage            while it exists, every call to the cloud fails with its text
//! ```
//!
//! To write a file, write it under its name with `~` appended, then rename it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::steered::Steered;

/// A cloud in a directory.
#[derive(Debug, Clone)]
pub struct CloudFolder(PathBuf);

impl CloudFolder {
    /// The cloud in this directory, which is created if it is missing.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self> {
        let folder = path.into();
        for part in ["machines", "balancers"] {
            fs::create_dir_all(folder.join(part))?;
        }
        Ok(Self(folder))
    }

    fn machine(&self, name: &str) -> PathBuf {
        self.0.join("machines").join(name)
    }

    /// The names in a part of it, without the files that are still being written.
    pub fn names(&self, part: &str) -> Result<Vec<String>> {
        let folder = self.0.join(part);
        let files = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.with_context(|| format!("cannot list {}", folder.display()))?,
        };
        let mut names = Vec::new();
        for file in files {
            let name = file?.file_name().to_string_lossy().into_owned();
            if !name.ends_with('~') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn set_state(&self, name: &str, state: &str) -> Result<()> {
        let text = fs::read_to_string(self.machine(name)).with_context(|| format!("no machine {name}"))?;
        let (_, rest) = text.split_once(' ').with_context(|| format!("machine {name} says {text:?}"))?;
        write(&self.machine(name), &format!("{state} {rest}"))
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_file_name(format!("{}~", path.file_name().unwrap_or_default().display()));
    fs::write(&beside, text)?;
    Ok(fs::rename(beside, path)?)
}

impl Steered for CloudFolder {
    async fn create_machine(&self, name: &str, zone: &str, address: &str) -> Result<()> {
        write(&self.machine(name), &format!("running {zone} {address}\n"))
    }

    async fn stop_machine(&self, name: &str) -> Result<()> {
        self.set_state(name, "stopped")
    }

    async fn start_machine(&self, name: &str) -> Result<()> {
        self.set_state(name, "running")
    }

    async fn terminate_machine(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.machine(name))?)
    }

    async fn backends(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut all = BTreeMap::new();
        for name in self.names("balancers")? {
            let path = self.0.join("balancers").join(name);
            // It may have been removed since it was listed.
            let text = match fs::read_to_string(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text?,
            };
            let mut lines = text.lines().map(str::to_owned);
            let service = lines.next().with_context(|| format!("{} is empty", path.display()))?;
            let mut nodes: Vec<String> = lines.collect();
            nodes.sort();
            all.insert(service, nodes);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_being_written_is_not_counted() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let cloud = CloudFolder::new(folder.path())?;
        fs::write(folder.path().join("balancers/one"), "default/one\n")?;
        fs::write(folder.path().join("balancers/one~"), "default/o")?;
        assert_eq!(cloud.names("balancers")?, ["one"]);
        assert!(cloud.names("rules")?.is_empty());
        Ok(())
    }
}
