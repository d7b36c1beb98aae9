//! `LoadBalancers`, answered from the cloud.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cloudprovider_sdk::{CallContext, LoadBalancers, Result, async_trait, paging, proto::*};
use jiff::Timestamp;

use super::Honest;
use crate::cloud::{Deleted, Ensured, FoundBalancer, WRITTEN_PREFIX};

/// Bounds of `retry_after` for work in progress.
const LEAST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[async_trait]
impl LoadBalancers for Honest {
    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse> {
        let service = request.service.unwrap_or_default();
        let none = |state: LoadBalancerState| LoadBalancer { state: state.into(), ..LoadBalancer::default() };
        self.ask(|state, _| {
            state.enter("balancers:read")?;
            let is = match state.find_balancer(ctx.cluster_uid(), &service.uid) {
                FoundBalancer::ByUid(balancer) | FoundBalancer::ByLegacyName(balancer) => balancer.into(),
                FoundBalancer::NotOwned => none(LoadBalancerState::NotOwned),
                FoundBalancer::Absent => none(LoadBalancerState::Absent),
            };
            let load_balancer = Some(LoadBalancer { service: Some(service), ..is });
            Ok(GetLoadBalancerResponse { load_balancer })
        })
        .await
    }

    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse> {
        self.change(|state, now| {
            let Ensured { balancer, adopted, created } =
                state.ensure_balancer(&cluster(ctx), request, now)?;
            let told = [
                (created, "CreatedLoadBalancer", "the load balancer was created"),
                (adopted, "AdoptedLoadBalancer", "the load balancer of a former controller was adopted"),
            ];
            let told = told.into_iter().filter(|(happened, ..)| *happened);
            let id = (id_annotation(), balancer.id.clone());
            Ok(EnsureLoadBalancerResponse {
                load_balancer: Some((&balancer).into()),
                in_progress: balancer.due.map(|due| provisioning(due, now)),
                events: told.map(|(_, reason, text)| event(EventType::Normal, reason, text)).collect(),
                service: Some(ServiceWrites { annotations: HashMap::from([id]), ..ServiceWrites::default() }),
            })
        })
        .await
    }

    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse> {
        self.change(|state, now| {
            state.enter("balancers:write")?;
            let set = request.backends.unwrap_or_default();
            let backends = Arc::new(state.resolve_backends(ctx.cluster_uid(), &set.nodes));
            let update = |item: LoadBalancerUpdate| {
                let set = (set.digest.as_str(), Arc::clone(&backends));
                let outcome = state.update_balancer(ctx.cluster_uid(), &item, set, now);
                let (outcome, in_progress, error) = match outcome {
                    Ok(None) => (UpdateOutcome::Updated, None, None),
                    Ok(Some(due)) => (UpdateOutcome::NotUpdated, Some(provisioning(due, now)), None),
                    Err(error) => (UpdateOutcome::NotUpdated, None, Some(error.to_item())),
                };
                let service = item.service.and_then(|service| service.r#ref).unwrap_or_default();
                let (service_uid, outcome) = (service.uid, outcome.into());
                LoadBalancerUpdateResult {
                    service_uid,
                    outcome,
                    in_progress,
                    error,
                    ..LoadBalancerUpdateResult::default()
                }
            };
            Ok(BatchUpdateLoadBalancersResponse { results: request.items.into_iter().map(update).collect() })
        })
        .await
    }

    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse> {
        let adopt = request.adoption() == Adoption::AdoptByLegacyName;
        let service = request.service.unwrap_or_default();
        self.change(|state, now| {
            let mut answer = DeleteLoadBalancerResponse::default();
            match state.delete_balancer(ctx.cluster_uid(), &service.uid, adopt, now)? {
                Deleted::Gone => {
                    let removed_annotations = vec![id_annotation()];
                    answer.service = Some(ServiceWrites { removed_annotations, ..ServiceWrites::default() });
                }
                Deleted::Going(due) => {
                    let text = "the load balancer is being deleted";
                    answer.in_progress = Some(in_progress("DELETING", text, due, now));
                }
                Deleted::LegacyLeft => {
                    let text = "the load balancer of a former controller was left alone: adoption is refused";
                    answer.events = vec![event(EventType::Warning, "LegacyLoadBalancerKept", text)];
                }
            }
            Ok(answer)
        })
        .await
    }

    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse> {
        self.ask(|state, _| {
            let all = state.list_balancers(&cluster(ctx))?;
            let (page, next_page_token) = paging::page(&request, all, |balancer| balancer.id.clone())?;
            Ok(ListLoadBalancersResponse {
                load_balancers: page.into_iter().map(LoadBalancer::from).collect(),
                next_page_token,
                unreachable: Vec::new(),
            })
        })
        .await
    }
}

/// The annotation that names the balancer on its Service.
fn id_annotation() -> String {
    format!("{WRITTEN_PREFIX}load-balancer-id")
}

fn cluster(ctx: &CallContext) -> ClusterRef {
    ctx.cluster().cloned().unwrap_or_default()
}

fn provisioning(due: Timestamp, now: Timestamp) -> InProgress {
    in_progress("PROVISIONING", "the load balancer is being made as asked", due, now)
}

/// Work in progress until `due`.
fn in_progress(reason: &str, message: &str, due: Timestamp, now: Timestamp) -> InProgress {
    let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
    InProgress {
        retry_after: left.clamp(LEAST_WAIT, LONGEST_WAIT).try_into().ok(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

fn event(kind: EventType, reason: &str, message: &str) -> ProviderEvent {
    ProviderEvent { r#type: kind.into(), reason: reason.to_owned(), message: message.to_owned() }
}
