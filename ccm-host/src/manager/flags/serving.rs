//! Where health and metrics are served, and with which certificate.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::access::{AccessSettings, RawAccess};
use super::error::{FlagError, Mistakes};
use super::tls::{RawTls, TlsSettings};
use super::value;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
pub(super) struct RawServing {
    /// Address on which health and metrics are served; 0.0.0.0 and :: are all interfaces, of both families.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: String,

    /// Port of health and metrics, in HTTPS; 0 serves nothing, auto takes a free port.
    #[arg(long, value_name = "PORT", default_value = "10258")]
    pub secure_port: String,

    /// File into which the address in use is written as IP:PORT, once it is bound; removed at a clean end.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub serving_address_file: String,

    /// Share the port with another process that does so too (SO_REUSEPORT): two replicas on one node may overlap in a
    /// roll-out.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub permit_port_sharing: String,

    #[command(flatten)]
    tls: RawTls,

    #[command(flatten)]
    access: RawAccess,
}

/// Where and how health and metrics are served.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingSettings {
    /// `None`: nothing is served. Port 0: any free port.
    pub address: Option<SocketAddr>,
    /// Where the address in use is written.
    pub address_file: Option<PathBuf>,
    /// Another process may bind the same port.
    pub share_port: bool,
    pub tls: TlsSettings,
    pub access: AccessSettings,
}

impl RawServing {
    pub(super) fn resolve(
        &self,
        mistakes: &mut Mistakes,
        warnings: &mut Vec<String>,
    ) -> Option<ServingSettings> {
        let ip = mistakes.keep(self.bind_address.parse::<IpAddr>().map_err(|_| {
            FlagError::value(
                "bind-address",
                &self.bind_address,
                "is not an IP address",
                "give 0.0.0.0 for all interfaces, or one such as 127.0.0.1",
            )
        }));
        let port = mistakes.keep(port(&self.secure_port));
        let address_file =
            (!self.serving_address_file.is_empty()).then(|| PathBuf::from(&self.serving_address_file));
        if port == Some(None) && address_file.is_some() {
            mistakes.add(FlagError::value(
                "serving-address-file",
                &self.serving_address_file,
                "there is no address to write with --secure-port=0",
                "leave one of the two out, or give --secure-port=auto",
            ));
        }
        let share_port = mistakes.keep(value::switch("permit-port-sharing", &self.permit_port_sharing));
        let tls = self.tls.resolve(mistakes, warnings);
        let access = self.access.resolve(mistakes);
        let (ip, port) = (ip?, port?);
        Some(ServingSettings {
            address: port.map(|port| SocketAddr::new(ip, port)),
            address_file,
            share_port: share_port?,
            tls: tls?,
            access: access?,
        })
    }
}

/// The port to bind, 0 standing for a free one; `None` for no port at all.
fn port(value: &str) -> Result<Option<u16>, FlagError> {
    match value {
        "auto" => Ok(Some(0)),
        "0" => Ok(None),
        _ => value.parse().map(Some).map_err(|_| {
            FlagError::value(
                "secure-port",
                value,
                "is not a port",
                "give 1 to 65535, auto for a free one, or 0 to serve nothing",
            )
        }),
    }
}
