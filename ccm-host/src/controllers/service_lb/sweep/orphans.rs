//! Balancers of this cluster for which there is no Service any more.
//!
//! In: a provider's list. Out: a log line, an Event and a metric; and, only if the operator asked for it, their removal.
//! An orphan is listed as this cluster's by both uids, and neither the cache nor a live read of the API knows a Service
//! of that uid. It is removed if the sweep before found it, too, while the provider is trusted with destructive work, and
//! after another live read. What has only a former controller's name is never one.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::{
    cloud::{
        DeleteLoadBalancer, LoadBalancer, LoadBalancerList, LoadBalancerState, Ownership, Provider,
        ProviderStatus,
    },
    controllers::service_lb::{Shared, wall_micros},
    kube::{patch::WriteError, service::ObjectKey},
};

/// The uids of the Services whose balancers the last sweep found without one, by provider.
#[derive(Debug, Default)]
pub(in crate::controllers::service_lb) struct Orphans(Mutex<HashMap<String, HashSet<String>>>);

impl Orphans {
    /// Notes what a sweep found; returns what the one before had found.
    fn replace(&self, provider: &str, found: &[&LoadBalancer]) -> HashSet<String> {
        let uids = found.iter().map(|balancer| balancer.service_uid.clone()).collect();
        self.0.lock().insert(provider.to_owned(), uids).unwrap_or_default()
    }
}

impl Shared {
    /// Reports what is new, and removes what is known if that was asked for.
    pub(super) async fn look_for_orphans(&self, provider: &dyn Provider, list: &LoadBalancerList) {
        let orphans = self.orphans_in(list).await;
        self.context.metrics.set_orphans(provider.name(), orphans.len());
        let before = self.orphans.replace(provider.name(), &orphans);
        let (known, new): (Vec<_>, Vec<_>) =
            orphans.into_iter().partition(|balancer| before.contains(&balancer.service_uid));
        let remove = self.context.settings.delete_orphans;
        for balancer in new {
            tracing::warn!(
                provider = provider.name(),
                service = %balancer.key,
                uid = balancer.service_uid,
                id = balancer.id,
                name = balancer.name,
                remove,
                "a load balancer of this cluster has no Service"
            );
            self.events.orphaned(balancer, remove);
        }
        if remove {
            join_all(known.into_iter().map(|balancer| self.remove_orphan(provider, balancer))).await;
        }
    }

    async fn orphans_in<'a>(&self, list: &'a LoadBalancerList) -> Vec<&'a LoadBalancer> {
        let mut known: HashSet<String> =
            self.context.services.list().iter().map(|service| service.uid.clone()).collect();
        // What a lane is about is in hand.
        self.lanes.for_each_idle(|_, lane| _ = known.insert(lane.last.uid.clone()));
        let mut orphans = Vec::new();
        for balancer in list.load_balancers.iter().filter(|balancer| is_suspect(balancer, &known)) {
            if !self.lanes.is_taken(&balancer.key) && self.has_no_service(balancer).await {
                orphans.push(balancer);
            }
        }
        orphans
    }

    /// Whether the API itself knows no Service of that uid. False while that is not known.
    async fn has_no_service(&self, balancer: &LoadBalancer) -> bool {
        let context = &self.context;
        match context.writer.get_service(&balancer.key, &context.services.keep()).await {
            Ok(live) => live.is_none_or(|live| live.uid != balancer.service_uid),
            Err(WriteError::Cancelled) => false,
            Err(error) => {
                tracing::warn!(service = %balancer.key, %error, "not known whether it still exists");
                false
            }
        }
    }

    /// Asks until it is gone; what takes longer than from one sweep to the next is asked for by that one.
    async fn remove_orphan(&self, provider: &dyn Provider, balancer: &LoadBalancer) {
        let until_gone = async {
            while let Some(wait) = self.ask_to_remove(provider, balancer).await {
                sleep(wait).await;
            }
        };
        if timeout(self.context.settings.resync_period, until_gone).await.is_err() {
            tracing::warn!(service = %balancer.key, id = balancer.id, "an orphaned load balancer takes long to go");
        }
    }

    /// When to ask again; none: it is gone, or must not or cannot be removed now.
    async fn ask_to_remove(&self, provider: &dyn Provider, balancer: &LoadBalancer) -> Option<Duration> {
        let _permit = self.limit.acquire().await.ok()?;
        // Nobody else is at a balancer of this name meanwhile.
        let _lane = self.lanes.take(&balancer.key)?;
        if *provider.status().borrow() != ProviderStatus::Serving || !self.has_no_service(balancer).await {
            return None;
        }
        let wanted = DeleteLoadBalancer {
            key: balancer.key.clone(),
            uid: balancer.service_uid.clone(),
            last_known: None,
            revision: wall_micros(),
            adopt: false,
        };
        match self.delete(provider, wanted).await {
            Ok(deleted) => {
                self.events.of_provider(balancer, deleted.events);
                if deleted.in_progress.is_none() {
                    self.events.deleted(balancer);
                }
                deleted.in_progress.map(|in_progress| in_progress.retry_after)
            }
            Err(error) => {
                tracing::warn!(service = %balancer.key, id = balancer.id, %error, "an orphaned load balancer stays");
                self.events.orphan_stays(balancer, &error);
                None
            }
        }
    }
}

/// This cluster's beyond doubt, there or half gone, and of no Service that is known.
fn is_suspect(balancer: &LoadBalancer, known: &HashSet<String>) -> bool {
    use LoadBalancerState as S;
    matches!(balancer.state, S::Pending | S::Active | S::Deleting)
        && balancer.ownership == Ownership::ByUid
        && !known.contains(&balancer.service_uid)
        && can_be_asked_for(&balancer.key)
}

/// Of anything else the API would say that it is absent.
fn can_be_asked_for(key: &ObjectKey) -> bool {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    is_name(&key.namespace) && is_name(&key.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A provider that records a Service wrongly cannot make a live one look gone.
    #[test]
    fn what_is_no_name_is_never_asked_for() {
        let rows = [
            ("default", "web-1", true),
            ("", "web", false),
            ("default", "", false),
            ("default", "web/status", false),
            ("..", "web", false),
            ("default", "web?x=y", false),
        ];
        for (namespace, name, want) in rows {
            assert_eq!(can_be_asked_for(&ObjectKey::new(namespace, name)), want, "{namespace:?} {name:?}");
        }
    }
}
