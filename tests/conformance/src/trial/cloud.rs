//! What the cloud itself tells by hooks: how often it was called, and what it holds.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::Trial;
use crate::{case::Stop, scenario::Variables};

/// The hook that counts.
pub(crate) const COUNT: &str = "count-cloud-calls";
/// The hook that lists.
pub(crate) const HOLDS: &str = "list-cloud-objects";

/// How often the cloud's API was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct CloudCalls {
    /// All calls that were begun.
    pub(crate) calls: u64,
    /// Those that change something.
    pub(crate) changes: u64,
    /// Whether one call can tell of many instances.
    #[serde(default = "yes")]
    pub(crate) batches: bool,
}

fn yes() -> bool {
    true
}

/// Something that the cloud holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct CloudObject {
    kind: String,
    id: String,
}

fn read<T: DeserializeOwned>(hook: &str, printed: Value) -> Result<T, Stop> {
    T::deserialize(&printed)
        .map_err(|error| Stop::NotRun(format!("hook {hook} printed another shape: {error}: {printed}")))
}

impl Trial {
    /// How often the cloud was called until now.
    pub(crate) async fn cloud_calls(&self) -> Result<CloudCalls, Stop> {
        read(COUNT, self.hook(COUNT, &Variables::new()).await?)
    }

    /// How often the cloud is called while nothing happens for so long, and how often it is changed.
    pub(crate) async fn idle_calls(&self, time: Duration) -> Result<(u64, u64), Stop> {
        let before = self.cloud_calls().await?;
        tokio::time::sleep(time).await;
        let after = self.cloud_calls().await?;
        Ok((after.calls.saturating_sub(before.calls), after.changes.saturating_sub(before.changes)))
    }

    /// What the cloud holds for the cluster of this run, beside instances.
    pub(crate) async fn cloud_holds(&self) -> Result<BTreeSet<CloudObject>, Stop> {
        let cluster = self.cluster().unwrap_or_default();
        let told = Variables::new().with("CLUSTER_UID", cluster.uid).with("CLUSTER_NAME", cluster.name);
        read(HOLDS, self.hook(HOLDS, &told).await?)
    }
}
