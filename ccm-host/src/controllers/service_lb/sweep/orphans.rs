//! Finds balancers of this cluster whose Service no longer exists, or has another one.
//!
//! In: a provider's list. Out: a log line, an Event and a metric; and, only if the operator asked for it, their
//! removal. An orphan is listed as this cluster's by both uids, and neither the cache nor a live read of the API
//! finds a Service of that uid. It is removed only if the previous sweep found it, too, while the provider is serving
//! (not frozen), and after another live read. A balancer that carries only a former controller's name is never an
//! orphan.
//!
//! A balancer is left behind if its Service is served by the provider that owns it, and this one is at another.
//! Nothing refers to it any more, so it is removed even without the flag.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use tokio::time::{sleep, timeout};

use super::{Swept, is_ours};
use crate::{
    cloud::{DeleteLoadBalancer, Family, Listed, LoadBalancer, Provider, ProviderStatus},
    controllers::service_lb::{
        Controller, Turn,
        lane::{Lane, Presence},
        wall_micros,
    },
    kube::{patch::WriteError, service::ObjectKey},
};

/// Maximum concurrent live reads of Services.
const READS_AT_ONCE: usize = 16;

/// A balancer to remove.
pub(super) struct Stray {
    balancer: LoadBalancer,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Its Service no longer exists.
    Orphaned,
    /// Its Service has another one, at the provider that owns it.
    LeftBehind,
}

impl Controller {
    /// Reports new strays. Returns those to remove: the ones left behind, and known orphans if the operator asked for
    /// it.
    pub(super) async fn look_for_strays(&self, provider: &dyn Provider, swept: Swept) -> Vec<Stray> {
        let Swept { list, left_behind } = swept;
        let orphans = self.orphans_in(&list).await;
        self.metrics.set_orphans(provider.name(), orphans.len());
        let uids = orphans.iter().map(|balancer| balancer.service_uid.clone()).collect();
        let before = self.orphans.lock().insert(provider.name().to_owned(), uids).unwrap_or_default();
        let (known, new): (Vec<_>, Vec<_>) =
            orphans.into_iter().partition(|balancer| before.contains(&balancer.service_uid));
        let remove = self.parts.settings.services.delete_orphaned_load_balancers;
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
                "removing a load balancer: another provider serves its Service"
            );
            self.events.left_behind(balancer, provider.name());
        }
        let known = known.into_iter().filter(|_| remove).cloned();
        let orphaned = known.map(|balancer| Stray { balancer, why: Why::Orphaned });
        let left_behind = left_behind.into_iter().map(|balancer| Stray { balancer, why: Why::LeftBehind });
        orphaned.chain(left_behind).collect()
    }

    async fn orphans_in<'a>(&self, list: &'a Listed<LoadBalancer>) -> Vec<&'a LoadBalancer> {
        let mut known: HashSet<String> =
            self.parts.services.list().iter().map(|service| service.uid.clone()).collect();
        // A balancer whose Service has a lane is being handled there.
        let taken = self.lanes.for_each_idle(|_, lane| _ = known.insert(lane.last.uid.clone()));
        let suspects = list.items.iter().filter(|balancer| is_suspect(balancer, &known));
        let unknown = suspects.filter(|balancer| !taken.contains(&balancer.key));
        let unknown: Vec<_> = unknown.collect();
        let mut orphans = Vec::new();
        for some in unknown.chunks(READS_AT_ONCE) {
            let alone = join_all(some.iter().map(|balancer| self.has_no_service(balancer))).await;
            orphans.extend(some.iter().zip(alone).filter_map(|(balancer, alone)| alone.then_some(*balancer)));
        }
        orphans
    }

    /// Whether the API itself has no Service of that uid. False while that is unknown.
    async fn has_no_service(&self, balancer: &LoadBalancer) -> bool {
        match self.live(&balancer.key).await {
            Ok(live) => live.is_none_or(|live| live.uid != balancer.service_uid),
            Err(WriteError::NotLeading) => false,
            Err(error) => {
                tracing::warn!(service = %balancer.key, %error, "not known whether it still exists");
                false
            }
        }
    }

    /// Repeats the deletion until the balancer is gone, for up to one period; the next sweep takes over from there.
    pub(super) async fn remove_stray(&self, provider: &dyn Provider, stray: Stray) {
        let until_gone = async {
            while let Some(wait) = self.ask_to_remove(provider, &stray).await {
                sleep(wait).await;
            }
        };
        if timeout(self.parts.settings.services.load_balancer_resync_period, until_gone).await.is_err() {
            let Stray { balancer, .. } = stray;
            tracing::warn!(service = %balancer.key, id = balancer.id, "deleting an unwanted load balancer takes long");
        }
    }

    /// When to ask again; `None` means that it is gone, or must not or cannot be removed now.
    async fn ask_to_remove(&self, provider: &dyn Provider, stray: &Stray) -> Option<Duration> {
        let Stray { balancer, why } = stray;
        let _permit = self.wait_for(&(provider.name().to_owned(), Turn::Remove)).await?;
        // Holding the lane keeps others from a balancer of this name.
        let taken = self.lanes.take(&balancer.key)?;
        let is_unwanted = match why {
            Why::Orphaned => self.has_no_service(balancer).await,
            Why::LeftBehind => {
                taken.lane.as_ref().is_some_and(|lane| has_another(lane, balancer, provider.name()))
            }
        };
        if *provider.status(Family::LoadBalancers).borrow() != ProviderStatus::Serving || !is_unwanted {
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
                tracing::warn!(service = %balancer.key, id = balancer.id, %error, "could not delete an unwanted load balancer");
                self.events.orphan_stays(balancer, &error);
                None
            }
        }
    }
}

/// Whether the Service has a settled balancer at another provider.
fn has_another(lane: &Lane, balancer: &LoadBalancer, provider: &str) -> bool {
    lane.is_of(&balancer.service_uid)
        && lane.settled
        && lane.presence == Presence::Present
        && lane.holder.as_deref().is_some_and(|holder| holder != provider)
}

/// Certainly this cluster's, existing or half deleted, and of no known Service.
fn is_suspect(balancer: &LoadBalancer, known: &HashSet<String>) -> bool {
    is_ours(balancer) && !known.contains(&balancer.service_uid) && can_be_asked_for(&balancer.key)
}

/// For a key that is no valid name, the API would report the Service as absent.
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
