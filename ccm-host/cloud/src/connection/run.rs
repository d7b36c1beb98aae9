//! Connects, does the handshake, keeps the session until it is lost, and starts over.
//!
//! While it has a session it follows the provider: its health as it changes, its conditions at a fixed pace. Both, and the
//! outcomes of calls, make its [`super::standing`].

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use cloudprovider_proto::v1alpha1 as pb;
use futures::FutureExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use super::{
    Introduced, Link,
    connect::{LIVED, connect, pause},
    handshake::handshake,
    session::{Session, kinds},
    watch,
};
use crate::{ErrorReason, ProviderInfo, ProviderStatus, call::rpc, findings::rule, method};

/// Caps the pause when trying again costs next to nothing.
const CHEAP: Duration = Duration::from_secs(1);

/// Keeps the connection until `stop` is cancelled.
pub(crate) async fn run(link: Arc<Link>, stop: CancellationToken) {
    // Boxed: the future is large.
    stop.run_until_cancelled(Box::pin(supervise(&link, || forever(&link)))).await;
    link.step_down().await;
    link.leave();
}

/// A panic is a bug of the host and must not leave a stale status behind: report it and start over.
async fn supervise<F: Future<Output = Infallible>>(link: &Link, work: impl Fn() -> F) {
    loop {
        let Err(_panicked) = AssertUnwindSafe(work()).catch_unwind().await;
        link.metrics.connect_failed();
        link.lose("the connection's task panicked; restarting it".to_owned());
        tokio::time::sleep(link.config.paces.reconnect.max).await;
    }
}

async fn forever(link: &Link) -> Infallible {
    let mut failures = 0_u32;
    loop {
        let mut cap = Duration::MAX;
        let failed = match connect(&link.config).await {
            Err(error) => {
                if error.is_cheap {
                    cap = CHEAP;
                }
                Some(error.to_string())
            }
            Ok(connection) => match handshake(connection, &link.metrics).await {
                Err(error) => Some(format!("{}: {error}", link.config.settings.endpoint)),
                Ok(session) => {
                    let since = Instant::now();
                    let why = live(link, Arc::new(session)).await;
                    link.lose(why);
                    if since.elapsed() >= LIVED {
                        failures = 0;
                    }
                    None
                }
            },
        };
        link.is_believed_no_longer();
        if let Some(why) = failed {
            link.metrics.connect_failed();
            link.publish(ProviderStatus::Disconnected(why));
        }
        let backoff = link.config.paces.reconnect;
        tokio::time::sleep(pause(backoff, &mut failures, fastrand::f64(), cap)).await;
    }
}

/// Runs one session to its end and returns why it ended.
async fn live(link: &Link, session: Arc<Session>) -> String {
    link.take_up(&session);
    first_look(link, &session).await;
    let mut leadership = link.config.leadership.clone();
    let is_told = link.tell_leadership(&session, &mut leadership).await;
    link.open(Arc::clone(&session));
    tokio::select! {
        why = monitor(link, &session) => why,
        never = link.keep_telling(&session, leadership, is_told) => match never {},
        never = watch::watch(link, &session) => match never {},
    }
}

impl Link {
    /// Records what the process said of itself; calls are not open yet.
    fn take_up(&self, session: &Session) {
        let mut known = self.known.write();
        let restarted = known.info.as_ref().map(|info| info.epoch != session.info.epoch);
        if restarted == Some(false) && known.capabilities.as_ref() != Some(&session.capabilities) {
            self.metrics.violation(rule::CAPABILITIES_CONSTANT);
        }
        if restarted == Some(true) {
            self.metrics.epoch_changed();
        }
        let prefixes = |info: &ProviderInfo| info.provider_id_prefixes.clone();
        if let Some(former) =
            known.info.as_deref().map(prefixes).filter(|all| *all != prefixes(&session.info))
        {
            let (provider, now) = (self.name(), prefixes(&session.info));
            tracing::warn!(provider, ?former, ?now, "the provider claims other provider IDs than before");
        }
        let (settings, now) = (&known.wants.load_balancer_settings, &session.wants.load_balancer_settings);
        if known.info.is_some() && settings != now {
            let provider = self.name();
            tracing::info!(
                provider,
                "the provider has other settings now: all its load balancers are ensured"
            );
        }
        let former = known.info.as_ref().map(|info| info.vendor_version.as_str());
        self.metrics.introduced(former, &session.info.vendor_version);
        self.metrics.negotiated(&known.served, &session.served);
        if restarted != Some(false) {
            // The cloud throttled another process.
            self.limiter.lift_pauses();
        }
        self.limiter.configure(&session.limits, &kinds(&session.info), Instant::now());
        *known = Introduced {
            info: Some(Arc::clone(&session.info)),
            wants: Arc::clone(&session.wants),
            served: session.served.clone(),
            capabilities: Some(session.capabilities.clone()),
        };
        drop(known);
        let info = &session.info;
        tracing::info!(
            provider = self.name(),
            name = info.name,
            version = info.vendor_version,
            epoch = info.epoch,
            restarted = restarted.unwrap_or(false),
            instances = info.instances,
            load_balancers = info.load_balancers,
            "provider introduced itself"
        );
        self.standing.lock().connected_anew(restarted == Some(false));
    }

    /// Opens the session for calls.
    fn open(&self, session: Arc<Session>) {
        let watched = session.info.watch_instances;
        *self.session.write() = Some(session);
        self.publish_standing();
        if !watched {
            self.request_sweep();
        }
    }

    /// Closes the session at shutdown, which is not a failure of the provider.
    fn leave(&self) {
        *self.session.write() = None;
        if !self.show(|_| ProviderStatus::Disconnected("the host stops".to_owned())).is_empty() {
            tracing::info!(provider = self.name(), "left the provider");
        }
    }

