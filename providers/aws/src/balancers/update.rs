//! Nodes that come and go, for many balancers at once.
//!
//! In: the new nodes, and the Services that have them. Out: one result for each. Only targets and the nodes' rules change, as
//! what AWS has asks for: an edit of the Service that failed does not matter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cloudprovider_sdk::proto::{
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, ClusterRef, LoadBalancerUpdateResult,
    NodeRef, Service, ServiceRef, UpdateOutcome,
};
use cloudprovider_sdk::{CallContext, ProviderError, Result};
use futures::StreamExt as _;

use super::plan::{self, Balancer};
use super::read::{self, Whose};
use super::wanted::{self, Texts};
use super::work::{Work, instances_of};
use super::{Balancers, Known, Nodes, apply, digest_tags, names, reference, rules, subnets};
use crate::api::{Deadline, Failure, Stop};

/// So many balancers change at the same time; AWS's own pace is slower.
const AT_ONCE: usize = 8;

/// The backends of one call.
struct Call<'a> {
    of: &'a Balancers,
    ctx: &'a CallContext,
    cluster: ClusterRef,
    nodes: Vec<&'a NodeRef>,
    hosts: Arc<Nodes>,
    there: There,
    until: Deadline,
}

/// What AWS has for the Services of which this process knows nothing yet.
#[derive(Default)]
struct There {
    balancers: HashMap<String, Balancer>,
    groups: Option<read::AllGroups>,
}

