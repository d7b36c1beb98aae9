//! A cloud that does what a test wants, told by the keys of queries and the names of Services.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloudprovider_sdk::proto::*;
use cloudprovider_sdk::{
    CallContext, ChangeFeed, InstanceWatch, Instances, LoadBalancers, Peer, Provider, ProviderBuilder,
    ProviderError, Result, WatchEvent, async_trait, results,
};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Where a test and the cloud meet.
#[derive(Clone)]
pub(crate) struct Cloud {
    pub(crate) feed: ChangeFeed,
    /// Mutations wait here for a permit.
    pub(crate) go: Arc<Semaphore>,
    /// How many mutations began, and how many were finished.
    pub(crate) began: Arc<watch::Sender<usize>>,
    pub(crate) finished: Arc<watch::Sender<usize>>,
    /// How many reads were given up.
    pub(crate) given_up: Arc<watch::Sender<usize>>,
    /// The mutations' contexts.
    pub(crate) calls: Arc<Mutex<Vec<CallContext>>>,
    /// What the last call was told about itself.
    pub(crate) told: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        let count = || Arc::new(watch::Sender::new(0));
        Self {
            feed: ChangeFeed::new(4),
            go: Arc::new(Semaphore::new(0)),
            began: count(),
            finished: count(),
            given_up: count(),
            calls: Arc::default(),
            told: Arc::default(),
        }
    }

    pub(crate) fn builder(&self) -> ProviderBuilder {
        Provider::builder("double")
            .vendor_version("1.2.3")
            .provider_id_prefix("double://")
            .capabilities(capabilities())
            .instances(self.clone())
            .load_balancers(self.clone())
    }

    pub(crate) fn provider(&self) -> Provider {
        self.builder().build().unwrap()
    }

    fn tell(&self, ctx: &CallContext) {
        let uid = match ctx.peer() {
            Peer::Unix { uid, .. } => uid.to_string(),
            other => format!("{other:?}"),
        };
        let mut told = self.told.lock();
        told.insert("method", ctx.method().into());
        told.insert("cluster", ctx.cluster_uid().into());
        told.insert("request_id", ctx.request_id().into());
        told.insert("traceparent", ctx.traceparent().unwrap_or_default().into());
        told.insert(
            "remaining_ms",
            ctx.remaining().map_or("none".into(), |left| left.as_millis().to_string()),
        );
        told.insert("peer", uid);
        let context = ctx.span().context();
        let trace = opentelemetry::trace::TraceContextExt::span(&context).span_context().trace_id();
        told.insert("trace_id", trace.to_string());
    }

    async fn mutate(&self, ctx: &CallContext, name: &str) -> Result<()> {
        self.tell(ctx);
        self.calls.lock().push(ctx.clone());
        self.began.send_modify(|count| *count += 1);
        match name {
            "panic" => panic!("canary-hunter2 in a panic"),
            "until-told" => {
                ctx.cancellation().cancelled().await;
                self.given_up.send_modify(|count| *count += 1);
            }
            "too-long" => {
                let call = tokio::time::timeout(std::time::Duration::ZERO, std::future::pending::<()>());
                call.await.map_err(anyhow::Error::from)?;
            }
            "deaf" => std::future::pending().await,
            _ => self.go.acquire().await.unwrap().forget(),
        }
        self.finished.send_modify(|count| *count += 1);
        Ok(())
    }
}

pub(crate) fn capabilities() -> GetCapabilitiesResponse {
    let capabilities = [Capability::InstancesWatch, Capability::InstancesList];
    let millis = |millis: i32| Some(prost_types::Duration { seconds: 0, nanos: millis * 1_000_000 });
    GetCapabilitiesResponse {
        capabilities: capabilities.iter().map(|one| i32::from(*one)).collect(),
        limits: Some(Limits { max_batch_instances: 3, max_page_size: 50, ..Default::default() }),
        intervals: Some(Intervals { bookmark_interval: millis(200), ..Default::default() }),
        ..Default::default()
    }
}

