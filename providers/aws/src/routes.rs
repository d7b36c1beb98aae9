//! Routes to the pods of nodes: the entries of one route table that lead to instances.
//!
//! In: destinations, and the nodes that they lead to. Out: what the table has, and one change of it for each item at most.
//! [`next`] decides that change from what the table has now; which instance a node has is decided by [`crate::instances`].
//! EC2 cannot tag an entry: what leads to anything but an instance of this cluster is neither listed nor changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_ec2::types::{self, AttributeBooleanValue, Instance};
use cloudprovider_sdk::proto::{
    BatchDeleteRoutesRequest, BatchDeleteRoutesResponse, BatchEnsureRoutesRequest, BatchEnsureRoutesResponse,
    ItemError, ListRoutesRequest, ListRoutesResponse, NodeRef, Route, RouteDeletion, RouteResult, RouteState,
    RouteToDelete, RouteToEnsure,
};
use cloudprovider_sdk::{CallContext, ProviderError, Result, Routes, async_trait, paging};
use futures::StreamExt as _;
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::api::{Action, Deadline, Failure, Stop};
use crate::cloud::{Cloud, Owner, filter};
use crate::config::Config;
use crate::instances;

/// EC2 takes a fraction of a second for each change.
const AT_ONCE: usize = 8;

/// The routes of one cluster.
#[derive(Debug)]
pub(crate) struct Routing {
    cloud: Cloud,
    /// `RouteTableID`. Empty: the one table of the network that has the cluster's tag.
    table: String,
    /// What does not change about the instances in the table, by ID.
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    provider_id: String,
    of_another_cluster: bool,
}

/// The table, as EC2 has it.
#[derive(Debug)]
struct Table {
    id: String,
    entries: BTreeMap<IpNet, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    leads: Leads,
    state: RouteState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Leads {
    /// To this instance, which may be stopped.
    To(String),
    /// To an instance that is gone.
    Nowhere,
    /// To this, which is no instance.
    Elsewhere(String),
}

/// What to do about one destination.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Keep(RouteState),
    Create,
    Replace,
}

/// What makes a destination lead to an instance, unless what it leads to is somebody else's.
fn next(
    entry: Option<&Entry>,
    wanted: &str,
    is_of_another_cluster: impl Fn(&str) -> bool,
) -> Result<Step, String> {
    let Some(entry) = entry else { return Ok(Step::Create) };
    match &entry.leads {
        Leads::To(id) if id == wanted => Ok(Step::Keep(entry.state)),
        Leads::To(id) if is_of_another_cluster(id) => Err(id.clone()),
        Leads::Elsewhere(what) => Err(what.clone()),
        Leads::To(_) | Leads::Nowhere => Ok(Step::Replace),
    }
}

impl Table {
    fn of(table: &types::RouteTable) -> Self {
        let id = table.route_table_id().unwrap_or_default().to_owned();
        Self { id, entries: table.routes().iter().filter_map(entry).collect() }
    }

    fn id_of(&self, destination: &IpNet) -> String {
        format!("{}/{destination}", self.id)
    }

    fn route(&self, destination: &IpNet, target: Option<NodeRef>, state: RouteState) -> Route {
        Route {
            id: self.id_of(destination),
            destination_cidr: destination.to_string(),
            target,
            state: state.into(),
            ..Route::default()
        }
    }
}

/// An entry whose destination is a network.
fn entry(route: &types::Route) -> Option<(IpNet, Entry)> {
    let destination = route.destination_cidr_block().or(route.destination_ipv6_cidr_block())?;
    let destination = destination.parse::<IpNet>().ok()?.trunc();
    let state = match route.state() {
        Some(types::RouteState::Active) => RouteState::Active,
        Some(types::RouteState::Blackhole) => RouteState::Blackhole,
        _ => RouteState::Unspecified,
    };
    let gateway = [
        route.gateway_id(),
        route.nat_gateway_id(),
        route.transit_gateway_id(),
        route.vpc_peering_connection_id(),
        route.egress_only_internet_gateway_id(),
        route.local_gateway_id(),
        route.carrier_gateway_id(),
        route.core_network_arn(),
    ];
    let named = |id: Option<&str>| id.filter(|id| !id.is_empty()).map(str::to_owned);
    let leads = match (gateway.into_iter().find_map(named), named(route.instance_id())) {
        (Some(gateway), _) => Leads::Elsewhere(gateway),
        (None, Some(id)) => Leads::To(id),
        // What is left of it is the ID of an interface that is gone, too.
        (None, None) if state == RouteState::Blackhole => Leads::Nowhere,
        (None, None) => Leads::Elsewhere(named(route.network_interface_id()).unwrap_or_default()),
    };
    Some((destination, Entry { leads, state }))
}

