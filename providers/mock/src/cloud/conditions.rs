//! How the cloud and the provider's access to it are: the first thing that any read or change runs into.

use std::collections::BTreeSet;

use cloudprovider_sdk::{ProviderError, Result};
use serde::{Deserialize, Serialize};

/// How the cloud takes the provider's credentials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credentials {
    /// Taken.
    #[default]
    Valid,
    /// Refused.
    Invalid,
    /// Ran out.
    Expired,
}

/// How things are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// How credentials are taken.
    pub credentials: Credentials,
    /// Grows when credentials are taken up anew.
    pub credentials_generation: u64,
    /// Whether the API answers.
    pub cloud_reachable: bool,
    /// Whether the event stream lives: shown only.
    pub watch_healthy: bool,
    /// Whether the provider's configuration is good: shown only.
    pub config_valid: bool,
    /// Whether the cloud throttles: shown only; to be throttled is a fault.
    pub rate_limited: bool,
    /// Whether gRPC health says SERVING.
    pub serving: bool,
    /// Every call of the API takes so many milliseconds.
    pub latency_ms: u64,
    /// A new load balancer takes at least so many milliseconds.
    pub provisioning_ms: u64,
    /// Zones that do not answer.
    pub unreachable_zones: BTreeSet<String>,
    /// Rights that are missing, for example `instances:read`.
    pub denied_actions: BTreeSet<String>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            credentials: Credentials::Valid,
            credentials_generation: 1,
            cloud_reachable: true,
            watch_healthy: true,
            config_valid: true,
            rate_limited: false,
            serving: true,
            latency_ms: 0,
            provisioning_ms: 0,
            unreachable_zones: BTreeSet::new(),
            denied_actions: BTreeSet::new(),
        }
    }
}

/// A change of conditions. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConditionsPatch {
    /// How credentials are taken.
    pub credentials: Option<Credentials>,
    /// Whether the API answers.
    pub cloud_reachable: Option<bool>,
    /// Whether the event stream lives.
    pub watch_healthy: Option<bool>,
    /// Whether the provider's configuration is good.
    pub config_valid: Option<bool>,
    /// Whether the cloud throttles.
    pub rate_limited: Option<bool>,
    /// Whether gRPC health says SERVING.
    pub serving: Option<bool>,
    /// How many milliseconds a call of the API takes.
    pub latency_ms: Option<u64>,
    /// How many milliseconds a new load balancer takes at least.
    pub provisioning_ms: Option<u64>,
    /// All zones that do not answer.
    pub unreachable_zones: Option<BTreeSet<String>>,
    /// All rights that are missing.
    pub denied_actions: Option<BTreeSet<String>>,
}

impl Conditions {
    /// Whether an action may run at all; rights win over absence because this comes first.
    pub(super) fn allow(&self, action: &str) -> Result<()> {
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

    /// Takes over what the patch names.
    pub(super) fn apply(&mut self, patch: ConditionsPatch) {
        take_over!(self, patch: ConditionsPatch {
            cloud_reachable watch_healthy config_valid rate_limited serving latency_ms provisioning_ms
            unreachable_zones denied_actions; credentials
        });
        if let Some(credentials) = credentials {
            if credentials == Credentials::Valid && self.credentials != Credentials::Valid {
                self.credentials_generation += 1;
            }
            self.credentials = credentials;
        }
    }
}
