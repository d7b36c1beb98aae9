//! What is known of a provider before it is asked.

use std::time::Duration;

use cloudprovider_proto::v1alpha1 as pb;

use super::{connect::Dialer, settings::Endpoint};
use crate::election::{Fencing, Leadership};

/// The cluster on whose behalf every call is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRef {
    /// Uid of the namespace `kube-system`.
    pub uid: String,
    pub name: String,
}

/// One provider, as the command line names it.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Its name on the command line.
    pub name: String,
    /// Where it listens.
    pub endpoint: Endpoint,
    pub cluster: ClusterRef,
    /// Users that may own the socket and answer at it, besides this process' own and root.
    pub allowed_uids: Vec<u32>,
    /// Whether this process may have anything changed.
    pub leadership: Leadership,
    /// Reaches it where no socket leads to it.
    pub dialer: Option<Dialer>,
    /// For the provider's logs.
    pub host_version: String,
    /// How often what is done.
    pub paces: Paces,
}

/// How often a provider is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paces {
    /// Between two looks at a provider that is well.
    pub status: Duration,
    /// Between two looks at one that is not.
    pub status_bad: Duration,
    /// The first pause before a connection is tried again; it doubles.
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
    /// With the usual paces, and nobody allowed but this process' user and root.
    #[must_use]
    pub fn new(name: impl Into<String>, endpoint: Endpoint, cluster: ClusterRef) -> Self {
        Self {
            name: name.into(),
            endpoint,
            cluster,
            allowed_uids: Vec::new(),
            leadership: Leadership::always(),
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
