//! The rules by which traffic of balancers reaches nodes, on the security groups of the nodes. For a network balancer there is one
//! for each node port and range of clients, named after the balancer; for a classic one a single rule lets its group in.
//!
//! In: node ports, ranges, the nodes' security groups. Out: what to grant and what to revoke. Names and shapes are the published
//! provider's.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_ec2::types::{IpPermission, IpRange, Ipv6Range, SecurityGroup, UserIdGroupPair};
use aws_sdk_elasticloadbalancingv2::types::ProtocolEnum;
use cloudprovider_sdk::{ProviderError, Result};

use super::WHILE_IT_IS_NAMED;
use super::hosts::Host;
use super::network::TargetGroup;
use super::service::{EVERYWHERE, TRAFFIC_PORT};
use super::told::is_of_cluster;
use crate::api::{Action, Deadline, Failure, all_pages, marker};
use crate::cloud::{Cloud, Owner};

const CLIENT: &str = "kubernetes.io/rule/nlb/client";
const HEALTH: &str = "kubernetes.io/rule/nlb/health";
/// Shared by all balancers: with it nodes hear how large packets may be.
const MTU: &str = "kubernetes.io/rule/nlb/mtu";
const UDP: &str = "udp";
/// Describe the rules that let a classic balancer in, and all network balancers. The published provider's say nothing, and AWS does
/// not compare it.
pub(super) const LET_IN: &str = "cloudprovider.ccm/balancer";
pub(super) const ALL_IN: &str = "cloudprovider.ccm/balancers";
/// AWS's code for a rule that is there.
const DUPLICATE: &str = "InvalidPermission.Duplicate";
/// Every protocol and port.
const EVERYTHING: &str = "-1";
pub(super) const TCP: &str = "tcp";

/// What one rule lets through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    protocol: String,
    from: i32,
    to: i32,
    range: String,
    description: String,
}

pub(super) type Rules = BTreeSet<Rule>;

/// Whether targets are checked on other ports than clients use, or from elsewhere than clients come, so that the balancer's own
/// subnets need rules.
pub(super) fn need_subnets(groups: &[&TargetGroup], clients: &[String]) -> bool {
    let all_tcp = groups.iter().all(|group| group.protocol != ProtocolEnum::Udp);
    let health: BTreeSet<_> = groups.iter().map(|group| health_port(group)).collect();
    let traffic: BTreeSet<_> = groups.iter().map(|group| group.port).collect();
    clients != [EVERYWHERE] || !all_tcp || health != traffic
}

/// On which port a group's targets are checked.
pub(super) fn health_port(group: &TargetGroup) -> i32 {
    match &*group.health.port {
        TRAFFIC_PORT => group.port,
        port => port.parse().unwrap_or(group.port),
    }
}

/// The rules of a balancer with these target groups.
pub(super) fn wanted(name: &str, groups: &[&TargetGroup], clients: &[String], subnets: &[String]) -> Rules {
    let rule = |protocol: &str, port: i32, range: &str, kind: &str| {
        Rule::new(protocol, (port, port), range, &format!("{kind}={name}"))
    };
    let mut rules = Rules::new();
    for group in groups {
        for protocol in protocols(&group.protocol) {
            rules.extend(clients.iter().map(|range| rule(protocol, group.port, range, CLIENT)));
        }
    }
    if need_subnets(groups, clients) {
        for port in groups.iter().map(|group| health_port(group)) {
            let checks = subnets.iter().map(|range| rule(TCP, port, range, HEALTH)).collect();
            rules.extend(beyond(&checks, &rules));
        }
    }
    rules
}

/// Those of some rules that are not among others. AWS has one rule for a protocol, ports and a range, whatever its description, and
/// refuses all of a call in which one is there or twice.
pub(super) fn beyond(some: &Rules, others: &Rules) -> Rules {
    let keys: BTreeSet<_> = others.iter().map(Rule::key).collect();
    some.iter().filter(|rule| !keys.contains(&rule.key())).cloned().collect()
}

