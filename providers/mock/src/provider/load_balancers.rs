//! `LoadBalancers`, answered from the cloud.

use std::{collections::HashMap, sync::Arc};

use cloudprovider_sdk::{
    CallContext, LoadBalancers, ProviderError, Result, async_trait,
    proto::{
        Adoption, BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse,
        DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, EventType, GetLoadBalancerRequest, GetLoadBalancerResponse, InProgress,
        ListLoadBalancersRequest, ListLoadBalancersResponse, LoadBalancer, LoadBalancerState,
        LoadBalancerUpdateResult, ProviderEvent, ServiceRef, UpdateOutcome,
    },
};
use jiff::Timestamp;

use super::{Mock, from_wire, not_saved, provider_error, to_wire};
use crate::cloud::{
    BalancerKey, BalancerState, CloudError, Deleted, EnsureWish, Ensured, FoundBalancer, State, UpdateWish,
    Updated, WRITTEN_PREFIX,
};

#[async_trait]
impl LoadBalancers for Mock {
    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse> {
        let service = request.service.unwrap_or_default();
        let key = key(ctx, &service);
        let none = |state: LoadBalancerState| LoadBalancer {
            service: Some(service.clone()),
            state: state.into(),
            ..LoadBalancer::default()
        };
        self.cloud.read(self.at_cloud().await, |state| {
            let load_balancer = match state.get_balancer(&key).map_err(provider_error)? {
                FoundBalancer::ByUid(balancer) => to_wire::balancer(balancer),
                FoundBalancer::ByLegacyName(balancer) => {
                    LoadBalancer { service: Some(service.clone()), ..to_wire::balancer(balancer) }
                }
                FoundBalancer::NotOwned => none(LoadBalancerState::NotOwned),
                FoundBalancer::Absent => none(LoadBalancerState::Absent),
            };
            Ok(GetLoadBalancerResponse { load_balancer: Some(load_balancer) })
        })
    }

    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse> {
        let adopt = request.adoption() == Adoption::AdoptByLegacyName;
        let service = from_wire::service(request.service.unwrap_or_default());
        let set = request.backends.unwrap_or_default();
        let nodes: Vec<_> = set.nodes.into_iter().map(from_wire::node).collect();
        let now = self.at_cloud().await;
        let ensure = |state: &mut State| {
            let backends = state.resolve_backends(ctx.cluster_uid(), &nodes);
            let wish = EnsureWish {
                cluster_uid: ctx.cluster_uid(),
                cluster_name: ctx.cluster().map_or("", |cluster| cluster.name.as_str()),
                service: &service,
                backends,
                backend_digest: &set.digest,
                desired_digest: &request.desired_digest,
                adopt,
            };
            state.ensure_balancer(wish, now)
        };
        let ensured = self.cloud.change(now, ensure).await.map_err(not_saved)?.map_err(provider_error)?;
        Ok(ensured_answer(&ensured, now))
    }

    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse> {
        let now = self.at_cloud().await;
        let update = |state: &mut State| update_all(state, ctx.cluster_uid(), request, now);
        let results = self.cloud.change(now, update).await.map_err(not_saved)?.map_err(provider_error)?;
        Ok(BatchUpdateLoadBalancersResponse { results })
    }

    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse> {
        let adopt = request.adoption() == Adoption::AdoptByLegacyName;
        let key = key(ctx, &request.service.unwrap_or_default());
        let now = self.at_cloud().await;
        let delete = |state: &mut State| state.delete_balancer(&key, adopt, now);
        let deleted = self.cloud.change(now, delete).await.map_err(not_saved)?.map_err(provider_error)?;
        let (in_progress, events) = match deleted {
            Deleted::Gone => (None, Vec::new()),
            Deleted::Going { due } => (Some(deleting(due, now)), Vec::new()),
            Deleted::LegacyLeft => {
                let text = "the load balancer of a former controller was left alone: adoption is refused";
                (None, vec![event(EventType::Warning, "LegacyLoadBalancerKept", text)])
            }
        };
        Ok(DeleteLoadBalancerResponse { in_progress, events })
    }

    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse> {
        let now = self.at_cloud().await;
        let name = ctx.cluster().map_or("", |cluster| cluster.name.as_str());
        self.cloud.read(now, |state| {
            let all = state.list_balancers(ctx.cluster_uid(), name).map_err(provider_error)?;
            let (page, next_page_token) = self.pager.page(&request, all, |balancer| balancer.id.clone())?;
            Ok(ListLoadBalancersResponse {
                load_balancers: page.into_iter().map(to_wire::balancer).collect(),
                next_page_token,
                unreachable: Vec::new(),
            })
        })
    }
}

