//! The flags of the webhooks; upstream's names where upstream has the flag.

use std::net::IpAddr;

use crate::{flag::Wrong, kube::service::ObjectKey, manager::serving::settings::ip};

/// One field per flag.
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
    match text.split('/').collect::<Vec<_>>()[..] {
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            Ok(ObjectKey { namespace: namespace.into(), name: name.into() })
        }
        _ => Err(Wrong::new("names no Secret", "give NAMESPACE/NAME, for example kube-system/webhook")),
    }
}