/// The destinations on the wire, of which the host has made networks.
fn network(destination: &str) -> Result<IpNet> {
    let parsed = destination.parse::<IpNet>().map(|network| network.trunc());
    parsed.map_err(|_none| {
        ProviderError::invalid_argument_shape("destination_cidr", &format!("is no network: {destination:?}"))
    })
}

impl Routing {
    pub(crate) fn new(cloud: Cloud, config: &Config) -> Self {
        Self { cloud, table: config.route_table.clone(), known: Mutex::default() }
    }

    async fn table(&self, until: Deadline) -> Result<Table> {
        let (id, vpc, cluster) = (&self.table, &self.cloud.vpc, &self.cloud.cluster);
        let filters = if id.is_empty() {
            vec![self.cloud.of_network(), cluster.filter()]
        } else {
            vec![filter("route-table-id", [id.clone()])]
        };
        let tables = Box::pin(self.cloud.route_tables(filters, until)).await?;
        let may_be = |table: &&types::RouteTable| !id.is_empty() || cluster.owner(table.tags()) == Owner::Us;
        let found: Vec<_> = tables.iter().filter(may_be).collect();
        let why = match &found[..] {
            [table] => return Ok(Table::of(table)),
            [] if !id.is_empty() => {
                format!("EC2 has no route table {id:?}: correct RouteTableID in the cloud config")
            }
            [] => format!(
                "no route table of {vpc} has the tag kubernetes.io/cluster/{cluster}: tag the one for routes to pods, or set RouteTableID in the cloud config"
            ),
            several => {
                let ids: Vec<_> = several.iter().filter_map(|table| table.route_table_id()).collect();
                format!(
                    "several route tables of {vpc} have the tag of cluster {cluster}, {ids:?}: leave it on one of them, or set RouteTableID in the cloud config"
                )
            }
        };
        Err(ProviderError::invalid_provider_config(&why))
    }

    /// What is known of these instances, of those that EC2 knows.
    async fn instances(&self, ids: BTreeSet<&str>, until: Deadline) -> Result<HashMap<String, Known>> {
        let is_new = |id: &&&str| !self.known.lock().contains_key(**id);
        let new: Vec<_> = ids.iter().filter(is_new).map(|id| (*id).to_owned()).collect();
        let found = instances::by_ids(&self.cloud, &new, until).await?;
        let owner = |instance: &Instance| self.cloud.cluster.owner(instance.tags());
        let known_of = |instance: &Instance| Known {
            provider_id: instances::provider_id(instance),
            of_another_cluster: owner(instance) == Owner::AnotherCluster,
        };
        let mut known = self.known.lock();
        known.extend(found.here.into_iter().map(|(id, instance)| (id, known_of(&instance))));
        Ok(ids.into_iter().filter_map(|id| Some((id.to_owned(), known.get(id)?.clone()))).collect())
    }