struct GivenUp(Arc<watch::Sender<usize>>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Instances for Cloud {
    async fn batch_get_instances(
        &self,
        ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse> {
        self.tell(ctx);
        let given_up = GivenUp(Arc::clone(&self.given_up));
        match request.queries[0].key.as_str() {
            "panic" => panic!("canary-hunter2 in a panic"),
            "hang" => {
                self.began.send_modify(|count| *count += 1);
                std::future::pending::<()>().await;
            }
            "throttled" => return Err(ProviderError::rate_limited(std::time::Duration::from_secs(9))),
            "broken" => {
                return Err(ProviderError::internal(std::io::Error::other("password=canary-hunter2")));
            }
            "huge" => {
                let instance = Instance { name: "x".repeat(5 << 20), ..Default::default() };
                let result =
                    InstanceResult { key: "huge".into(), instance: Some(instance), ..Default::default() };
                return Ok(BatchGetInstancesResponse { results: vec![result] });
            }
            _ => {}
        }
        std::mem::forget(given_up);
        let down = || ProviderError::cloud_api_unavailable();
        let copied = down().with_source(std::io::Error::other("no route to the region")).to_item();
        let result = |query: InstanceQuery| match query.key.strip_prefix("down-") {
            Some(at) => {
                let cause = format!("{at} refused password=canary-hunter2");
                results::unknown(query.key, &down().with_source(std::io::Error::other(cause)))
            }
            None if query.key.starts_with("copied") => {
                InstanceResult { key: query.key, error: Some(copied.clone()), ..Default::default() }
            }
            None => InstanceResult { key: query.key, ..Default::default() },
        };
        Ok(BatchGetInstancesResponse { results: request.queries.into_iter().map(result).rev().collect() })
    }

    async fn watch_instances(
        &self,
        _ctx: &CallContext,
        request: WatchInstancesRequest,
    ) -> Result<InstanceWatch> {
        match request.resume_token.as_str() {
            "" | "of nobody" => Ok(self.feed.watch()),
            "old" => Err(ProviderError::resume_token_expired()),
            "panic" => {
                let events = stream::once(async { panic!("in a stream") });
                Ok(InstanceWatch { resumed: true, events: events.boxed() })
            }
            token => {
                let events = stream::iter([Ok(WatchEvent::Bookmark(format!("{token}+1")))]);
                Ok(InstanceWatch { resumed: true, events: events.chain(stream::pending()).boxed() })
            }
        }
    }

    async fn list_instances(
        &self,
        _ctx: &CallContext,
        request: ListInstancesRequest,
    ) -> Result<ListInstancesResponse> {
        Ok(ListInstancesResponse { next_page_token: request.page_size.to_string(), ..Default::default() })
    }
}

#[async_trait]
impl LoadBalancers for Cloud {
    async fn get_load_balancer(
        &self,
        _ctx: &CallContext,
        _request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse> {
        Ok(GetLoadBalancerResponse::default())
    }

    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse> {
        let name = request.service.and_then(|service| service.r#ref).map(|service| service.name);
        self.mutate(ctx, &name.unwrap()).await?;
        Ok(EnsureLoadBalancerResponse::default())
    }

    async fn batch_update_load_balancers(
        &self,
        _ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse> {
        if request.items.is_empty() {
            return Err(ProviderError::internal("an empty batch"));
        }
        let is_slow = |item: &LoadBalancerUpdate| {
            item.service.iter().flat_map(|service| &service.r#ref).any(|service| service.uid == "too-long")
        };
        if request.items.iter().any(is_slow) {
            let call = tokio::time::timeout(std::time::Duration::ZERO, std::future::pending::<()>());
            call.await.map_err(anyhow::Error::from)?;
        }
        let done = |item: LoadBalancerUpdate| LoadBalancerUpdateResult {
            service_uid: item.service.and_then(|service| service.r#ref).unwrap().uid,
            outcome: UpdateOutcome::Updated.into(),
            ..Default::default()
        };
        let mut results: Vec<_> = request.items.into_iter().map(done).collect();
        // Answers that no provider should give.
        results.retain(|result| result.service_uid != "lacking");
        let doubled = results.iter().find(|result| result.service_uid == "doubled").cloned();
        results.extend(doubled.into_iter().map(|result| LoadBalancerUpdateResult { error: None, ..result }));
        Ok(BatchUpdateLoadBalancersResponse { results })
    }

    async fn delete_load_balancer(
        &self,
        _ctx: &CallContext,
        _request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse> {
        Ok(DeleteLoadBalancerResponse::default())
    }

    async fn list_load_balancers(
        &self,
        _ctx: &CallContext,
        _request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse> {
        Ok(ListLoadBalancersResponse::default())
    }
}
