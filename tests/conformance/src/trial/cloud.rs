//! What the cloud itself reports through hooks: how often it was called, and what it contains.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::Trial;
use crate::{
    case::{Outcome, Stop},
    scenario::Variables,
};

/// The hook that counts.
pub(crate) const COUNT: &str = "count-cloud-calls";
/// The hook that lists.
pub(crate) const HOLDS: &str = "list-cloud-objects";

/// How often the cloud's API was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct CloudCalls {
    /// All started calls.
    pub(crate) calls: u64,
    /// Those that change something.
    pub(crate) changes: u64,
    /// Whether one call can return many instances.
    #[serde(default = "yes")]
    pub(crate) batches: bool,
}

fn yes() -> bool {
    true
}

/// An object in the cloud.
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
    /// How often the cloud has been called.
    pub(crate) async fn cloud_calls(&self) -> Result<CloudCalls, Stop> {
        read(COUNT, self.hook(COUNT, &Variables::new()).await?)
    }

    /// How often the cloud is called, and how often it is changed, while nothing happens for this long.
    pub(crate) async fn idle_calls(&self, time: Duration) -> Result<(u64, u64), Stop> {
        let before = self.cloud_calls().await?;
        tokio::time::sleep(time).await;
        let after = self.cloud_calls().await?;
        Ok((after.calls.saturating_sub(before.calls), after.changes.saturating_sub(before.changes)))
    }

    /// The objects in the cloud for this run's cluster, except instances.
    pub(crate) async fn cloud_holds(&self) -> Result<BTreeSet<CloudObject>, Stop> {
        let cluster = self.cluster().unwrap_or_default();
        let told = Variables::new().with("CLUSTER_UID", cluster.uid).with("CLUSTER_NAME", cluster.name);
        read(HOLDS, self.hook(HOLDS, &told).await?)
    }

    /// Checks that the cloud comes to have nothing more for this run's cluster than it had before.
    pub(crate) async fn holds_no_more_than(&self, before: &BTreeSet<CloudObject>) -> Outcome {
        self.eventually("nothing that was not there before", async || {
            let now = self.cloud_holds().await?;
            let left: Vec<_> = now.difference(before).collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}")) })
        })
        .await
    }
}
