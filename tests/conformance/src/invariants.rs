//! What no answer may break, whatever the case is about: looked at in every answer of a run.
//!
//! In: the answers, as they come. Out: the first that broke something, for the case that called.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use cloudprovider_proto::v1alpha1::{
    BatchGetInstancesResponse, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerResponse,
    EnsureLoadBalancerResponse, GetLoadBalancerResponse, Instance, ListInstancesResponse,
    ListLoadBalancersResponse, LoadBalancer, LoadBalancerState, NodeAddressType, ServiceWrites,
};
use prost::Message;
use tonic::Status;

use crate::{
    case::{Outcome, Stop},
    provider::Provider,
    trial::{expect, under, well_formed},
};

type Check<T> = fn(&Provider, &T) -> Outcome;

/// What holds for every description of an instance, by rule.
pub(crate) const OF_INSTANCES: &[(&str, Check<Instance>)] = &[
    ("provider-id-prefix", prefix),
    ("address-valid", addresses),
    ("address-unique", unique_addresses),
    ("label-valid", labels),
    ("label-reserved", reserved),
    ("annotation-prefix", |provider, instance| {
        let prefixes = provider.wants().node_annotation_writes;
        instance.annotations.keys().try_for_each(|key| under(&prefixes, key))
    }),
];

/// What holds for every description of a balancer, by rule.
pub(crate) const OF_BALANCERS: &[(&str, Check<LoadBalancer>)] = &[
    ("ingress-valid", |_, balancer| valid_ways(balancer)),
    ("ingress-required", |_, balancer| {
        let serves = balancer.state() == LoadBalancerState::Active;
        expect(!serves || !balancer.ingress.is_empty(), "a way into an ACTIVE balancer", balancer)
    }),
];

/// Looks at all answers of one run.
#[derive(Debug)]
pub struct Invariants {
    provider: Provider,
    secrets: Vec<String>,
    /// The first answer since the last look that broke one.
    broken: Mutex<Option<Stop>>,
}

impl Invariants {
    /// Of this provider's answers; none of them may tell these secrets.
    pub fn new(provider: Provider, secrets: Vec<String>) -> Self {
        Self { provider, secrets, broken: Mutex::default() }
    }

    /// What was broken since this was last called.
    pub fn take(&self) -> Option<Stop> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Looks at an answer: a message, or a status with its details.
    pub(crate) fn look(&self, path: &str, answer: Result<&[u8], &Status>) {
        let rpc = path.rsplit('/').next().unwrap_or_default();
        let kept = match answer {
            Ok(message) => self.tells_none(message).and_then(|()| self.message(rpc, message)),
            Err(status) => well_formed(status, &self.secrets).map_err(|stop| ("error-info", stop)),
        };
        if let Err((rule, Stop::Failed { expected, seen })) = kept {
            let expected = format!("in every answer, so in this of {rpc} [R:{rule}]: {expected}");
            let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
            broken.get_or_insert(Stop::Failed { expected, seen });
        }
    }

    /// Only known secrets: a message is no text.
    fn tells_none(&self, message: &[u8]) -> Result<(), (&'static str, Stop)> {
        let is_in = |secret: &String| {
            !secret.is_empty() && message.windows(secret.len()).any(|part| part == secret.as_bytes())
        };
        let outcome = expect(!self.secrets.iter().any(is_in), "no secret", "a secret of the scenario");
        outcome.map_err(|stop| ("error-no-secret", stop))
    }

    fn message(&self, rpc: &str, message: &[u8]) -> Result<(), (&'static str, Stop)> {
        match rpc {
            "BatchGetInstances" => {
                let results = read::<BatchGetInstancesResponse>(message).results;
                self.all(OF_INSTANCES, results.into_iter().filter_map(|result| result.instance))
            }
            "ListInstances" => {
                let listed = read::<ListInstancesResponse>(message).instances;
                self.all(OF_INSTANCES, listed.into_iter().filter_map(|listed| listed.instance))
            }
            "GetLoadBalancer" => {
                self.all(OF_BALANCERS, read::<GetLoadBalancerResponse>(message).load_balancer)
            }
            "ListLoadBalancers" => {
                self.all(OF_BALANCERS, read::<ListLoadBalancersResponse>(message).load_balancers)
            }
            "EnsureLoadBalancer" => {
                let EnsureLoadBalancerResponse { load_balancer, service, .. } = read(message);
                self.all(OF_BALANCERS, load_balancer)?;
                self.all(OF_WRITES, service)
            }
            "BatchUpdateLoadBalancers" => {
                let results = read::<BatchUpdateLoadBalancersResponse>(message).results;
                self.all(OF_WRITES, results.into_iter().filter_map(|result| result.service))
            }
            "DeleteLoadBalancer" => self.all(OF_WRITES, read::<DeleteLoadBalancerResponse>(message).service),
            _ => Ok(()),
        }
    }

