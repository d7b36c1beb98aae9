//! Where a balancer goes.
//!
//! In: the subnets and route tables of the cluster's network. Out: one subnet for each zone. The choice is the published
//! provider's.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{RouteTable, Subnet, Tag};
use cloudprovider_sdk::Result;

use super::service::Annotations;
use crate::api::{Action, Deadline, Failure, all_pages, marker};
use crate::cloud::{Cloud, Owner};

const ROLE_INTERNAL: &str = "kubernetes.io/role/internal-elb";
const ROLE_PUBLIC: &str = "kubernetes.io/role/elb";
const ANNOTATION: &str = "aws-load-balancer-subnets";

/// Where a Service wants its balancer.
pub(super) struct Asked<'a> {
    /// By ID or name; none: those that the cluster's administrator marked.
    pub named: &'a [String],
    pub internal: bool,
}

/// The subnets for a balancer, in the order in which its addresses are given, and all subnets of the network.
pub(super) async fn choose(
    cloud: &Cloud,
    asked: &Asked<'_>,
    until: Deadline,
) -> Result<(Vec<Subnet>, Vec<Subnet>)> {
    let subnets = Box::pin(all(cloud, until));
    let (all, chosen) = if asked.named.is_empty() {
        let tables = Box::pin(cloud.route_tables(vec![cloud.of_network()], until));
        let (subnets, tables) = tokio::try_join!(subnets, tables)?;
        let chosen = discovered(cloud, subnets.clone(), &tables, asked.internal);
        (subnets, chosen)
    } else {
        let all = subnets.await?;
        let chosen = named(asked.named, &all)?;
        (all, chosen)
    };
    if chosen.is_empty() {
        let kind = if asked.internal { "" } else { " with a route to an internet gateway" };
        let why =
            format!("the network of cluster {} has no subnet{kind} for a balancer; name some", cloud.cluster);
        return Err(Annotations::error(ANNOTATION, &why));
    }
    Ok((chosen, all))
}

/// All subnets of the network.
pub(super) async fn all(cloud: &Cloud, until: Deadline) -> Result<Vec<Subnet>, Failure> {
    let page = async |at| {
        let asked = cloud.ec2.describe_subnets().filters(cloud.of_network()).set_next_token(at).send();
        let answer = cloud.calls.make(Action::DescribeSubnets, until, asked).await?;
        Ok((answer.subnets.unwrap_or_default(), marker(answer.next_token)))
    };
    all_pages(page).await
}

/// Those with these IDs.
pub(super) fn among(all: &[Subnet], ids: &BTreeSet<String>) -> Vec<Subnet> {
    all.iter().filter(|subnet| subnet.subnet_id().is_some_and(|id| ids.contains(id))).cloned().collect()
}

/// The addresses of these.
pub(super) fn ranges(subnets: &[Subnet]) -> Vec<String> {
    subnets.iter().filter_map(|subnet| subnet.cidr_block().map(str::to_owned)).collect()
}

/// Those with these IDs or names, in this order.
fn named(wanted: &[String], subnets: &[Subnet]) -> Result<Vec<Subnet>> {
    let mut chosen: Vec<Subnet> = Vec::new();
    for name in wanted {
        let has_name =
            |subnet: &&Subnet| subnet.subnet_id() == Some(name) || value(subnet.tags(), "Name") == Some(name);
        match subnets.iter().filter(has_name).collect::<Vec<_>>()[..] {
            [subnet] => {
                let zone = subnet.availability_zone();
                if let Some(other) = chosen.iter().find(|one| one.availability_zone() == zone) {
                    let ids = [other, subnet].map(|one| one.subnet_id().unwrap_or_default());
                    let why = format!(
                        "the subnets {ids:?} are in one zone, {}; name one for each zone",
                        zone.unwrap_or_default()
                    );
                    return Err(Annotations::error(ANNOTATION, &why));
                }
                chosen.push(subnet.clone());
            }
            [] => {
                let why = format!("the cluster's network has no subnet {name:?}");
                return Err(Annotations::error(ANNOTATION, &why));
            }
            _ => {
                let why = format!("several subnets are named {name:?}; use their IDs");
                return Err(Annotations::error(ANNOTATION, &why));
            }
        }
    }
    Ok(chosen)
}

/// The best one of each zone.
fn discovered(cloud: &Cloud, subnets: Vec<Subnet>, tables: &[RouteTable], internal: bool) -> Vec<Subnet> {
    let owner = |subnet: &Subnet| cloud.cluster.owner(subnet.tags());
    let (usable, rest): (Vec<_>, Vec<_>) =
        subnets.into_iter().partition(|subnet| owner(subnet) != Owner::AnotherCluster);
    let usable = if usable.is_empty() {
        rest.into_iter().filter(|subnet| subnet.subnet_id() == Some(&cloud.subnet)).collect()
    } else {
        usable
    };
    let role = if internal { ROLE_INTERNAL } else { ROLE_PUBLIC };
    // Smaller is better.
    let rank = |subnet: &Subnet| {
        let id = subnet.subnet_id().unwrap_or_default().to_owned();
        (value(subnet.tags(), role).is_none(), owner(subnet) != Owner::Us, id)
    };
    let mut by_zone: BTreeMap<String, Subnet> = BTreeMap::new();
    for subnet in usable {
        let Some(zone) = subnet.availability_zone().filter(|zone| is_regular(zone)).map(str::to_owned) else {
            continue;
        };
        if !internal && !is_public(subnet.subnet_id().unwrap_or_default(), tables) {
            continue;
        }
        match by_zone.get(&zone) {
            Some(better) if rank(better) < rank(&subnet) => {}
            _ => drop(by_zone.insert(zone, subnet)),
        }
    }
    by_zone.into_values().collect()
}

/// Local and wavelength zones, whose names are longer than `us-east-1a`, have no such balancers.
fn is_regular(zone: &str) -> bool {
    crate::config::region_of(zone).is_some_and(|region| zone.len() == region.len() + 1)
}

/// Whether the subnet's own route table, or else the network's main one, leads to the internet.
fn is_public(subnet: &str, tables: &[RouteTable]) -> bool {
    let own = |table: &&RouteTable| table.associations().iter().any(|one| one.subnet_id() == Some(subnet));
    let main = |table: &&RouteTable| table.associations().iter().any(|one| one.main() == Some(true));
    let table = tables.iter().find(own).or_else(|| tables.iter().find(main));
    let leads_out = |table: &RouteTable| {
        table.routes().iter().any(|route| route.gateway_id().unwrap_or_default().starts_with("igw"))
    };
    table.is_some_and(leads_out)
}

fn value<'a>(tags: &'a [Tag], key: &str) -> Option<&'a str> {
    tags.iter().find(|tag| tag.key() == Some(key)).and_then(Tag::value)
}
