//! `Instances`, answered from the cloud.

use cloudprovider_sdk::{
    CallContext, InstanceWatch, Instances, ProviderError, Result, async_trait, paging, proto, results,
};

use super::{Honest, watch};
use crate::cloud::{Found, Instance, timestamp};

#[async_trait]
impl Instances for Honest {
    async fn batch_get_instances(
        &self,
        ctx: &CallContext,
        request: proto::BatchGetInstancesRequest,
    ) -> Result<proto::BatchGetInstancesResponse> {
        let view = request.view();
        self.ask(|state, now| {
            state.enter("instances:read")?;
            let result = |query: proto::InstanceQuery| {
                let node = query.node.unwrap_or_default();
                let (is, instance) = match state.find_node(ctx.cluster_uid(), &node) {
                    Found::Instance(machine) => (machine.state as i32, Some(machine)),
                    Found::Absent => (proto::InstanceState::Absent.into(), None),
                    Found::NotOwned => (proto::InstanceState::NotOwned.into(), None),
                    Found::Unknown(error) => return results::unknown(query.key, &error),
                };
                let absent = is == i32::from(proto::InstanceState::Absent);
                let by_name = absent && node.provider_id.is_empty();
                proto::InstanceResult {
                    key: query.key,
                    state: is,
                    authoritative: !by_name || self.mock.advertised.keyed_by_name,
                    observed_at: Some(timestamp(now)),
                    instance: instance.map(|machine| machine.seen(view)),
                    ..proto::InstanceResult::default()
                }
            };
            Ok(proto::BatchGetInstancesResponse {
                results: request.queries.into_iter().map(result).collect(),
            })
        })
        .await
    }

    async fn watch_instances(
        &self,
        ctx: &CallContext,
        request: proto::WatchInstancesRequest,
    ) -> Result<InstanceWatch> {
        watch::open(self, ctx.cluster_uid(), &request.resume_token).await
    }

    async fn list_instances(
        &self,
        ctx: &CallContext,
        request: proto::ListInstancesRequest,
    ) -> Result<proto::ListInstancesResponse> {
        let (view, cluster) = (request.view(), ctx.cluster_uid());
        self.ask(|state, _| {
            state.enter("instances:list")?;
            let unreachable = &state.conditions.unreachable_zones;
            let shown = state.instances().filter(|machine| {
                (machine.cluster_uid.is_empty() || machine.cluster_uid == cluster)
                    && !unreachable.contains(&machine.zone)
            });
            let (page, next_page_token) = paging::page(&request, shown, |machine| machine.id.clone())?;
            let listed = |machine: &Instance| proto::ListedInstance {
                state: machine.state as i32,
                instance: Some(machine.seen(view)),
                node_name: machine.name.clone(),
            };
            Ok(proto::ListInstancesResponse {
                instances: page.into_iter().map(listed).collect(),
                next_page_token,
                unreachable: unreachable.iter().map(|zone| could_not_be_asked(zone)).collect(),
            })
        })
        .await
    }

    async fn add_ssh_key_to_all_instances(
        &self,
        ctx: &CallContext,
        request: proto::AddSshKeyToAllInstancesRequest,
    ) -> Result<proto::AddSshKeyToAllInstancesResponse> {
        self.change(|state, _| state.add_ssh_key(ctx.cluster_uid(), &request.user, &request.public_key))
            .await?;
        Ok(proto::AddSshKeyToAllInstancesResponse { in_progress: None })
    }
}

fn could_not_be_asked(zone: &str) -> proto::UnreachableLocation {
    let error = ProviderError::location_unreachable(zone).to_item();
    proto::UnreachableLocation { location: zone.to_owned(), error: Some(error) }
}
