//! Where health and metrics are served.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::error::{FlagError, Mistakes};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
pub(super) struct RawServing {
    // Loopback, unlike upstream: who serves without authentication shall be told to serve more than its own node.
    /// Address on which health and metrics are served, without authentication; 0.0.0.0 for all interfaces.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind_address: String,

    // Not `--secure-port`: upstream's flag promises HTTPS with authentication, and this port is plain HTTP.
    /// Port of /livez, /readyz, /healthz and /metrics in plain HTTP; 0 serves nothing, auto takes a free port.
    #[arg(long, value_name = "PORT", default_value = "10258")]
    pub serving_port: String,

    /// File into which the address in use is written as IP:PORT, once it is bound; removed at a clean end.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub serving_address_file: String,
}

/// Where health and metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingSettings {
    /// `None`: nothing is served. Port 0: any free port.
    pub address: Option<SocketAddr>,
    /// Where the address in use is written.
    pub address_file: Option<PathBuf>,
}

impl RawServing {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<ServingSettings> {
        let ip = mistakes.keep(self.bind_address.parse::<IpAddr>().map_err(|_| {
            FlagError::value(
                "bind-address",
                &self.bind_address,
                "is not an IP address",
                "give 0.0.0.0 for all interfaces, or one such as 127.0.0.1",
            )
        }));
        let port = mistakes.keep(port(&self.serving_port));
        let address_file =
            (!self.serving_address_file.is_empty()).then(|| PathBuf::from(&self.serving_address_file));
        if port == Some(None) && address_file.is_some() {
            mistakes.add(FlagError::value(
                "serving-address-file",
                &self.serving_address_file,
                "there is no address to write with --serving-port=0",
                "leave one of the two out, or give --serving-port=auto",
            ));
        }
        let (ip, port) = (ip?, port?);
        Some(ServingSettings { address: port.map(|port| SocketAddr::new(ip, port)), address_file })
    }
}

/// The port to bind, 0 standing for a free one; `None` for no port at all.
fn port(value: &str) -> Result<Option<u16>, FlagError> {
    match value {
        "auto" => Ok(Some(0)),
        "0" => Ok(None),
        _ => value.parse().map(Some).map_err(|_| {
            FlagError::value(
                "serving-port",
                value,
                "is not a port",
                "give 1 to 65535, auto for a free one, or 0 to serve nothing",
            )
        }),
    }
}