/// The rules of a balancer's own security group: its clients, who also hear how large packets may be.
pub(super) fn of_clients(
    ports: impl Iterator<Item = (i32, &'static [&'static str])> + Clone,
    clients: &[String],
    dual_stack: bool,
) -> Rules {
    let mut rules: Rules = clients.iter().map(|range| Rule::of_packets(range, "")).collect();
    // Restricted clients have IPv4 alone.
    let everywhere = dual_stack.then_some("::/0");
    for range in clients.iter().map(String::as_str).chain(everywhere) {
        for (port, protocols) in ports.clone() {
            rules.extend(protocols.iter().map(|protocol| Rule::new(protocol, (port, port), range, "")));
        }
    }
    rules
}

/// What a group's protocol is on the wire.
pub(super) fn protocols(protocol: &ProtocolEnum) -> &'static [&'static str] {
    match protocol {
        ProtocolEnum::Udp => &[UDP],
        ProtocolEnum::TcpUdp => &[TCP, UDP],
        _ => &[TCP],
    }
}

/// What a balancer wants of the nodes' security groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub name: String,
    pub wanted: Rules,
    /// What lets the same clients to the same ports in the name of another balancer of the cluster becomes this one's: the port was
    /// that one's, which closes its rules once it knows.
    pub takes: bool,
    /// On which ports its targets were or are checked, and those of all other balancers. A rule of several balancers has the
    /// name of the first, and goes with the last.
    pub checked: BTreeSet<i32>,
    pub checked_by_others: BTreeSet<i32>,
    /// On which ports nodes serve it or are checked as long as its listeners have not moved.
    pub serves: BTreeSet<i32>,
    /// The groups that could not be opened: what gets through there is all that there is.
    pub spared: BTreeSet<String>,
}

impl Claim {
    /// What a group lacks, and what it has too much, unless others are checked by it.
    fn difference(&self, there: &Rules, of_nodes: bool) -> (Rules, Rules) {
        let nothing = Rules::new();
        let wanted = if of_nodes { &self.wanted } else { &nothing };
        let mut grants = beyond(wanted, there);
        let wanted_keys: BTreeSet<_> = wanted.iter().map(Rule::key).collect();
        let is_too_much = |rule: &&Rule| !wanted_keys.contains(&rule.key()) && self.is_mine(rule);
        let mut revokes: Rules = there.iter().filter(is_too_much).cloned().collect();
        if !grants.is_empty() || !revokes.is_empty() {
            let after: Rules = there.union(&grants).filter(|rule| !revokes.contains(rule)).cloned().collect();
            let mtu = mtu(&after);
            grants.extend(beyond(&mtu, there));
            revokes
                .extend(there.iter().filter(|rule| rule.description == MTU && !mtu.contains(rule)).cloned());
        }
        (grants, revokes)
    }

    /// The rules of other balancers that become this one's.
    fn taken(&self, there: &Rules, of_nodes: bool) -> Rules {
        if !self.takes || !of_nodes {
            return Rules::new();
        }
        let is_of_clients = |rule: &&Rule| rule.description.starts_with(CLIENT);
        let wanted: BTreeSet<_> = self.wanted.iter().filter(is_of_clients).map(Rule::key).collect();
        let is_anothers = |rule: &&Rule| wanted.contains(&rule.key()) && !self.is_named(rule);
        there.iter().filter(is_of_clients).filter(is_anothers).cloned().collect()
    }

    /// Whether checks of its targets need a rule that another balancer may have taken along: on ports other than these, on which it
    /// was checked before.
    pub(super) fn needs_checks(&self, before: &BTreeSet<i32>) -> bool {
        self.wanted.iter().any(|rule| rule.is_check() && !before.contains(&rule.from))
    }

    /// Whether the balancer serves clients who may still come, or is checked, by this rule.
    fn serves_by(&self, rule: &Rule) -> bool {
        let may_come = |one: &Rule| one.range == rule.range || one.range == EVERYWHERE;
        self.serves.contains(&rule.from) && (rule.is_check() || self.wanted.iter().any(may_come))
    }

