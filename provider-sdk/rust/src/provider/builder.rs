//! Puts a provider together.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::check::{self, BuildError};
use super::{Advertised, Identity, Lifecycle, Provider, Services};
use crate::metrics::Metrics;
use crate::proto::{Capability, ClusterRef, GetCapabilitiesResponse};
use crate::services::{CloudProvider, Clusters, Instances, LoadBalancers, Routes, Volumes};

/// Puts a provider together; see [`Provider::builder`]. Each service is served if and only if it was given.
#[must_use]
pub struct ProviderBuilder {
    identity: Identity,
    capabilities: GetCapabilitiesResponse,
    services: Services,
    metrics: Registry,
    leaders: Leaders,
    while_leading: Option<WhileLeading>,
}

/// How a provider tells the present leader from former ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Leaders {
    /// By `Lead`: `CAPABILITY_LEADERSHIP`.
    #[default]
    Told,
    /// By the highest epoch that this process saw: `CAPABILITY_FENCING`.
    Compared,
    /// Not at all. For tests of hosts, and for a provider that does it by better means than memory.
    Ignored,
}

/// What a provider does while it is led.
#[derive(Clone)]
pub(crate) struct WhileLeading(pub(crate) Arc<dyn Fn(ClusterRef) -> BoxFuture<'static, ()> + Send + Sync>);

impl fmt::Debug for WhileLeading {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("WhileLeading")
    }
}

impl ProviderBuilder {
    pub(super) fn new(name: String) -> Self {
        let epoch = uuid::Uuid::new_v4().to_string();
        Self {
            identity: Identity { name, vendor_version: String::new(), prefixes: Vec::new(), epoch },
            capabilities: GetCapabilitiesResponse::default(),
            services: Services::default(),
            metrics: Registry::default(),
            leaders: Leaders::default(),
            while_leading: None,
        }
    }

    /// Version of the provider as its vendor counts; at most 64 bytes.
    pub fn vendor_version(mut self, version: impl Into<String>) -> Self {
        self.identity.vendor_version = version.into();
        self
    }

    /// How the provider IDs begin, for example `aws://`. May be called again. At least one is needed for instances.
    pub fn provider_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.identity.prefixes.push(prefix.into());
        self
    }

    /// What is served beyond the services, limits, intervals and wanted fields. All defaults unless given; leadership is added
    /// where mutations are served, or something is done while leading.
    pub fn capabilities(mut self, capabilities: GetCapabilitiesResponse) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// How the present leader is told from former ones; [`Leaders::Told`] unless given.
    pub fn leaders(mut self, leaders: Leaders) -> Self {
        self.leaders = leaders;
        self
    }

    /// Does this for each cluster while somebody leads it: background work that writes to the cloud. It is begun with each
    /// term and dropped with its end, or when the process stops. Exactly one of two replicas does it at any time.
    pub fn while_leading<F, W>(mut self, work: F) -> Self
    where
        F: Fn(ClusterRef) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.while_leading = Some(WhileLeading(Arc::new(move |cluster| Box::pin(work(cluster)))));
        self
    }

    /// Answers `GetStatus`. Without it there are no conditions.
    pub fn cloud_provider(mut self, status: impl CloudProvider) -> Self {
        self.services.base = Some(Arc::new(status));
        self
    }

    /// Serves `Instances`.
    pub fn instances(mut self, instances: impl Instances) -> Self {
        self.services.instances = Some(Arc::new(instances));
        self
    }

    /// Serves `LoadBalancers`.
    pub fn load_balancers(mut self, load_balancers: impl LoadBalancers) -> Self {
        self.services.load_balancers = Some(Arc::new(load_balancers));
        self
    }

    /// Serves `Routes`.
    pub fn routes(mut self, routes: impl Routes) -> Self {
        self.services.routes = Some(Arc::new(routes));
        self
    }

    /// Serves `Volumes`.
    pub fn volumes(mut self, volumes: impl Volumes) -> Self {
        self.services.volumes = Some(Arc::new(volumes));
        self
    }

    /// Serves `Clusters`.
    pub fn clusters(mut self, clusters: impl Clusters) -> Self {
        self.services.clusters = Some(Arc::new(clusters));
        self
    }

    /// Registers metrics of the provider's own, for example calls of the cloud's API, beside those of this crate.
    pub fn metrics(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.metrics);
        self
    }

    /// Replaces the random process epoch, so that a test can tell what it expects. At most 64 bytes, not empty.
    pub fn process_epoch(mut self, epoch: impl Into<String>) -> Self {
        self.identity.epoch = epoch.into();
        self
    }

    /// Checks that all fits together.
    ///
    /// # Errors
    /// [`BuildError`] names what does not fit: a name that is no DNS subdomain, a capability without its service,
    /// instances without a provider-ID prefix, a limit or an interval that the contract forbids.
    pub fn build(self) -> Result<Provider, BuildError> {
        let Self { identity, mut capabilities, services, metrics, leaders, while_leading } = self;
        advertise_leaders(&mut capabilities, &services, leaders, while_leading.is_some());
        if services.load_balancers.is_some() {
            advertise(&mut capabilities, Capability::BackendSetsByDigest);
        }
        check::identity(&identity, &services)?;
        check::capabilities(&capabilities, &services)?;
        check::limits(&capabilities)?;
        let lifecycle = Arc::new(Lifecycle::new(&services.names()));
        Ok(Provider {
            identity,
            advertised: Advertised::new(capabilities),
            services,
            while_leading,
            metrics: Arc::new(Metrics::new(metrics)),
            lifecycle,
        })
    }
}

/// A former leader is refused before a method is called, so whoever serves mutations can do it.
fn advertise_leaders(
    answer: &mut GetCapabilitiesResponse,
    services: &Services,
    leaders: Leaders,
    in_background: bool,
) {
    let keys = i32::from(Capability::SshKeys);
    let mutations =
        services.load_balancers.is_some() || services.routes.is_some() || answer.capabilities.contains(&keys);
    let capability = match leaders {
        Leaders::Told if mutations || in_background => Capability::Leadership,
        Leaders::Compared if mutations => Capability::Fencing,
        Leaders::Told | Leaders::Compared | Leaders::Ignored => return,
    };
    advertise(answer, capability);
}

fn advertise(answer: &mut GetCapabilitiesResponse, capability: Capability) {
    if !answer.capabilities.contains(&capability.into()) {
        answer.capabilities.push(capability.into());
    }
}

impl fmt::Debug for ProviderBuilder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProviderBuilder")
            .field("identity", &self.identity)
            .field("services", &self.services.names())
            .finish_non_exhaustive()
    }
}
