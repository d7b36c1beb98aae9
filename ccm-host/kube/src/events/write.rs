//! The task that writes events, one at a time, when there is nothing more important to write.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Events, Raised,
    correlate::{Correlator, Occurrence},
};
use crate::{
    client::{is_absent, may_pass},
    patch::WritePressure,
};
use ccm_base::text::with_sources;

/// Writes that matter come in bursts: none has been under way for this long before an event is written.
const QUIET: Duration = Duration::from_millis(100);
/// An event that has waited for this long is written whatever the pressure …
const PATIENCE: Duration = Duration::from_secs(10);
/// … but at most one per this interval.
const TRICKLE: Duration = Duration::from_millis(200);
/// Waits before the second and later attempts.
const RETRY_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(10)];
/// Where events about cluster-scoped objects live.
const CLUSTER_SCOPED: &str = "default";

/// Writes the events of a queue until cancelled.
pub struct EventWriter {
    client: Client,
    pressure: WritePressure,
    events: Arc<Events>,
    correlator: Correlator,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("events", &self.events).finish_non_exhaustive()
    }
}

impl EventWriter {
    pub(super) fn new(client: Client, pressure: WritePressure, events: Arc<Events>) -> Self {
        Self { client, pressure, events, correlator: Correlator::default() }
    }

    /// Writes until cancelled. Events still queued then are dropped: flush first.
    pub async fn run(mut self, cancel: CancellationToken) {
        let stopped = cancel.clone();
        tokio::select! {
            () = stopped.cancelled() => {}
            () = self.write_all() => {}
        }
        while self.events.pop().is_some() {
            self.events.metrics.discard("shutdown");
        }
    }

    /// Takes every event and writes none, until cancelled.
    pub async fn write_none(self, cancel: CancellationToken) {
        loop {
            let raised = self.events.raised.notified();
            while self.events.pop().is_some() {
                self.events.metrics.discard("shadow");
            }
            if cancel.run_until_cancelled(raised).await.is_none() {
                return;
            }
        }
    }

    async fn write_all(&mut self) {
        let events = Arc::clone(&self.events);
        loop {
            let raised = events.raised.notified();
            let Some((mut next, _unsettled)) = events.pop() else {
                raised.await;
                continue;
            };
            // Before it waits for its turn: what is too much costs the others no time.
            let Some(occurrence) = self.correlator.correlate(&mut next, Instant::now()) else {
                events.metrics.discard("spam");
                continue;
            };
            self.turn(&next).await;
            self.write(&next, &occurrence).await;
        }
    }

    /// Waits until the event may be written.
    async fn turn(&self, raised: &Raised) {
        let due = raised.since + PATIENCE;
        let mut flushing = self.events.flushing.subscribe();
        tokio::select! {
            biased;
            () = self.pressure.calm(QUIET) => {}
            _ = flushing.wait_for(|flushing| *flushing) => {}
            () = sleep_until(due.max(Instant::now() + TRICKLE)) => {}
        }
    }

    async fn write(&self, raised: &Raised, occurrence: &Occurrence) {
        match self.send_patiently(raised, occurrence).await {
            Ok(()) => {
                self.events.metrics.written.inc();
            }
            Err(error) => {
                self.events.metrics.discard(if is_namespace_ending(&error) { "namespace" } else { "failed" });
                let regarding = &raised.regarding;
                tracing::debug!(
                    kind = regarding.kind, name = regarding.name, reason = %raised.reason,
                    error = %with_sources(&error), "event not written"
                );
            }
        }
    }

    async fn send_patiently(&self, raised: &Raised, occurrence: &Occurrence) -> Result<(), Error> {
        let mut waits = RETRY_AFTER.iter();
        loop {
            let error = match self.send(raised, occurrence).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match waits.next() {
                Some(wait) if may_pass(&error) => sleep(*wait).await,
                _ => return Err(error),
            }
        }
    }

    async fn send(&self, raised: &Raised, occurrence: &Occurrence) -> Result<(), Error> {
        let namespace = raised.regarding.namespace.as_deref().unwrap_or(CLUSTER_SCOPED);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if occurrence.count > 1 {
            let repeat = json!({
                "count": occurrence.count,
                "lastTimestamp": Time(raised.at),
                "message": raised.message,
            });
            let patched =
                api.patch_metadata(&occurrence.name, &PatchParams::default(), &Patch::Merge(repeat)).await;
            match patched {
                // It has expired: write it anew.
                Err(Error::Api(status)) if is_absent(&status) => {}
                other => return other.map(drop),
            }
        }
        api.create(&PostParams::default(), &object(raised, occurrence, namespace)).await.map(drop)
    }
}

fn object(raised: &Raised, occurrence: &Occurrence, namespace: &str) -> Event {
    let regarding = &raised.regarding;
    Event {
        metadata: ObjectMeta {
            name: Some(occurrence.name.clone()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(regarding.api_version.to_owned()),
            kind: Some(regarding.kind.to_owned()),
            namespace: regarding.namespace.clone(),
            name: Some(regarding.name.clone()),
            uid: Some(regarding.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(raised.type_.as_str().to_owned()),
        reason: Some(raised.reason.clone().into_owned()),
        message: Some(raised.message.clone()),
        source: Some(EventSource { component: Some(raised.component.to_owned()), host: None }),
        reporting_component: Some(raised.component.to_owned()),
        reporting_instance: Some(String::new()),
        first_timestamp: Some(Time(occurrence.first)),
        last_timestamp: Some(Time(raised.at)),
        count: Some(i32::try_from(occurrence.count).unwrap_or(i32::MAX)),
        ..Event::default()
    }
}

/// Whether nothing can be created in the namespace any more, since it is being deleted, or gone: nobody's fault.
fn is_namespace_ending(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    if status.code == 404 {
        return true;
    }
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}