    /// Whether this rule, which goes in the end, may go before others come. An update does not know whether others are checked by it.
    fn may_make_room(&self, rule: &Rule) -> bool {
        let is_known = self.takes || !rule.is_check();
        is_known && !self.serves_by(rule) && !self.is_others(rule)
    }

    /// Whether nobody comes in by this rule, now or in the end. By one for checks, another balancer may be checked.
    fn is_idle(&self, rule: &Rule) -> bool {
        let is_wanted = self.wanted.iter().any(|one| one.from == rule.from);
        let is_of_several = rule.description == MTU || rule.is_check();
        !is_of_several && !is_wanted && !self.serves.contains(&rule.from)
    }

    fn may_close(&self, id: &str, group: &Of) -> bool {
        group.may_have_rules_of(self) && !self.spared.contains(id)
    }

    /// Whether this rule lets the balancer's clients or checks through.
    fn is_mine(&self, rule: &Rule) -> bool {
        self.is_named(rule) || rule.is_check() && self.checked.contains(&rule.from)
    }

    /// Whether others are checked by this rule.
    fn is_others(&self, rule: &Rule) -> bool {
        rule.is_check() && self.checked_by_others.contains(&rule.from)
    }

    /// Whether to look again for others that are checked by this rule, which is too much: they may have gone if the balancer itself has
    /// been checked on its port until now.
    fn may_end(&self, rule: &Rule) -> bool {
        let gives_up =
            self.checked.contains(&rule.from) && !self.wanted.iter().any(|one| one.from == rule.from);
        gives_up || !self.is_others(rule)
    }

    /// Whether this rule was made for this balancer.
    fn is_named(&self, rule: &Rule) -> bool {
        [CLIENT, HEALTH].iter().any(|kind| rule.description == format!("{kind}={}", self.name))
    }
}

impl Rule {
    fn new(protocol: &str, (from, to): (i32, i32), range: &str, description: &str) -> Self {
        let owned = str::to_owned;
        Self { protocol: owned(protocol), from, to, range: owned(range), description: owned(description) }
    }

    /// Lets somebody hear how large packets may be.
    fn of_packets(range: &str, description: &str) -> Self {
        Self::new("icmp", (3, 4), range, description)
    }

    fn is_check(&self) -> bool {
        self.description.starts_with(HEALTH)
    }

    /// What makes it one rule for AWS.
    fn key(&self) -> (&str, i32, i32, &str) {
        (&self.protocol, self.from, self.to, &self.range)
    }
}

/// The rules that let nodes hear how large packets may be, for all clients of all balancers.
fn mtu(rules: &Rules) -> Rules {
    let of_clients = rules.iter().filter(|rule| rule.description.contains(CLIENT));
    of_clients.map(|rule| Rule::of_packets(&rule.range, MTU)).collect()
}

/// The security groups of the cluster's network.
pub(super) struct Groups(BTreeMap<String, Of>);

struct Of {
    name: String,
    owner: Owner,
    /// Nodes may have it: it has the cluster's tag, or is one of the nodes at hand.
    is_of_nodes: bool,
    rules: Rules,
    /// The groups whose members get through to everything, and why, as the rule says.
    peers: BTreeMap<String, String>,
    /// The groups that other rules name.
    named: BTreeSet<String>,
}

impl Of {
    fn is_tagged(&self) -> bool {
        self.owner == Owner::Us
    }

    /// It is the nodes', or has some: one without the cluster's tag keeps them when its nodes go. Of checks, another cluster's has its
    /// own.
    fn may_have_rules_of(&self, claim: &Claim) -> bool {
        let is_its = match self.owner {
            Owner::AnotherCluster => Claim::is_named,
            Owner::Us | Owner::Nobody => Claim::is_mine,
        };
        self.is_of_nodes || self.rules.iter().any(|rule| is_its(claim, rule))
    }
}

