//! Logs without secrets, spans with what matters, traces that go on.

use std::io;
use std::sync::Arc;

use cloudprovider_sdk::telemetry::{self, LogFormat};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use parking_lot::Mutex;
use tonic::Request;
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cloud::Cloud;
use crate::fixture::{Served, serve};
use crate::requests::{batch, ensure};

const CANARY: &str = "canary-hunter2";

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs of this thread at every level, and so of the server that runs on it.
///
/// While there is only one subscriber, the thread that comes to a line first decides whether it is ever logged, and a
/// neighbour's thread has none: so there is another one.
fn capture(format: LogFormat) -> (Lines, (DefaultGuard, Dispatch)) {
    let lines = Lines::default();
    let writer = lines.clone();
    let another = Dispatch::new(NoSubscriber::new());
    let tracer = SdkTracerProvider::builder().build().tracer("test");
    let guard = tracing_subscriber::registry()
        .with(telemetry::layer(format, move || writer.clone()))
        .with(tracing_opentelemetry::layer().with_tracer(tracer))
        .set_default();
    (lines, (guard, another))
}

async fn everything_goes_wrong(served: &Served) {
    let mut instances = served.instances().await;
    for key in ["broken", "panic", "throttled"] {
        instances.batch_get_instances(batch(&[key])).await.unwrap_err();
    }
    let mut request = ensure("panic");
    let annotations = [("example.io/harmless".to_owned(), format!("value-{CANARY}"))];
    request.service.as_mut().unwrap().annotations = annotations.into();
    served.load_balancers().await.ensure_load_balancer(request).await.unwrap_err();
}

#[tokio::test]
async fn a_secret_never_reaches_the_log() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let (lines, _guard) = capture(format);
        let served = serve(Cloud::new().provider()).await;
        everything_goes_wrong(&served).await;
        tracing::info!(token = CANARY, "a field");
        tracing::info!(password = %format!("{CANARY} with blanks {CANARY}"), "a field that is not quoted");
        tracing::info!(config = ?format!("api_key = '{CANARY}'"), "a value");
        tracing::info!("authorization: Bearer {CANARY}");
        served.stopped().await;
        let text = lines.text();
        assert!(!text.contains(CANARY), "{text}");
        assert!(text.contains("[redacted]"), "{text}");
        assert!(text.contains("password"), "the cause of the internal error is logged: {text}");
        if format == LogFormat::Json {
            for line in text.lines() {
                serde_json::from_str::<serde_json::Value>(line)
                    .unwrap_or_else(|error| panic!("{error}: {line}"));
            }
        }
    }
}

/// The host gets one sentence for an item; what caused it is for whoever runs the provider.
#[tokio::test]
async fn the_log_says_why_an_item_failed_and_nobody_else_hears_it() {
    let (lines, _guard) = capture(LogFormat::Json);
    let served = serve(Cloud::new().provider()).await;
    let mut request = batch(&["down-1", "down-2", "copied"]);
    for (query, name) in request.queries.iter_mut().zip(["node-a", "node-b", "node-c"]) {
        query.node.as_mut().unwrap().name = name.into();
    }
    let answer = served.instances().await.batch_get_instances(request).await.unwrap().into_inner();
    served.stopped().await;
    let (answer, text) = (format!("{answer:?}"), lines.text());
    assert!(!answer.contains("refused") && !answer.contains("no route"), "{answer}");
    assert!(!text.contains(CANARY), "{text}");
    let about = |wanted: [&str; 2]| text.lines().any(|line| wanted.iter().all(|part| line.contains(part)));
    for (name, cause) in [("node-a", "1 refused"), ("node-b", "2 refused"), ("node-c", "no route")] {
        assert!(about([name, "CLOUD_API_UNAVAILABLE"]) && about(["CLOUD_API_UNAVAILABLE", cause]), "{text}");
    }
}

#[tokio::test]
async fn a_line_says_which_call_it_is_about() {
    let (lines, _guard) = capture(LogFormat::Json);
    let served = serve(Cloud::new().provider()).await;
    let mut request = Request::new(batch(&["throttled", "b"]));
    request.metadata_mut().insert("x-request-id", "req-9".parse().unwrap());
    served.instances().await.batch_get_instances(request).await.unwrap_err();
    served.stopped().await;
    let text = lines.text();
    let line =
        text.lines().find(|line| line.contains("refused")).unwrap_or_else(|| panic!("no line in {text}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let span = &line["span"];
    for (field, wanted) in [
        ("method", "BatchGetInstances"),
        ("request_id", "req-9"),
        ("cluster_uid", "cluster-1"),
        ("code", "RESOURCE_EXHAUSTED"),
        ("reason", "RATE_LIMITED"),
    ] {
        assert_eq!(span[field], wanted, "{line}");
    }
    assert_eq!(span["items"], 2, "{line}");
}

#[tokio::test]
async fn the_callers_trace_goes_on() {
    let (_lines, _guard) = capture(LogFormat::Text);
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut request = Request::new(batch(&["a"]));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    served.instances().await.batch_get_instances(request).await.unwrap();
    assert_eq!(cloud.told.lock()["trace_id"], "0af7651916cd43dd8448eb211c80319c");
}
