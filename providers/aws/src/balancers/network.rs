//! Network balancers.
//!
//! In: Services and their nodes. Out: balancers, target groups and rules in AWS, and what is there. [`wanted`] says what a Service
//! wants, [`read`] what AWS has, [`plan`] what to do next, [`apply`] does it, [`work`] until nothing is left; [`guard`] knows
//! who gets through; [`update`] is for nodes that come and go.

mod apply;
mod guard;
mod plan;
mod read;
mod update;
mod wanted;
mod work;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_elasticloadbalancingv2::types;
use cloudprovider_sdk::proto::{
    ClusterRef, EnsureLoadBalancerResponse, Fencing, InProgress, LoadBalancer, ServiceRef,
};
use cloudprovider_sdk::{ProviderError, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::behind::Behind;
use super::own_group::OwnGroup;
use super::rules::Rules;
use super::service::{Annotations, Texts};
use super::told::{self, digest_of, digest_tags};
use super::{
    Asked, Balancers, Nodes, absence_is_fine, common_group, detaching, makes_room, names, rules, subnets,
};
use crate::api::{Deadline, Failure, Page, Stop, later};
use guard::Opened;
pub(super) use guard::close_in;
pub(super) use plan::Balancer;
use plan::{Actual, Group, Place};
pub(super) use read::balancer as read;
pub(super) use update::all as update;
#[cfg(test)]
pub(super) use wanted::Health;
pub(super) use wanted::TargetGroup;
use wanted::{SecurityGroups, Wanted};
use work::Work;

/// How soon to look whether a new balancer serves. AWS takes minutes.
const UNTIL_IT_SERVES: Duration = Duration::from_secs(20);
/// How soon to look again at a balancer that AWS could not set up.
const WHILE_FAILED: Duration = Duration::from_secs(300);
/// What was read of all new balancers at once is good for this long.
const GLANCE: Duration = Duration::from_secs(10);

/// What this process remembers of network balancers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Whose term it is.
    term: Mutex<Option<Fencing>>,
    /// What it has applied in this term, by the Service's uid: in another one, somebody else may have changed it.
    known: Mutex<HashMap<String, Known>>,
    /// The balancers that do not serve yet, by ARN, and when they were read.
    starting: tokio::sync::Mutex<Option<(Instant, BTreeSet<String>)>>,
}

impl Memory {
    /// Begins a mutation, perhaps a leader's first one.
    pub(super) fn begin(&self, fencing: Option<&Fencing>) {
        let mut term = self.term.lock();
        if term.as_ref() != fencing {
            *term = fencing.cloned();
            self.known.lock().clear();
        }
    }
}

/// What this process has applied for a Service: a memory of its own writes, never of the cloud.
#[derive(Debug, Clone)]
struct Known {
    balancer: Balancer,
    groups: Vec<Group>,
    /// The security groups that its nodes had when they were opened. `None`: others may be open, too.
    seen: Option<BTreeSet<String>>,
}

pub(super) async fn ensure(
    of: &Balancers,
    asked: &Asked<'_>,
    balancer: Option<Balancer>,
) -> Result<EnsureLoadBalancerResponse> {
    of.network.known.lock().remove(&asked.reference.uid);
    let mut actual = Actual { balancer, ..Actual::default() };
    let outcome = make(of, asked, &mut actual).await;
    asked.answer(actual.balancer.as_ref().map(Balancer::standing), outcome)
}