impl Groups {
    pub(super) async fn read(
        cloud: &Cloud,
        hosts: &HashMap<String, Host>,
        until: Deadline,
    ) -> Result<Self, Failure> {
        let of_hosts: BTreeSet<_> = hosts.values().flat_map(|host| &host.groups).collect();
        let page = async |at| {
            let asked = cloud.ec2.describe_security_groups().filters(cloud.of_network()).max_results(1000);
            let asked = asked.set_next_token(at).send();
            let answer = cloud.calls.make(Action::DescribeSecurityGroups, until, asked).await?;
            Ok((answer.security_groups.unwrap_or_default(), marker(answer.next_token)))
        };
        let of = |group: SecurityGroup| {
            let id = group.group_id().unwrap_or_default().to_owned();
            let owner = cloud.cluster.owner(group.tags());
            let is_of_nodes = owner == Owner::Us || of_hosts.contains(&id);
            let name = group.group_name().unwrap_or_default().to_owned();
            let (rules, peers, named) = (of(&group), peers(&group), named(&group));
            (id, Of { name, owner, is_of_nodes, rules, peers, named })
        };
        Ok(Self(all_pages(page).await?.into_iter().map(of).collect()))
    }

    /// The group of this name, see [`super::own_group`], and what it lets through.
    pub(super) fn named(&self, name: &str) -> Option<(&String, &Rules)> {
        let is_it = |group: &Of| group.owner != Owner::AnotherCluster && group.name == name;
        self.0.iter().find(|(_, group)| is_it(group)).map(|(id, group)| (id, &group.rules))
    }

    /// Whether it has the cluster's tag.
    pub(super) fn is_tagged(&self, id: &str) -> bool {
        self.0.get(id).is_some_and(Of::is_tagged)
    }

    /// The other groups whose rules name the group of this name, which AWS keeps for as long as they do.
    pub(super) fn naming(&self, name: &str) -> Option<(&String, Vec<&String>)> {
        let (own, _) = self.named(name)?;
        // The nodes' own rule for what network balancers have in common comes and goes with it.
        let lets_in = |group: &Of| group.peers.get(own).is_some_and(|why| why != ALL_IN);
        let names = |group: &Of| group.named.contains(own) || lets_in(group);
        let naming = self.0.iter().filter(|(id, group)| *id != own && names(group));
        Some((own, naming.map(|(id, _)| id).collect())).filter(|(_, naming): &(_, Vec<_>)| !naming.is_empty())
    }

