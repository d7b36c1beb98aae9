//! Nodes that come and go, for many balancers at once.
//!
//! In: the new nodes, and the Services that have them. Out: one result for each. Only targets and the nodes' rules change, as
//! what AWS has asks for: an edit of the Service that failed does not matter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use aws_sdk_ec2::types::Subnet;
use cloudprovider_sdk::proto::{ClusterRef, LoadBalancerUpdate, NodeRef, ServiceRef};
use cloudprovider_sdk::{CallContext, ProviderError};
use futures::StreamExt as _;
use tokio::sync::OnceCell;

use super::guard::{Opened, close, open_in};
use super::plan::Balancer;
use super::wanted::{hides, source_ranges};
use super::work::Work;
use super::{Known, apply, read};
use crate::api::{Deadline, Failure, Stop};
use crate::balancers::behind::Behind;
use crate::balancers::service::{EVERYWHERE, Texts, missing, node_labels};
use crate::balancers::told::{Whose, digest_tags, is_whole, whose};
use crate::balancers::{
    AT_ONCE, Balancers, Nodes, Outcome, TAGGED, common_group, is_gone, names, reference, rules, service_of,
    stopped, subnets, uid_of,
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
    /// Those of the network, once somebody needs them.
    subnets: OnceCell<Vec<Subnet>>,
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

/// A balancer that gets nodes.
struct Update<'a> {
    service: &'a ServiceRef,
    digest: &'a str,
    known: Known,
    work: Work<'a>,
    /// What has to be opened.
    claim: Option<rules::Claim>,
    /// What is open, or why not.
    opened: Result<Option<(rules::Claim, Opened)>, Stop>,
}

/// A balancer with its new backends, and the tags that have to tell of them.
struct Filled {
    service: ServiceRef,
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
    let call = Call { of, ctx, cluster, nodes, hosts, there, common, subnets: OnceCell::new(), until };
    Ok(call.all(items).await)
}

