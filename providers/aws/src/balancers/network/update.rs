//! Nodes that come and go, for many balancers at once.
//!
//! In: the new nodes, and the Services that have them. Out: one result for each. Only targets and the nodes' rules change, as
//! what AWS has asks for: an edit of the Service that failed does not matter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cloudprovider_sdk::proto::{ClusterRef, LoadBalancerUpdate, NodeRef, ServiceRef};
use cloudprovider_sdk::{CallContext, ProviderError};
use futures::StreamExt as _;

use super::guard::{close, open};
use super::plan::Balancer;
use super::wanted::{hides, source_ranges};
use super::work::Work;
use super::{Known, apply, read};
use crate::api::{Deadline, Failure, Stop};
use crate::balancers::behind::Behind;
use crate::balancers::service::{EVERYWHERE, Texts, missing, node_labels};
use crate::balancers::told::{Whose, digest_tags, is_whole, whose};
use crate::balancers::{
    AT_ONCE, Balancers, Nodes, Outcome, TAGGED, common_group, names, reference, rules, service_of, subnets,
    uid_of,
};

/// The backends of one call.
struct Call<'a> {
    of: &'a Balancers,
    ctx: &'a CallContext,
    cluster: &'a ClusterRef,
    nodes: &'a [&'a NodeRef],
    hosts: &'a Arc<Nodes>,
    there: There,
    /// The security group that network balancers have in common.
    common: Option<String>,
    until: Deadline,
}

/// What AWS has for the Services of which this process knows nothing yet.
#[derive(Default)]
struct There {
    balancers: HashMap<String, Balancer>,
    groups: Option<read::AllGroups>,
}

impl There {
    async fn read(of: &Balancers, items: &[LoadBalancerUpdate], until: Deadline) -> Result<Self, Failure> {
        let services = items.iter().filter_map(|item| item.service.as_ref()?.r#ref.as_ref());
        let unknown: BTreeSet<_> = {
            let known = of.network.known.lock();
            let unknown = services.filter(|service| !known.contains_key(&service.uid));
            unknown.map(|service| names::balancer(&service.uid)).collect()
        };
        if unknown.is_empty() {
            return Ok(Self::default());
        }
        let balancers = read::balancers(&of.cloud, &unknown, until).await?;
        let groups =
            if balancers.is_empty() { None } else { Some(read::all_groups(&of.cloud, until).await?) };
        Ok(Self { balancers, groups })
    }
}

/// A balancer with its new backends, and the tags that have to tell of them.
struct Filled {
    service_uid: String,
    arn: String,
    tags: Texts,
}

/// Gives the balancers of these Services the nodes of a call.
pub(in crate::balancers) async fn all(
    of: &Balancers,
    (ctx, cluster): (&CallContext, &ClusterRef),
    items: &[LoadBalancerUpdate],
    (nodes, hosts): (&[&NodeRef], &Arc<Nodes>),
    until: Deadline,
) -> Result<Vec<Outcome>, Failure> {
    let there = There::read(of, items, until).await?;
    let common = match of.shared_rule && !items.is_empty() {
        true => common_group::find(of, until).await?.map(|group| group.id),
        false => None,
    };
    let call = Call { of, ctx, cluster, nodes, hosts, there, common, until };
    Ok(call.all(items).await)
}

impl Call<'_> {
    async fn all(&self, items: &[LoadBalancerUpdate]) -> Vec<Outcome> {
        let mut updates = Vec::new();
        for item in items {
            updates.push(async move { (uid_of(item), self.one(item).await) });
        }
        let mut done = futures::stream::iter(updates).buffer_unordered(AT_ONCE);
        let (mut results, mut by_tags) = (Vec::new(), BTreeMap::<Texts, Vec<Filled>>::new());
        while let Some((service_uid, outcome)) = done.next().await {
            match outcome {
                Ok(Some(one)) => by_tags.entry(one.tags.clone()).or_default().push(one),
                Ok(None) => results.push((service_uid, Ok(()))),
                Err(stop) => results.push((service_uid, Err(stop))),
            }
        }
        for (tags, balancers) in by_tags {
            for balancers in balancers.chunks(TAGGED) {
                results.extend(self.tag(&tags, balancers).await);
            }
        }
        results
    }

