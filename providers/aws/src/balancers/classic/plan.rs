//! The next step from what AWS has to what a Service wants.
//!
//! In: [`Wanted`], [`Place`], the backends, the [`Balancer`]. Out: one [`Step`], or none if nothing is left to do. A step depends on
//! nothing but what AWS has, so that whoever begins anew after any step goes on where the last one stopped. A listener whose node
//! port or protocol changes is away for a moment, one after the other, since AWS has one for a port and changes nothing of it but
//! its certificate.

use std::collections::{BTreeMap, BTreeSet};

use super::wanted::{Health, Listener, Wanted};
use crate::balancers::behind::Backends;
use crate::balancers::names::says_whose;
use crate::balancers::service::{Texts, missing};
use crate::balancers::told::Standing;

/// The name of the policy with which nodes are told who a client is: the published provider's.
pub(super) const PROXY: &str = "k8s-proxyprotocol-enabled";

/// What AWS has for a Service.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct Balancer {
    pub name: String,
    pub dns: String,
    pub internal: bool,
    pub tags: Texts,
    pub subnets: BTreeSet<String>,
    pub groups: Vec<String>,
    pub listeners: Vec<Open>,
    /// The names of policies that its listeners and node ports may have.
    pub policies: BTreeSet<String>,
    /// The node ports with the policy [`PROXY`].
    pub proxied: BTreeSet<i32>,
    pub attributes: Texts,
    pub health: Health,
    pub instances: BTreeSet<String>,
}

impl Balancer {
    pub(in crate::balancers) fn standing(&self) -> Standing<'_> {
        Standing { id: &self.name, dns: &self.dns, serves: true, tags: &self.tags }
    }
}

/// A listener, with the names of its policies.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct Open {
    pub is: Listener,
    pub policies: Vec<String>,
}

/// What the cluster's administrator provides for a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub subnets: BTreeSet<String>,
    /// Of all subnets of the network.
    pub zones: BTreeMap<String, String>,
    pub groups: Vec<String>,
}

/// One call of AWS that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Create(Place),
    Tag(Texts),
    SetGroups(Vec<String>),
    Attach(Vec<String>),
    Detach(Vec<String>),
    CreateProxyPolicy,
    /// By AWS's name of what it stands for.
    CreateTlsPolicy(String),
    CreateListeners(Vec<Listener>),
    /// If AWS refuses the new one, the old one is made again.
    Replace {
        old: Open,
        new: Listener,
    },
    DeleteListeners(Vec<i32>),
    SetCertificate {
        port: i32,
        certificate: String,
    },
    SetTlsPolicy {
        port: i32,
        policy: String,
    },
    SetProxy {
        node_port: i32,
        on: bool,
    },
    SetAttributes(Texts),
    SetHealth(Health),
    Register(Vec<String>),
    Deregister(Vec<String>),
}

/// The name of a policy that stands for one of AWS's: the published provider's.
pub(super) fn tls_policy(policy: &str) -> String {
    format!("k8s-SSLNegotiationPolicy-{policy}")
}

/// The next step, if anything is left to do. The user's tags are none of it: there may be no room for them.
pub(super) fn next(
    wanted: &Wanted,
    place: &Place,
    backends: &Backends,
    actual: Option<&Balancer>,
) -> Option<Step> {
    let Some(balancer) = actual else { return Some(Step::Create(place.clone())) };
    let mut tags = missing(&wanted.tags, &balancer.tags);
    tags.retain(|key, _| says_whose(key));
    if !tags.is_empty() {
        return Some(Step::Tag(tags));
    }
    if place.groups.iter().collect::<BTreeSet<_>>() != balancer.groups.iter().collect() {
        return Some(Step::SetGroups(place.groups.clone()));
    }
    of_subnets(place, balancer)
        .or_else(|| of_listeners(wanted, balancer))
        .or_else(|| of_policies(wanted, balancer))
        .or_else(|| of_settings(wanted, balancer))
        .or_else(|| of_instances(balancer, backends))
        .or_else(|| what_is_left(wanted, balancer))
}

/// AWS has one subnet of each zone: what is in a new zone comes first, so that the balancer is never without any.
fn of_subnets(place: &Place, balancer: &Balancer) -> Option<Step> {
    let zone = |subnet: &&String| place.zones.get(*subnet);
    let zones: BTreeSet<_> = balancer.subnets.iter().map(|subnet| zone(&subnet)).collect();
    let new: Vec<_> = place.subnets.difference(&balancer.subnets).collect();
    let elsewhere: Vec<_> =
        new.iter().filter(|subnet| !zones.contains(&zone(subnet))).map(|one| (*one).clone()).collect();
    if !elsewhere.is_empty() {
        return Some(Step::Attach(elsewhere));
    }
    let old: Vec<_> = balancer.subnets.difference(&place.subnets).cloned().collect();
    if !old.is_empty() {
        return Some(Step::Detach(old));
    }
    (!new.is_empty()).then(|| Step::Attach(new.into_iter().cloned().collect()))
}

fn of_listeners(wanted: &Wanted, balancer: &Balancer) -> Option<Step> {
    let mut new = Vec::new();
    for listener in &wanted.listeners {
        let Some(open) = balancer.listeners.iter().find(|open| open.is.port == listener.port) else {
            new.push(listener.clone());
            continue;
        };
        let (port, certificate) = (listener.port, listener.certificate.clone());
        let has_another_certificate = !open.is.certificate.eq_ignore_ascii_case(&certificate);
        let both_have_one = !open.is.certificate.is_empty() && !certificate.is_empty();
        let same_but_for_it = Listener { certificate: open.is.certificate.clone(), ..listener.clone() };
        if open.is != same_but_for_it || has_another_certificate && !both_have_one {
            return Some(Step::Replace { old: open.clone(), new: listener.clone() });
        }
        if has_another_certificate {
            return Some(Step::SetCertificate { port, certificate });
        }
    }
    (!new.is_empty()).then_some(Step::CreateListeners(new))
}

