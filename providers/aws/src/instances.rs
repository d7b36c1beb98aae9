//! The instances behind the nodes.
//!
//! In: nodes. Out: what EC2 knows of their instances, in as few calls as EC2 allows. [`query`] decides which instance is
//! meant, [`fetch`] asks EC2, [`describe`] says it as the contract does, [`topology`] and [`crate::zones`] know the labels.

mod describe;
mod fetch;
mod query;
mod topology;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_ec2::types::Instance;
use cloudprovider_sdk::proto::{
    self, BatchGetInstancesRequest, BatchGetInstancesResponse, InstanceQuery, InstanceResult, InstanceState,
    InstanceView, ItemError, ListInstancesRequest, ListInstancesResponse, ListedInstance, NodeRef,
    UnreachableLocation, WatchInstancesRequest,
};
use cloudprovider_sdk::{
    CallContext, InstanceWatch, Instances, ProviderError, Result, async_trait, paging, results,
};

use crate::api::{Deadline, Failure};
use crate::cloud::{Cloud, Owner};
use crate::config::{Config, Family};
use crate::zones::Zones;
pub(crate) use describe::provider_id;
use fetch::{Answer, Found};
pub(crate) use fetch::{by_ids, ids_in};
use query::Lookup;
pub(crate) use query::id_of;
use topology::Topology;

/// Of the provider IDs of all instances.
pub(crate) const PREFIX: &str = "aws://";
/// For how long after it is made EC2 may not know an instance: its node can be there before it is known everywhere.
const YOUNG: Duration = Duration::from_secs(600);
/// How soon to look again for such an instance.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

const NOT_KNOWN_YET: &str = "EC2 does not know the instance of this young node yet";

/// The IDs of zones, by name.
type ZoneIds = Result<HashMap<String, String>, Failure>;

/// The instances of one cluster.
#[derive(Debug)]
pub(crate) struct Machines {
    cloud: Cloud,
    zones: Arc<Zones>,
    topology: Topology,
    families: Vec<Family>,
    /// What is not found is gone.
    sees_all: bool,
    watch_every: Option<Duration>,
}

impl Machines {
    pub(crate) fn new(
        cloud: Cloud,
        zones: Arc<Zones>,
        config: &Config,
        sees_all: bool,
        watch_every: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let topology = Topology::new(cloud.clone(), &config.topology_types)?;
        Ok(Self { cloud, zones, topology, families: config.node_families.clone(), sees_all, watch_every })
    }

    /// The result of one query. Without `zones` it need not have more than the state.
    fn result(
        &self,
        query: &InstanceQuery,
        answer: Answer<'_>,
        zones: Option<&ZoneIds>,
        now: SystemTime,
    ) -> InstanceResult {
        let (key, unnamed) = (&query.key, NodeRef::default());
        let node = query.node.as_ref().unwrap_or(&unnamed);
        let instance = match answer {
            Answer::Here(instance) => instance,
            Answer::NotOurs => return results::not_owned(key),
            Answer::Unknown(error) => return results::unknown(key, error),
            Answer::Several => return results::unknown(key, &ProviderError::instance_ambiguous(&node.name)),
            Answer::Gone if is_young(node, now) => {
                return results::unknown(key, &ProviderError::retry_later(LOOK_AGAIN, NOT_KNOWN_YET));
            }
            Answer::Gone => {
                let absent = results::absent(query);
                return InstanceResult { authoritative: absent.authoritative && self.sees_all, ..absent };
            }
        };
        if self.cloud.cluster.owner(instance.tags()) == Owner::AnotherCluster {
            return results::not_owned(key);
        }
        let state = match describe::state_of(instance) {
            Some(InstanceState::Absent) => return results::absent(query),
            Some(state) => state,
            None => return results::unknown(key, &unknown_state()),
        };
        match self.describe(instance, node, zones, now) {
            Ok(described) => results::found(key, state, described),
            Err(error) => InstanceResult {
                instance: None,
                error: Some(error.to_item()),
                ..results::found(key, state, proto::Instance::default())
            },
        }
    }

    fn describe(
        &self,
        instance: &Instance,
        node: &NodeRef,
        zones: Option<&ZoneIds>,
        now: SystemTime,
    ) -> Result<proto::Instance> {
        let mut described = match zones {
            None => proto::Instance {
                provider_id: describe::provider_id(instance),
                name: instance.private_dns_name().unwrap_or_default().to_owned(),
                ..proto::Instance::default()
            },
            Some(zones) => {
                let zones = zones.as_ref().map_err(Failure::to_error)?;
                let layers = self.topology.of(instance, is_young(node, now))?;
                proto::Instance {
                    labels: describe::labels(instance, zones, &layers)?,
                    ..describe::describe(instance, &self.cloud.region, &self.families)?
                }
            }
        };
        // The node's own, which may leave out the zone, stays.
        if !node.provider_id.is_empty() {
            described.provider_id.clone_from(&node.provider_id);
        }
        Ok(described)
    }

    /// Learns what the labels of these instances need, unless nobody asks for labels.
    async fn zone_ids(
        &self,
        view: InstanceView,
        instances: &[&Instance],
        until: Deadline,
    ) -> Option<ZoneIds> {
        if view == InstanceView::Existence {
            return None;
        }
        let zones = self.zones.ids(instances.iter().map(|one| describe::zone(one)), until).await;
        if let Err(failure) = self.topology.learn(instances, until).await {
            tracing::warn!(code = failure.code(), "cannot read where instances are in the network");
        }
        Some(zones)
    }
}

