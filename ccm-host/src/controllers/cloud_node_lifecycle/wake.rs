//! Starts a pass early: when a node becomes NotReady, or the provider's watch reports a change of one that is.
//!
//! In: the cache's changes, and the provider's watch. Out: the moment when the next pass begins. Concurrent reasons
//! count as one; passes keep a distance, since each asks about all nodes that are not ready.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::{
        Notify,
        broadcast::{Receiver, error::RecvError},
    },
    time::{Instant, sleep, sleep_until},
};

use super::{Controller, decide::is_ready};
use crate::{
    cloud::{NodeOwner, Provider, Providers},
    kube::cache::Change,
};

/// From the end of a pass to the start of an early one.
const DISTANCE: Duration = Duration::from_millis(500);

/// One signal for each provider, by name.
pub(super) type Wakes = Arc<HashMap<String, Notify>>;

pub(super) fn of(providers: &Providers) -> Wakes {
    Arc::new(providers.all().iter().map(|provider| (provider.name().to_owned(), Notify::new())).collect())
}

impl Controller {
    /// Wakes the provider of each node that becomes NotReady.
    pub(super) fn follow(&self) {
        let (providers, wakes) = (self.parts.providers.clone(), Arc::clone(&self.wakes));
        self.parts.nodes.subscribe(move |change| {
            let Change::Updated { old, new } = change else { return };
            if !is_ready(old) || is_ready(new) {
                return;
            }
            let owners = match providers.for_node(new) {
                NodeOwner::Provider(owner) => vec![owner],
                NodeOwner::Candidates(all) => all,
                NodeOwner::Undecided | NodeOwner::Nobody => vec![],
            };
            for wake in owners.iter().filter_map(|owner| wakes.get(owner.name())) {
                wake.notify_one();
            }
        });
    }

    /// Returns when the next pass over the provider's nodes is due.
    pub(super) async fn due(&self, provider: &Arc<dyn Provider>, changes: &mut Receiver<String>) {
        let ended = Instant::now();
        let silent = async {
            match self.wakes.get(provider.name()) {
                Some(wake) => wake.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep(self.parts.settings.lifecycle.node_monitor_period) => return,
            () = silent => {}
            () = self.told(changes) => {}
        }
        sleep_until(ended + DISTANCE.min(self.parts.settings.lifecycle.node_monitor_period)).await;
        // The pass about to begin checks all of them.
        while changes.try_recv().is_ok() {}
    }

    /// Returns when the provider's watch reports a node that is not ready.
    async fn told(&self, changes: &mut Receiver<String>) {
        loop {
            match changes.recv().await {
                Ok(key) if self.is_silent(&key) => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Looks the node up by provider ID and by name.
    fn is_silent(&self, key: &str) -> bool {
        let nodes = self.parts.nodes.by_index(key).into_iter().chain(self.parts.nodes.get(key));
        nodes.into_iter().any(|node| self.parts.is_ours(&node) && !is_ready(&node))
    }
}