impl There {
    async fn read(
        of: &Balancers,
        request: &BatchUpdateLoadBalancersRequest,
        until: Deadline,
    ) -> Result<Self, Failure> {
        let services = request.items.iter().filter_map(|item| item.service.as_ref()?.r#ref.as_ref());
        let unknown: BTreeSet<_> = {
            let known = of.known.lock();
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

pub(super) async fn all(
    of: &Balancers,
    ctx: &CallContext,
    request: BatchUpdateLoadBalancersRequest,
) -> Result<BatchUpdateLoadBalancersResponse> {
    let until = Deadline::of_change(ctx);
    let there = There::read(of, &request, until).await?;
    let backends = request.backends.unwrap_or_default();
    let nodes: Vec<_> = backends.nodes.iter().collect();
    let cluster = request.cluster.unwrap_or_default();
    let hosts = of.hosts.of(&of.cloud, &instances_of(of, &nodes), until).await?.into();
    let call = &Call { of, ctx, cluster, nodes, hosts, there, until };
    let mut items = Vec::new();
    for item in request.items {
        items.push(async move {
            let service = item.service.unwrap_or_default();
            let uid = service.r#ref.as_ref().map(|one| one.uid.clone()).unwrap_or_default();
            let outcome = call.one(&service, &item.desired_digest).await;
            if outcome.is_err() {
                of.known.lock().remove(&uid);
            }
            (uid, outcome)
        });
    }
    let mut done = futures::stream::iter(items).buffer_unordered(AT_ONCE);
    let (mut results, mut by_tags) = (Vec::new(), BTreeMap::<Texts, Vec<Filled>>::new());
    while let Some((service_uid, outcome)) = done.next().await {
        match outcome {
            Ok(Some(one)) => by_tags.entry(one.tags.clone()).or_default().push(one),
            Ok(None) => results.push(result(service_uid, Ok(()))),
            Err(stop) => results.push(result(service_uid, Err(stop))),
        }
    }
    for (tags, balancers) in by_tags {
        for balancers in balancers.chunks(read::TAGGED) {
            results.extend(call.tag(&tags, balancers).await);
        }
    }
    Ok(BatchUpdateLoadBalancersResponse { results })
}

fn result(service_uid: String, outcome: Result<(), Stop>) -> LoadBalancerUpdateResult {
    let result = LoadBalancerUpdateResult { service_uid, ..LoadBalancerUpdateResult::default() };
    let not_updated = UpdateOutcome::NotUpdated.into();
    match outcome {
        Ok(()) => LoadBalancerUpdateResult { outcome: UpdateOutcome::Updated.into(), ..result },
        Err(stop) => {
            let (in_progress, error) = stop.of_item();
            LoadBalancerUpdateResult { outcome: not_updated, in_progress, error, ..result }
        }
    }
}

impl Call<'_> {
    /// `None`: nothing is left to do, not even a tag.
    async fn one(&self, service: &Service, digest: &str) -> Result<Option<Filled>, Stop> {
        let (of, until) = (self.of, self.until);
        let reference = reference(service)?;
        let labels = wanted::node_labels(service);
        of.check_labels(&labels)?;
        let known = of.known.lock().get(&reference.uid).cloned();
        let mut known = match known {
            Some(known) => known,
            None => self.read(reference).await?,
        };
        let nodes: Vec<_> =
            self.nodes.iter().copied().filter(|node| wanted::has_labels(node, &labels)).collect();
        let hosts = if nodes.len() == self.nodes.len() { self.hosts.clone() } else { self.hosts_of(&nodes) };
        let mut work = Work::knowing(of, self.ctx, nodes, hosts, until);
        let name = names::balancer(&reference.uid);
        let seen = work.security_groups();
        let mut opened = Ok(None);
        if seen != known.seen
            && let Ok(clients) = wanted::source_ranges(service)
        {
            let claim = self.claim(name, &known, &clients).await?;
            opened = of.open(&claim, &work.hosts, until).await.map(|opened| Some((claim, opened)));
        }
        for group in &mut known.groups {
            work.fill(group).await?;
        }
        if let Some((claim, (nodes, is_more))) = opened? {
            if is_more {
                of.close(&claim, &nodes, until).await?;
            }
            known.seen = seen;
        }
        if let Some(waits) = work.waits() {
            return Err(Stop::Later(waits));
        }
        let tags = &known.balancer.tags;
        // Of half a change no digest tells: only Ensure ends it.
        let is_whole = tags.get(names::APPLIED_TAG).is_some_and(|tag| !tag.is_empty());
        let new = if is_whole { plan::missing(&digest_tags(digest), tags) } else { Texts::new() };
        let arn = known.balancer.arn.clone();
        of.known.lock().insert(reference.uid.clone(), known);
        Ok((!new.is_empty()).then(|| Filled { service_uid: reference.uid.clone(), arn, tags: new }))
    }

    fn hosts_of(&self, nodes: &[&NodeRef]) -> Arc<Nodes> {
        let ids = instances_of(self.of, nodes);
        ids.into_iter()
            .filter_map(|id| self.hosts.get(&id).cloned().map(|host| (id, host)))
            .collect::<Nodes>()
            .into()
    }

    /// What AWS has for a Service of which this process knows nothing yet.
    async fn read(&self, service: &ServiceRef) -> Result<Known, Stop> {
        let (cloud, cluster, until) = (&self.of.cloud, &self.cluster.uid, self.until);
        let needs_ensure = || Stop::Failed(ProviderError::needs_ensure(&service.name));
        let is_ours = |one: &&Balancer| read::whose(cloud, cluster, service, &one.tags) == Whose::Ours;
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
        let groups: Vec<_> = known.groups.iter().map(|group| &group.is).collect();
        let mut ranges = Vec::new();
        if rules::need_subnets(&groups, clients) {
            let ids = known.balancer.subnets.iter().cloned().collect();
            let subnets = subnets::read(&self.of.cloud, ids, self.until).await?;
            ranges = subnets.iter().filter_map(|subnet| subnet.cidr_block().map(str::to_owned)).collect();
        }
        let wanted = rules::wanted(&name, &groups, clients, &ranges);
        Ok(rules::Claim { name, wanted, ..rules::Claim::default() })
    }

    /// Gives these balancers the same tags.
    async fn tag(&self, tags: &Texts, balancers: &[Filled]) -> Vec<LoadBalancerUpdateResult> {
        let arns: Vec<_> = balancers.iter().map(|one| one.arn.clone()).collect();
        let outcome = apply::tag(&self.of.cloud, &arns, tags, self.until).await;
        let mut known = self.of.known.lock();
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
            result(one.service_uid.clone(), outcome)
        });
        results.collect()
    }
}
