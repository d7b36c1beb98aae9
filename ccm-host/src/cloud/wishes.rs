//! Passes the fields that the providers want on to the caches that must keep them.
//!
//! In: what each provider reported at its last handshake. Out: caches that keep more; they never go back to keeping
//! less. A digest over less than a provider wants would tell it, for example, that an annotation was removed: before
//! computing one, hand the wishes on and wait for the caches.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::{ProviderInfo, Providers};
use crate::kube::{Cache, Node, Service};

#[derive(Debug)]
pub struct Wishes {
    providers: Providers,
    nodes: Cache<Node>,
    services: Cache<Service>,
    /// By provider name: the wishes that the caches already know.
    known: Mutex<HashMap<String, Arc<ProviderInfo>>>,
}

impl Wishes {
    /// The wishes of these providers, for these caches. Nothing is handed on yet.
    #[must_use]
    pub fn new(providers: Providers, nodes: Cache<Node>, services: Cache<Service>) -> Self {
        Self { providers, nodes, services, known: Mutex::default() }
    }

    /// Hands new wishes on to the caches. Cheap if there are none; afterwards [`Cache::synced`] covers all current
    /// wishes.
    pub fn hand_on(&self) {
        let mut known = self.known.lock();
        for provider in self.providers.all() {
            let Some(info) = provider.info() else { continue };
            if known.get(provider.name()).is_some_and(|known| Arc::ptr_eq(known, &info)) {
                continue;
            }
            self.nodes.set_keep(&info.keep_of_nodes());
            self.services.set_keep(&info.keep_of_services());
            known.insert(provider.name().to_owned(), info);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud::{Provider, fake::FakeProvider},
        kube::{KubeMetrics, keep::Keep},
    };

    #[test]
    fn wishes_of_each_handshake_reach_both_caches() {
        let metrics = KubeMetrics::default();
        let nodes = Cache::new(Keep::default(), &metrics.cache);
        let services = Cache::new(Keep::default(), &metrics.cache);
        let provider = FakeProvider::new("cloud");
        provider.forget_info();
        let providers = Providers::new(vec![Arc::clone(&provider) as Arc<dyn Provider>]);
        let wishes = Wishes::new(providers, nodes.clone(), services.clone());
        wishes.hand_on();
        assert_eq!(*nodes.keep(), Keep::default(), "nobody has said anything");

        provider.change_info(|info| info.node_labels = vec!["pool".to_owned()]);
        wishes.hand_on();
        assert!(nodes.keep().labels.contains("pool"));
        provider.change_info(|info| info.service_annotations = vec!["lb/".to_owned()]);
        wishes.hand_on();
        assert!(services.keep().annotations.contains("lb/internal") && nodes.keep().labels.contains("pool"));
    }
}
