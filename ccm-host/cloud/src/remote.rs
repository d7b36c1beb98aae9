//! The provider that is reached over gRPC.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_state::inventory::Inventory;
use ipnet::IpNet;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Accepted, BackendSet, CloudError, CloudMetrics, DeleteLoadBalancer, EnsureLoadBalancer, EnsureRoute,
    Ensured, EnsuredRoute, Family, InProgress, InstanceAnswer, InstanceQuery, Listed, LoadBalancer, Provider,
    ProviderConfig, ProviderInfo, ProviderStatus, Question, Route, UpdateLoadBalancer, VolumeAnswer,
    VolumeQuery,
    call::{gather::Batcher, split::Batch},
    connection::{self, Link},
    instances::{self, InstanceReads, ReadLane},
    inventory,
    load_balancers::{self, Updates},
    metrics::ProviderMetrics,
    routes,
    shadowed::Shadowed,
    volumes::VolumeReads,
    wanted,
};
use ccm_kube::{Node, Service};

/// A provider behind a socket; see the module [`crate`]. Connects and reconnects by itself.
#[derive(Debug)]
pub struct RemoteProvider {
    link: Arc<Link>,
    reads: Arc<Batcher<Batch<InstanceReads>>>,
    updates: Arc<Batcher<Batch<Updates>>>,
    route_ensures: Arc<Batcher<Batch<routes::Ensure>>>,
    route_deletes: Arc<Batcher<Batch<routes::Delete>>>,
    volumes: Arc<Batcher<Batch<VolumeReads>>>,
    shadowed: Option<Shadowed>,
    /// The turns of people's questions: whoever may read everything must not take the controllers' places.
    inventories: Semaphore,
}

/// Questions of people that are answered at once.
const INVENTORIES: usize = 2;

impl RemoteProvider {
    /// Starts connecting, until `stop`. Must be called within a runtime.
    pub fn spawn(config: ProviderConfig, metrics: &CloudMetrics, stop: CancellationToken) -> Arc<Self> {
        let metrics = ProviderMetrics::new(metrics.clone(), &config.settings.name);
        let shadowed = config.shadow.clone().map(Shadowed::new);
        let link = Arc::new(Link::new(config, metrics));
        tokio::spawn(connection::run::run(Arc::clone(&link), stop));
        Arc::new(Self {
            reads: Batcher::over(&link),
            updates: Batcher::over(&link),
            route_ensures: Batcher::over(&link),
            route_deletes: Batcher::over(&link),
            volumes: Batcher::over(&link),
            shadowed,
            inventories: Semaphore::new(INVENTORIES),
            link,
        })
    }

    /// The provider's condition, for people.
    pub fn report(&self) -> ccm_state::Provider {
        self.link.report()
    }

    /// What the provider has, for people.
    ///
    /// # Errors
    /// It is not connected, does not serve this, or a call failed.
    pub async fn inventory(&self, question: &Question) -> Result<Inventory, CloudError> {
        // Never closed.
        let _turn = self.inventories.acquire().await.ok();
        inventory::answer(&self.link, question).await
    }
}

#[async_trait]
impl Provider for RemoteProvider {
    fn name(&self) -> &str {
        self.link.name()
    }

    fn status(&self, of: Family) -> watch::Receiver<ProviderStatus> {
        self.link.status(of)
    }

    fn info(&self) -> Option<Arc<ProviderInfo>> {
        self.link.info()
    }

    fn instance_changes(&self) -> broadcast::Receiver<String> {
        self.link.changes.subscribe()
    }

    fn sweeps(&self) -> watch::Receiver<u64> {
        self.link.sweeps.subscribe()
    }

    async fn instance(&self, query: InstanceQuery) -> Result<InstanceAnswer, CloudError> {
        let lane = ReadLane { view: query.view, freshness: query.freshness };
        self.reads.answer(lane, (query.node, self.link.wants())).await
    }

    fn backend_set(&self, nodes: Vec<Arc<Node>>) -> Arc<BackendSet> {
        Arc::new(wanted::backend_set(nodes, self.link.wants()))
    }

    fn desired_digest(&self, service: &Service, backends: &BackendSet) -> String {
        wanted::desired_digest(service, backends)
    }

    async fn load_balancer(&self, service: &Service) -> Result<LoadBalancer, CloudError> {
        load_balancers::get(&self.link, &service.key, &service.uid).await
    }

    async fn ensure_load_balancer(&self, wanted: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
        if let Some(shadowed) = &self.shadowed {
            return shadowed.ensure(&self.link, wanted).await;
        }
        load_balancers::ensure(&self.link, wanted).await
    }

    async fn update_load_balancer(&self, wanted: UpdateLoadBalancer) -> Result<Accepted, CloudError> {
        if self.shadowed.is_some() {
            // Nodes come and go all the time, and the other controller sends the same updates.
            return Ok(Accepted::default());
        }
        self.updates.answer((), wanted).await
    }

    async fn delete_load_balancer(&self, wanted: DeleteLoadBalancer) -> Result<Accepted, CloudError> {
        if let Some(shadowed) = &self.shadowed {
            return shadowed.delete(&self.link, &wanted).await;
        }
        load_balancers::delete(&self.link, wanted).await
    }

    async fn list_load_balancers(&self) -> Result<Listed<LoadBalancer>, CloudError> {
        load_balancers::list(&self.link).await
    }

    async fn list_routes(&self, within: &[IpNet]) -> Result<Listed<Route>, CloudError> {
        routes::list(&self.link, within).await
    }

    async fn ensure_route(&self, wanted: EnsureRoute) -> Result<EnsuredRoute, CloudError> {
        if let Some(shadowed) = &self.shadowed {
            return shadowed.ensure_route(&self.link, &wanted).await;
        }
        self.route_ensures.answer((), (wanted, self.link.wants())).await
    }

    async fn delete_route(&self, listed: Route) -> Result<Option<InProgress>, CloudError> {
        if let Some(shadowed) = &self.shadowed {
            return shadowed.delete_route(&self.link, &listed).await;
        }
        self.route_deletes.answer((), listed).await
    }

    async fn add_ssh_key(&self, user: &str, public_key: &str) -> Result<Option<InProgress>, CloudError> {
        if let Some(shadowed) = &self.shadowed {
            return Err(shadowed.add_ssh_key(user));
        }
        instances::add_ssh_key(&self.link, user, public_key).await
    }

    async fn volume_labels(&self, query: VolumeQuery) -> Result<VolumeAnswer, CloudError> {
        self.volumes.answer((), query).await
    }
}
