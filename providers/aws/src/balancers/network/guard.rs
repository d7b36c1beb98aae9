//! Who gets through to a balancer, and by it to the nodes.
//!
//! In: what a Service wants, the balancer's own security group, the rules on the nodes' groups. Out: these rules. Opened is first,
//! and closed last, so that what serves goes on.

use std::collections::{BTreeSet, HashMap};

use cloudprovider_sdk::proto::{ClusterRef, ServiceRef};
use cloudprovider_sdk::{ProviderError, Result};

use super::plan::{Actual, Place};
use super::read;
use super::wanted::{SecurityGroups, TargetGroup, Wanted};
use crate::api::{Deadline, Failure, Stop};
use crate::balancers::behind::Behind;
use crate::balancers::own_group::OwnGroup;
use crate::balancers::rules::{self, Rules};
use crate::balancers::{Asked, Balancers, Nodes, detaching, names};
use crate::cloud::Cloud;

const DESCRIPTION: &str = "[k8s] Managed SecurityGroup for LoadBalancer";

/// Decides on the balancer's security groups. Returns the one of its own if there is one, wanted or not. What it has at the ports that
/// serve stays until these have moved.
pub(super) async fn ensure(
    cloud: &Cloud,
    (cluster, service): (&ClusterRef, &ServiceRef),
    (wanted, rules, serves): (&Wanted, &Rules, &Rules),
    (actual, place): (&Actual, &mut Place),
    until: Deadline,
) -> Result<Option<OwnGroup>, Stop> {
    // AWS gives none to a balancer that was made without.
    if actual.balancer.as_ref().is_some_and(|one| one.security_groups.is_empty()) {
        return Ok(None);
    }
    let name = names::security_group(&cluster.name, service);
    match &wanted.security_groups {
        // One of its own, from a time when the cloud config said so, is still what clients come through.
        SecurityGroups::AsTheyAre => {
            let Some(balancer) = &actual.balancer else { return Ok(None) };
            let own = OwnGroup::find(cloud, &name, until).await?;
            let Some(mut own) = own.filter(|own| balancer.security_groups.contains(&own.id)) else {
                return Ok(None);
            };
            own.let_in(cloud, (rules, serves), until).await?;
            Ok(Some(own))
        }
        SecurityGroups::Given(groups) => {
            place.security_groups = Some(groups.clone());
            Ok(OwnGroup::find(cloud, &name, until).await?)
        }
        SecurityGroups::Own => {
            let mut own = OwnGroup::ensure(cloud, (&name, DESCRIPTION), &wanted.tags, until).await?;
            let others = actual.balancer.as_ref().map(|one| &one.security_groups);
            let others = others.filter(|groups| !groups.contains(&own.id));
            let nothing = Rules::new();
            own.let_in(cloud, (rules, if others.is_some() { &nothing } else { serves }), until).await?;
            place.security_groups = Some(match others {
                // Whom it has no room for comes in by the others.
                Some(others) if own.lacks_room() => others.iter().cloned().collect(),
                _ => vec![own.id.clone()],
            });
            Ok(Some(own))
        }
    }
}