fn unknown_state() -> ProviderError {
    ProviderError::retry_later(LOOK_AGAIN, "EC2 names no state of the instance that is known here")
}

pub(crate) fn is_young(node: &NodeRef, now: SystemTime) -> bool {
    let created = node.creation_time.and_then(|time| SystemTime::try_from(time).ok());
    created.is_some_and(|created| now.duration_since(created).unwrap_or_default() < YOUNG)
}

/// The instance of each of these nodes, to which something is to lead.
pub(crate) async fn of_nodes(
    cloud: &Cloud,
    nodes: &[NodeRef],
    until: Deadline,
) -> Result<Vec<Result<Instance, ItemError>>> {
    let lookups: Vec<_> = nodes.iter().map(|node| Lookup::of(node, &cloud.region)).collect();
    let found = Found::of(cloud, &lookups, until).await?;
    let now = SystemTime::now();
    let instance = |(node, lookup): (&NodeRef, &Lookup)| {
        let error = match found.answer(lookup) {
            Answer::Here(instance) if is_there(cloud, instance) => return Ok(instance.clone()),
            Answer::Unknown(error) => return Err(error.to_item()),
            Answer::Several => ProviderError::instance_ambiguous(&node.name),
            Answer::Gone if is_young(node, now) => ProviderError::retry_later(LOOK_AGAIN, NOT_KNOWN_YET),
            Answer::Here(_) | Answer::Gone | Answer::NotOurs => ProviderError::instance_not_found(&node.name),
        };
        Err(error.to_item())
    };
    Ok(nodes.iter().zip(&lookups).map(instance).collect())
}

/// Whether an instance is gone, or about to be.
fn is_over(state: Option<InstanceState>) -> bool {
    matches!(state, Some(InstanceState::Absent | InstanceState::Terminating))
}

/// Whether an instance exists, and is not another cluster's.
fn is_there(cloud: &Cloud, instance: &Instance) -> bool {
    !is_over(describe::state_of(instance)) && cloud.cluster.owner(instance.tags()) != Owner::AnotherCluster
}

#[async_trait]
impl Instances for Machines {
    async fn batch_get_instances(
        &self,
        ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse> {
        let until = Deadline::of(ctx);
        let region = &self.cloud.region;
        let lookups: Vec<_> = request
            .queries
            .iter()
            .map(|query| query.node.as_ref().map_or(Lookup::NotOurs, |node| Lookup::of(node, region)))
            .collect();
        let found = Found::of(&self.cloud, &lookups, until).await?;
        let here: Vec<_> =
            lookups
                .iter()
                .filter_map(|lookup| {
                    if let Answer::Here(instance) = found.answer(lookup) { Some(instance) } else { None }
                })
                .collect();
        let zones = self.zone_ids(request.view(), &here, until).await;
        let now = SystemTime::now();
        let results = request.queries.iter().zip(&lookups);
        let results =
            results.map(|(query, lookup)| self.result(query, found.answer(lookup), zones.as_ref(), now));
        Ok(BatchGetInstancesResponse { results: results.collect() })
    }

    async fn list_instances(
        &self,
        ctx: &CallContext,
        request: ListInstancesRequest,
    ) -> Result<ListInstancesResponse> {
        let until = Deadline::of(ctx);
        let at = paging::open(&request)?;
        let (instances, next) =
            fetch::list(&self.cloud, request.page_size, &at, until).await.map_err(|failure| {
                // EC2 takes its own tokens for a while.
                if failure.code() == "InvalidNextToken" || failure.code() == "InvalidParameterValue" {
                    return ProviderError::invalid_token();
                }
                failure.into()
            })?;
        let here: Vec<_> = instances.iter().collect();
        let zones = self.zone_ids(request.view(), &here, until).await;
        let now = SystemTime::now();
        let (mut listed, mut unreachable) = (Vec::new(), BTreeMap::new());
        for instance in &instances {
            let state = describe::state_of(instance);
            let described = self.describe(instance, &NodeRef::default(), zones.as_ref(), now);
            match state.ok_or_else(unknown_state).and_then(|state| Ok((state, described?))) {
                Ok((state, described)) => listed.push(ListedInstance {
                    state: state.into(),
                    node_name: described.name.clone(),
                    instance: Some(described),
                }),
                // It has lost its addresses.
                Err(_) if is_over(state) => {}
                Err(error) => {
                    let zone = Some(describe::zone(instance)).filter(|zone| !zone.is_empty());
                    let location = zone.unwrap_or(&self.cloud.region).to_owned();
                    unreachable.entry(location).or_insert(error.to_item());
                }
            }
        }
        let unreachable = unreachable
            .into_iter()
            .map(|(location, error)| UnreachableLocation { location, error: Some(error) })
            .collect();
        let next_page_token = paging::seal(&request, &next.unwrap_or_default())?;
        Ok(ListInstancesResponse { instances: listed, next_page_token, unreachable })
    }

    async fn watch_instances(
        &self,
        _ctx: &CallContext,
        _request: WatchInstancesRequest,
    ) -> Result<InstanceWatch> {
        let every = self.watch_every.ok_or_else(|| ProviderError::method_not_supported("WatchInstances"))?;
        watch::open(self.cloud.clone(), every).await
    }
}
