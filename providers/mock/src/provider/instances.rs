//! `Instances`, answered from the cloud.

use cloudprovider_sdk::{
    CallContext, InstanceWatch, Instances, ProviderError, Result, async_trait,
    proto::{
        self, AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, BatchGetInstancesRequest,
        BatchGetInstancesResponse, InstanceResult, InstanceView, ListInstancesRequest, ListInstancesResponse,
        ListedInstance, WatchInstancesRequest,
    },
};
use jiff::Timestamp;

use super::{Mock, from_wire, not_saved, provider_error, to_wire, watch};
use crate::cloud::{CloudError, Found, NodeQuery};

#[async_trait]
impl Instances for Mock {
    async fn batch_get_instances(
        &self,
        ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse> {
        let view = request.view();
        let (keys, nodes): (Vec<String>, Vec<NodeQuery>) = request
            .queries
            .into_iter()
            .map(|query| (query.key, from_wire::node(query.node.unwrap_or_default())))
            .unzip();
        let now = self.at_cloud().await;
        self.cloud.read(now, |state| {
            let found = state.find_nodes(ctx.cluster_uid(), &nodes).map_err(provider_error)?;
            let results = keys.into_iter().zip(&nodes).zip(found);
            let results = results.map(|((key, node), found)| {
                let by_name = node.provider_id.is_empty() && matches!(found, Found::Absent);
                let mut result = result(key, found, view, now);
                result.authoritative &= !by_name || self.keyed_by_name;
                result
            });
            Ok(BatchGetInstancesResponse { results: results.collect() })
        })
    }

    async fn watch_instances(
        &self,
        ctx: &CallContext,
        request: WatchInstancesRequest,
    ) -> Result<InstanceWatch> {
        watch::open(self, ctx.cluster_uid(), &request.resume_token)
    }

    async fn list_instances(
        &self,
        ctx: &CallContext,
        request: ListInstancesRequest,
    ) -> Result<ListInstancesResponse> {
        let (now, view, cluster) = (self.at_cloud().await, request.view(), ctx.cluster_uid());
        self.cloud.read(now, |state| {
            state.enter("instances:list").map_err(provider_error)?;
            let unreachable = &state.conditions().unreachable_zones;
            let shown = state.instances().filter(|machine| {
                (machine.cluster_uid.is_empty() || machine.cluster_uid == cluster)
                    && !unreachable.contains(&machine.zone)
            });
            let (page, next_page_token) = self.pager.page(&request, shown, |machine| machine.id.clone())?;
            let listed = |machine: &crate::cloud::Instance| ListedInstance {
                state: to_wire::state(machine.state).into(),
                instance: Some(to_wire::instance(machine, view)),
                node_name: machine.name.clone(),
            };
            Ok(ListInstancesResponse {
                instances: page.into_iter().map(listed).collect(),
                next_page_token,
                unreachable: unreachable.iter().map(|zone| to_wire::unreachable(zone)).collect(),
            })
        })
    }

    async fn add_ssh_key_to_all_instances(
        &self,
        ctx: &CallContext,
        request: AddSshKeyToAllInstancesRequest,
    ) -> Result<AddSshKeyToAllInstancesResponse> {
        let add = |state: &mut crate::cloud::State| {
            state.add_ssh_key(ctx.cluster_uid(), &request.user, &request.public_key)
        };
        self.cloud.change(self.at_cloud().await, add).await.map_err(not_saved)?.map_err(provider_error)?;
        Ok(AddSshKeyToAllInstancesResponse { in_progress: None })
    }
}

fn result(key: String, found: Found<'_>, view: InstanceView, now: Timestamp) -> InstanceResult {
    let known = |state: proto::InstanceState, instance| InstanceResult {
        key: key.clone(),
        state: state.into(),
        authoritative: true,
        observed_at: Some(to_wire::timestamp(now)),
        instance,
        error: None,
        events: Vec::new(),
    };
    match found {
        Found::Instance(machine) => {
            known(to_wire::state(machine.state), Some(to_wire::instance(machine, view)))
        }
        Found::Absent => known(proto::InstanceState::Absent, None),
        Found::NotOwned => known(proto::InstanceState::NotOwned, None),
        Found::Unknown(error) => unknown(key, error),
    }
}

fn unknown(key: String, error: CloudError) -> InstanceResult {
    let error: ProviderError = provider_error(error);
    InstanceResult { key, error: Some(error.to_item()), ..InstanceResult::default() }
}
