//! How much the account may have.

use serde::{Deserialize, Serialize};

/// Upper bounds; absent: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Balancers of all clusters.
    pub max_balancers: Option<u32>,
    /// Routes of all clusters.
    pub max_routes: Option<u32>,
    /// Addresses of balancers.
    pub max_addresses: Option<u32>,
}
