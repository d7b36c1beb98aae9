//! What the contract is told of a balancer, and the tags in which AWS keeps what it has to know for that: whose it is, what is
//! applied.

use cloudprovider_sdk::proto::{LoadBalancer, LoadBalancerIngress, LoadBalancerState, Ownership, ServiceRef};

use super::names;
use super::service::Texts;
use crate::cloud::{Cloud, Owner};
use crate::config::Config;

/// A balancer of either kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    pub id: &'a str,
    pub dns: &'a str,
    pub serves: bool,
    pub tags: &'a Texts,
}

impl Standing<'_> {
    pub(super) fn told(&self, service: &ServiceRef, ownership: Ownership, digests: &Digests) -> LoadBalancer {
        let state = if self.serves { LoadBalancerState::Active } else { LoadBalancerState::Pending };
        let hostname = self.dns.to_owned();
        let ingress = LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() };
        LoadBalancer {
            service: Some(service.clone()),
            id: self.id.to_owned(),
            name: names::balancer(&service.uid),
            state: state.into(),
            ingress: if self.dns.is_empty() { Vec::new() } else { vec![ingress] },
            applied_digest: digests.of(self.tags),
            ownership: ownership.into(),
            ..LoadBalancer::default()
        }
    }

    /// As one of the list of a cluster's balancers, if it has this name and is the cluster's.
    pub(super) fn listed(&self, name: &str, cluster_uid: &str, digests: &Digests) -> Option<LoadBalancer> {
        let (owner, uid) = self.tags.get(names::OWNER_TAG)?.split_once('/')?;
        let (namespace, of_namespace) = self.tags.get(names::SERVICE_TAG)?.split_once('/')?;
        let service = ServiceRef {
            namespace: namespace.to_owned(),
            name: of_namespace.to_owned(),
            uid: uid.to_owned(),
        };
        let is_ours = owner == cluster_uid && names::balancer(uid) == name;
        is_ours.then(|| self.told(&service, Ownership::ByUid, digests))
    }
}

/// Whose a balancer or a target group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The Service's, made or taken over by this provider.
    Ours,
    /// The Service's by its name and the cluster's tags: the published provider made it.
    Legacy,
    Others,
}

/// Whose something with these tags is, if its name is the Service's.
pub(super) fn whose(cloud: &Cloud, cluster_uid: &str, service: &ServiceRef, tags: &Texts) -> Whose {
    match tags.get(names::OWNER_TAG) {
        Some(owner) if *owner == names::owner(cluster_uid, service) => return Whose::Ours,
        Some(_) => return Whose::Others,
        None => {}
    }
    let of_cluster = cloud.cluster.owner_by(tags.iter().map(|(key, value)| (&**key, &**value))) == Owner::Us;
    if of_cluster && tags.get(names::SERVICE_TAG) == Some(&names::service(service)) {
        Whose::Legacy
    } else {
        Whose::Others
    }
}

pub(super) fn absent(service: &ServiceRef, state: LoadBalancerState) -> LoadBalancer {
    LoadBalancer { service: Some(service.clone()), state: state.into(), ..LoadBalancer::default() }
}

/// What is applied, as AWS keeps it: together with the settings of this provider. Under others a Service comes to another balancer.
/// So the digest is told with settings that are not today's, as nobody wants it, and the host ensures the Service anew; without any
/// digest the host would go by what it remembers.
#[derive(Debug)]
pub(super) struct Digests {
    settings: String,
}

impl Digests {
    pub(super) fn under(config: &Config, shared_rule: bool) -> Self {
        let Config { health, shared_group, closed_groups, subnet, .. } = config;
        let have_groups = config.balancers_have_groups();
        let settings = (health, have_groups, shared_group, closed_groups, subnet, shared_rule);
        Self { settings: names::short_hash(&format!("{settings:?}")) }
    }

    /// Empty: that not everything is applied.
    pub(super) fn tags(&self, digest: &str) -> Texts {
        let (mut applied, backends) = names::split(digest);
        if !applied.is_empty() {
            applied = format!("{}:{applied}", self.settings);
        }
        [(names::APPLIED_TAG.to_owned(), applied), (names::BACKENDS_TAG.to_owned(), backends)].into()
    }

    /// Empty: unknown.
    pub(super) fn of(&self, tags: &Texts) -> String {
        let of = |key| tags.get(key).map(String::as_str).unwrap_or_default();
        let applied = self.under_these(tags).unwrap_or(of(names::APPLIED_TAG));
        names::joined(applied, of(names::BACKENDS_TAG))
    }

    /// Whether it was applied under these settings.
    pub(super) fn are_of(&self, tags: &Texts) -> bool {
        self.under_these(tags).is_some()
    }

    fn under_these<'a>(&self, tags: &'a Texts) -> Option<&'a str> {
        let (settings, applied) = tags.get(names::APPLIED_TAG)?.split_once(':')?;
        (settings == self.settings).then_some(applied)
    }
}

/// Whether a digest tells of everything about the balancer, as it does not while a change is half made.
pub(super) fn is_whole(tags: &Texts) -> bool {
    tags.get(names::APPLIED_TAG).is_some_and(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_counts_only_under_the_settings_with_which_it_was_applied() {
        let under =
            |setting: &str| Digests::under(&Config::read(&format!("[Global]\n{setting}")).unwrap(), false);
        let plain = under("");
        for digest in ["class-service-nodes", "x", "a:b"] {
            assert_eq!(plain.of(&plain.tags(digest)), digest);
        }
        assert!(is_whole(&plain.tags("x")) && !is_whole(&plain.tags("")));
        for other in [
            "ElbSecurityGroup = sg-1",
            "NLBSecurityGroupMode = Managed",
            "ClusterServiceLoadBalancerHealthProbeMode = Shared",
            "DisableSecurityGroupIngress",
        ] {
            let (other, tags) = (under(other), plain.tags("x"));
            assert!(!other.are_of(&tags) && other.of(&tags).ends_with(":x"), "{other:?}");
        }
        assert_eq!(
            under("Zone = us-east-1a").of(&plain.tags("x")),
            "x",
            "what is no balancer's does not matter"
        );
    }
}
