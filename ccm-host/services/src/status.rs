//! What a balancer gives its Service, as far as it is known.
//!
//! In: answers of providers. Out: the addresses, annotations and conditions to publish. [`super::publish`] writes them.

use std::collections::BTreeMap;

use super::service::ip_mode;
use ccm_cloud::{Effects, ServiceCondition};
use ccm_kube::service::{Ingress, Service};

/// Annotations and conditions stay until they are written: a provider answers only once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// The entries to publish, once an answer or a list reported them; empty, until those of a former balancer are gone.
    pub(super) ingress: Option<Vec<Ingress>>,
    /// `None` means to remove.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    pub(super) conditions: BTreeMap<String, ServiceCondition>,
}

impl Status {
    /// As the Service wants it published.
    pub(super) fn of(&self, service: &Service) -> Self {
        let mut status = self.clone();
        if let Ok(Some(mode)) = ip_mode(service) {
            let entries = status.ingress.iter_mut().flatten().filter(|entry| !entry.ip.is_empty());
            entries.for_each(|entry| entry.ip_mode = Some(mode.to_owned()));
        }
        status
    }

    /// Takes up what an answer wants written.
    pub(super) fn wants(&mut self, effects: Effects) {
        self.annotations.extend(effects.annotations);
        self.conditions.extend(effects.conditions);
    }

    /// Forgets what was written.
    pub(super) fn is_written(&mut self, written: &Self) {
        // That there is no address is said once: the next one may be somebody else's, as where kube-vip gives addresses.
        self.ingress.take_if(|known| known.is_empty() && written.ingress.as_ref() == Some(known));
        self.annotations.retain(|key, value| written.annotations.get(key) != Some(value));
        self.conditions.retain(|type_, condition| written.conditions.get(type_) != Some(condition));
    }
}
