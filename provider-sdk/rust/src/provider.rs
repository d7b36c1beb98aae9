//! A provider, complete and checked, ready to be served.
//!
//! In: a description of the provider, and an implementation of each service. Out: a [`Provider`] that serves
//! what it advertises. `server` decides how it is served.

mod advertised;
mod builder;
mod check;
mod handle;

use std::fmt;
use std::sync::Arc;

use cloudprovider_proto::service_names;

use crate::metrics::Metrics;
use crate::services::{CloudProvider, Clusters, Instances, LoadBalancers, Routes, Volumes};

pub(crate) use advertised::Advertised;
pub use builder::ProviderBuilder;
pub(crate) use builder::WhileLeading;
pub use check::BuildError;
pub(crate) use handle::Lifecycle;
pub use handle::ProviderHandle;

/// The implementations of a provider.
#[derive(Clone, Default)]
pub(crate) struct Services {
    pub(crate) base: Option<Arc<dyn CloudProvider>>,
    pub(crate) instances: Option<Arc<dyn Instances>>,
    pub(crate) load_balancers: Option<Arc<dyn LoadBalancers>>,
    pub(crate) routes: Option<Arc<dyn Routes>>,
    pub(crate) volumes: Option<Arc<dyn Volumes>>,
    pub(crate) clusters: Option<Arc<dyn Clusters>>,
}

impl Services {
    /// Names of the served services, the base included.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let optional = [
            (self.instances.is_some(), service_names::INSTANCES),
            (self.load_balancers.is_some(), service_names::LOAD_BALANCERS),
            (self.routes.is_some(), service_names::ROUTES),
            (self.volumes.is_some(), service_names::VOLUMES),
            (self.clusters.is_some(), service_names::CLUSTERS),
        ];
        let served = optional.into_iter().filter_map(|(served, name)| served.then_some(name));
        [service_names::DISCOVERY, service_names::CLOUD_PROVIDER].into_iter().chain(served).collect()
    }
}

/// The provider's identity.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) vendor_version: String,
    pub(crate) prefixes: Vec<String>,
    pub(crate) epoch: String,
}

/// A complete and consistent provider. Built by [`Provider::builder`], served by [`serve`](crate::serve).
pub struct Provider {
    pub(crate) identity: Identity,
    pub(crate) advertised: Advertised,
    pub(crate) services: Services,
    pub(crate) while_leading: Option<WhileLeading>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl Provider {
    /// Starts building a provider with this name: a DNS subdomain of at most 63 bytes, for example `aws`.
    pub fn builder(name: impl Into<String>) -> ProviderBuilder {
        ProviderBuilder::new(name.into())
    }

    /// The provider's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// The random value that identifies this run of the process: tokens are bound to it.
    #[must_use]
    pub fn process_epoch(&self) -> &str {
        &self.identity.epoch
    }

    /// Fully qualified names of the contract's services that are served.
    #[must_use]
    pub fn service_names(&self) -> Vec<&'static str> {
        self.services.names()
    }

    /// Controls the provider while it is served: its health, and how to stop it.
    #[must_use]
    pub fn handle(&self) -> ProviderHandle {
        ProviderHandle::new(Arc::clone(&self.lifecycle), Arc::clone(&self.metrics))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Provider")
            .field("identity", &self.identity)
            .field("services", &self.services.names())
            .finish_non_exhaustive()
    }
}