    /// The state of one route afterwards.
    async fn ensure(
        &self,
        ctx: &CallContext,
        table: &Table,
        destination: &IpNet,
        instance: &Instance,
        step: Step,
        until: Deadline,
    ) -> Result<RouteState, Stop> {
        let (ec2, calls) = (&self.cloud.ec2, &self.cloud.calls);
        let id = instance.instance_id().unwrap_or_default();
        let stop = |failure: Failure| match failure.code() {
            "RouteLimitExceeded" => Stop::Failed(ProviderError::route_table_full(&table.id)),
            "InvalidInstanceID.NotFound" => Stop::Failed(ProviderError::instance_not_found(id)),
            _ => failure.into(),
        };
        // With the check on, EC2 drops what is not for the instance itself.
        if instance.source_dest_check() != Some(false) {
            Stop::if_cancelled(ctx)?;
            let off = AttributeBooleanValue::builder().value(false).build();
            let asked = ec2.modify_instance_attribute().instance_id(id).source_dest_check(off).send();
            calls.make(Action::ModifyInstanceAttribute, until, asked).await.map_err(stop)?;
        }
        let is_there = match step {
            Step::Keep(state) => return Ok(state),
            Step::Create => false,
            Step::Replace => true,
        };
        Stop::if_cancelled(ctx)?;
        let (v4, v6) = families(destination);
        let made = if is_there {
            let asked = ec2.replace_route().route_table_id(&table.id).instance_id(id);
            let asked = asked.set_destination_cidr_block(v4).set_destination_ipv6_cidr_block(v6);
            calls.make(Action::ReplaceRoute, until, asked.send()).await.map(drop)
        } else {
            let asked = ec2.create_route().route_table_id(&table.id).instance_id(id);
            let asked = asked.set_destination_cidr_block(v4).set_destination_ipv6_cidr_block(v6);
            calls.make(Action::CreateRoute, until, asked.send()).await.map(drop)
        };
        made.map_err(stop)?;
        Ok(RouteState::Active)
    }

    async fn delete(
        &self,
        ctx: &CallContext,
        table: &Table,
        route: &Route,
        until: Deadline,
    ) -> Result<(), Stop> {
        let destination = network(&route.destination_cidr)?;
        let changed = || Stop::Failed(ProviderError::route_changed(&route.id));
        if route.id != table.id_of(&destination) {
            return Err(changed());
        }
        let Some(entry) = table.entries.get(&destination) else { return Ok(()) };
        let target = route.target.as_ref().map(|target| target.provider_id.as_str());
        let listed = match target.and_then(|id| instances::id_of(id, &self.cloud.region)) {
            Some(id) => Leads::To(id.to_owned()),
            None => Leads::Nowhere,
        };
        if entry.leads != listed {
            return Err(changed());
        }
        Stop::if_cancelled(ctx)?;
        let (v4, v6) = families(&destination);
        let asked = self.cloud.ec2.delete_route().route_table_id(&table.id);
        let asked = asked.set_destination_cidr_block(v4).set_destination_ipv6_cidr_block(v6).send();
        match self.cloud.calls.make(Action::DeleteRoute, until, asked).await {
            Err(failure) if failure.code() != "InvalidRoute.NotFound" => Err(failure.into()),
            _ => Ok(()),
        }
    }
}

/// A destination, as EC2 takes it: IPv4 here, IPv6 there.
fn families(destination: &IpNet) -> (Option<String>, Option<String>) {
    let text = Some(destination.to_string());
    if destination.addr().is_ipv4() { (text, None) } else { (None, text) }
}

#[async_trait]
impl Routes for Routing {
    async fn list_routes(&self, ctx: &CallContext, request: ListRoutesRequest) -> Result<ListRoutesResponse> {
        let until = Deadline::of(ctx);
        let table = self.table(until).await?;
        let within = request.within.iter().map(|cidr| network(cidr)).collect::<Result<Vec<_>>>()?;
        let is_within = |destination: &IpNet| {
            within.is_empty() || within.iter().any(|network| network.contains(destination))
        };
        let entries: Vec<_> =
            table.entries.iter().filter(|(destination, _)| is_within(destination)).collect();
        let ids = entries.iter().filter_map(|(_, entry)| entry.leads.instance()).collect();
        let known = self.instances(ids, until).await?;
        let all = entries.into_iter().filter_map(|(destination, entry)| {
            let target = match &entry.leads {
                Leads::Elsewhere(_) => return None,
                Leads::Nowhere => None,
                Leads::To(id) => {
                    let known = known.get(id);
                    if known.is_some_and(|known| known.of_another_cluster) {
                        return None;
                    }
                    // EC2 may forget an instance for a while. Its ID alone is one of the contract's, too.
                    let bare = || format!("{}/{id}", instances::PREFIX);
                    let provider_id = known.map_or_else(bare, |known| known.provider_id.clone());
                    Some(NodeRef { provider_id, ..NodeRef::default() })
                }
            };
            Some(table.route(destination, target, entry.state))
        });
        let (routes, next_page_token) = paging::page(&request, all, |route| route.id.clone())?;
        let in_table: BTreeSet<_> =
            table.entries.values().filter_map(|entry| entry.leads.instance()).collect();
        self.known.lock().retain(|id, _| in_table.contains(&**id));
        Ok(ListRoutesResponse { routes, next_page_token, ..ListRoutesResponse::default() })
    }

