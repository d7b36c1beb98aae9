//! Balancers of this cluster for which there is no Service. They are reported, not deleted.

use std::collections::HashSet;

use crate::{
    cloud::{LoadBalancer, LoadBalancerList, LoadBalancerState, Ownership, Provider},
    controllers::service_lb::Shared,
    kube::patch::WriteError,
};

impl Shared {
    /// Counts and names what is garbage. A Service that the cache lacks is looked for at the API first.
    pub(super) async fn report_garbage(&self, provider: &dyn Provider, list: &LoadBalancerList) {
        let mut known: HashSet<String> =
            self.context.services.list().iter().map(|service| service.uid.clone()).collect();
        // What a lane is about is in hand.
        self.lanes.for_each_idle(|_, lane| _ = known.insert(lane.last.uid.clone()));
        let mut garbage = 0;
        for balancer in suspects(list, &known) {
            match self.is_garbage(balancer).await {
                Ok(true) => garbage += 1,
                Ok(false) => continue,
                Err(error) => {
                    tracing::warn!(service = %balancer.key, %error, "not known whether it still exists");
                    continue;
                }
            }
            tracing::warn!(
                provider = provider.name(),
                service = %balancer.key,
                uid = balancer.service_uid,
                id = balancer.id,
                name = balancer.name,
                "a load balancer of this cluster has no Service; nobody removes it"
            );
        }
        self.context.metrics.set_garbage(provider.name(), garbage);
    }

    async fn is_garbage(&self, balancer: &LoadBalancer) -> Result<bool, WriteError> {
        if self.lanes.is_taken(&balancer.key) {
            return Ok(false);
        }
        let context = &self.context;
        let live = context.writer.get_service(&balancer.key, &context.services.keep()).await?;
        Ok(live.is_none_or(|live| live.uid != balancer.service_uid))
    }
}

/// What is this cluster's beyond doubt, is there, and belongs to no Service that is known.
fn suspects<'a>(
    list: &'a LoadBalancerList,
    known: &HashSet<String>,
) -> impl Iterator<Item = &'a LoadBalancer> {
    list.load_balancers.iter().filter(|balancer| {
        let is_there = matches!(balancer.state, LoadBalancerState::Pending | LoadBalancerState::Active);
        is_there && balancer.ownership == Ownership::ByUid && !known.contains(&balancer.service_uid)
    })
}
