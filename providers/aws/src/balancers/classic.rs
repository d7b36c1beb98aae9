//! Classic balancers, which are what the published provider makes unless a Service asks for something else.
//!
//! In: Services and their nodes. Out: balancers, their security groups and rules in AWS, and what is there. [`wanted`] says what a
//! Service wants, [`read`] what AWS has, [`plan`] what to do next, [`apply`] does it. AWS serves them at once, and tells all about
//! all of them in one call, so that nothing is remembered.

mod apply;
mod plan;
mod read;
mod wanted;

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_ec2::types::Subnet;
use cloudprovider_sdk::proto::{
    ClusterRef, EnsureLoadBalancerResponse, LoadBalancer, LoadBalancerUpdate, NodeRef, ServiceRef,
};
use cloudprovider_sdk::{CallContext, ProviderError, Result};
use futures::StreamExt as _;

use super::behind::Behind;
use super::own_group::OwnGroup;
use super::service::{Annotations, Texts, node_labels};
use super::told::{self, Whose, digest_of, digest_tags, is_whole, whose};
use super::{
    AT_ONCE, Asked, Balancers, Nodes, Outcome, absence_is_fine, detaching, makes_room, names, reference,
    rules, service_of, stopped, subnets, uid_of,
};
use crate::api::{Deadline, Failure, Page, Stop};
pub(super) use plan::Balancer;
use plan::{Place, Step};
pub(super) use read::balancer as read;
use wanted::Wanted;

/// EC2's codes for a security group that does not exist.
const NO_SUCH_GROUP: [&str; 4] = [
    "InvalidGroup.NotFound",
    "InvalidGroupId.Malformed",
    "InvalidSecurityGroupID.NotFound",
    "InvalidSecurityGroupId.Malformed",
];

pub(super) async fn ensure(
    of: &Balancers,
    asked: &Asked<'_>,
    mut actual: Option<Balancer>,
) -> Result<EnsureLoadBalancerResponse> {
    let outcome = make(of, asked, &mut actual).await;
    asked.answer(actual.as_ref().map(Balancer::standing), outcome)
}

