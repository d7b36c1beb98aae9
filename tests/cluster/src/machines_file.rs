//! The cloud of `providers/stubs-nodejs`: a JSON file of machines by id, without balancers.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::steered::Steered;

/// The file of machines.
#[derive(Debug, Clone)]
pub struct MachinesFile(PathBuf);

impl MachinesFile {
    /// The file in this directory, which is created empty if it is missing.
    pub fn new(folder: &Path) -> Result<Self> {
        let file = Self(folder.join("machines.json"));
        if !file.0.exists() {
            file.write(&Map::new())?;
        }
        Ok(file)
    }

    /// The flag that tells the provider where its cloud is.
    pub fn flag(&self) -> String {
        format!("--machines={}", self.0.display())
    }

    fn write(&self, machines: &Map<String, Value>) -> Result<()> {
        let beside = self.0.with_extension("new");
        fs::write(&beside, serde_json::to_vec(machines)?)?;
        Ok(fs::rename(beside, &self.0)?)
    }

    fn change(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Result<()> {
        let mut machines = serde_json::from_slice(&fs::read(&self.0)?)?;
        change(&mut machines);
        self.write(&machines)
    }

    fn set_state(&self, name: &str, state: &str) -> Result<()> {
        self.change(|machines| machines[name]["state"] = state.into())
    }
}

impl Steered for MachinesFile {
    async fn create_machine(&self, name: &str, zone: &str, address: &str) -> Result<()> {
        let machine =
            json!({"node": name, "state": "RUNNING", "type": "small", "zone": zone, "addresses": [address]});
        self.change(|machines| drop(machines.insert(name.to_owned(), machine)))
    }

    async fn stop_machine(&self, name: &str) -> Result<()> {
        self.set_state(name, "STOPPED")
    }

    async fn start_machine(&self, name: &str) -> Result<()> {
        self.set_state(name, "RUNNING")
    }

    async fn terminate_machine(&self, name: &str) -> Result<()> {
        self.change(|machines| drop(machines.remove(name)))
    }

    async fn backends(&self) -> Result<BTreeMap<String, Vec<String>>> {
        Ok(BTreeMap::new())
    }
}
