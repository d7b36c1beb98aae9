//! SIGTERM and SIGINT cause a graceful stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::ServeError;

/// The signals that stop a sidecar, if it listens to any.
pub(super) struct Signals(Option<(Signal, Signal)>);

impl Signals {
    pub(super) fn new(listen: bool) -> Result<Self, ServeError> {
        let open = |kind| signal(kind).map_err(ServeError::Signals);
        let both = || Ok((open(SignalKind::terminate())?, open(SignalKind::interrupt())?));
        listen.then(both).transpose().map(Self)
    }

    /// Waits for one of them; forever if there are none.
    pub(super) async fn wait(&mut self) {
        let Some((terminate, interrupt)) = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    }
}
