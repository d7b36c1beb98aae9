//! The spans of a trace, which begins when an object is queued and ends when its run ends:
//!
//! ```text
//! reconcile ─┬─ wait      in the queue
//!            └─ work ─┬─ EnsureLoadBalancer ─► the provider's own spans
//!                     └─ batch ── BatchGetInstances ─► …
//! ```
//!
//! A batch belongs to the trace of its first caller and is linked to those of all callers. Spans cost nothing unless
//! somebody collects them: `manager::traces`, or the log at a higher verbosity, which then shows queue and key.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Span as _, SpanContext, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, global};
use tracing::{Instrument as _, Span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The targets of the host's crates begin with this.
pub const OURS: &str = "ccm_";

/// The target of all these spans, for filters.
pub const TARGET: &str = module_path!();

/// Runs the work for a key that was queued `waited` ago.
pub fn reconcile<K: Display, F: Future>(
    queue: &'static str,
    key: &K,
    waited: Duration,
    run: F,
) -> impl Future<Output = F::Output> + use<K, F> {
    let work = tracing::debug_span!("work", queue, %key);
    let whole = if work.is_disabled() { None } else { Some(begun(queue, key, waited, &work)) };
    async move {
        let ended = run.instrument(work).await;
        if let Some(whole) = whole {
            whole.span().end();
        }
        ended
    }
}

/// Starts the span around the wait, which is over, and the work.
fn begun(queue: &'static str, key: &impl Display, waited: Duration, work: &Span) -> Context {
    let now = SystemTime::now();
    let added = now.checked_sub(waited).unwrap_or(now);
    let tracer = global::tracer(TARGET);
    let about = [KeyValue::new("queue", queue), KeyValue::new("key", key.to_string())];
    let whole = tracer.span_builder("reconcile").with_start_time(added).with_attributes(about);
    let whole = Context::new().with_span(whole.start_with_context(&tracer, &Context::new()));
    let mut wait = tracer.span_builder("wait").with_start_time(added).start_with_context(&tracer, &whole);
    wait.end_with_timestamp(now);
    // An error means that traces are not collected.
    let _untraced = work.set_parent(whole.clone());
    whole
}

/// A call to a provider; `items` is the size of a batch. `code` and `reason` are recorded when it ends.
pub fn call(provider: &str, service: &'static str, method: &'static str, items: Option<usize>) -> Span {
    tracing::debug_span!(
        "rpc",
        otel.name = method,
        otel.kind = "client",
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        provider,
        items,
        code = Empty,
        reason = Empty,
    )
}

/// The traced callers waiting for one item of a batch.
#[derive(Debug, Default)]
pub struct Askers(Vec<SpanContext>);

impl Askers {
    /// Adds the current span as a caller.
    pub fn note(&mut self) {
        let span = Span::current();
        if span.is_none() {
            return;
        }
        let asker = span.context().span().span_context().clone();
        if asker.is_sampled() {
            self.0.push(asker);
        }
    }
}

/// The span of a batch, linked to its callers.
pub fn batch<'a>(items: impl Iterator<Item = &'a Askers>) -> Span {
    let mut askers = items.flat_map(|asked| &asked.0).peekable();
    let Some(first) = askers.peek().copied() else { return Span::none() };
    let span = tracing::debug_span!(parent: None, "batch");
    let _untraced = span.set_parent(Context::new().with_remote_span_context(first.clone()));
    askers.for_each(|asker| span.add_link(asker.clone()));
    span
}