/// Leaves in `actual` what AWS has, however it ends.
async fn make(of: &Balancers, asked: &Asked<'_>, actual: &mut Actual) -> Result<(), Stop> {
    let (cloud, until, reference) = (&of.cloud, asked.until, asked.reference);
    let on = (cloud, asked.ctx, until);
    let wanted = Wanted::of(asked.service, asked.cluster, &of.defaults)?;
    of.check_labels(&wanted.node_labels)?;
    let is_new = actual.balancer.is_none();
    if let Some(found) = &actual.balancer {
        asked.may_change(cloud, found.internal, wanted.internal, &found.tags)?;
        if let Some(why) = &found.failed {
            let why = format!(
                "AWS could not set up load balancer {}: {why}; delete the Service and make it again",
                wanted.name
            );
            return Err(Stop::Failed(ProviderError::retry_later(WHILE_FAILED, &why)));
        }
    }
    let checked_by_others = read::everything(cloud, &asked.cluster.uid, reference, actual, until).await?;
    // Where nodes see the balancer's own address, its security groups alone can tell clients from others.
    let has_groups = match &actual.balancer {
        Some(found) => !found.security_groups.is_empty(),
        None => wanted.security_groups != SecurityGroups::AsTheyAre,
    };
    if wanted.hides_clients() && !has_groups {
        let why = "with preserve_client_ip.enabled=false nodes see clients with the balancer's own address, so a balancer without \
                   security groups serves everybody";
        return Err(ProviderError::unsupported_feature("spec.loadBalancerSourceRanges", why).into());
    }
    let (mut place, ranges) = place(of, &wanted, actual, until).await?;
    if let Some(found) = &mut actual.balancer
        && digest_of(&found.tags) != asked.request.desired_digest
    {
        told::blank(on, found).await?;
    }
    let dual_stack = wanted.families.dual_stack(place.has_v6);
    let ports = wanted.listeners.iter().map(|one| (one.port, rules::protocols(&one.group.protocol)));
    let clients = rules::of_clients(ports, &wanted.source_ranges, dual_stack);
    let serves = guard::serving(actual, &wanted, dual_stack);
    let mut own = guard::ensure(
        cloud,
        (asked.cluster, reference),
        (&wanted, &clients, &serves),
        (actual, &mut place),
        until,
    )
    .await?;
    let of_nodes = if wanted.hides_clients() { &ranges } else { &wanted.source_ranges };
    let (mut common, mut _coming) = (None, None);
    if let Some(groups) = place.security_groups.as_mut().filter(|_| of.shared_rule) {
        _coming = Some(of.coming.read().await);
        let id = common_group::ensure(of, until).await?.id;
        if !groups.contains(&id) {
            groups.push(id.clone());
        }
        common = Some(id);
    }
    let former = match of.defaults.security_groups && common.is_none() {
        true => common_group::find(of, until).await?,
        false => None,
    };
    let behind = Behind::of(of, asked.nodes(&wanted.node_labels), until).await?;
    let mut work = Work { of, ctx: asked.ctx, behind };
    let mut claim = rules::Claim {
        name: wanted.name.clone(),
        wanted: match common {
            Some(_) => Rules::new(),
            None => rules::wanted(&wanted.name, &wanted.groups(), of_nodes, &ranges),
        },
        takes: true,
        checked: actual.groups.iter().map(|group| rules::health_port(&group.is)).collect(),
        checked_by_others,
        serves: node_ports(&actual.groups),
        spared: BTreeSet::new(),
    };
    // Nobody takes along what target groups in use are checked by.
    let checked_before = actual.listeners().map(|(_, group)| rules::health_port(group)).collect();
    // What cannot be opened must not keep everything else from working.
    let opened = if is_new && work.behind.hosts.is_empty() {
        Ok(Opened::default())
    } else {
        guard::open(of, &mut claim, common.as_ref(), &work.behind).await
    };
    let opened = match opened {
        // Its listeners must not move to ports that the nodes may not let in.
        Err(failure) if !is_new => return Err(failure.into()),
        opened => opened,
    };
    let mut kept = None;
    if let (Some(former), Some(groups), Some(found)) = (&former, &mut place.security_groups, &actual.balancer)
        && found.security_groups.contains(&former.id)
        && !groups.contains(&former.id)
        && !opened.as_ref().is_ok_and(|opened| opened.outcome.is_ok())
    {
        // It gets through by nothing else yet.
        groups.push(former.id.clone());
        kept = Some(former.id.clone());
    }
    if let Err(stop) = work.converge(&wanted, &place, actual).await {
        if matches!(stop, Stop::Failed(_)) {
            let nodes_know_clients = common.is_none() && !wanted.hides_clients();
            // That it did not become what it has to be is what has to be told.
            let _unfinished = guard::narrow(
                of,
                (asked, &wanted),
                (own, &clients, dual_stack),
                nodes_know_clients.then_some((claim, &ranges[..])),
                (actual, &work.behind),
            )
            .await;
        }
        return Err(stop);
    }
    let unguarded = match &mut own {
        Some(own) => guard::trim(cloud, (asked, own), (&wanted, &clients), until).await,
        None => Ok(()),
    };
    let mut opened = opened?;
    if claim.needs_checks(&checked_before) || opened.outcome.is_err() {
        // Now that its target groups are there, nobody takes the rule along any more; until now, somebody may have. And what served
        // before may make room.
        claim.serves = node_ports(&actual.groups);
        opened = guard::open(of, &mut claim, common.as_ref(), &work.behind).await?;
    }
    if opened.is_more {
        // These may have gone meanwhile.
        claim.checked_by_others.clear();
        guard::close(of, (&claim, reference), &opened.nodes, until).await?;
    }
    unguarded?;
    opened.outcome?;
    if let (Some(kept), Some(groups)) = (kept, &mut place.security_groups) {
        // Now it gets through by itself.
        groups.retain(|group| *group != kept);
        Box::pin(work.converge(&wanted, &place, actual)).await?;
    }
    let has =
        |own: &OwnGroup| actual.balancer.as_ref().is_some_and(|one| one.security_groups.contains(&own.id));
    if own.as_ref().is_some_and(|own| wanted.keeps_own_group() && !has(own)) {
        return Err(makes_room());
    }
    if of.defaults.security_groups
        && common.is_none()
        && !common_group::end_unless_used(of, former, until).await?
    {
        let groups = rules::Groups::read(cloud, &Nodes::new(), until).await?;
        return Err(detaching(&groups, &[common_group::name(of)]));
    }
    let Some(balancer) = &mut actual.balancer else { return Ok(()) };
    told::tag_for_user(on, balancer, &wanted.tags).await?;
    work.behind.room()?;
    if let Some(waits) = work.behind.waits(actual.groups.iter().map(|group| &group.targets)) {
        return Err(Stop::Later(waits));
    }
    told::tag(on, balancer, &digest_tags(&asked.request.desired_digest)).await?;
    balancer.serves = balancer.serves || look(of, &balancer.arn, until).await? == Now::Serves;
    let serves = balancer.serves;
    let seen = work.seen();
    let known = Known { balancer: balancer.clone(), groups: actual.groups.clone(), seen };
    Stop::if_cancelled(asked.ctx)?;
    of.network.known.lock().insert(reference.uid.clone(), known);
    if serves {
        return Ok(());
    }
    Err(Stop::Later(starts()))
}

