//! The condition of the cloud and of the provider's access to it, which every read and change meets first.

use std::collections::BTreeSet;

use cloudprovider_sdk::ProviderError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CloudError, State, outside::patched};

/// Whether the cloud accepts the provider's credentials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credentials {
    /// Accepted.
    #[default]
    Valid,
    /// Refused.
    Invalid,
    /// Expired.
    Expired,
}

/// The conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Whether the credentials are accepted.
    pub credentials: Credentials,
    /// Whether the API answers.
    pub cloud_reachable: bool,
    /// Whether gRPC health is SERVING.
    pub serving: bool,
    /// Duration of an API call in milliseconds.
    pub latency_ms: u64,
    /// Minimum time to create a load balancer, in milliseconds.
    pub provisioning_ms: u64,
    /// Unreachable zones.
    pub unreachable_zones: BTreeSet<String>,
    /// Missing rights, for example `instances:read`.
    pub denied_actions: BTreeSet<String>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            credentials: Credentials::Valid,
            cloud_reachable: true,
            serving: true,
            latency_ms: 0,
            provisioning_ms: 0,
            unreachable_zones: BTreeSet::new(),
            denied_actions: BTreeSet::new(),
        }
    }
}

impl Conditions {
    /// Whether an action is allowed at all; checked first, so that missing rights win over absence.
    pub(super) fn allow(&self, action: &str) -> Result<(), ProviderError> {
        match self.credentials {
            Credentials::Invalid => return Err(ProviderError::cloud_credentials_invalid()),
            Credentials::Expired => return Err(ProviderError::cloud_credentials_expired()),
            Credentials::Valid => {}
        }
        if !self.cloud_reachable {
            return Err(ProviderError::cloud_api_unavailable());
        }
        if self.denied_actions.contains(action) {
            return Err(ProviderError::cloud_permission_denied(action));
        }
        Ok(())
    }
}

impl State {
    /// Changes the conditions.
    ///
    /// # Errors
    ///
    /// The patch does not fit.
    pub fn patch_conditions(&mut self, patch: &Value) -> Result<Conditions, CloudError> {
        self.conditions = patched(&self.conditions, patch, &[])?;
        Ok(self.conditions.clone())
    }
}