/// Leaves in `actual` what AWS has, however it ends.
async fn make(of: &Balancers, asked: &Asked<'_>, actual: &mut Option<Balancer>) -> Result<(), Stop> {
    let (cloud, until, reference) = (&of.cloud, asked.until, asked.reference);
    let on = (cloud, asked.ctx, until);
    let wanted = Wanted::of(asked.service, asked.cluster, &of.defaults)?;
    of.check_labels(&wanted.node_labels)?;
    let named = subnets::Asked { named: &wanted.subnets, internal: wanted.internal };
    let (chosen, all) = subnets::choose(cloud, &named, until).await?;
    if let Some(found) = actual {
        asked.may_change(cloud, found.internal, wanted.internal, &found.tags)?;
        found.attributes = read::attributes(cloud, &found.name, until).await?;
        if digest_of(&found.tags) != asked.request.desired_digest {
            told::blank(on, found).await?;
        }
    }
    let before = actual.as_ref().map(|found| found.groups.clone()).unwrap_or_default();
    let mut ports: BTreeSet<_> = wanted.listeners.iter().map(|one| one.port).collect();
    let of_clients = |ports: &BTreeSet<i32>| {
        let ports = ports.iter().map(|port| (*port, &[rules::TCP][..]));
        rules::of_clients(ports, &wanted.source_ranges, false)
    };
    let open_ports = |found: &Balancer| found.listeners.iter().map(|open| open.is.port).collect::<Vec<_>>();
    let clients = of_clients(&ports);
    let name = names::classic_group(&wanted.name);
    let mut own = if wanted.groups.is_empty() {
        let (namespace, of_namespace) = (&reference.namespace, &reference.name);
        let about = format!("Security group for Kubernetes ELB {} ({namespace}/{of_namespace})", wanted.name);
        let mut own = OwnGroup::ensure(cloud, (&name, &about), &wanted.tags, until).await?;
        let found = actual.iter().filter(|found| found.groups.contains(&own.id));
        let serves = of_clients(&found.flat_map(open_ports).collect());
        own.let_in(cloud, (&clients, &serves), until).await?;
        Some(own)
    } else {
        OwnGroup::find(cloud, &name, until).await?
    };
    let groups = match &own {
        Some(own) if wanted.groups.is_empty() => vec![own.id.clone()],
        _ => wanted.groups.clone(),
    };
    let wished = [&groups[..], &wanted.extra_groups].concat();
    let mut place = place(&chosen, &all, wished.clone());
    let mut behind = Behind::of(of, asked.nodes(&wanted.node_labels), until).await?;
    // What cannot be opened must not keep everything else from working.
    let opened = open(of, (&wanted.name, &groups), &behind, until).await;
    let lets_nobody_in = |own: &OwnGroup| own.lacks_room() && !before.contains(&own.id);
    let is_closed = match &opened {
        Err(_unknown) => true,
        Ok(opened) if !wanted.groups.is_empty() && opened.names_nothing() => false,
        Ok(opened) => opened.lets_too_few_in(&before, &groups),
    };
    let is_early = actual.is_some() && (is_closed || own.as_ref().is_some_and(lets_nobody_in));
    if is_early {
        // Clients, or the balancer, get through by its former groups alone.
        place.groups.clone_from(&before);
    }
    if let Err(stop) = converge(of, asked.ctx, (&wanted, &place), &mut behind, actual).await {
        if matches!(stop, Stop::Failed(_))
            && Stop::if_cancelled(asked.ctx).is_ok()
            && let Some(own) = own.filter(|own| place.groups.contains(&own.id))
        {
            // Whoever may come no more stays out whatever else fails; the ports that still serve stay open to the others.
            ports.extend(actual.iter().flat_map(open_ports));
            // That it did not become what it has to be is what has to be told.
            let _unfinished = own.only(cloud, &of_clients(&ports), until).await;
        }
        return Err(stop);
    }
    let own_stays = own.as_mut().filter(|own| wished.contains(&own.id));
    let trimmed = match own_stays {
        Some(own) => own.trim(cloud, &clients, until).await,
        None => Ok(()),
    };
    let Opened { mut too_wide, let_in, mut outcome } = opened?;
    if is_early {
        outcome?;
        trimmed?;
        return Err(makes_room());
    }
    let own_is_former = own.as_ref().filter(|own| !wished.contains(&own.id));
    // One that has become an extra group may still be let in.
    let former = before.iter().filter(|group| !groups.contains(group) && let_in.contains(*group));
    let former = former.chain(own_is_former.map(|own| &own.id)).map(|id| (id.clone(), BTreeSet::new()));
    let mut too_open: Vec<_> = former.collect();
    if wanted.groups.iter().any(|group| !before.contains(group)) {
        // At once: if anything else fails, the next attempt does not know any more which these are.
        close(of, &wanted.name, std::mem::take(&mut too_open), until).await?;
        // Now that it has its groups nobody closes the nodes to them any more; until now, somebody may have.
        Opened { too_wide, outcome, .. } = open(of, (&wanted.name, &groups), &behind, until).await?;
    }
    too_open.extend(too_wide);
    close(of, &wanted.name, too_open, until).await?;
    trimmed?;
    outcome?;
    if let Some(own) = own_is_former
        && !own.delete(cloud, until).await?
    {
        let groups = rules::Groups::read(cloud, &Nodes::new(), until).await?;
        return Err(detaching(&groups, &[name]));
    }
    let Some(balancer) = actual else { return Ok(()) };
    told::tag_for_user(on, balancer, &wanted.tags).await?;
    if let Some(waits) = behind.waits(std::iter::once(&balancer.instances)) {
        return Err(Stop::Later(waits));
    }
    told::tag(on, balancer, &digest_tags(&asked.request.desired_digest)).await
}

fn place(chosen: &[Subnet], all: &[Subnet], groups: Vec<String>) -> Place {
    let id = |subnet: &Subnet| subnet.subnet_id().unwrap_or_default().to_owned();
    let zone = |subnet: &Subnet| (id(subnet), subnet.availability_zone().unwrap_or_default().to_owned());
    Place { subnets: chosen.iter().map(id).collect(), zones: all.iter().map(zone).collect(), groups }
}

/// What is open once the nodes are open to a balancer.
struct Opened {
    /// The security group of it that gets through, and the nodes' groups, beyond which it gets through, too.
    too_wide: Option<(String, BTreeSet<String>)>,
    /// All security groups of balancers that get through.
    let_in: BTreeSet<String>,
    /// Why not all nodes are open.
    outcome: Result<()>,
}

impl Opened {
    /// Whether a balancer that had these groups, and gets others in their place, may lose nodes by that.
    fn lets_too_few_in(&self, before: &[String], groups: &[String]) -> bool {
        let goes = |group: &String| !groups.contains(group) && self.let_in.contains(group);
        let comes = groups.iter().any(|group| !before.contains(group));
        self.outcome.is_err() && (comes || before.iter().any(goes))
    }

