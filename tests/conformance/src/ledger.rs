//! What was created and must be deleted, on disk before it is created: so nothing is left even if this process is
//! killed.
//!
//! In: entries, each registered before its object is created. Out: the same entries in reverse, until each is deleted.
//! The file is removed when nothing is left.

mod clean;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use cloudprovider_proto::v1alpha1::{ClusterRef, ServiceRef};
use serde::{Deserialize, Serialize};

pub(crate) use clean::same_network;
pub use clean::{Left, clean};

use crate::scenario::hooks::{HOOKS, undoing};

/// An object that must be deleted again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// The balancer of a Service.
    LoadBalancer {
        /// Uid of the cluster.
        cluster: String,
        /// Name of the cluster: a provider may find its balancers by it.
        cluster_name: String,
        /// The cluster has had leaders: only another one may delete the balancer.
        led: bool,
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// Uid of the Service.
        uid: String,
    },
    /// A route.
    Route {
        /// Uid of the cluster.
        cluster: String,
        /// Name of the cluster.
        cluster_name: String,
        /// Its destination.
        destination: String,
    },
    /// An object that a hook deletes.
    Hook {
        /// The hook.
        hook: String,
        /// The hook's input.
        variables: BTreeMap<String, String>,
    },
}

impl Entry {
    /// The balancer of this Service; `led`: in a cluster that has leaders.
    pub fn load_balancer(cluster: &ClusterRef, service: &ServiceRef, led: bool) -> Self {
        Self::LoadBalancer {
            cluster: cluster.uid.clone(),
            cluster_name: cluster.name.clone(),
            led,
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            uid: service.uid.clone(),
        }
    }

    /// A route to this destination.
    pub fn route(cluster: &ClusterRef, destination: &str) -> Self {
        Self::Route {
            cluster: cluster.uid.clone(),
            cluster_name: cluster.name.clone(),
            destination: destination.to_owned(),
        }
    }

    /// Whether it stands for a disturbance of the cloud, which its hook ends.
    fn is_disturbance(&self) -> bool {
        let Self::Hook { hook, .. } = self else { return false };
        HOOKS.iter().any(|other| undoing(other.name) == Some(hook))
    }

    /// A short description.
    pub fn words(&self) -> String {
        match self {
            Self::LoadBalancer { cluster, uid, .. } => {
                format!("load balancer of service {uid} in cluster {cluster}")
            }
            Self::Route { cluster, destination, .. } => {
                format!("route to {destination} in cluster {cluster}")
            }
            Self::Hook { hook, variables } => {
                let told: Vec<_> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("hook {hook} {}", told.join(" ")).trim_end().to_owned()
            }
        }
    }
}

/// The run that creates objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Id of the run.
    pub run_id: String,
    /// Where the provider listened.
    pub endpoint: String,
    /// Uid of the run's cluster.
    pub cluster_uid: String,
}

impl Header {
    /// The cluster of the run.
    pub fn cluster(&self) -> ClusterRef {
        ClusterRef { uid: self.cluster_uid.clone(), name: format!("conformance-{}", self.run_id) }
    }

    /// Another cluster, which shares the cloud.
    pub fn other_cluster(&self) -> ClusterRef {
        let ours = self.cluster();
        // As long as ours and never the same: the first character differs.
        let first = if ours.uid.starts_with('0') { "1" } else { "0" };
        ClusterRef { uid: format!("{first}{}", &ours.uid[1..]), name: format!("{}-other", ours.name) }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Run(Header),
    Made { number: u64, entry: Entry },
    Gone { number: u64 },
}

/// The ledger of a run.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    next: u64,
    open: BTreeMap<u64, Entry>,
    /// All that this process has registered.
    ever: Vec<Entry>,
}

/// The default directory of ledgers.
pub fn default_folder() -> PathBuf {
    std::env::temp_dir().join("provider-conformance")
}

impl Ledger {
    /// A new ledger in this directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be written.
    pub fn begin(folder: &Path, header: &Header) -> Result<Self> {
        let path = folder.join(format!("{}.jsonl", header.run_id));
        let unusable = || format!("cannot write ledger {}", path.display());
        fs::create_dir_all(folder).with_context(unusable)?;
        let file = File::create_new(&path).with_context(unusable)?;
        let mut ledger = Self { path: path.clone(), file, next: 0, open: BTreeMap::new(), ever: Vec::new() };
        ledger.write(&Line::Run(header.clone())).with_context(unusable)?;
        Ok(ledger)
    }

