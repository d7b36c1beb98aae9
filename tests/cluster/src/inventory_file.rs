//! The cloud of `providers/inventory-python`: a file of machines, and one in which the provider keeps allocated
//! addresses.
//!
//! The inventory is written as JSON, which is YAML, followed by the line that marks it as complete.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::steered::Steered;

/// The end of an inventory.
const END: &str = "\n...\n";

/// The two files.
#[derive(Debug, Clone)]
pub struct InventoryFile {
    machines: PathBuf,
    allocations: PathBuf,
}

impl InventoryFile {
    /// The inventory in this directory. A new one has a machine without a node: an empty inventory is an outage.
    pub fn new(folder: &Path) -> Result<Self> {
        let inventory =
            Self { machines: folder.join("machines.yaml"), allocations: folder.join("allocations.json") };
        if !inventory.machines.exists() {
            inventory.write(&json!({"machines": [{"name": "spare"}], "pools": ["198.51.100.0/28"]}))?;
        }
        Ok(inventory)
    }

    /// The flags that tell the provider where its cloud is.
    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--inventory={}", self.machines.display()),
            format!("--allocations={}", self.allocations.display()),
        ]
    }

    fn write(&self, contents: &Value) -> Result<()> {
        let beside = self.machines.with_extension("new");
        fs::write(&beside, format!("{contents}{END}"))?;
        Ok(fs::rename(beside, &self.machines)?)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
        let text = fs::read_to_string(&self.machines)?;
        let mut contents: Value = serde_json::from_str(text.trim_end_matches(END))?;
        change(contents["machines"].as_array_mut().context("an inventory has machines")?);
        self.write(&contents)
    }

    fn set_state(&self, name: &str, state: &str) -> Result<()> {
        self.change(|machines| {
            for machine in machines.iter_mut().filter(|machine| machine["name"] == name) {
                machine["state"] = state.into();
            }
        })
    }
}

impl Steered for InventoryFile {
    async fn create_machine(&self, name: &str, zone: &str, address: &str) -> Result<()> {
        let machine = json!({"name": name, "type": "small", "zone": zone, "internal_ips": [address]});
        self.change(|machines| machines.push(machine))
    }

    async fn stop_machine(&self, name: &str) -> Result<()> {
        self.set_state(name, "stopped")
    }

    async fn start_machine(&self, name: &str) -> Result<()> {
        self.set_state(name, "running")
    }

    async fn terminate_machine(&self, name: &str) -> Result<()> {
        self.change(|machines| machines.retain(|machine| machine["name"] != name))
    }

    async fn backends(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let text = match fs::read_to_string(&self.allocations) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            text => text?,
        };
        let rows: Map<String, Value> = serde_json::from_str(&text)?;
        let word = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let nodes = |row: &Value| {
            let mut names: Vec<String> =
                row["backends"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
            names.sort();
            names
        };
        Ok(rows
            .values()
            .map(|row| (format!("{}/{}", word(row, "namespace"), word(row, "name")), nodes(row)))
            .collect())
    }
}
