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
mod server;
#[cfg(test)]
mod tests;

pub use server::Server;

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::manager::serving::settings::ip;
use ccm_base::{
    clock,
    flag::{self, Wrong},
};
use ccm_kube::{election::Leadership, patch::Writer, service::ObjectKey};
use certificate::SecretStep;

/// The flags, one field each; upstream's names where upstream has the flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Webhooks")]
#[group(skip)]
pub struct WebhookSettings {
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

/// Between two looks when everything is as it should be.
const PERIOD: Duration = Duration::from_secs(30);

/// After a step, and after a failure.
const SOON: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the certificate in the Secret and in the configuration until cancelled; `writer` writes only while this process
/// leads.
pub async fn keep_up(
    settings: WebhookSettings,
    writer: Writer,
    leadership: Leadership,
    cancel: CancellationToken,
) {
    let kept_up = async {
        leadership.elected().await;
        let mut told = String::new();
        loop {
            let (pause, problem) = match once(&settings, &writer, clock::now()).await {
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
async fn once(settings: &WebhookSettings, writer: &Writer, now: Timestamp) -> Result<SecretStep> {
    let (name, key) = (&settings.webhook_configuration, &settings.webhook_certificate_secret);
    let configuration = writer.get_webhook_configuration(name).await;
    let configuration = configuration
        .with_context(|| format!("MutatingWebhookConfiguration {name} cannot be read"))?
        .with_context(|| {
            format!("MutatingWebhookConfiguration {name} does not exist: create it, or omit --webhooks")
        })?;
    let secret = writer.get_secret(key).await;
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
            writer
                .announce_webhooks(name, &configuration, authorities)
                .await
                .with_context(|| format!("MutatingWebhookConfiguration {name} cannot be written"))?;
        }
        SecretStep::Prepare | SecretStep::Promote | SecretStep::Replace => {
            let data = certificate::after(step, &secret.data, &hosts, now)?;
            writer
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