/// Ends what the balancer's own security group has too much, once the balancer is as it has to be.
pub(super) async fn trim(
    cloud: &Cloud,
    (asked, own): (&Asked<'_>, &mut OwnGroup),
    (wanted, rules): (&Wanted, &Rules),
    until: Deadline,
) -> Result<(), Stop> {
    if wanted.keeps_own_group() {
        return own.trim(cloud, rules, until).await;
    }
    if own.delete(cloud, until).await? {
        return Ok(());
    }
    let groups = rules::Groups::read(cloud, &Nodes::new(), until).await?;
    Err(detaching(&groups, &[names::security_group(&asked.cluster.name, asked.reference)]))
}

/// The nodes, opened to a balancer.
pub(super) struct Opened {
    /// Their groups.
    pub nodes: BTreeSet<String>,
    /// They let in who is not wanted.
    pub is_more: bool,
    /// Why not all of them are.
    pub outcome: Result<()>,
}

impl Default for Opened {
    fn default() -> Self {
        Self { nodes: BTreeSet::new(), is_more: false, outcome: Ok(()) }
    }
}

/// Opens the nodes to the balancer.
pub(super) async fn open(
    of: &Balancers,
    claim: &mut rules::Claim,
    common: Option<&String>,
    behind: &Behind<'_>,
) -> Result<Opened, Failure> {
    if of.closed_groups {
        return Ok(Opened::default());
    }
    let _turn = of.rules.lock().await;
    let mut groups = rules::Groups::read(&of.cloud, &behind.hosts, behind.until).await?;
    open_in(of, &mut groups, claim, common, behind).await
}

/// The same, with all groups at hand, in the turn of those who change rules.
pub(super) async fn open_in(
    of: &Balancers,
    groups: &mut rules::Groups,
    claim: &mut rules::Claim,
    common: Option<&String>,
    behind: &Behind<'_>,
) -> Result<Opened, Failure> {
    let until = behind.until;
    let (mut nodes, unclear) = groups.of_nodes(&behind.hosts);
    if unclear.is_err() || !behind.all_run() {
        // EC2 may have forgotten some for a while: where it is open, it stays open.
        nodes.extend(groups.open_to(&claim.name));
    }
    if let Some(common) = common {
        groups.let_in(&of.cloud, (common, true), rules::ALL_IN, &nodes, until).await?;
    }
    let (is_more, outcome) = groups.grant(&of.cloud, claim, &nodes, until).await?;
    Ok(Opened { nodes, is_more, outcome: outcome.map_err(ProviderError::from).and(unclear) })
}

/// Closes the nodes to what is not wanted.
pub(super) async fn close(
    of: &Balancers,
    (claim, service): (&rules::Claim, &ServiceRef),
    nodes: &BTreeSet<String>,
    until: Deadline,
) -> Result<(), Failure> {
    if of.closed_groups {
        return Ok(());
    }
    let _turn = of.rules.lock().await;
    let mut groups = rules::Groups::read(&of.cloud, &HashMap::new(), until).await?;
    close_in(of, &mut groups, (claim, service), nodes, until).await
}

/// The same, with all groups at hand, in the turn of those who change rules.
pub(in crate::balancers) async fn close_in(
    of: &Balancers,
    groups: &mut rules::Groups,
    (claim, service): (&rules::Claim, &ServiceRef),
    nodes: &BTreeSet<String>,
    until: Deadline,
) -> Result<(), Failure> {
    let mut claim = claim.clone();
    if groups.closes_checks(&claim, nodes) {
        // Who is checked by the same rule may have come or gone in the meantime.
        let others = read::all_groups(&of.cloud, until).await?.checked_by_others(service);
        claim.checked_by_others.extend(others);
    }
    groups.revoke(&of.cloud, &claim, nodes, until).await
}

/// The rules of the balancer's own group for the ports on which it serves.
pub(super) fn serving(actual: &Actual, wanted: &Wanted, dual_stack: bool) -> Rules {
    let of_group = |(port, group): (i32, &TargetGroup)| (port, rules::protocols(&group.protocol));
    let ports: Vec<_> = actual.listeners().map(of_group).collect();
    rules::of_clients(ports.into_iter(), &wanted.source_ranges, dual_stack)
}

/// Keeps out whoever may come no more, although a balancer did not become what it has to be. Its ports, also those that had to go,
/// stay open to whoever may come. Without a claim, nodes do not know clients.
pub(super) async fn narrow(
    of: &Balancers,
    (asked, wanted): (&Asked<'_>, &Wanted),
    (own, clients, dual_stack): (Option<OwnGroup>, &Rules, bool),
    of_nodes: Option<(rules::Claim, &[String])>,
    (actual, behind): (&Actual, &Behind<'_>),
) -> Result<(), Stop> {
    Stop::if_cancelled(asked.ctx)?;
    let until = asked.until;
    let mut guarded = Ok(());
    if let Some(own) = own.filter(|_| wanted.keeps_own_group()) {
        let rules: Rules = clients.union(&serving(actual, wanted, dual_stack)).cloned().collect();
        guarded = own.only(&of.cloud, &rules, until).await;
    }
    let Some((mut claim, subnets)) = of_nodes else { return guarded };
    let serving = actual.groups.iter().map(|group| &group.is);
    let groups: Vec<_> = wanted.groups().into_iter().chain(serving.clone()).collect();
    claim.wanted = rules::wanted(&wanted.name, &groups, &wanted.source_ranges, subnets);
    // How they are checked is not at stake.
    claim.checked_by_others.extend(serving.map(rules::health_port));
    let opened = open(of, &mut claim, None, behind).await?;
    if opened.is_more {
        close(of, (&claim, asked.reference), &opened.nodes, until).await?;
    }
    guarded
}
