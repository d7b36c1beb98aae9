//! `Instances`, answered from the cloud.

use cloudprovider_sdk::{CallContext, InstanceWatch, Instances, Result, async_trait, proto, results};

use super::{Honest, to_wire, watch};
use crate::cloud::{Found, Instance};

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
                    Found::Instance(machine) => (to_wire::state(machine.state), Some(machine)),
                    Found::Absent => (proto::InstanceState::Absent, None),
                    Found::NotOwned => (proto::InstanceState::NotOwned, None),
                    Found::Unknown(error) => return results::unknown(query.key, &error),
                };
                let by_name = is == proto::InstanceState::Absent && node.provider_id.is_empty();
                proto::InstanceResult {
                    key: query.key,
                    state: is.into(),
                    authoritative: !by_name || self.mock.advertised.keyed_by_name(),
                    observed_at: Some(to_wire::timestamp(now)),
                    instance: instance.map(|machine| to_wire::instance(machine, view)),
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
        watch::open(self, ctx.cluster_uid(), &request.resume_token)
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
            let (page, next_page_token) = self.pager.page(&request, shown, |machine| machine.id.clone())?;
            let listed = |machine: &Instance| proto::ListedInstance {
                state: to_wire::state(machine.state).into(),
                instance: Some(to_wire::instance(machine, view)),
                node_name: machine.name.clone(),
            };
            Ok(proto::ListInstancesResponse {
                instances: page.into_iter().map(listed).collect(),
                next_page_token,
                unreachable: unreachable.iter().map(|zone| to_wire::unreachable(zone)).collect(),
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