    /// `None`: nothing is left to do, not even a tag.
    async fn one(&self, item: &LoadBalancerUpdate) -> Result<Option<Filled>, Stop> {
        let (of, until) = (self.of, self.until);
        let (service, digest) = (service_of(item)?, &item.desired_digest);
        let reference = reference(service)?;
        let labels = node_labels(service);
        of.check_labels(&labels)?;
        // Whoever ends early, or is cancelled, leaves nothing known.
        let known = of.network.known.lock().remove(&reference.uid);
        let mut known = match known {
            Some(known) => known,
            None => self.read(reference).await?,
        };
        let behind = Behind::among(of, self.nodes, &labels, self.hosts, until);
        let mut work = Work { of, ctx: self.ctx, behind };
        let name = names::balancer(&reference.uid);
        let seen = work.behind.security_groups();
        let mut opened = Ok(None);
        if seen != known.seen
            && let Ok(clients) = source_ranges(service)
        {
            let mut claim = self.claim(name, &known, &clients).await?;
            let common = self.common_of(&known);
            opened =
                open(of, &mut claim, common, &work.behind, until).await.map(|opened| Some((claim, opened)));
        }
        for group in &mut known.groups {
            work.fill(group).await?;
        }
        if let Some((claim, opened)) = opened? {
            if opened.granted.is_more {
                close(of, (&claim, reference), &opened.nodes, until).await?;
            }
            opened.outcome?;
            known.seen = seen;
        }
        work.behind.room()?;
        let waits = work.behind.waits(known.groups.iter().map(|group| &group.targets));
        let tags = &known.balancer.tags;
        // Of half a change no digest tells: only Ensure ends that.
        let new = if is_whole(tags) { missing(&digest_tags(digest), tags) } else { Texts::new() };
        let arn = known.balancer.arn.clone();
        Stop::if_cancelled(self.ctx)?;
        of.network.known.lock().insert(reference.uid.clone(), known);
        if let Some(waits) = waits {
            return Err(Stop::Later(waits));
        }
        Ok((!new.is_empty()).then(|| Filled { service_uid: reference.uid.clone(), arn, tags: new }))
    }

    /// What AWS has for a Service of which this process knows nothing yet.
    async fn read(&self, service: &ServiceRef) -> Result<Known, Stop> {
        let (cloud, cluster, until) = (&self.of.cloud, &self.cluster.uid, self.until);
        let needs_ensure = || Stop::Failed(ProviderError::needs_ensure(&service.name));
        let is_ours = |one: &&Balancer| whose(cloud, cluster, service, &one.tags) == Whose::Ours;
        let found = self.there.balancers.get(&names::balancer(&service.uid)).filter(is_ours);
        let balancer = found.ok_or_else(needs_ensure)?.clone();
        let all = self.there.groups.as_ref();
        let mut groups = all.map(|all| all.of_balancer(service)).unwrap_or_default();
        if groups.is_empty() {
            return Err(needs_ensure());
        }
        for group in &mut groups {
            group.targets = read::targets(cloud, &group.arn, until).await?;
        }
        Ok(Known { balancer, groups, seen: BTreeSet::new() })
    }

    /// Ports on which its targets are checked stay open: they are as they were.
    async fn claim(&self, name: String, known: &Known, clients: &[String]) -> Result<rules::Claim, Stop> {
        if self.common_of(known).is_some() {
            return Ok(rules::Claim { name, ..rules::Claim::default() });
        }
        let groups: Vec<_> = known.groups.iter().map(|group| &group.is).collect();
        let mut ranges = Vec::new();
        if rules::need_subnets(&groups, clients) {
            let ids = known.balancer.subnets.iter().cloned().collect();
            let subnets = subnets::read(&self.of.cloud, ids, self.until).await?;
            ranges = subnets.iter().filter_map(|subnet| subnet.cidr_block().map(str::to_owned)).collect();
        }
        let of_nodes = if self.hides(known, clients).await? { &ranges[..] } else { clients };
        let wanted = rules::wanted(&name, &groups, of_nodes, &ranges);
        Ok(rules::Claim { name, wanted, ..rules::Claim::default() })
    }

    /// Whether nodes cannot tell these clients from others. What was read of a balancer for an update does not say so.
    async fn hides(&self, known: &Known, clients: &[String]) -> Result<bool, Failure> {
        let Some(group) = known.groups.first().filter(|_| clients != [EVERYWHERE]) else { return Ok(false) };
        if !group.attributes.is_empty() {
            return Ok(hides(&group.attributes));
        }
        read::group_attributes(&self.of.cloud, &group.arn, self.until).await.map(|read| hides(&read))
    }

    /// The group in common, if this balancer has it already.
    fn common_of(&self, known: &Known) -> Option<&String> {
        self.common.as_ref().filter(|common| known.balancer.security_groups.contains(*common))
    }

    /// Gives these balancers the same tags.
    async fn tag(&self, tags: &Texts, balancers: &[Filled]) -> Vec<Outcome> {
        let arns: Vec<_> = balancers.iter().map(|one| one.arn.clone()).collect();
        let outcome = apply::tag(&self.of.cloud, &arns, tags, self.until).await;
        let mut known = self.of.network.known.lock();
        let results = balancers.iter().map(|one| {
            let outcome = match &outcome {
                Ok(()) => {
                    if let Some(known) = known.get_mut(&one.service_uid) {
                        known.balancer.tags.extend(tags.clone());
                    }
                    Ok(())
                }
                Err(failure) => {
                    known.remove(&one.service_uid);
                    Err(Stop::of(failure))
                }
            };
            (one.service_uid.clone(), outcome)
        });
        results.collect()
    }
}