    /// Which of a balancer's groups the nodes let in: the one with the cluster's tag, or the first.
    pub(super) fn let_in_by_nodes<'a>(&self, of_balancer: &'a [String]) -> Option<&'a String> {
        of_balancer.iter().find(|id| self.is_tagged(id)).or(of_balancer.first())
    }

    /// All groups that get through to everything on others, for this reason.
    pub(super) fn all_let_in(&self, why: &str) -> BTreeSet<String> {
        let peers = self.0.values().flat_map(|group| &group.peers);
        peers.filter(|(_, its)| *its == why).map(|(peer, _)| peer.clone()).collect()
    }

    /// Lets a balancer's group through to everything on the nodes' groups, one of which may be full. Returns whether there is
    /// something for [`Self::shut_out`].
    pub(super) async fn let_in(
        &mut self,
        cloud: &Cloud,
        (balancer, is_own): (&str, bool),
        why: &str,
        nodes: &BTreeSet<String>,
        until: Deadline,
    ) -> Result<bool, Failure> {
        let mut outcome = Ok(());
        for id in nodes {
            let Some(group) = self.0.get_mut(id).filter(|group| !group.peers.contains_key(balancer)) else {
                continue;
            };
            let asked = cloud.ec2.authorize_security_group_ingress().group_id(id);
            let asked = asked.ip_permissions(everything_from(balancer, Some(why))).send();
            match cloud.calls.make(Action::AuthorizeSecurityGroupIngress, until, asked).await {
                Err(failure) if failure.is_for_all() => return Err(failure),
                Err(failure) if failure.code() != DUPLICATE => outcome = outcome.and(Err(failure)),
                _is_open => drop(group.peers.insert(balancer.to_owned(), why.to_owned())),
            }
        }
        outcome?;
        let is_open = |group: &Of| group.peers.get(balancer).is_some_and(|its| its == why || is_own);
        Ok(self.0.iter().any(|(id, group)| is_open(group) && !nodes.contains(id)))
    }

    /// Lets it through no more, but on these groups. Rules that somebody else made stay, lest a Service be given the group of the
    /// control plane or the nodes and take its rules along; unless it is the balancer's own, which AWS deletes only when no other
    /// group names it. Returns where it was let through.
    pub(super) async fn shut_out(
        &mut self,
        cloud: &Cloud,
        (balancer, is_own): (&str, bool),
        why: &str,
        nodes: &BTreeSet<String>,
        until: Deadline,
    ) -> Result<BTreeSet<String>, Failure> {
        let mut shut = BTreeSet::new();
        for (id, group) in &mut self.0 {
            let Some(its) = group.peers.get(balancer) else { continue };
            if nodes.contains(id) || !(its == why || is_own) {
                continue;
            }
            let asked = cloud.ec2.revoke_security_group_ingress().group_id(id);
            let asked = asked.ip_permissions(everything_from(balancer, None)).send();
            match cloud.calls.make(Action::RevokeSecurityGroupIngress, until, asked).await {
                Err(failure) if failure.code() == "InvalidPermission.NotFound" => {}
                answer => answer.map(drop)?,
            }
            group.peers.remove(balancer);
            shut.insert(id.clone());
        }
        Ok(shut)
    }

    /// The group of each node that has the rules: the one with the cluster's tag, or the only one. And why a node has none.
    pub(super) fn of_nodes(&self, hosts: &HashMap<String, Host>) -> (BTreeSet<String>, Result<()>) {
        let is_tagged = |id: &&String| self.is_tagged(id);
        let (mut groups, mut unclear) = (BTreeSet::new(), Ok(()));
        for (id, host) in hosts {
            let (of_cluster, others): (Vec<_>, Vec<_>) = host.groups.iter().partition(is_tagged);
            let one = match (&of_cluster[..], &others[..]) {
                ([one], _) | ([], [one]) => one,
                ([], []) => continue,
                ([], several) | (several, _) => {
                    let which = if of_cluster.is_empty() { "" } else { " of the cluster" };
                    let why = format!(
                        "instance {id} has several security groups{which}, {several:?}: tag one of them alone"
                    );
                    // One instance's tags must not keep anything else from working.
                    unclear = Err(ProviderError::retry_later(WHILE_IT_IS_NAMED, &why));
                    continue;
                }
            };
            groups.insert((*one).clone());
        }
        (groups, unclear)
    }

    /// The groups that let a balancer in.
    pub(super) fn open_to(&self, name: &str) -> impl Iterator<Item = String> {
        let named = [CLIENT, HEALTH].map(|kind| format!("{kind}={name}"));
        let is_open = move |group: &Of| group.rules.iter().any(|rule| named.contains(&rule.description));
        self.0.iter().filter(move |(_, group)| is_open(group)).map(|(id, _)| id.clone())
    }

    /// Whether some of what would be revoked lets checks through, of this balancer or others.
    pub(super) fn closes_checks(&self, claim: &Claim, nodes: &BTreeSet<String>) -> bool {
        let mut of_nodes = self.0.iter().filter(|(id, group)| claim.may_close(id, group));
        of_nodes.any(|(id, group)| {
            claim.difference(&group.rules, nodes.contains(id)).1.iter().any(Rule::is_check)
        })
    }

    /// Grants what is wanted on the nodes' groups, one of which may be full. Spares those that take it not, and returns the first
    /// such failure beside whether there is something to revoke.
    pub(super) async fn grant(
        &mut self,
        cloud: &Cloud,
        claim: &mut Claim,
        nodes: &BTreeSet<String>,
        until: Deadline,
    ) -> Result<(bool, Result<(), Failure>), Failure> {
        let (mut is_more, mut spared, mut outcome) = (false, BTreeSet::new(), Ok(()));
        for (id, group) in self.0.iter_mut().filter(|(_, group)| group.may_have_rules_of(claim)) {
            let of_nodes = nodes.contains(id);
            match grant(cloud, claim, (id, of_nodes), &mut group.rules, until).await {
                Err(failure) if failure.is_for_all() => return Err(failure),
                Err(failure) => {
                    spared.insert(id.clone());
                    outcome = outcome.and(Err(failure));
                    continue;
                }
                Ok(()) => {}
            }
            is_more |= claim.difference(&group.rules, of_nodes).1.iter().any(|rule| claim.may_end(rule));
        }
        claim.spared = spared;
        Ok((is_more, outcome))
    }

    /// Revokes what is not wanted, which on all other groups is everything.
    pub(super) async fn revoke(
        &mut self,
        cloud: &Cloud,
        claim: &Claim,
        nodes: &BTreeSet<String>,
        until: Deadline,
    ) -> Result<(), Failure> {
        for (id, group) in self.0.iter_mut().filter(|(id, group)| claim.may_close(id, group)) {
            let (_, mut revokes) = claim.difference(&group.rules, nodes.contains(id));
            revokes.retain(|rule| !claim.is_others(rule));
            if revokes.is_empty() {
                continue;
            }
            self::revoke(cloud, id, &revokes, until).await?;
            group.rules.retain(|rule| !revokes.contains(rule));
        }
        Ok(())
    }
}