fn of_policies(wanted: &Wanted, balancer: &Balancer) -> Option<Step> {
    if wanted.proxy && !balancer.policies.contains(PROXY) {
        return Some(Step::CreateProxyPolicy);
    }
    let node_ports: BTreeSet<_> = wanted.listeners.iter().map(|one| one.node_port).collect();
    let wants_it = |node_port: &i32| wanted.proxy && node_ports.contains(node_port);
    let mut all = node_ports.union(&balancer.proxied);
    if let Some(node_port) = all.find(|port| wants_it(port) != balancer.proxied.contains(port)) {
        return Some(Step::SetProxy { node_port: *node_port, on: wants_it(node_port) });
    }
    // Without a policy of the user's, what is there stays.
    if wanted.tls_policy.is_empty() {
        return None;
    }
    let name = tls_policy(&wanted.tls_policy);
    let lacks_it = |open: &&Open| !open.is.certificate.is_empty() && open.policies != [name.clone()];
    let open = balancer.listeners.iter().find(lacks_it)?;
    let policy = wanted.tls_policy.clone();
    Some(match balancer.policies.contains(&name) {
        false => Step::CreateTlsPolicy(policy),
        true => Step::SetTlsPolicy { port: open.is.port, policy },
    })
}

fn of_settings(wanted: &Wanted, balancer: &Balancer) -> Option<Step> {
    // AWS takes all of a group of attributes at once.
    if !missing(&wanted.attributes, &balancer.attributes).is_empty() {
        return Some(Step::SetAttributes(wanted.attributes.clone()));
    }
    (wanted.health != balancer.health).then(|| Step::SetHealth(wanted.health.clone()))
}

/// The next step for the instances.
pub(super) fn of_instances(balancer: &Balancer, backends: &Backends) -> Option<Step> {
    let joining: Vec<_> = backends.joining(&balancer.instances).collect();
    if !joining.is_empty() {
        return Some(Step::Register(joining));
    }
    let leaving: Vec<_> = backends.leaving(&balancer.instances).collect();
    (!leaving.is_empty()).then_some(Step::Deregister(leaving))
}

fn what_is_left(wanted: &Wanted, balancer: &Balancer) -> Option<Step> {
    let is_wanted = |open: &&Open| wanted.listeners.iter().any(|one| one.port == open.is.port);
    let left: Vec<_> =
        balancer.listeners.iter().filter(|open| !is_wanted(open)).map(|open| open.is.port).collect();
    (!left.is_empty()).then_some(Step::DeleteListeners(left))
}

/// What AWS has once it has taken a step.
pub(super) fn after(actual: &mut Option<Balancer>, step: &Step, wanted: &Wanted, dns: &str) {
    if let Step::Create(place) = step {
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let flags =
            ["access_log.enabled", "cross_zone.enabled", "draining.enabled"].map(|key| (key, "false"));
        *actual = Some(Balancer {
            name: wanted.name.clone(),
            dns: dns.to_owned(),
            internal: wanted.internal,
            tags: wanted.tags.clone(),
            subnets: place.subnets.clone(),
            groups: place.groups.clone(),
            listeners: wanted.listeners.iter().map(Open::new).collect(),
            attributes: flags.into_iter().chain([("idle_timeout", "60")]).map(text).collect(),
            ..Balancer::default()
        });
    }
    if let Some(balancer) = actual {
        balancer.after(step);
    }
}

impl Open {
    fn new(is: &Listener) -> Self {
        Self { is: is.clone(), policies: Vec::new() }
    }
}

impl Balancer {
    pub(super) fn after(&mut self, step: &Step) {
        match step {
            Step::Create(_) => {}
            Step::Tag(tags) => self.tags.extend(tags.clone()),
            Step::SetGroups(groups) => self.groups.clone_from(groups),
            Step::Attach(subnets) => self.subnets.extend(subnets.iter().cloned()),
            Step::Detach(subnets) => self.subnets.retain(|one| !subnets.contains(one)),
            Step::CreateProxyPolicy => drop(self.policies.insert(PROXY.to_owned())),
            Step::CreateTlsPolicy(policy) => drop(self.policies.insert(tls_policy(policy))),
            Step::CreateListeners(new) => self.listeners.extend(new.iter().map(Open::new)),
            Step::Replace { new, .. } => {
                self.change(new.port, |open| *open = Open::new(new));
            }
            Step::DeleteListeners(ports) => self.listeners.retain(|open| !ports.contains(&open.is.port)),
            Step::SetCertificate { port, certificate } => {
                self.change(*port, |open| open.is.certificate.clone_from(certificate));
            }
            Step::SetTlsPolicy { port, policy } => {
                self.change(*port, |open| open.policies = vec![tls_policy(policy)]);
            }
            Step::SetProxy { node_port, on: true } => drop(self.proxied.insert(*node_port)),
            Step::SetProxy { node_port, on: false } => drop(self.proxied.remove(node_port)),
            Step::SetAttributes(attributes) => self.attributes.extend(attributes.clone()),
            Step::SetHealth(health) => self.health = health.clone(),
            Step::Register(ids) => self.instances.extend(ids.iter().cloned()),
            Step::Deregister(ids) => self.instances.retain(|one| !ids.contains(one)),
        }
    }

    fn change(&mut self, port: i32, change: impl Fn(&mut Open)) {
        self.listeners.iter_mut().filter(|open| open.is.port == port).for_each(change);
    }
}

#[cfg(test)]
mod tests;
