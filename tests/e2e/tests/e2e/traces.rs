//! One trace from the moment an object is queued to the call of the provider, as a collector receives it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use e2e::{join, node, quick, service};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use test_cluster::{
    nodes::{as_registered, is_uninitialized, register},
    services::{create, ingress, load_balancer},
    wait,
};
use tokio::{net::TcpListener, sync::Mutex};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// The received spans, each with the name of its service.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut spans = self.0.lock().await;
        for resource in request.into_inner().resource_spans {
            let from = text(&resource.resource.unwrap_or_default().attributes, "service.name");
            let sent = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(sent.map(|span| (from.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Accepts spans at the returned address while the test runs.
    async fn start(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let server = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(address)
    }

    /// All spans, once one of them matches.
    async fn until(&self, what: &str, is: impl Fn(&Span) -> bool) -> Result<(Span, Spans)> {
        wait::until(what, async || {
            let spans = self.0.lock().await;
            let found = spans.iter().find(|(_, span)| is(span)).map(|(_, span)| span.clone());
            let all = spans.iter().map(|(_, span)| (span.span_id.clone(), span.clone())).collect();
            Ok(found.map(|span| (span, all)))
        })
        .await
    }
}

type Spans = BTreeMap<Vec<u8>, Span>;

fn text(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key);
    match value.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// The names from a span up to the root of its trace, and the root.
fn ancestry<'a>(spans: &'a Spans, span: &'a Span) -> (Vec<&'a str>, &'a Span) {
    let (mut names, mut at) = (vec![span.name.as_str()], span);
    while let Some(parent) = spans.get(&at.parent_span_id) {
        assert_eq!(parent.trace_id, span.trace_id, "{parent:?}");
        names.push(&parent.name);
        at = parent;
    }
    (names, at)
}

/// The objects whose work a batch is linked to.
fn asked_by(spans: &Spans, batch: &Span) -> Result<BTreeSet<String>> {
    let mut asked = BTreeSet::new();
    for link in &batch.links {
        let work = spans.get(&link.span_id).context("a link leads nowhere")?;
        ensure!(work.name == "work" && work.trace_id == link.trace_id, "{work:?}");
        asked.insert(text(&work.attributes, "key"));
    }
    Ok(asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_leads_from_the_queue_into_the_provider() -> Result<()> {
    let collector = Collector::default();
    let endpoint = collector.start().await?;
    // While the first query is answered, the others gather, however long the host takes to ask them.
    let mut cluster = quick()
        .host_flag(format!("--tracing-endpoint={endpoint}"))
        .provider_flag("--advertise=max-concurrent-reads=1")
        .start_without_host()
        .await?;
    cluster.cloud()?.fault("latency,time=2s,method=BatchGetInstances").await?;
    let names = ["a", "b", "c"];
    for name in names {
        cluster.cloud()?.create_instance(name, "zone-a").await?;
        register(&cluster.client, as_registered(name)).await?;
    }
    cluster.start_host()?;
    cluster.host_ready().await?;
    for name in names {
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    ensure!(cluster.host()?.terminate().await?.success(), "what is left is sent at the end");

    let ensured = |span: &Span| span.name == "EnsureLoadBalancer" && text(&span.attributes, "code") == "OK";
    let (call, spans) = collector.until("the call that makes the balancer", ensured).await?;
    let (path, root) = ancestry(&spans, &call);
    ensure!(
        path == ["EnsureLoadBalancer", "work", "reconcile"] && root.parent_span_id.is_empty(),
        "{path:?}"
    );
    ensure!(call.kind() == SpanKind::Client && text(&call.attributes, "rpc.service") == "LoadBalancers");
    ensure!(text(&call.attributes, "provider") == "mock", "{call:?}");
    ensure!(text(&root.attributes, "queue") == "service", "{root:?}");
    ensure!(text(&root.attributes, "key") == "default/web", "{root:?}");
    let waited = spans.values().find(|span| span.name == "wait" && span.trace_id == root.trace_id);
    let waited = waited.context("no span of the wait")?;
    ensure!(
        waited.parent_span_id == root.span_id && waited.start_time_unix_nano == root.start_time_unix_nano
    );
    ensure!(waited.end_time_unix_nano <= call.start_time_unix_nano, "{waited:?} {call:?}");
    ensure!(root.end_time_unix_nano >= call.end_time_unix_nano, "{root:?} {call:?}");

    let shared = |span: &Span| span.name == "batch" && span.links.len() > 1;
    let (batch, spans) = collector.until("a batch of several", shared).await?;
    let asked = asked_by(&spans, &batch)?;
    ensure!(asked.len() == batch.links.len(), "{asked:?}");
    let mut all = BTreeSet::new();
    for one in spans.values().filter(|span| span.name == "batch") {
        all.extend(asked_by(&spans, one)?);
    }
    ensure!(all.is_superset(&names.map(str::to_owned).into()), "{all:?}");
    ensure!(asked.iter().all(|key| names.contains(&key.as_str())), "{asked:?}");
    ensure!(batch.links.iter().any(|link| link.span_id == batch.parent_span_id), "it belongs to one of them");
    let read =
        spans.values().find(|span| span.parent_span_id == batch.span_id).context("no call of the batch")?;
    let items = asked.len().to_string();
    ensure!(read.name == "BatchGetInstances" && text(&read.attributes, "items") == items, "{read:?}");

    let from = collector.0.lock().await;
    ensure!(from.iter().all(|(service, _)| service == "ccm-host"));
    ensure!(
        from.iter().all(|(_, span)| span.name != "GetStatus"),
        "what is no part of any work is not traced"
    );
    Ok(())
}

/// A collector that is down, and one that accepts connections but never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_or_hangs_holds_nothing_up() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let hangs = silent.local_addr()?;
    let closed = TcpListener::bind("127.0.0.1:0").await?;
    let away = closed.local_addr()?;
    drop(closed);
    for endpoint in [away, hangs] {
        let mut cluster = quick().host_flag(format!("--tracing-endpoint={endpoint}")).start().await?;
        join(&cluster, &["a", "b"]).await?;
        create(&cluster.client, load_balancer("web")).await?;
        service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
        if endpoint == away {
            wait::until("the log tells it", async || {
                Ok(cluster.host()?.output().contains("traces are lost").then_some(()))
            })
            .await?;
        }
        let status = tokio::time::timeout(Duration::from_secs(10), cluster.host()?.terminate()).await;
        ensure!(status.context("the end waits for the collector")??.success());
    }
    Ok(())
}