/// Grants what is wanted on one group, which `there` tells of.
async fn grant(
    cloud: &Cloud,
    claim: &Claim,
    (id, of_nodes): (&str, bool),
    there: &mut Rules,
    until: Deadline,
) -> Result<(), Failure> {
    let mut taken = claim.taken(there, of_nodes);
    for name in names_of(&taken) {
        if is_of_another_cluster(cloud, &name, until).await? {
            taken.retain(|rule| !rule.description.ends_with(&name));
        }
    }
    if !taken.is_empty() {
        revoke(cloud, id, &taken, until).await?;
        there.retain(|rule| !taken.contains(rule));
    }
    let (grants, mut revokes) = claim.difference(there, of_nodes);
    revokes.retain(|rule| claim.may_make_room(rule));
    if grants.len() > revokes.len() {
        // Who comes in now is kept out for nothing if there is no room all the same.
        revokes.retain(|rule| claim.is_idle(rule));
    }
    let outcome = exchange(cloud, id, there, (grants, &revokes), until).await;
    if outcome.is_err() {
        // What was open stays open, in whoever's name.
        exchange(cloud, id, there, (taken, &Rules::new()), until).await?;
    }
    outcome
}

/// The balancers that these rules let clients reach.
fn names_of(rules: &Rules) -> BTreeSet<String> {
    let name = |rule: &Rule| Some(rule.description.split_once('=')?.1.to_owned());
    rules.iter().filter_map(name).collect()
}

/// Whether the balancer of this name is there and belongs to another cluster, whose nodes have the same security group.
async fn is_of_another_cluster(cloud: &Cloud, name: &str, until: Deadline) -> Result<bool, Failure> {
    let found = super::network::read(cloud, name, until).await?;
    Ok(found.is_some_and(|found| !is_of_cluster(cloud, &found.tags)))
}

/// Grants, and if there is no room, revokes first: what fits in the end would otherwise never get there. Leaves in `there` what the
/// group lets through, however it ends.
pub(super) async fn exchange(
    cloud: &Cloud,
    group: &str,
    there: &mut Rules,
    (mut grants, revokes): (Rules, &Rules),
    until: Deadline,
) -> Result<(), Failure> {
    let mut outcome = authorize(cloud, group, &grants, until).await;
    if outcome.as_ref().is_err_and(|failure| failure.code() == DUPLICATE) {
        // An earlier call granted some of it, whose answer was lost.
        *there = read(cloud, group, until).await?;
        grants = beyond(&grants, there);
        outcome = authorize(cloud, group, &grants, until).await;
    }
    if outcome.as_ref().is_err_and(Failure::is_full_of_rules) && !revokes.is_empty() {
        revoke(cloud, group, revokes, until).await?;
        there.retain(|rule| !revokes.contains(rule));
        outcome = authorize(cloud, group, &grants, until).await;
    }
    outcome?;
    there.extend(grants);
    Ok(())
}

