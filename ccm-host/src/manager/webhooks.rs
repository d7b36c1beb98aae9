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
mod upkeep;

use std::net::IpAddr;

use crate::manager::serving::settings::ip;
use ccm_base::flag::{self, Wrong};
use ccm_kube::service::ObjectKey;
pub use server::{Server, WebhookMetrics};
pub use upkeep::Upkeep;

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