    async fn batch_ensure_routes(
        &self,
        ctx: &CallContext,
        request: BatchEnsureRoutesRequest,
    ) -> Result<BatchEnsureRoutesResponse> {
        let until = Deadline::of_change(ctx);
        let nodes: Vec<_> =
            request.items.iter().map(|item| item.target.clone().unwrap_or_default()).collect();
        let found = instances::of_nodes(&self.cloud, &nodes, until).await?;
        let table = self.table(until).await?;
        let leads = |item: &RouteToEnsure| {
            let entry = table.entries.get(&network(&item.destination_cidr).ok()?)?;
            entry.leads.instance()
        };
        let former = self.instances(request.items.iter().filter_map(leads).collect(), until).await?;
        let is_of_another_cluster = |id: &str| former.get(id).is_some_and(|known| known.of_another_cluster);

        let ensure = async |item: RouteToEnsure, instance: &Instance| -> Result<Route, Stop> {
            let destination = network(&item.destination_cidr)?;
            let id = instance.instance_id().unwrap_or_default();
            let step = next(table.entries.get(&destination), id, is_of_another_cluster);
            let step = step.map_err(|leads_to| {
                let what = format!("the route to {destination}, which leads to {leads_to}");
                ProviderError::owned_by_other_cluster(&what)
            })?;
            let state = self.ensure(ctx, &table, &destination, instance, step, until).await?;
            let NodeRef { name, uid, mut provider_id, .. } = item.target.unwrap_or_default();
            if provider_id.is_empty() {
                provider_id = instances::provider_id(instance);
            }
            // A list tells of the node by its own ID, which may leave out the zone.
            let of_another_cluster = self.cloud.cluster.owner(instance.tags()) == Owner::AnotherCluster;
            let known = Known { provider_id: provider_id.clone(), of_another_cluster };
            self.known.lock().insert(id.to_owned(), known);
            let target = NodeRef { name, uid, provider_id, ..NodeRef::default() };
            Ok(table.route(&destination, Some(target), state))
        };
        let result = async |(item, instance): (RouteToEnsure, Result<Instance, ItemError>)| {
            let blank = RouteResult { key: item.key.clone(), ..RouteResult::default() };
            let instance = match instance {
                Ok(instance) => instance,
                Err(error) => return RouteResult { error: Some(error), ..blank },
            };
            match ensure(item, &instance).await {
                Ok(route) => RouteResult { route: Some(route), ..blank },
                Err(stop) => {
                    let (in_progress, error) = stop.of_item();
                    RouteResult { in_progress, error, ..blank }
                }
            }
        };
        let work = request.items.into_iter().zip(found).map(result);
        let results = futures::stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
        Ok(BatchEnsureRoutesResponse { results })
    }

    async fn batch_delete_routes(
        &self,
        ctx: &CallContext,
        request: BatchDeleteRoutesRequest,
    ) -> Result<BatchDeleteRoutesResponse> {
        let until = Deadline::of_change(ctx);
        let table = self.table(until).await?;
        let delete = async |item: RouteToDelete| {
            let done = self.delete(ctx, &table, &item.route.unwrap_or_default(), until).await;
            let (in_progress, error) = done.map_or_else(Stop::of_item, |()| (None, None));
            RouteDeletion { key: item.key, in_progress, error }
        };
        let work = request.items.into_iter().map(delete);
        let results = futures::stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
        Ok(BatchDeleteRoutesResponse { results })
    }
}

impl Leads {
    fn instance(&self) -> Option<&str> {
        if let Self::To(id) = self { Some(id) } else { None }
    }
}

#[cfg(test)]
mod tests;