    /// The ledger that an aborted run left.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn reopen(path: &Path) -> Result<(Self, Header)> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read ledger {}", path.display()))?;
        let (mut header, mut next, mut open) = (None, 0, BTreeMap::new());
        // A last line that a kill cut off does not count.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].lines() {
            match serde_json::from_str(line) {
                Ok(Line::Run(found)) => header = Some(found),
                Ok(Line::Made { number, entry }) => {
                    next = next.max(number + 1);
                    open.insert(number, entry);
                }
                Ok(Line::Gone { number }) => {
                    open.remove(&number);
                }
                Err(error) => {
                    let remedy = "sweep with the version of the suite that wrote it";
                    bail!("cannot read ledger {}: {line:?}: {error}; {remedy}", path.display());
                }
            }
        }
        let header = header.with_context(|| format!("{} is no ledger", path.display()))?;
        let cut = |file: File| file.set_len(whole as u64).map(|()| file);
        let file = File::options()
            .append(true)
            .open(path)
            .and_then(cut)
            .with_context(|| format!("cannot write ledger {}", path.display()))?;
        Ok((Self { path: path.to_owned(), file, next, open, ever: Vec::new() }, header))
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        Ok(())
    }

    /// Records an object that is about to be created.
    ///
    /// # Errors
    ///
    /// The disk refuses; then nothing may be created.
    pub fn register(&mut self, entry: Entry) -> Result<u64> {
        let number = self.next;
        self.write(&Line::Made { number, entry: entry.clone() })?;
        self.next += 1;
        self.open.insert(number, entry.clone());
        self.ever.push(entry);
        Ok(number)
    }

    /// Records that it is deleted.
    ///
    /// # Errors
    ///
    /// The disk refuses.
    pub fn gone(&mut self, number: u64) -> Result<()> {
        self.open.remove(&number);
        self.write(&Line::Gone { number })
    }

    /// The remaining entries, the newest first.
    pub fn open(&self) -> Vec<(u64, Entry)> {
        self.open.iter().rev().map(|(number, entry)| (*number, entry.clone())).collect()
    }

    /// All that this process has registered, whether or not it is deleted by now.
    pub fn ever(&self) -> &[Entry] {
        &self.ever
    }

    /// How many balancers may be there.
    pub fn balancers(&self) -> usize {
        let uid = |entry: &Entry| match entry {
            Entry::LoadBalancer { cluster, uid, .. } => Some((cluster.clone(), uid.clone())),
            Entry::Route { .. } | Entry::Hook { .. } => None,
        };
        self.open.values().filter_map(uid).collect::<BTreeSet<_>>().len()
    }

    /// The ledger's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file when nothing is left.
    pub fn end(self) {
        if self.open.is_empty() {
            // If it cannot be removed, an empty ledger does no harm.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str) -> Entry {
        Entry::route(&ClusterRef::default(), destination)
    }

    #[test]
    fn an_aborted_run_is_found_again_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header { run_id: "r1".into(), endpoint: "unix:///x".into(), cluster_uid: "c".into() };
        let mut ledger = Ledger::begin(folder.path(), &header).unwrap();
        let first = ledger.register(route("a")).unwrap();
        ledger.register(route("b")).unwrap();
        ledger.register(route("c")).unwrap();
        ledger.gone(first).unwrap();
        let path = ledger.path().to_owned();
        drop(ledger);
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"made\":{\"numb").unwrap();
        let (mut again, found) = Ledger::reopen(&path).unwrap();
        assert_eq!(found, header);
        let later = again.register(route("d")).unwrap();
        again.gone(later).unwrap();
        drop(again);
        let (mut again, _) = Ledger::reopen(&path).unwrap();
        let open = again.open();
        assert_eq!(open.iter().map(|(_, entry)| entry.clone()).collect::<Vec<_>>(), [route("c"), route("b")]);
        for (number, _) in open {
            again.gone(number).unwrap();
        }
        again.end();
        assert!(!path.exists());
    }
}
