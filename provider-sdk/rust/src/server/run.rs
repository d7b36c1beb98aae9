//! From the first connection to the last mutation.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time;
use tonic::transport::Server as Transport;

use super::connection::{Connection, over_unix};
use super::error::ServeError;
use super::hook::{GrpcService, Hook};
use super::observe::observed;
use super::{BoundServer, Listener, Server, catch, metrics, peer, routes, tls};
use crate::context::Peer;
use crate::options::ServeOptions;
use crate::provider::{Lifecycle, Provider};

/// The extra time for a mutation that must give up, and for a closed connection.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long an idle provider stays for a leader: its host often stops at the same moment, and hands over once
/// the provider has heard that it steps down.
const STEP_DOWN: Duration = Duration::from_secs(2);
/// How often a connection is asked whether its peer is there, and how long for an answer: a stop waits for every connection to
/// close, and one whose peer is frozen or gone never would.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(5);
/// The exit code of a process that a signal ended, as shells tell it of SIGTERM.
const KILLED: i32 = 143;

pub(super) async fn run(server: BoundServer) -> Result<(), ServeError> {
    let mut signals = Signals::new(server.signals)?;
    let services = services(&server.provider, &server.options, server.hook.as_ref(), &server.trust)?;
    let metrics_address = server.metrics_address().map(tracing::field::display);
    let BoundServer { provider, options, listener, endpoint, metrics, .. } = server;
    let life = Arc::clone(&provider.lifecycle);
    let epoch = provider.process_epoch();
    tracing::info!(provider = provider.name(), %endpoint, metrics_address, epoch, "serving");
    let served = async {
        match listener {
            Listener::Unix(listener, file) => {
                let ended = until_stopped(services, over_unix(listener, life.cut.clone()), &life).await;
                drop(file);
                ended
            }
            Listener::Tls(listener, certificates) => {
                let connections = tls::over_tls(listener, certificates, life.cut.clone());
                until_stopped(services, connections, &life).await
            }
        }
    };
    let stop_on_signal = async {
        let name = signals.wait().await;
        tracing::info!("{name}: stopping");
        life.stop.cancel();
        let name = signals.wait().await;
        tracing::warn!("{name} again: ending at once");
        std::process::exit(KILLED)
    };
    let ended = tokio::select! {
        ended = drained(served, &life, options.shutdown_grace) => ended,
        never = metrics::serve(metrics, Arc::clone(&provider.metrics)) => match never {},
        never = stop_on_signal => never,
    };
    tracing::info!(provider = provider.name(), "stopped");
    ended
}

pub(super) async fn run_over<I>(
    server: Server,
    streams: impl Stream<Item = I> + Send,
) -> Result<(), ServeError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Server { provider, options, hook, .. } = server;
    let services = services(&provider, &options, hook.as_ref(), &peer::Trust::WithinTheProcess)?;
    let life = Arc::clone(&provider.lifecycle);
    let connections = streams.map(|io| Ok(Connection::new(io, Peer::Unknown, &life.cut)));
    drained(until_stopped(services, connections, &life), &life, options.shutdown_grace).await
}

/// All services with their layers: metrics, then the peer check, then the hook, then panics.
fn services(
    provider: &Provider,
    options: &ServeOptions,
    hook: Option<&Hook>,
    trust: &peer::Trust,
) -> Result<GrpcService, ServeError> {
    let inner = catch::service(routes::routes(provider, options.reflection)?);
    let hooked = hook.map_or_else(|| inner.clone(), |hook| hook.wrap(inner.clone()));
    Ok(observed(peer::trusted(hooked, trust.clone()), Arc::clone(&provider.metrics)))
}

async fn until_stopped<I>(
    services: GrpcService,
    connections: impl Stream<Item = std::io::Result<Connection<I>>>,
    life: &Lifecycle,
) -> Result<(), ServeError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let leave = life.leave.clone().cancelled_owned();
    let transport = Transport::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_PATIENCE));
    let ended = transport.serve_with_incoming_shutdown(services, connections, leave).await;
    // If it ever ends by itself, the rest must not wait for what never comes.
    life.stop.cancel();
    life.leave.cancel();
    Ok(ended?)
}

/// Waits for the end of the running mutations, and then for the leaders' last word.
async fn idle(life: &Lifecycle) {
    life.mutations.close();
    life.mutations.wait().await;
    life.terms.close();
    tokio::select! {
        () = life.terms.wait() => {}
        () = life.leave.cancelled() => {}
        () = time::sleep(STEP_DOWN) => {}
    }
}

/// Waits for the server and for running mutations, but only for a limited time once the stop has begun.
async fn drained(
    served: impl Future<Output = Result<(), ServeError>>,
    life: &Lifecycle,
    grace: Duration,
) -> Result<(), ServeError> {
    let leaving = async {
        life.stop.cancelled().await;
        idle(life).await;
        life.leave.cancel();
    };
    let all = async { tokio::join!(served, leaving).0 };
    tokio::pin!(all);
    let grace_is_over = async {
        life.stop.cancelled().await;
        time::sleep(grace).await;
    };
    tokio::select! {
        ended = &mut all => return ended,
        () = grace_is_over => {}
    }
    tracing::warn!(
        mutations = life.mutations.len(),
        "the grace period is over; running mutations are abandoned"
    );
    life.give_up.cancel();
    if let Ok(ended) = time::timeout(LAST_WORDS, &mut all).await {
        return ended;
    }
    tracing::warn!(mutations = life.mutations.len(), "closing connections");
    life.cut.cancel();
    time::timeout(LAST_WORDS, &mut all).await.unwrap_or(Ok(()))
}

/// The signals that stop a sidecar, if it listens to any.
struct Signals(Option<(Signal, Signal)>);

impl Signals {
    fn new(listen: bool) -> Result<Self, ServeError> {
        let open = |kind| signal(kind).map_err(ServeError::Signals);
        let both = || Ok((open(SignalKind::terminate())?, open(SignalKind::interrupt())?));
        listen.then(both).transpose().map(Self)
    }

    /// Waits for one of them, and names it; forever if there are none.
    async fn wait(&mut self) -> &'static str {
        let Some((terminate, interrupt)) = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_provider_waits_for_its_leader_but_not_long() {
        for (mutation, term, grace, wanted) in [
            (0, 0, 25, 0),
            (5, 0, 25, 5),
            (0, 1, 25, 1),
            (0, 600, 25, 2),
            (5, 6, 25, 6),
            (5, 600, 25, 7),
            (5, 600, 6, 6),
        ] {
            let life = Lifecycle::new(&[]);
            let after = |seconds| time::sleep(Duration::from_secs(seconds));
            life.mutations.spawn(after(mutation));
            life.terms.spawn(after(term));
            let (start, give_up) = (time::Instant::now(), life.give_up.clone());
            let grace_is_over = async {
                after(grace).await;
                give_up.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = idle(&life) => {}
                () = grace_is_over => {}
            }
            assert_eq!(start.elapsed().as_secs(), wanted, "{:?}", (mutation, term, grace));
        }
    }
}