/// On which ports nodes serve by these groups, or are checked.
fn node_ports(groups: &[Group]) -> BTreeSet<i32> {
    groups.iter().flat_map(|group| [group.is.port, rules::health_port(&group.is)]).collect()
}

/// Where the balancer is, or will be, and the addresses of its subnets.
async fn place(
    of: &Balancers,
    wanted: &Wanted,
    actual: &Actual,
    until: Deadline,
) -> Result<(Place, Vec<String>)> {
    let there = actual.balancer.as_ref();
    let groups = wanted.groups();
    let subnets = match there {
        Some(balancer) if wanted.subnets.is_empty() => {
            let dual_stack = wanted.families.dual_stack(true);
            if !dual_stack && !rules::need_subnets(&groups, &wanted.source_ranges) {
                let subnets = balancer.subnets.iter().cloned().collect();
                return Ok((Place { subnets, has_v6: false, security_groups: None }, Vec::new()));
            }
            subnets::among(&subnets::all(&of.cloud, until).await?, &balancer.subnets)
        }
        _ => {
            let asked = subnets::Asked { named: &wanted.subnets, internal: wanted.internal };
            let (chosen, _) = subnets::choose(&of.cloud, &asked, until).await?;
            for (annotation, what, given) in [
                ("aws-load-balancer-eip-allocations", "allocations", &wanted.allocations),
                ("aws-load-balancer-private-ipv4-addresses", "addresses", &wanted.private_addresses),
            ] {
                let (have, subnets) = (given.len(), chosen.len());
                if have != 0 && have != subnets {
                    let why = format!("has {have} {what} for {subnets} subnets; name one for each");
                    return Err(Annotations::error(annotation, &why));
                }
            }
            chosen
        }
    };
    let has_v6 = subnets.iter().all(|subnet| !subnet.ipv6_cidr_block_association_set().is_empty());
    let ids = subnets.iter().filter_map(|subnet| subnet.subnet_id().map(str::to_owned)).collect();
    Ok((Place { subnets: ids, has_v6, security_groups: None }, subnets::ranges(&subnets)))
}

/// The same Ensure again, while nothing but AWS's own work was left: whether that has ended. `None`: it is another one.
pub(super) async fn still_starting(
    of: &Balancers,
    asked: &Asked<'_>,
) -> Result<Option<EnsureLoadBalancerResponse>> {
    let (uid, digest) = (&asked.reference.uid, &asked.request.desired_digest);
    let known = of.network.known.lock().get(uid).map(|known| known.balancer.clone());
    let same = |one: &Balancer| !one.serves && !digest.is_empty() && digest_of(&one.tags) == *digest;
    let Some(mut balancer) = known.filter(same) else { return Ok(None) };
    let now = look(of, &balancer.arn, Deadline::of(asked.ctx)).await?;
    if now == Now::Ended {
        return Ok(None);
    }
    balancer.serves = now == Now::Serves;
    if balancer.serves
        && let Some(known) = of.network.known.lock().get_mut(uid)
    {
        known.balancer.serves = true;
    }
    let outcome = if balancer.serves { Ok(()) } else { Err(Stop::Later(starts())) };
    asked.answer(Some(balancer.standing()), outcome).map(Some)
}

/// How far AWS is with a new balancer.
#[derive(Debug, PartialEq, Eq)]
enum Now {
    Serves,
    Starts,
    /// It failed, or is not there any more.
    Ended,
}

