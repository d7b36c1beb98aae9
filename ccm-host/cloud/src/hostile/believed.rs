//! What holds for every answer that was checked, whatever the provider said.
//!
//! In: an answer as controllers read it. Out: a panic that says what should not have been believed.

use std::{net::IpAddr, time::Duration};

use crate::{
    AddressType, CloudError, Ensured, InProgress, Instance, InstanceAddress, InstanceAnswer, LoadBalancer,
    ProviderEvent, Route,
};
use ccm_kube::EventType;

/// Where the answer is from, for the panic.
#[derive(Clone, Copy)]
pub(crate) struct Believed(pub(crate) u64);

impl Believed {
    pub(crate) fn that(&self, holds: bool, what: &str) {
        assert!(holds, "believed: {what} (HOSTILE_SEED={})", self.0);
    }

    pub(crate) fn error(&self, error: &CloudError) {
        self.that(error.message.len() < 4096, "a message of any length");
        self.retry(error.retry_after);
    }

    pub(crate) fn retry(&self, after: Option<Duration>) {
        let bounds = Duration::from_nanos(1)..=Duration::from_secs(3600);
        self.that(after.is_none_or(|after| bounds.contains(&after)), "a time to try again");
    }

    pub(crate) fn effects(&self, events: &[ProviderEvent], in_progress: Option<&InProgress>) {
        self.that(events.len() <= 8, "many Events");
        for ProviderEvent { kind, reason, message } in events {
            self.that(matches!(kind, EventType::Normal | EventType::Warning), "an Event");
            let camel = reason.starts_with(|c: char| c.is_ascii_uppercase());
            self.that(
                camel && reason.len() <= 63 && reason.chars().all(|c| c.is_ascii_alphanumeric()),
                "a reason",
            );
            self.that(!message.is_empty() && message.len() <= 1024, "a message");
        }
        if let Some(progress) = in_progress {
            self.retry(Some(progress.retry_after));
            self.that(progress.retry_after >= Duration::from_millis(100), "a busy loop");
        }
    }

    pub(crate) fn instance(&self, answer: &InstanceAnswer) {
        self.that(!answer.authoritative || answer.observed_at.is_some(), "evidence that nobody saw");
        self.effects(&answer.events, None);
        if let Some(error) = &answer.error {
            self.error(error);
        }
        let Some(Instance {
            provider_id,
            addresses,
            labels,
            zone,
            region,
            instance_type,
            pod_cidrs,
            annotations,
            annotation_prefixes,
            rejected,
            ..
        }) = &answer.instance
        else {
            return;
        };
        self.that(!provider_id.is_empty() && provider_id.len() <= 1024, "a provider ID");
        self.rejected(rejected);
        addresses.iter().for_each(|address| self.address(address));
        let mut seen = addresses.clone();
        seen.sort_by(|a, b| (a.kind, &a.address).cmp(&(b.kind, &b.address)));
        seen.dedup();
        self.that(seen.len() == addresses.len(), "an address twice");
        for key in labels.keys() {
            let name = key.rsplit('/').next().unwrap_or_default();
            self.that(!name.is_empty() && name.len() <= 63 && key.len() <= 317, "a label key");
            self.that(
                !key.starts_with("kubernetes.io/") && !key.starts_with("node-role.kubernetes.io/"),
                "a reserved label",
            );
        }
        for value in labels.values().chain([zone, region, instance_type].into_iter().flatten()) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            self.that(value.len() <= 63 && value.chars().all(plain), "a label value");
        }
        let is_under = |key: &String| annotation_prefixes.iter().any(|prefix| key.starts_with(prefix));
        self.that(annotations.keys().all(is_under), "an annotation of others");
        self.that(pod_cidrs.len() <= 2 && pod_cidrs.iter().all(|cidr| cidr.trunc() == *cidr), "pod CIDRs");
    }

    pub(crate) fn address(&self, InstanceAddress { kind, address }: &InstanceAddress) {
        self.that(!address.is_empty() && address.len() <= 253, "an address of any length");
        if matches!(kind, AddressType::InternalIp | AddressType::ExternalIp) {
            self.that(address.parse::<IpAddr>().is_ok(), "an address that is none");
        }
    }

    pub(crate) fn rejected(&self, sentences: &[String]) {
        self.that(sentences.len() <= 32 && sentences.iter().all(|one| one.len() <= 512), "a long story");
    }

    pub(crate) fn balancer(&self, balancer: &LoadBalancer) {
        self.rejected(&balancer.rejected);
        for ingress in &balancer.ingress {
            self.that(!ingress.ip.is_empty() || !ingress.hostname.is_empty(), "a way in that leads nowhere");
            self.that(ingress.ip_mode.is_none() || !ingress.ip.is_empty(), "the mode of no address");
            self.that(ingress.ports.iter().all(|port| port.port > 0), "port 0");
        }
        let digest = balancer.applied_digest.as_deref();
        self.that(digest.is_none_or(|digest| !digest.is_empty() && digest.len() <= 128), "a digest");
        self.that(balancer.ingress.len() <= 256, "many ways in");
    }

    pub(crate) fn route(&self, route: &Route) {
        self.that(!route.id.is_empty() && route.id.len() <= 1024, "the id of a route");
        self.that(route.destination.trunc() == route.destination, "a destination that is no network");
    }

    pub(crate) fn ensured(&self, answer: &Ensured) {
        self.balancer(&answer.load_balancer);
        self.effects(&answer.effects.events, answer.in_progress.as_ref());
        let mut keys = answer.effects.annotations.keys();
        self.that(keys.all(|key| key.len() < 400 && !key.contains(' ')), "an annotation");
    }
}
