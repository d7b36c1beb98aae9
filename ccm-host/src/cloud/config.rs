//! The configuration of a provider.

use std::time::Duration;

use cloudprovider_proto::v1alpha1 as pb;

use super::{connection::Dialer, settings::Endpoint};
use crate::{
    election::{Fencing, Leadership},
    shadow::Shadow,
};

/// The cluster on whose behalf every call is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRef {
    /// Uid of the namespace `kube-system`.
    pub uid: String,
    pub name: String,
}

/// One provider, as configured on the command line.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Its name on the command line.
    pub name: String,
    pub endpoint: Endpoint,
    pub cluster: ClusterRef,
    /// Users that may own the socket and answer on it, besides this process's own and root.
    pub allowed_uids: Vec<u32>,
    /// Whether this process may change anything.
    pub leadership: Leadership,
    /// Where mutations are noted that shadow mode holds back.
    pub shadow: Option<Shadow>,
    /// Connects to a provider without a socket.
    pub dialer: Option<Dialer>,
    /// Sent to the provider, for its logs.
    pub host_version: String,
    /// How often to check status and reconnect.
    pub paces: Paces,
}

/// How often a provider is checked, and how fast the host reconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paces {
    /// Between two status checks of a healthy provider.
    pub status: Duration,
    /// Between two status checks of an unhealthy one.
    pub status_bad: Duration,
    /// The first pause before reconnecting; it doubles.
    pub reconnect: Duration,
    pub reconnect_longest: Duration,
}

impl Default for Paces {
    fn default() -> Self {
        Self {
            status: Duration::from_secs(60),
            status_bad: Duration::from_secs(10),
            reconnect: Duration::from_millis(100),
            reconnect_longest: Duration::from_secs(10),
        }
    }
}

impl ProviderConfig {
    /// The default paces, and no users allowed but this process's own and root.
    #[must_use]
    pub fn new(name: impl Into<String>, endpoint: Endpoint, cluster: ClusterRef) -> Self {
        Self {
            name: name.into(),
            endpoint,
            cluster,
            allowed_uids: Vec::new(),
            leadership: Leadership::always(),
            shadow: None,
            dialer: None,
            host_version: env!("CARGO_PKG_VERSION").to_owned(),
            paces: Paces::default(),
        }
    }
}

impl ClusterRef {
    pub(super) fn message(&self) -> pb::ClusterRef {
        pb::ClusterRef { uid: self.uid.clone(), name: self.name.clone() }
    }
}

impl Fencing {
    pub(super) fn message(&self) -> pb::Fencing {
        pb::Fencing { scope: self.scope.clone(), epoch: self.epoch }
    }
}