    /// There is no such group, of which AWS tells whoever gives it to a balancer.
    fn names_nothing(&self) -> bool {
        let code = self.outcome.as_ref().err().and_then(|error| error.metadata().get("code"));
        code.is_some_and(|code| NO_SUCH_GROUP.contains(&&**code))
    }
}

/// Opens the nodes to a balancer with these security groups.
async fn open(
    of: &Balancers,
    balancer: (&str, &[String]),
    behind: &Behind<'_>,
    until: Deadline,
) -> Result<Opened, Failure> {
    if of.closed_groups {
        return Ok(Opened { too_wide: None, let_in: BTreeSet::new(), outcome: Ok(()) });
    }
    let _turn = of.rules.lock().await;
    let mut all = rules::Groups::read(&of.cloud, &behind.hosts, until).await?;
    open_in(of, &mut all, balancer, behind, until).await
}

/// The same, with all groups at hand.
async fn open_in(
    of: &Balancers,
    all: &mut rules::Groups,
    (name, groups): (&str, &[String]),
    behind: &Behind<'_>,
    until: Deadline,
) -> Result<Opened, Failure> {
    let (nodes, mut outcome) = all.of_nodes(&behind.hosts);
    let mut too_wide = None;
    if let Some(from) = all.let_in_by_nodes(groups) {
        let is_own = is_own(all, name, from);
        match all.let_in(&of.cloud, (from, is_own), rules::LET_IN, &nodes, until).await {
            Ok(is_wider) => {
                too_wide =
                    Some((from.clone(), nodes)).filter(|_| is_wider && outcome.is_ok() && behind.all_run());
            }
            Err(failure) if failure.is_for_all() => return Err(failure),
            Err(failure) => outcome = Err(failure.into()),
        }
    }
    Ok(Opened { too_wide, let_in: all.all_let_in(rules::LET_IN), outcome })
}

/// Whether this is the own group of the balancer of this name.
fn is_own(all: &rules::Groups, name: &str, group: &str) -> bool {
    OwnGroup::among(all, &names::classic_group(name)).is_some_and(|own| own.id == *group)
}

/// Takes steps until none is left.
async fn converge(
    of: &Balancers,
    ctx: &CallContext,
    (wanted, place): (&Wanted, &Place),
    behind: &mut Behind<'_>,
    actual: &mut Option<Balancer>,
) -> Result<(), Stop> {
    while let Some(step) = plan::next(wanted, place, &behind.backends, actual.as_ref()) {
        if let Some(found) = actual {
            told::blank((&of.cloud, ctx, behind.until), found).await?;
        }
        if let Some(dns) = take(of, ctx, (wanted, &step), behind).await? {
            plan::after(actual, &step, wanted, &dns);
        }
    }
    Ok(())
}

/// `None`: AWS refused some of the instances, which are left out from now on.
async fn take(
    of: &Balancers,
    ctx: &CallContext,
    (wanted, step): (&Wanted, &Step),
    behind: &mut Behind<'_>,
) -> Result<Option<String>, Stop> {
    Stop::if_cancelled(ctx)?;
    match (apply::take(&of.cloud, wanted, step, behind.until).await, step) {
        (Err(failure), Step::Register(ids)) if failure.code() == "InvalidInstance" => {
            behind.refused(ids, failure.message()).await.map(|()| None)
        }
        (answer, _) => Ok(Some(answer?)),
    }
}

/// Closes the nodes to groups that a balancer has, or had, but where it has nodes.
async fn close(
    of: &Balancers,
    name: &str,
    too_open: Vec<(String, BTreeSet<String>)>,
    until: Deadline,
) -> Result<(), Failure> {
    if of.closed_groups || too_open.is_empty() {
        return Ok(());
    }
    let _turn = of.rules.lock().await;
    close_in_turn(of, name, too_open, until).await
}

/// The same, in the turn of those who change rules. The other balancers may share groups that a user gave it, and not its own one:
/// they are looked at now, so that of two which give up a group the last one closes it.
async fn close_in_turn(
    of: &Balancers,
    name: &str,
    too_open: Vec<(String, BTreeSet<String>)>,
    until: Deadline,
) -> Result<(), Failure> {
    let mut groups = rules::Groups::read(&of.cloud, &Nodes::new(), until).await?;
    let mut others = Vec::new();
    if too_open.iter().any(|(group, _)| !is_own(&groups, name, group)) {
        others = read::all(&of.cloud, until).await?;
        others.retain(|one| one.name != name);
    }
    for (group, nodes) in too_open {
        let is_own = is_own(&groups, name, &group);
        if is_own || !others.iter().any(|one| one.groups.contains(&group)) {
            groups.shut_out(&of.cloud, (&group, is_own), rules::LET_IN, &nodes, until).await?;
        }
    }
    Ok(())
}

