//! Serves the webhooks, with the newest certificate of the Secret at each handshake.
//!
//! In: the Secret, read again and again, and the routes. Out: HTTPS. Without a certificate handshakes fail, and the
//! apiserver goes on.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use axum::Router;
use parking_lot::Mutex;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{WebhookSettings, certificate};
use crate::manager::serving::connections;
use ccm_base::metric::Declare;
use ccm_kube::patch::Writer;

/// Between two reads of the Secret: with a certificate, and before the first.
const POLL: Duration = Duration::from_secs(15);
const EAGER: Duration = Duration::from_secs(1);

/// A bound port that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    settings: WebhookSettings,
    writer: Writer,
    expiry: Gauge,
}

/// The certificate in use.
#[derive(Debug, Default)]
struct Shown(Mutex<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().clone()
    }
}

/// An apiserver has a connection for each review under way, more than are answered at a time: it is told so.
const OF_ONE_PEER: usize = 256;

impl Server {
    /// Binds the port, and declares its metric.
    ///
    /// # Errors
    /// The port is taken.
    pub fn bind(settings: WebhookSettings, writer: Writer, registry: &mut Registry) -> Result<Self> {
        let wanted = SocketAddr::new(settings.webhook_bind_address, settings.webhook_secure_port);
        let listener = connections::bind(wanted, false).with_context(|| {
            format!("cannot serve webhooks on {wanted}: give another --webhook-secure-port, or leave --webhooks out")
        })?;
        let expiry = registry.metric(
            "webhook_certificate_expiry_timestamp_seconds",
            "When the certificate expires that this replica serves webhooks with; 0 before the first",
        );
        Ok(Self { listener, settings, writer, expiry })
    }

    /// Serves until `stop`, then finishes the requests under way.
    ///
    /// # Errors
    /// The crypto library has no protocol left: a bug.
    pub async fn serve(self, routes: Router, stop: CancellationToken) -> Result<()> {
        let shown = Arc::<Shown>::default();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("no version of TLS")?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        connections::plain_sessions(&mut config);
        let followed = follow(&self.settings, &self.writer, &self.expiry, &shown);
        let served = connections::serve(self.listener, Arc::new(config), routes, OF_ONE_PEER, stop.clone());
        tokio::join!(served, stop.run_until_cancelled(followed));
        Ok(())
    }
}

/// Never ends.
async fn follow(settings: &WebhookSettings, writer: &Writer, expiry: &Gauge, shown: &Shown) {
    let key = &settings.webhook_certificate_secret;
    let (mut version, mut told) = (String::new(), String::new());
    loop {
        let problem = match writer.get_secret(key).await {
            Ok(Some(secret)) if secret.version == version => String::new(),
            Ok(Some(secret)) => match certificate::serving(&secret.data) {
                Ok((pair, until)) => {
                    version = secret.version;
                    expiry.set(until.as_second());
                    *shown.0.lock() = Some(pair);
                    tracing::info!(secret = %key, %until, "webhooks are served with this certificate");
                    String::new()
                }
                Err(error) => format!("{error:#}"),
            },
            Ok(None) => "it does not exist".to_owned(),
            Err(error) => format!("{:#}", anyhow::Error::from(error)),
        };
        if problem != told && !problem.is_empty() {
            tracing::warn!(secret = %key, problem, "no new certificate for the webhooks");
        }
        told = problem;
        sleep(if shown.0.lock().is_some() { POLL } else { EAGER }).await;
    }
}
