//! Admission webhooks: one HTTPS port for all of them, whose certificate is made, rotated and announced here.
//!
//! In: the routes of the enabled webhooks, and the hosts by which a MutatingWebhookConfiguration calls them. Out: answers
//! to the apiserver from every replica, leader or not; a Secret with the certificate that all replicas share; its
//! authority in the configuration. What is admitted is decided by the controllers.
//!
//! ```text
//! leader ── upkeep ── certificate (pure) ──► Secret ──► every replica: server ──► TLS ──► routes
//!                             └────────────► caBundle of the configuration ──► apiserver
//! ```
//!
//! Nothing here may keep the cluster from working: the configuration makes the apiserver continue without an answer.

mod certificate;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::manager::serving::{connections, ip};
use ccm_base::{
    clock,
    flag::{self, Wrong},
    metric::Declare,
};
use ccm_kube::{election::Leadership, patch::Writer, service::ObjectKey};
use certificate::SecretStep;

/// The flags, one field each; upstream's names where upstream has the flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Webhooks")]
#[group(skip)]
pub struct Settings {
    /// Admission webhooks to serve, as in --controllers: '*' enables all, 'NAME' enables one, '-NAME' disables one. The
    /// only one is persistent-volume-label. Each needs its controller in --controllers. Every replica serves them.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub webhooks: Vec<String>,

    /// Port that serves the webhooks; 0 serves none. Bound only if --webhooks names one.
    #[arg(long, value_name = "PORT", default_value = "10260", value_parser = port)]
    pub webhook_secure_port: u16,

    /// IP address that serves the webhooks.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", value_parser = ip)]
    pub webhook_bind_address: IpAddr,

    /// Secret for the certificate of the webhooks, which the host makes and rotates. It must exist, and may be empty.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        default_value = "kube-system/cloud-controller-manager-webhook",
        value_parser = secret
    )]
    pub webhook_certificate_secret: ObjectKey,

    /// MutatingWebhookConfiguration that leads to the webhooks. The certificate is for the hosts that it names; the host
    /// writes its caBundle.
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    pub webhook_configuration: String,
}

fn port(text: &str) -> Result<u16, Wrong> {
    text.parse().map_err(|_| Wrong::new("is not a port", "give 1 to 65535, or 0 to serve no webhooks"))
}

fn secret(text: &str) -> Result<ObjectKey, Wrong> {
    let (namespace, name) = flag::secret(text, "kube-system/webhook")?;
    Ok(ObjectKey::new(namespace, name))
}

/// Between two reads of the Secret: with a certificate, and before the first.
const POLL: Duration = Duration::from_secs(15);
const EAGER: Duration = Duration::from_secs(1);

/// Metrics of the port. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WebhookMetrics {
    until: Gauge,
}

impl WebhookMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            until: registry.metric(
                "webhook_certificate_expiry_timestamp_seconds",
                "When the certificate expires that this replica serves webhooks with; 0 before the first",
            ),
        }
    }
}

/// A bound port that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    settings: Settings,
    writer: Writer,
    metrics: WebhookMetrics,
}

/// The certificate in use.
#[derive(Debug, Default)]
struct Shown(Mutex<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().clone()
    }
}

impl Server {
    /// Binds the port.
    ///
    /// # Errors
    /// The port is taken.
    pub fn bind(settings: Settings, writer: Writer, metrics: WebhookMetrics) -> Result<Self> {
        let wanted = SocketAddr::new(settings.webhook_bind_address, settings.webhook_secure_port);
        let listener = connections::bind(wanted, false).with_context(|| {
            format!("cannot serve webhooks on {wanted}: give another --webhook-secure-port, or leave --webhooks out")
        })?;
        Ok(Self { listener, settings, writer, metrics })
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
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A resumed session would keep the old certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let followed = follow(&self.settings, &self.writer, &self.metrics, &shown);
        let served = connections::serve(self.listener, Arc::new(config), routes, stop.clone());
        tokio::join!(served, stop.run_until_cancelled(followed));
        Ok(())
    }
}

/// Never ends.
async fn follow(settings: &Settings, writer: &Writer, metrics: &WebhookMetrics, shown: &Shown) {
    let key = &settings.webhook_certificate_secret;
    let (mut version, mut told) = (String::new(), String::new());
    loop {
        let problem = match writer.get_secret(key).await {
            Ok(Some(secret)) if secret.version == version => String::new(),
            Ok(Some(secret)) => match certificate::serving(&secret.data) {
                Ok((pair, until)) => {
                    version = secret.version;
                    metrics.until.set(until.as_second());
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

/// Between two looks when everything is as it should be.
const PERIOD: Duration = Duration::from_secs(30);

/// After a step, and after a failure.
const SOON: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Upkeep {
    pub settings: Settings,
    /// Writes only while this process leads.
    pub writer: Writer,
}

impl Upkeep {
    /// Runs until cancelled.
    pub async fn run(self, leadership: Leadership, cancel: CancellationToken) {
        let kept_up = async {
            leadership.elected().await;
            let mut told = String::new();
            loop {
                let (pause, problem) = match self.once(clock::now()).await {
                    Ok(SecretStep::Keep) => (PERIOD, String::new()),
                    Ok(_) => (SOON, String::new()),
                    Err(error) => (RETRY, format!("{error:#}")),
                };
                if problem != told && !problem.is_empty() {
                    tracing::warn!(
                        problem,
                        "webhooks have no valid certificate: the apiserver continues without them"
                    );
                }
                told = problem;
                sleep(pause).await;
            }
        };
        cancel.run_until_cancelled(kept_up).await;
    }

    /// Looks once, and carries out what is due.
    async fn once(&self, now: Timestamp) -> Result<SecretStep> {
        let (name, key) = (&self.settings.webhook_configuration, &self.settings.webhook_certificate_secret);
        let configuration = self.writer.get_webhook_configuration(name).await;
        let configuration = configuration
            .with_context(|| format!("MutatingWebhookConfiguration {name} cannot be read"))?
            .with_context(|| {
                format!("MutatingWebhookConfiguration {name} does not exist: create it, or omit --webhooks")
            })?;
        let secret = self.writer.get_secret(key).await;
        let secret = secret
            .with_context(|| format!("Secret {key} cannot be read"))?
            .with_context(|| format!("Secret {key} does not exist: create it empty, or omit --webhooks"))?;
        let hosts: Vec<_> = configuration.webhooks.iter().map(|one| one.host.clone()).collect();
        ensure!(
            !hosts.is_empty() && hosts.iter().all(|host| !host.is_empty()),
            "MutatingWebhookConfiguration {name} names no host: give each of its webhooks a service or a url"
        );
        let authorities = certificate::authorities(&secret.data);
        let is_announced = configuration.webhooks.iter().all(|one| one.authorities == authorities);
        let step = certificate::step(&secret.data, &hosts, is_announced, now);
        match step {
            SecretStep::Keep => {}
            SecretStep::Announce => {
                self.writer
                    .announce_webhooks(name, &configuration, authorities)
                    .await
                    .with_context(|| format!("MutatingWebhookConfiguration {name} cannot be written"))?;
            }
            SecretStep::Prepare | SecretStep::Promote | SecretStep::Replace => {
                let data = certificate::after(step, &secret.data, &hosts, now)?;
                self.writer
                    .replace_secret(key, &secret, &data)
                    .await
                    .with_context(|| format!("Secret {key} cannot be written"))?;
            }
        }
        if step != SecretStep::Keep {
            tracing::info!(?step, hosts = hosts.join(","), "certificate of the webhooks");
        }
        Ok(step)
    }
}