/// A balancer that goes, or what a former attempt to delete it left.
pub(super) struct Going {
    name: String,
    found: Option<Balancer>,
}

impl Going {
    /// `None`: it is somebody else's.
    pub(super) async fn read(
        of: &Balancers,
        service: &ServiceRef,
        may_delete: impl Fn(&Texts) -> bool,
        until: Deadline,
    ) -> Result<Option<Self>, Failure> {
        let name = names::balancer(&service.uid);
        let found = read(&of.cloud, &name, until).await?;
        let is_ours = found.as_ref().is_none_or(|found| may_delete(&found.tags));
        Ok(is_ours.then_some(Self { name, found }))
    }

    /// Closes the nodes to its own security group.
    pub(super) async fn close(
        &self,
        of: &Balancers,
        groups: &mut rules::Groups,
        until: Deadline,
    ) -> Result<(), Failure> {
        if let Some(own) = self.own(groups) {
            groups.shut_out(&of.cloud, (&own.id, true), rules::LET_IN, &BTreeSet::new(), until).await?;
        }
        Ok(())
    }

    /// Deletes it and its own security group. Returns whether AWS needs a while for the rest.
    pub(super) async fn delete(
        self,
        of: &Balancers,
        groups: &rules::Groups,
        until: Deadline,
    ) -> Result<bool, Failure> {
        let let_in = if of.closed_groups { BTreeSet::new() } else { groups.all_let_in(rules::LET_IN) };
        let given = self.found.iter().flat_map(|found| &found.groups).filter(|id| let_in.contains(*id));
        let given: Vec<_> = given.map(|id| (id.clone(), BTreeSet::new())).collect();
        let mut turn = None;
        if !given.is_empty() {
            // Before it goes: nobody would know afterwards which groups it had. Of those that share one and go together, the last
            // one closes it. What else a user's groups are for is the user's.
            turn = Some(of.rules.lock().await);
            close_in_turn(of, &self.name, given, until).await?;
        }
        if let Some(found) = &self.found {
            absence_is_fine(apply::delete_balancer(&of.cloud, &found.name, until).await)?;
        }
        drop(turn);
        match self.own(groups) {
            Some(own) => Ok(!own.delete(&of.cloud, until).await?),
            None => Ok(false),
        }
    }

    fn own(&self, groups: &rules::Groups) -> Option<OwnGroup> {
        OwnGroup::among(groups, &names::classic_group(&self.name))
    }
}

/// Gives the balancers of these Services the nodes of a call.
pub(super) async fn update(
    of: &Balancers,
    (ctx, cluster): (&CallContext, &ClusterRef),
    items: &[LoadBalancerUpdate],
    (nodes, hosts): (&[&NodeRef], &Arc<Nodes>),
    until: Deadline,
) -> Result<Vec<Outcome>, Failure> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let names: BTreeSet<_> = items.iter().map(|item| names::balancer(&uid_of(item))).collect();
    let mut there = read::all(&of.cloud, until).await?;
    let (mut given, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for group in there.iter().flat_map(|one| &one.groups) {
        if !given.insert(group.clone()) {
            shared.insert(group.clone());
        }
    }
    there.retain(|one| names.contains(&one.name));
    let names: Vec<_> = there.iter().map(|one| &*one.name).collect();
    let mut tags = read::tags(&of.cloud, &names, until).await?;
    let mut updates = Vec::new();
    for item in items {
        let uid = uid_of(item);
        let name = names::balancer(&uid);
        let found = there.iter().find(|one| one.name == name).cloned();
        let found = found.and_then(|found| Some(Balancer { tags: tags.remove(&name)?, ..found }));
        updates.push((uid, Update::of(of, cluster, item, found, (nodes, hosts), until)));
    }
    if !of.closed_groups {
        open_all(of, &mut updates, (hosts, &shared), until).await;
    }
    let mut outcomes = Vec::new();
    for (uid, update) in updates {
        outcomes.push(async move {
            let outcome = match update {
                Ok(update) => update.go(of, ctx, until).await,
                Err(error) => Err(Stop::Failed(error)),
            };
            (uid, outcome)
        });
    }
    Ok(futures::stream::iter(outcomes).buffer_unordered(AT_ONCE).collect().await)
}

