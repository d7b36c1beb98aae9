//! Builds a provider.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::check::{self, BuildError};
use super::{Advertised, Identity, Lifecycle, Provider, Services};
use crate::metrics::Metrics;
use crate::proto::{Capability, ClusterRef, GetCapabilitiesResponse};
use crate::services::{CloudProvider, Clusters, Instances, LoadBalancers, Routes, Volumes};

/// Builds a provider; see [`Provider::builder`]. It serves exactly the services that it is given.
#[must_use]
pub struct ProviderBuilder {
    identity: Identity,
    capabilities: GetCapabilitiesResponse,
    services: Services,
    metrics: Registry,
    leaderless: bool,
    while_leading: Option<WhileLeading>,
}

/// What a provider does while a host leads.
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
            leaderless: false,
            while_leading: None,
        }
    }

    /// Version of the provider, in the vendor's own scheme; at most 64 bytes.
    pub fn vendor_version(mut self, version: impl Into<String>) -> Self {
        self.identity.vendor_version = version.into();
        self
    }

    /// A prefix of provider IDs, for example `aws://`. May be called again. Instances need at least one.
    pub fn provider_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.identity.prefixes.push(prefix.into());
        self
    }

    /// Optional features, limits, intervals and wanted fields; defaults if not given. Leadership is added if
    /// the provider serves mutations or has background work.
    pub fn capabilities(mut self, capabilities: GetCapabilitiesResponse) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Runs mutations of anybody: `CAPABILITY_LEADERSHIP` is not advertised. For tests of hosts, and for providers that have
    /// better means of their own.
    pub fn without_leadership(mut self) -> Self {
        self.leaderless = true;
        self
    }

    /// Runs background work that writes to the cloud, for each cluster while a host leads it. The work starts
    /// with each term and is dropped when the term ends or the process stops. Of two replicas exactly one
    /// runs it at any time. If it panics, it starts again after a pause: one second, then twice as long each
    /// time, up to a minute.
    pub fn while_leading<F, W>(mut self, work: F) -> Self
    where
        F: Fn(ClusterRef) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.while_leading = Some(WhileLeading(Arc::new(move |cluster| Box::pin(work(cluster)))));
        self
    }

    /// Serves `GetStatus`. Without it there are no conditions.
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

    /// Registers the provider's own metrics, for example of calls to the cloud's API, beside those of this
    /// crate.
    pub fn metrics(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.metrics);
        self
    }

    /// Replaces the random process epoch, so that a test knows its value. At most 64 bytes, not empty.
    pub fn process_epoch(mut self, epoch: impl Into<String>) -> Self {
        self.identity.epoch = epoch.into();
        self
    }

    /// Checks that everything is consistent.
    ///
    /// # Errors
    /// [`BuildError`] names the problem: a name that is not a DNS subdomain, a capability without its
    /// service, instances without a provider ID prefix, a limit or an interval that the contract forbids.
    pub fn build(self) -> Result<Provider, BuildError> {
        let Self { identity, mut capabilities, services, metrics, leaderless, while_leading } = self;
        if !leaderless && (mutates(&capabilities, &services) || while_leading.is_some()) {
            advertise(&mut capabilities, Capability::Leadership);
        }
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

fn mutates(answer: &GetCapabilitiesResponse, services: &Services) -> bool {
    let keys = i32::from(Capability::SshKeys);
    services.load_balancers.is_some() || services.routes.is_some() || answer.capabilities.contains(&keys)
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