impl Call<'_> {
    async fn all(&self, items: &[LoadBalancerUpdate]) -> Vec<Outcome> {
        let mut begun = Vec::new();
        for item in items {
            begun.push(async move { (uid_of(item), self.begin(item).await) });
        }
        let mut updates: Vec<_> = futures::stream::iter(begun).buffer_unordered(AT_ONCE).collect().await;
        self.open(&mut updates).await;
        let mut ending = Vec::new();
        for (uid, update) in updates {
            ending.push(async move {
                match update {
                    Ok(update) => (uid, self.end(update).await),
                    Err(stop) => (uid, Err(stop)),
                }
            });
        }
        let mut done = futures::stream::iter(ending).buffer_unordered(AT_ONCE);
        let (mut results, mut by_tags) = (Vec::new(), BTreeMap::<Texts, Vec<Filled>>::new());
        while let Some((service_uid, outcome)) = done.next().await {
            match outcome {
                Ok(Some(one)) => by_tags.entry(one.tags.clone()).or_default().push(one),
                Ok(None) => results.push((service_uid, Ok(()))),
                Err(stop) => results.push((service_uid, Err(stop))),
            }
        }
        for (tags, balancers) in by_tags {
            let mut chunks: Vec<_> = balancers.chunks(TAGGED).collect();
            while let Some(chunk) = chunks.pop() {
                let arns: Vec<_> = chunk.iter().map(|one| one.arn.clone()).collect();
                match apply::tag(&self.of.cloud, &arns, &tags, self.until).await {
                    // AWS does not document how many it takes at once, and takes none if one is gone.
                    Err(failure)
                        if chunk.len() > 1 && (failure.code() == "ValidationError" || is_gone(&failure)) =>
                    {
                        chunks.extend(chunk.chunks(1));
                    }
                    outcome => {
                        results.extend(chunk.iter().map(|one| self.tagged(one, outcome.as_ref())));
                    }
                }
            }
        }
        results
    }

    /// What is known of a balancer, and what has to be opened for it.
    async fn begin<'i>(&'i self, item: &'i LoadBalancerUpdate) -> Result<Update<'i>, Stop> {
        let of = self.of;
        let service = service_of(item)?;
        let reference = reference(service)?;
        let labels = node_labels(service);
        of.check_labels(&labels)?;
        // Whoever is cancelled leaves nothing known.
        let known = of.network.known.lock().remove(&reference.uid);
        let mut known = match known {
            Some(known) => known,
            None => self.read(reference).await?,
        };
        let behind = Behind::among(of, self.nodes, &labels, self.hosts, self.until);
        let (mut claim, mut opened) = (None, Ok(None));
        if !of.closed_groups
            && known.seen.as_ref() != Some(&behind.security_groups())
            && let Ok(clients) = source_ranges(service)
        {
            match self.claim(names::balancer(&reference.uid), &mut known, &clients).await {
                Ok(its) => {
                    known.seen = None;
                    claim = Some(its);
                }
                Err(failure) => opened = Err(failure.into()),
            }
        }
        let work = Work { of, ctx: self.ctx, behind };
        Ok(Update { service: reference, digest: &item.desired_digest, known, work, claim, opened })
    }

    /// Opens the nodes to all of them. What cannot be opened must not keep everything else from working.
    async fn open(&self, updates: &mut [(String, Result<Update<'_>, Stop>)]) {
        let updates = updates.iter_mut().filter_map(|(_, update)| update.as_mut().ok());
        let to_open: Vec<_> = updates.filter(|update| update.claim.is_some()).collect();
        if to_open.is_empty() {
            return;
        }
        let _turn = self.of.rules.lock().await;
        let mut all = rules::Groups::read(&self.of.cloud, self.hosts, self.until).await;
        for update in to_open {
            let Some(mut claim) = update.claim.take() else { continue };
            let common = self.common_of(&update.known);
            update.opened = match &mut all {
                Ok(groups) => match open_in(self.of, groups, &mut claim, common, &update.work.behind).await {
                    Ok(opened) => Ok(Some((claim, opened))),
                    Err(failure) => Err(stopped(&mut all, failure)),
                },
                Err(failure) => Err(Stop::of(failure)),
            };
        }
    }

    /// `None`: nothing is left to do, not even a tag.
    async fn end(&self, update: Update<'_>) -> Result<Option<Filled>, Stop> {
        let Update { service, digest, mut known, mut work, opened, .. } = update;
        let outcome = self.fill(service, &mut known, &mut work, opened).await;
        if outcome.as_ref().map_or_else(Stop::changed_nothing, |()| true) {
            self.of.network.known.lock().insert(service.uid.clone(), known.clone());
        }
        outcome?;
        if let Some(waits) = work.behind.waits(known.groups.iter().map(|group| &group.targets)) {
            return Err(Stop::Later(waits));
        }
        let tags = &known.balancer.tags;
        // Of half a change no digest tells: only Ensure ends that.
        let new = if is_whole(tags) { missing(&digest_tags(digest), tags) } else { Texts::new() };
        let arn = known.balancer.arn;
        Ok((!new.is_empty()).then(|| Filled { service: service.clone(), arn, tags: new }))
    }

    async fn fill(
        &self,
        service: &ServiceRef,
        known: &mut Known,
        work: &mut Work<'_>,
        opened: Result<Option<(rules::Claim, Opened)>, Stop>,
    ) -> Result<(), Stop> {
        for group in &mut known.groups {
            work.fill(group).await?;
        }
        if let Some((claim, opened)) = opened? {
            if opened.is_more {
                close(self.of, (&claim, service), &opened.nodes, self.until).await?;
            }
            opened.outcome?;
            known.seen = work.seen();
        }
        work.behind.room()?;
        Stop::if_cancelled(self.ctx)
    }

    /// What AWS has for a Service of which this process knows nothing yet.
    async fn read(&self, service: &ServiceRef) -> Result<Known, Stop> {
        let (cloud, cluster, until) = (&self.of.cloud, &self.cluster.uid, self.until);
        let is_ours = |one: &&Balancer| whose(cloud, cluster, service, &one.tags) == Whose::Ours;
        let found = self.there.balancers.get(&names::balancer(&service.uid)).filter(is_ours);
        let balancer = found.ok_or_else(|| needs_ensure(service))?.clone();
        let all = self.there.groups.as_ref();
        let mut groups = all.map(|all| all.of_balancer(service)).unwrap_or_default();
        if groups.is_empty() {
            return Err(needs_ensure(service));
        }
        for group in &mut groups {
            group.targets = read::targets(cloud, &group.arn, until).await?;
        }
        Ok(Known { balancer, groups, seen: None })
    }

    /// Ports on which its targets are checked stay open: they are as they were.
    async fn claim(
        &self,
        name: String,
        known: &mut Known,
        clients: &[String],
    ) -> Result<rules::Claim, Failure> {
        if self.common_of(known).is_some() {
            return Ok(rules::Claim { name, ..rules::Claim::default() });
        }
        let mut hides_clients = false;
        if let Some(group) = known.groups.first_mut().filter(|_| clients != [EVERYWHERE]) {
            if group.attributes.is_empty() {
                // What was read of it for an update does not say so.
                group.attributes = read::group_attributes(&self.of.cloud, &group.arn, self.until).await?;
            }
            hides_clients = hides(&group.attributes);
        }
        let groups: Vec<_> = known.groups.iter().map(|group| &group.is).collect();
        let mut ranges = Vec::new();
        if rules::need_subnets(&groups, clients) {
            let all = self.subnets.get_or_try_init(|| subnets::all(&self.of.cloud, self.until)).await?;
            ranges = subnets::ranges(&subnets::among(all, &known.balancer.subnets));
        }
        let of_nodes = if hides_clients { &ranges[..] } else { clients };
        let wanted = rules::wanted(&name, &groups, of_nodes, &ranges);
        Ok(rules::Claim { name, wanted, ..rules::Claim::default() })
    }

    /// The group in common, if this balancer has it already.
    fn common_of(&self, known: &Known) -> Option<&String> {
        self.common.as_ref().filter(|common| known.balancer.security_groups.contains(*common))
    }

    /// The outcome for a balancer that was to get its tags.
    fn tagged(&self, one: &Filled, outcome: Result<&(), &Failure>) -> Outcome {
        let (uid, mut known) = (&one.service.uid, self.of.network.known.lock());
        let outcome = match outcome {
            Ok(()) => {
                if let Some(known) = known.get_mut(uid) {
                    known.balancer.tags.extend(one.tags.clone());
                }
                Ok(())
            }
            Err(failure) => {
                let stop = if is_gone(failure) { needs_ensure(&one.service) } else { Stop::of(failure) };
                if !stop.changed_nothing() {
                    known.remove(uid);
                }
                Err(stop)
            }
        };
        (uid.clone(), outcome)
    }
}

fn needs_ensure(service: &ServiceRef) -> Stop {
    Stop::Failed(ProviderError::needs_ensure(&service.name))
}
