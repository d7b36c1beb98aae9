//! Balancers of this cluster for which there is no Service any more, or whose Service has another one.
//!
//! In: a provider's list. Out: a log line, an Event and a metric; and, only if the operator asked for it, their removal.
//! An orphan is listed as this cluster's by both uids, and neither the cache nor a live read of the API knows a Service
//! of that uid. It is removed if the sweep before found it, too, while the provider is trusted with destructive work, and
//! after another live read. What has only a former controller's name is never one.
//!
//! A balancer whose Service is served by the provider that looks after it, while this one is at another, is left behind:
//! nothing leads to it, so it goes without being asked for.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::{Swept, is_ours};
use crate::{
    cloud::{DeleteLoadBalancer, LoadBalancer, LoadBalancerList, Provider, ProviderStatus},
    controllers::service_lb::{
        Shared,
        lane::{Lane, Presence},
        wall_micros,
    },
    kube::{patch::WriteError, service::ObjectKey},
};

/// Live reads of Services at the same time.
const READS_AT_ONCE: usize = 16;

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

/// A balancer that has to go.
pub(super) struct Stray {
    balancer: LoadBalancer,
    why: Why,
}

/// Why it has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It has no Service any more.
    Orphaned,
    /// Its Service has another one, at the provider that looks after it.
    LeftBehind,
}

impl Shared {
    /// Reports what is new. Returns what has to go: what is left behind, and known orphans if that was asked for.
    pub(super) async fn look_for_strays(&self, provider: &dyn Provider, swept: Swept) -> Vec<Stray> {
        let Swept { list, left_behind } = swept;
        let orphans = self.orphans_in(&list).await;
        self.context.metrics.set_orphans(provider.name(), orphans.len());
        let before = self.orphans.replace(provider.name(), &orphans);
        let (known, new): (Vec<_>, Vec<_>) =
            orphans.into_iter().partition(|balancer| before.contains(&balancer.service_uid));
        let remove = self.context.settings.delete_orphaned_load_balancers;
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
        for balancer in &left_behind {
            tracing::warn!(
                provider = provider.name(),
                service = %balancer.key,
                id = balancer.id,
                "a load balancer is removed: another provider looks after its Service"
            );
            self.events.left_behind(balancer, provider.name());
        }
        let known = known.into_iter().filter(|_| remove).cloned();
        let orphaned = known.map(|balancer| Stray { balancer, why: Why::Orphaned });
        let left_behind = left_behind.into_iter().map(|balancer| Stray { balancer, why: Why::LeftBehind });
        orphaned.chain(left_behind).collect()
    }

    async fn orphans_in<'a>(&self, list: &'a LoadBalancerList) -> Vec<&'a LoadBalancer> {
        let mut known: HashSet<String> =
            self.context.services.list().iter().map(|service| service.uid.clone()).collect();
        // What a lane is about is in hand.
        let taken = self.lanes.for_each_idle(|_, lane| _ = known.insert(lane.last.uid.clone()));
        let suspects = list.load_balancers.iter().filter(|balancer| is_suspect(balancer, &known));
        let unknown = suspects.filter(|balancer| !taken.contains(&balancer.key));
        let unknown: Vec<_> = unknown.collect();
        let mut orphans = Vec::new();
        for some in unknown.chunks(READS_AT_ONCE) {
            let alone = join_all(some.iter().map(|balancer| self.has_no_service(balancer))).await;
            orphans.extend(some.iter().zip(alone).filter_map(|(balancer, alone)| alone.then_some(*balancer)));
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
    pub(super) async fn remove_stray(&self, provider: &dyn Provider, stray: Stray) {
        let until_gone = async {
            while let Some(wait) = self.ask_to_remove(provider, &stray).await {
                sleep(wait).await;
            }
        };
        if timeout(self.context.settings.load_balancer_resync_period, until_gone).await.is_err() {
            let Stray { balancer, .. } = stray;
            tracing::warn!(service = %balancer.key, id = balancer.id, "an unwanted load balancer takes long to go");
        }
    }

    /// When to ask again; none: it is gone, or must not or cannot be removed now.
    async fn ask_to_remove(&self, provider: &dyn Provider, stray: &Stray) -> Option<Duration> {
        let Stray { balancer, why } = stray;
        let _permit = self.turn_at(provider.name()).await?;
        // Nobody else is at a balancer of this name meanwhile.
        let lane = self.lanes.take(&balancer.key)?;
        let is_unwanted = match why {
            Why::Orphaned => self.has_no_service(balancer).await,
            Why::LeftBehind => lane.as_ref().is_some_and(|lane| has_another(lane, balancer, provider.name())),
        };
        if *provider.status().borrow() != ProviderStatus::Serving || !is_unwanted {
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
                self.events.of_provider(balancer, &deleted.events);
                if deleted.in_progress.is_none() {
                    self.events.deleted(balancer);
                }
                deleted.in_progress.map(|in_progress| in_progress.retry_after)
            }
            Err(error) => {
                tracing::warn!(service = %balancer.key, id = balancer.id, %error, "an unwanted load balancer stays");
                self.events.orphan_stays(balancer, &error);
                None
            }
        }
    }
}

/// Whether the Service has its balancer at another provider, and all is well there.
fn has_another(lane: &Lane, balancer: &LoadBalancer, provider: &str) -> bool {
    lane.is_of(&balancer.service_uid)
        && lane.settled
        && lane.presence == Presence::Present
        && lane.holder.as_deref().is_some_and(|holder| holder != provider)
}

/// This cluster's beyond doubt, there or half gone, and of no Service that is known.
fn is_suspect(balancer: &LoadBalancer, known: &HashSet<String>) -> bool {
    is_ours(balancer) && !known.contains(&balancer.service_uid) && can_be_asked_for(&balancer.key)
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