fn key(ctx: &CallContext, service: &ServiceRef) -> BalancerKey {
    BalancerKey { cluster_uid: ctx.cluster_uid().to_owned(), service_uid: service.uid.clone() }
}

fn ensured_answer(ensured: &Ensured, now: Timestamp) -> EnsureLoadBalancerResponse {
    let balancer = &ensured.balancer;
    let mut events = Vec::new();
    if ensured.created {
        events.push(event(EventType::Normal, "CreatedLoadBalancer", "a load balancer was made"));
    }
    if ensured.adopted {
        events.push(event(
            EventType::Normal,
            "AdoptedLoadBalancer",
            "a former controller's load balancer was taken over",
        ));
    }
    let annotations = HashMap::from([(format!("{WRITTEN_PREFIX}load-balancer-id"), balancer.id.clone())]);
    EnsureLoadBalancerResponse {
        load_balancer: Some(to_wire::balancer(balancer)),
        in_progress: provisioning(balancer.state, balancer.due, now),
        events,
        service_annotations: annotations,
        removed_service_annotations: Vec::new(),
        service_conditions: Vec::new(),
    }
}

fn provisioning(state: BalancerState, due: Option<Timestamp>, now: Timestamp) -> Option<InProgress> {
    let due = due.filter(|_| state == BalancerState::Provisioning)?;
    Some(to_wire::in_progress("PROVISIONING", "the load balancer is being made", due, now))
}

fn deleting(due: Timestamp, now: Timestamp) -> InProgress {
    to_wire::in_progress("DELETING", "the load balancer is going", due, now)
}

fn update_all(
    state: &mut State,
    cluster_uid: &str,
    request: BatchUpdateLoadBalancersRequest,
    now: Timestamp,
) -> Result<Vec<LoadBalancerUpdateResult>, CloudError> {
    state.enter("balancers:write")?;
    let mut sets = Vec::new();
    for set in request.backend_sets {
        let nodes: Vec<_> = set.nodes.into_iter().map(from_wire::node).collect();
        sets.push((set.digest, Arc::new(state.resolve_backends(cluster_uid, &nodes))));
    }
    let mut results = Vec::new();
    for item in request.items {
        let service = from_wire::service(item.service.unwrap_or_default());
        let uid = service.uid.clone();
        let Some((digest, backends)) = sets.get(item.backend_set as usize) else {
            let shape =
                CloudError::Invalid { message: format!("backend set {} is not there", item.backend_set) };
            results.push(update_result(uid, Err(shape), now));
            continue;
        };
        let wish = UpdateWish {
            cluster_uid,
            service: &service,
            backends: Arc::clone(backends),
            backend_digest: digest,
            desired_digest: &item.desired_digest,
        };
        let outcome = state.update_balancer(wish, now);
        results.push(update_result(uid, outcome, now));
    }
    Ok(results)
}

fn update_result(
    service_uid: String,
    outcome: Result<Updated, CloudError>,
    now: Timestamp,
) -> LoadBalancerUpdateResult {
    let (outcome, in_progress, error) = match outcome {
        Ok(Updated { due: None }) => (UpdateOutcome::Updated, None, None),
        Ok(Updated { due: Some(due) }) => {
            let progress = to_wire::in_progress("PROVISIONING", "the load balancer is being made", due, now);
            (UpdateOutcome::NotUpdated, Some(progress), None)
        }
        Err(error) => {
            let error: ProviderError = provider_error(error);
            (UpdateOutcome::NotUpdated, None, Some(error.to_item()))
        }
    };
    LoadBalancerUpdateResult { service_uid, outcome: outcome.into(), in_progress, error, events: Vec::new() }
}

fn event(kind: EventType, reason: &str, message: &str) -> ProviderEvent {
    ProviderEvent { r#type: kind.into(), reason: reason.to_owned(), message: message.to_owned() }
}