    /// Closes the session after the connection is lost.
    fn lose(&self, why: String) {
        *self.session.write() = None;
        self.publish(ProviderStatus::Disconnected(why));
    }
}

/// After this many unanswered status calls in a row, the host drops the connection and reconnects.
const MOST_SILENCES: u32 = 3;
/// Minimum time between two status checks that calls asked for, and between two attempts to watch the health.
const SHORTEST: Duration = Duration::from_secs(1);

/// Checks health and status before the first call.
pub(super) async fn first_look(link: &Link, session: &Session) {
    check_health(link, session).await;
    look(link, session).await;
}

/// Monitors until the provider is lost or silent, and returns why.
pub(super) async fn monitor(link: &Link, session: &Session) -> String {
    tokio::select! {
        () = session.lost.cancelled() => "the connection was lost".to_owned(),
        why = poll(link, session) => why,
        () = follow_health(link, session) => "cannot watch its health".to_owned(),
    }
}

async fn poll(link: &Link, session: &Session) -> String {
    let mut silences = 0;
    loop {
        let well = link.worst() == ProviderStatus::Serving;
        let pace = if well { link.config.paces.status } else { link.config.paces.status_bad };
        tokio::select! {
            () = tokio::time::sleep(pace) => {}
            () = link.look_now.notified() => tokio::time::sleep(SHORTEST.min(pace)).await,
        }
        check_health(link, session).await;
        let silence = look(link, session).await;
        silences = silence.map_or(0, |_| silences + 1);
        link.publish_standing();
        if silences == MOST_SILENCES {
            if silence == Some(Code::DeadlineExceeded) {
                // Calls under way have nothing to wait for, and hold the places of those over the next connection. After a
                // GOAWAY they are still answered.
                session.lost.cancel();
            }
            return format!("it answered none of {MOST_SILENCES} GetStatus in a row");
        }
    }
}

/// Calls GetStatus. Returns how it was not answered, if it was not, in time or at all: after a GOAWAY, a connection takes no
/// more calls, but stays open for the watch of the health.
async fn look(link: &Link, session: &Session) -> Option<Code> {
    let answer = link.call(session, None, pb::GetStatusRequest {}).await;
    let silence = answer.as_ref().err().filter(|error| error.is_silence()).map(|error| error.code);
    link.standing.lock().looked(answer);
    silence
}

/// Calls Health/Check where it is served.
async fn check_health(link: &Link, session: &Session) {
    if session.refuses(&method::HEALTH_CHECK) {
        return;
    }
    let deadline = method::deadline(&method::HEALTH_CHECK, &Default::default());
    let message = HealthCheckRequest::default();
    let (client, bytes) = (session.client(), session.message_bytes);
    let (metrics, lost) = (&link.metrics, &session.lost);
    match rpc::unary(metrics, client, bytes, lost, deadline, None, &method::HEALTH_CHECK, message).await {
        Ok(answer) => link.standing.lock().healthy(is_healthy(&answer)),
        // A provider without a health service accepts work.
        Err(error) if error.is(ErrorReason::MethodNotSupported) || error.code == Code::NotFound => {
            session.refuse(&method::HEALTH_CHECK);
            link.standing.lock().healthy(true);
        }
        // GetStatus will reveal the cause.
        Err(_) => {}
    }
}

/// Watches the health, so that a provider that stops or comes back is noticed at once.
async fn follow_health(link: &Link, session: &Session) {
    loop {
        match HealthClient::new(session.channel.clone()).watch(HealthCheckRequest::default()).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                while let Ok(Some(answer)) = stream.message().await {
                    link.standing.lock().healthy(is_healthy(&answer));
                    link.publish_standing();
                    // Each change has everything looked at.
                    tokio::time::sleep(SHORTEST).await;
                }
            }
            Err(status) if status.code() == Code::Unimplemented => std::future::pending().await,
            Err(_) => {}
        }
        tokio::time::sleep(SHORTEST).await;
    }
}

/// An unknown health is not a bad one.
fn is_healthy(answer: &HealthCheckResponse) -> bool {
    match answer.status() {
        ServingStatus::NotServing => false,
        ServingStatus::Serving | ServingStatus::Unknown | ServingStatus::ServiceUnknown => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::{
        CloudMetrics, ClusterRef, Endpoint, Family, ProviderConfig, ProviderSettings,
        metrics::ProviderMetrics,
    };

    /// N6.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_seen_and_started_anew() {
        let endpoint = Endpoint::Unix("/run/p.sock".into());
        let settings = ProviderSettings { name: "p".to_owned(), endpoint, allowed_uids: Vec::new() };
        let config = ProviderConfig::new(settings, ClusterRef::default());
        let metrics = CloudMetrics::register(&mut Registry::default());
        let link = Link::new(config, ProviderMetrics::new(metrics, "p"));
        let times = AtomicU32::new(0);
        let work = || {
            let first = times.fetch_add(1, Ordering::SeqCst) == 0;
            link.publish(ProviderStatus::Serving);
            async move {
                assert!(!first, "as a bug does");
                std::future::pending().await
            }
        };
        let mut status = link.status(Family::Instances);
        let watched = async {
            let lost = |status: &ProviderStatus| matches!(status, ProviderStatus::Disconnected(why) if why.contains("panicked"));
            status.wait_for(lost).await.unwrap();
            status.wait_for(|status| *status == ProviderStatus::Serving).await.unwrap();
        };
        tokio::select! {
            () = supervise(&link, work) => {}
            () = watched => {}
        }
        assert_eq!(times.load(Ordering::SeqCst), 2);
    }
}