/// A balancer that gets nodes.
struct Update<'a> {
    balancer: Balancer,
    behind: Behind<'a>,
    /// Its security groups but the extra ones.
    groups: Vec<String>,
    digest: &'a str,
    opened: Result<(), Stop>,
    /// As in [`Opened`].
    too_wide: Option<(String, BTreeSet<String>)>,
}

impl<'a> Update<'a> {
    fn of(
        of: &'a Balancers,
        cluster: &ClusterRef,
        item: &'a LoadBalancerUpdate,
        found: Option<Balancer>,
        (nodes, hosts): (&[&'a NodeRef], &Arc<Nodes>),
        until: Deadline,
    ) -> Result<Self> {
        let service = service_of(item)?;
        let reference = reference(service)?;
        let is_ours = |one: &Balancer| whose(&of.cloud, &cluster.uid, reference, &one.tags) == Whose::Ours;
        let needs_ensure = || ProviderError::needs_ensure(&reference.name);
        let balancer = found.filter(is_ours).ok_or_else(needs_ensure)?;
        let labels = node_labels(service);
        of.check_labels(&labels)?;
        let behind = Behind::among(of, nodes, &labels, hosts, until);
        let extra = wanted::extra_groups(&Annotations::of(service));
        let groups = balancer.groups.iter().filter(|group| !extra.contains(group)).cloned().collect();
        Ok(Self { balancer, behind, groups, digest: &item.desired_digest, opened: Ok(()), too_wide: None })
    }

    async fn go(mut self, of: &Balancers, ctx: &CallContext, until: Deadline) -> Result<(), Stop> {
        let name = Wanted::named(&self.balancer.name);
        while let Some(step) = plan::of_instances(&self.balancer, &self.behind.backends) {
            if take(of, ctx, (&name, &step), &mut self.behind).await?.is_some() {
                self.balancer.after(&step);
            }
        }
        self.opened?;
        close(of, &self.balancer.name, self.too_wide.into_iter().collect(), until).await?;
        if let Some(waits) = self.behind.waits(std::iter::once(&self.balancer.instances)) {
            return Err(Stop::Later(waits));
        }
        // Of half a change no digest tells: only Ensure ends that.
        if is_whole(&self.balancer.tags) {
            told::tag((&of.cloud, ctx, until), &mut self.balancer, &digest_tags(self.digest)).await?;
        }
        Ok(())
    }
}

/// Opens the nodes to all of them. What cannot be opened must not keep everything else from working. Nothing is too wide of a shared
/// group: another balancer may have nodes there.
async fn open_all(
    of: &Balancers,
    updates: &mut [(String, Result<Update<'_>>)],
    (hosts, shared): (&Nodes, &BTreeSet<String>),
    until: Deadline,
) {
    let _turn = of.rules.lock().await;
    let mut all = rules::Groups::read(&of.cloud, hosts, until).await;
    for update in updates.iter_mut().filter_map(|(_, update)| update.as_mut().ok()) {
        let name = &*update.balancer.name;
        update.opened = match &mut all {
            Ok(groups) => match open_in(of, groups, (name, &update.groups), &update.behind, until).await {
                Ok(Opened { too_wide, outcome, .. }) => {
                    let closes = |group: &String| is_own(groups, name, group) || !shared.contains(group);
                    update.too_wide = too_wide.filter(|(group, _)| closes(group));
                    outcome.map_err(Stop::Failed)
                }
                Err(failure) => Err(stopped(&mut all, failure)),
            },
            Err(failure) => Err(Stop::of(failure)),
        };
    }
}

/// A page of the cluster's balancers.
pub(super) async fn page(
    of: &Balancers,
    cluster_uid: &str,
    (size, marker): (i32, Option<String>),
    until: Deadline,
) -> Result<Page<LoadBalancer>, Failure> {
    let (mut found, next) = read::page(&of.cloud, size, marker, until).await?;
    found.retain(|one| names::is_balancer(&one.name));
    let names: Vec<_> = found.iter().map(|one| &*one.name).collect();
    let mut tags = read::tags(&of.cloud, &names, until).await?;
    let ours = found.iter_mut().filter_map(|balancer| {
        balancer.tags = tags.remove(&balancer.name)?;
        balancer.standing().listed(&balancer.name, cluster_uid)
    });
    Ok((ours.collect(), next))
}
