//! How a provider is served: the flags that all sidecars share.

mod endpoint;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rustls_pki_types::DnsName;

pub use endpoint::{Endpoint, EndpointError};

use crate::telemetry::LogFormat;

/// The default time for a graceful stop.
pub const DEFAULT_SHUTDOWN_GRACE: Duration = Duration::from_secs(25);

/// How a provider is served. Also the flags of a sidecar: flatten it into its `clap` parser.
///
/// ```
/// use clap::Parser;
/// use cloudprovider_sdk::ServeOptions;
///
/// #[derive(clap::Parser)]
/// struct Flags {
///     #[command(flatten)]
///     serve: ServeOptions,
/// }
///
/// let flags = Flags::parse_from(["sidecar", "--endpoint", "unix:///run/example/ccm.sock"]);
/// assert!(!flags.serve.reflection);
/// ```
#[derive(Debug, Clone, clap::Args)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Where to listen: unix:///path/of/the/socket, or tcp://host:port with the three --tls flags.
    #[arg(long, env = "CLOUDPROVIDER_ENDPOINT", default_value = "unix:///run/cloudprovider/provider.sock")]
    pub endpoint: Endpoint,
    /// User ids that may call over the Unix socket, instead of the provider's own and root.
    #[arg(long, value_delimiter = ',', value_name = "UID,...")]
    pub allowed_peer_uids: Vec<u32>,
    /// Certificate chain of the server (PEM). Reloaded when it changes.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key_file", "tls_client_ca_file"])]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the server (PEM). Reloaded when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Certificates of the authorities that sign clients' certificates (PEM). Reloaded when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_client_ca_file: Option<PathBuf>,
    /// DNS names or URIs (a SPIFFE ID), one of which a client's certificate must carry; by default any certificate of those
    /// authorities is accepted.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = client_name, requires = "tls_client_ca_file")]
    pub tls_client_names: Vec<ClientName>,
    /// Serve gRPC reflection (v1).
    #[arg(long)]
    pub reflection: bool,
    /// Serve metrics over HTTP at /metrics: a port (on the loopback address) or address:port. Off by default.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address)]
    pub metrics_address: Option<SocketAddr>,
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Log level, or directives such as "info,my_crate=debug".
    #[arg(long, default_value = "info")]
    pub log_level: String,
    /// How long a stop waits for running mutations.
    #[arg(long, value_name = "SECONDS", default_value = "25", value_parser = seconds)]
    pub shutdown_grace: Duration,
}

impl ServeOptions {
    /// Defaults for everything but the endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            allowed_peer_uids: Vec::new(),
            tls_cert_file: None,
            tls_key_file: None,
            tls_client_ca_file: None,
            tls_client_names: Vec::new(),
            reflection: false,
            metrics_address: None,
            log_format: LogFormat::Text,
            log_level: "info".into(),
            shutdown_grace: DEFAULT_SHUTDOWN_GRACE,
        }
    }
}

/// A name that a client's certificate may carry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientName {
    /// A DNS name, which a wildcard of the certificate may stand for.
    Dns(DnsName<'static>),
    /// A URI, to the letter.
    Uri(String),
}

fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse()
        .map_err(|_| format!("{text:?} is neither a port nor address:port; use for example 127.0.0.1:9090"))
}

fn client_name(text: &str) -> Result<ClientName, String> {
    if text.contains("://") {
        return Ok(ClientName::Uri(text.to_owned()));
    }
    let name = DnsName::try_from(text.to_owned()).map(ClientName::Dns);
    name.map_err(|_| {
        format!(
            "{text:?} is neither a DNS name nor a URI; use for example ccm-host.kube-system or spiffe://cluster.local/ccm"
        )
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is not a number of seconds; use for example 25 or 25s"))
}

#[cfg(test)]
mod tests;
