//! What the contract is told of a balancer, and the tags in which AWS keeps what it has to know for that: whose it is, what is
//! applied.

use cloudprovider_sdk::CallContext;
use cloudprovider_sdk::proto::{LoadBalancer, LoadBalancerIngress, LoadBalancerState, Ownership, ServiceRef};

use super::names;
use super::service::{Texts, missing};
use crate::api::{Deadline, Failure, Stop};
use crate::cloud::{Cloud, Owner};

/// A balancer of either kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    pub id: &'a str,
    pub dns: &'a str,
    pub serves: bool,
    pub tags: &'a Texts,
}

impl Standing<'_> {
    pub(super) fn told(&self, service: &ServiceRef, ownership: Ownership) -> LoadBalancer {
        let state = if self.serves { LoadBalancerState::Active } else { LoadBalancerState::Pending };
        let hostname = self.dns.to_owned();
        let ingress = LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() };
        LoadBalancer {
            service: Some(service.clone()),
            id: self.id.to_owned(),
            name: names::balancer(&service.uid),
            state: state.into(),
            ingress: if self.dns.is_empty() { Vec::new() } else { vec![ingress] },
            applied_digest: digest_of(self.tags),
            ownership: ownership.into(),
            ..LoadBalancer::default()
        }
    }

    /// As one of the list of a cluster's balancers, if it has this name and is the cluster's.
    pub(super) fn listed(&self, name: &str, cluster_uid: &str) -> Option<LoadBalancer> {
        let (owner, uid) = self.tags.get(names::OWNER_TAG)?.split_once('/')?;
        let (namespace, of_namespace) = self.tags.get(names::SERVICE_TAG)?.split_once('/')?;
        let service = ServiceRef {
            namespace: namespace.to_owned(),
            name: of_namespace.to_owned(),
            uid: uid.to_owned(),
        };
        let is_ours = owner == cluster_uid && names::balancer(uid) == name;
        is_ours.then(|| self.told(&service, Ownership::ByUid))
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

/// Whether these are the cluster's tags.
pub(super) fn is_of_cluster(cloud: &Cloud, tags: &Texts) -> bool {
    cloud.cluster.owner_by(tags.iter().map(|(key, value)| (&**key, &**value))) == Owner::Us
}

/// Whose something with these tags is, if its name is the Service's.
pub(super) fn whose(cloud: &Cloud, cluster_uid: &str, service: &ServiceRef, tags: &Texts) -> Whose {
    match tags.get(names::OWNER_TAG) {
        Some(owner) if *owner == names::owner(cluster_uid, service) => return Whose::Ours,
        Some(_) => return Whose::Others,
        None => {}
    }
    if is_of_cluster(cloud, tags) && tags.get(names::SERVICE_TAG) == Some(&names::service(service)) {
        Whose::Legacy
    } else {
        Whose::Others
    }
}

pub(super) fn absent(service: &ServiceRef, state: LoadBalancerState) -> LoadBalancer {
    LoadBalancer { service: Some(service.clone()), state: state.into(), ..LoadBalancer::default() }
}

/// What is applied, as AWS keeps it. Empty: that not everything is.
pub(super) fn digest_tags(digest: &str) -> Texts {
    let (applied, backends) = names::split(digest);
    [(names::APPLIED_TAG.to_owned(), applied), (names::BACKENDS_TAG.to_owned(), backends)].into()
}

/// What these tags say is applied. Empty: unknown.
pub(super) fn digest_of(tags: &Texts) -> String {
    let of = |key| tags.get(key).map(String::as_str).unwrap_or_default();
    names::joined(of(names::APPLIED_TAG), of(names::BACKENDS_TAG))
}

/// A balancer whose tags AWS keeps.
pub(super) trait Tagged {
    fn tags(&mut self) -> &mut Texts;
    fn tag(
        &self,
        cloud: &Cloud,
        new: &Texts,
        until: Deadline,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Where and how long tags are set.
pub(super) type On<'a> = (&'a Cloud, &'a CallContext, Deadline);

/// Gives a balancer those of these tags that it lacks.
pub(super) async fn tag(
    (cloud, ctx, until): On<'_>,
    balancer: &mut impl Tagged,
    wanted: &Texts,
) -> Result<(), Stop> {
    let new = missing(wanted, balancer.tags());
    if !new.is_empty() {
        Stop::if_cancelled(ctx)?;
        Box::pin(balancer.tag(cloud, &new, until)).await?;
        balancer.tags().extend(new);
    }
    Ok(())
}

/// Before what is applied changes, the tags of a balancer tell of nothing any more: half a change must not pass for what was applied
/// before, should the Service be changed back.
pub(super) async fn blank(on: On<'_>, balancer: &mut impl Tagged) -> Result<(), Stop> {
    if is_whole(balancer.tags()) {
        tag(on, balancer, &digest_tags("")).await?;
    }
    Ok(())
}

/// Gives a balancer the user's tags, too, which are no step of a plan: there may be no room for them.
pub(super) async fn tag_for_user(on: On<'_>, balancer: &mut impl Tagged, wanted: &Texts) -> Result<(), Stop> {
    if !missing(wanted, balancer.tags()).is_empty() {
        blank(on, balancer).await?;
    }
    tag(on, balancer, wanted).await
}

/// Whether a digest tells of everything about the balancer, as it does not while a change is half made.
pub(super) fn is_whole(tags: &Texts) -> bool {
    tags.get(names::APPLIED_TAG).is_some_and(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_told_as_it_was_kept() {
        for digest in ["class-service-nodes", "x", "a:b"] {
            assert_eq!(digest_of(&digest_tags(digest)), digest);
        }
        assert!(is_whole(&digest_tags("x")) && !is_whole(&digest_tags("")));
    }
}
