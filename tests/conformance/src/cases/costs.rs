//! What each case makes and how long it takes, as measured against the mock, for an estimate before a run on a real account.
//!
//! `costs.json` is written by `UPDATE_DOCS=1 cargo test -p provider-conformance --test mock`.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{case::Case, scenario::Scenario, target::Made};

/// What one case costs.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cost {
    /// What it makes.
    #[serde(flatten)]
    pub made: Made,
    /// Its time where the cloud takes none.
    pub millis: u64,
}

static COSTS: LazyLock<BTreeMap<String, Cost>> = LazyLock::new(|| {
    // A test shows that it can be read.
    serde_json::from_str(include_str!("costs.json")).unwrap_or_default()
});

/// What this case costs.
pub fn of(case: &Case) -> Cost {
    COSTS.get(case.id).copied().unwrap_or_default()
}

/// How long this may take in a cloud that takes its time for what is made.
pub fn time(cost: Cost, scenario: &Scenario) -> Duration {
    let made = scenario.balancer_takes * cost.made.balancers + scenario.instance_takes * cost.made.instances;
    Duration::from_millis(cost.millis) + made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn the_file_can_be_read_and_names_cases() {
        assert!(!COSTS.is_empty());
        for id in COSTS.keys() {
            let known = cases::all().any(|case| case.id == id);
            assert!(known, "{id}: run UPDATE_DOCS=1 cargo test -p provider-conformance --test mock");
        }
    }
}