    fn all<T>(
        &self,
        checks: &[(&'static str, Check<T>)],
        parts: impl IntoIterator<Item = T>,
    ) -> Result<(), (&'static str, Stop)> {
        for part in parts {
            for (rule, check) in checks {
                check(&self.provider, &part).map_err(|stop| (*rule, stop))?;
            }
        }
        Ok(())
    }
}

/// What cannot be read is for the client to report.
fn read<T: Message + Default>(message: &[u8]) -> T {
    T::decode(message).unwrap_or_default()
}

/// What an answer may write on a Service.
pub(crate) const OF_WRITES: &[(&str, Check<ServiceWrites>)] = &[("annotation-prefix", |provider, writes| {
    let wants = provider.wants();
    for key in writes.annotations.keys().chain(&writes.removed_annotations) {
        under(&wants.service_annotation_writes, key)?;
    }
    let types = &wants.service_condition_writes;
    let foreign = writes.conditions.iter().find(|condition| !types.contains(&condition.r#type));
    expect(foreign.is_none(), format!("conditions of the types {types:?} alone"), foreign)
})];

fn prefix(provider: &Provider, instance: &Instance) -> Outcome {
    let (id, prefixes) = (&instance.provider_id, &provider.info.provider_id_prefixes);
    let begins = prefixes.iter().any(|prefix| !prefix.is_empty() && id.starts_with(prefix));
    expect(begins, format!("a provider ID that begins with one of {prefixes:?}"), id)?;
    expect(id.len() <= 1 << 10, "a provider ID of at most 1 KiB", id.len())
}

fn addresses(_: &Provider, instance: &Instance) -> Outcome {
    for address in &instance.addresses {
        let is_ip = address.address.parse::<IpAddr>().is_ok();
        let fits = match address.r#type() {
            NodeAddressType::Unspecified => false,
            NodeAddressType::InternalIp | NodeAddressType::ExternalIp => is_ip,
            _ => !address.address.is_empty() && address.address.len() <= 253,
        };
        expect(fits, "a type, and an IP where the type is of IPs", address)?;
    }
    Ok(())
}

fn unique_addresses(_: &Provider, instance: &Instance) -> Outcome {
    let addresses = &instance.addresses;
    let distinct: BTreeSet<_> = addresses.iter().map(|address| (address.r#type, &address.address)).collect();
    expect(distinct.len() == addresses.len(), "no pair of type and address twice", addresses)
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().copied().all(inner) && ends(bytes.first()) && ends(bytes.last())
}

/// A valid label value may be empty.
fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name(text),
        Some((domain, name)) => {
            let label = |label: &str| is_name(label) && !label.contains('_');
            domain.len() <= 253 && domain.split('.').all(label) && is_name(name)
        }
    }
}

fn labels(_: &Provider, instance: &Instance) -> Outcome {
    for (what, value) in
        [("type", &instance.instance_type), ("zone", &instance.zone), ("region", &instance.region)]
    {
        expect(is_value(value), format!("{what}: a valid label value"), value)?;
    }
    for (key, value) in &instance.labels {
        expect(is_key(key) && is_value(value), "a valid label", format!("{key}={value}"))?;
    }
    Ok(())
}

fn reserved(_: &Provider, instance: &Instance) -> Outcome {
    for key in instance.labels.keys() {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |owner: &str| domain == owner || domain.ends_with(&format!(".{owner}"));
        let is_ours = within("kubernetes.io") || within("k8s.io");
        expect(!is_ours, "no label within kubernetes.io or k8s.io", key)?;
    }
    Ok(())
}

/// Each ingress is an IP or a host name.
pub(crate) fn valid_ways(balancer: &LoadBalancer) -> Outcome {
    for way in &balancer.ingress {
        let ip = way.ip.is_empty() || way.ip.parse::<IpAddr>().is_ok();
        let one = !(way.ip.is_empty() && way.hostname.is_empty());
        expect(ip && one, "an IP in text form, or a hostname", way)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_an_answer_is_seen() {
        let invariants = Invariants::new(Provider::default(), vec![String::new(), "hunter2".to_owned()]);
        invariants.look("/x/GetStatus", Ok(b"\x0a\x07nothing"));
        assert_eq!(invariants.take(), None);
        invariants.look("/x/GetStatus", Ok(b"\x0a\x0bhe hunter2 x"));
        let Some(Stop::Failed { expected, .. }) = invariants.take() else { panic!("it is not seen") };
        assert!(expected.contains("[R:error-no-secret]"), "{expected}");
    }
}