/// What one group lets in now.
async fn read(cloud: &Cloud, group: &str, until: Deadline) -> Result<Rules, Failure> {
    let asked = cloud.ec2.describe_security_groups().group_ids(group).send();
    let answer = cloud.calls.make(Action::DescribeSecurityGroups, until, asked).await?;
    Ok(answer.security_groups().first().map(of).unwrap_or_default())
}

async fn authorize(cloud: &Cloud, group: &str, rules: &Rules, until: Deadline) -> Result<(), Failure> {
    if rules.is_empty() {
        return Ok(());
    }
    let asked = cloud.ec2.authorize_security_group_ingress().group_id(group);
    let asked = asked.set_ip_permissions(Some(permissions(rules)));
    cloud.calls.make(Action::AuthorizeSecurityGroupIngress, until, asked.send()).await.map(drop)
}

pub(super) async fn revoke(
    cloud: &Cloud,
    group: &str,
    rules: &Rules,
    until: Deadline,
) -> Result<(), Failure> {
    let asked = cloud.ec2.revoke_security_group_ingress().group_id(group);
    let asked = asked.set_ip_permissions(Some(permissions(rules)));
    cloud.calls.make(Action::RevokeSecurityGroupIngress, until, asked.send()).await.map(drop)
}

/// What a group lets in from ranges of addresses.
pub(super) fn of(group: &SecurityGroup) -> Rules {
    let of = |permission: &IpPermission| {
        let ports = (permission.from_port().unwrap_or_default(), permission.to_port().unwrap_or_default());
        let rule = |range: Option<&str>, description: Option<&str>| {
            let protocol = permission.ip_protocol().unwrap_or_default();
            Rule::new(protocol, ports, range.unwrap_or_default(), description.unwrap_or_default())
        };
        let v4 = permission.ip_ranges().iter().map(|one| rule(one.cidr_ip(), one.description()));
        let v6 = permission.ipv6_ranges().iter().map(|one| rule(one.cidr_ipv6(), one.description()));
        v4.chain(v6).collect::<Vec<_>>()
    };
    group.ip_permissions().iter().flat_map(of).collect()
}

/// The groups whose members a group lets through to everything.
fn peers(group: &SecurityGroup) -> BTreeMap<String, String> {
    let to_everything = group.ip_permissions().iter().filter(|one| one.ip_protocol() == Some(EVERYTHING));
    let pairs = to_everything.flat_map(IpPermission::user_id_group_pairs);
    let peer = |pair: &UserIdGroupPair| {
        Some((pair.group_id()?.to_owned(), pair.description().unwrap_or_default().to_owned()))
    };
    pairs.filter_map(peer).collect()
}

/// The groups that a group's other rules name.
fn named(group: &SecurityGroup) -> BTreeSet<String> {
    let of_some = group.ip_permissions().iter().filter(|one| one.ip_protocol() != Some(EVERYTHING));
    let pairs = of_some.chain(group.ip_permissions_egress()).flat_map(IpPermission::user_id_group_pairs);
    pairs.filter_map(|pair| pair.group_id().map(str::to_owned)).collect()
}

fn everything_from(group: &str, why: Option<&str>) -> IpPermission {
    let pair = UserIdGroupPair::builder().group_id(group).set_description(why.map(str::to_owned));
    IpPermission::builder().ip_protocol(EVERYTHING).user_id_group_pairs(pair.build()).build()
}

fn permissions(rules: &Rules) -> Vec<IpPermission> {
    let of = |rule: &Rule| {
        let permission =
            IpPermission::builder().ip_protocol(&rule.protocol).from_port(rule.from).to_port(rule.to);
        let description = Some(rule.description.clone()).filter(|text| !text.is_empty());
        if rule.range.contains(':') {
            let range = Ipv6Range::builder().cidr_ipv6(&rule.range).set_description(description);
            return permission.ipv6_ranges(range.build()).build();
        }
        let range = IpRange::builder().cidr_ip(&rule.range).set_description(description);
        permission.ip_ranges(range.build()).build()
    };
    rules.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