/// Looks at all balancers at once: many that were made together start together.
async fn look(of: &Balancers, arn: &str, until: Deadline) -> Result<Now, Failure> {
    let mut starting = of.network.starting.lock().await;
    if let Some((at, arns)) = &*starting
        && at.elapsed() < GLANCE
        && arns.contains(arn)
    {
        return Ok(Now::Starts);
    }
    let all = read::all_balancers(&of.cloud, until).await?;
    let all: Vec<_> = all.iter().map(read::described).filter(|one| one.failed.is_none()).collect();
    let now = match all.iter().find(|one| one.arn == arn) {
        Some(found) if found.serves => Now::Serves,
        Some(_) => Now::Starts,
        None => Now::Ended,
    };
    let arns = all.into_iter().filter(|one| !one.serves).map(|one| one.arn).collect();
    *starting = Some((Instant::now(), arns));
    Ok(now)
}

/// What is left to be done once a balancer is gone.
pub(super) struct Left {
    groups: Vec<Group>,
    pub claim: rules::Claim,
}

/// Deletes the balancer, unless it is somebody else's. Its target groups stay until its rules are revoked: they tell on which ports
/// it was checked, to whoever begins anew as well.
pub(super) async fn delete(
    of: &Balancers,
    (cluster, service): (&ClusterRef, &ServiceRef),
    may_delete: impl Fn(&Texts) -> bool,
    until: Deadline,
) -> Result<Option<Left>, Failure> {
    let cloud = &of.cloud;
    let name = names::balancer(&service.uid);
    let balancer = read::balancer(cloud, &name, until).await?;
    if balancer.as_ref().is_some_and(|found| !may_delete(&found.tags)) {
        return Ok(None);
    }
    of.network.known.lock().remove(&service.uid);
    let all = read::all_groups(cloud, until).await?;
    let (groups, _) = all.of(cloud, &cluster.uid, service, until).await?;
    if let Some(balancer) = &balancer {
        absence_is_fine(apply::delete_balancer(cloud, &balancer.arn, until).await)?;
    }
    let claim = rules::Claim {
        name,
        checked: groups.iter().map(|group| rules::health_port(&group.is)).collect(),
        ..rules::Claim::default()
    };
    Ok(Some(Left { groups, claim }))
}

impl Left {
    /// Ends its target groups and its own security group. Returns whether AWS needs a while for the rest.
    pub(super) async fn end(
        self,
        of: &Balancers,
        (cluster, service): (&ClusterRef, &ServiceRef),
        groups: &rules::Groups,
        until: Deadline,
    ) -> Result<bool, Failure> {
        let mut in_use = false;
        for group in &self.groups {
            match apply::delete_group(&of.cloud, &group.arn, until).await {
                Err(failure) if failure.code() == "ResourceInUse" => in_use = true,
                answer => absence_is_fine(answer)?,
            }
        }
        if let Some(own) = OwnGroup::among(groups, &names::security_group(&cluster.name, service)) {
            in_use |= !own.delete(&of.cloud, until).await?;
        }
        Ok(in_use)
    }
}

/// Whether a balancer of the account in this region has this security group.
pub(super) async fn any_has_group(of: &Balancers, group: &str, until: Deadline) -> Result<bool, Failure> {
    let all = read::all_balancers(&of.cloud, until).await?;
    Ok(all.iter().any(|one| one.security_groups().iter().any(|id| id == group)))
}

/// A page of the cluster's balancers.
pub(super) async fn page(
    of: &Balancers,
    cluster_uid: &str,
    (size, marker): (i32, Option<String>),
    until: Deadline,
) -> Result<Page<LoadBalancer>, Failure> {
    let (all, next) = read::page(&of.cloud, size, marker, until).await?;
    let is_candidate = |one: &&types::LoadBalancer| {
        read::is_network(one) && names::is_balancer(one.load_balancer_name().unwrap_or_default())
    };
    let mut found: Vec<_> = all
        .iter()
        .filter(is_candidate)
        .map(|one| (one.load_balancer_name().unwrap_or_default(), read::described(one)))
        .collect();
    let arns: Vec<_> = found.iter().map(|(_, one)| one.arn.clone()).collect();
    let mut tags = read::tags(&of.cloud, &arns, until).await?;
    let ours = found.iter_mut().filter_map(|(name, balancer)| {
        balancer.tags = tags.remove(&balancer.arn)?;
        balancer.standing().listed(name, cluster_uid)
    });
    Ok((ours.collect(), next))
}

fn starts() -> InProgress {
    later(UNTIL_IT_SERVES, "PROVISIONING", "AWS is starting the balancer")
}
