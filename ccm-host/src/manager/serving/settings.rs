//! The address and certificate for serving health and metrics.

mod access;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ArgAction;

pub use self::access::{AccessSettings, ClientCa, OpenPath};
pub use self::tls::{CertificateSource, TlsSettings};
use crate::flag::{self, Mistakes, Wrong};

/// The flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
#[group(skip)]
pub struct Flags {
    /// Address to serve health and metrics on; 0.0.0.0 and :: mean all interfaces and both IP families.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", value_parser = ip)]
    bind_address: IpAddr,

    /// HTTPS port for health and metrics; 0 disables serving, auto picks a free port.
    #[arg(long, value_name = "PORT", default_value = "10258", value_parser = port)]
    secure_port: Port,

    /// File to write the bound address to, as IP:PORT; removed on a clean exit.
    #[arg(long, value_name = "PATH")]
    serving_address_file: Option<PathBuf>,

    /// Bind the port with SO_REUSEPORT, so that two replicas on one node can overlap during a rollout.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    permit_port_sharing: bool,

    #[command(flatten)]
    tls: tls::Flags,

    #[command(flatten)]
    access: access::Flags,
}

/// Where and how to serve health and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingSettings {
    /// `None` means that nothing is served. Port 0 means any free port.
    pub address: Option<SocketAddr>,
    /// The file for the address in use.
    pub address_file: Option<PathBuf>,
    /// Whether another process may bind the same port.
    pub share_port: bool,
    pub tls: TlsSettings,
    pub access: AccessSettings,
}

/// The port to bind, 0 for a free one; `None` for no port at all.
#[derive(Clone, Copy, Debug)]
struct Port(Option<u16>);

impl Flags {
    /// Validates the flags together.
    pub fn resolve(&self, mistakes: &mut Mistakes, warnings: &mut Vec<String>) -> Option<ServingSettings> {
        let Port(port) = self.secure_port;
        if let (None, Some(file)) = (port, &self.serving_address_file) {
            mistakes.refuse(
                "serving-address-file",
                file.display(),
                "there is no address to write with --secure-port=0",
                "leave one of the two out, or give --secure-port=auto",
            );
        }
        let tls = self.tls.resolve(mistakes, warnings);
        let access = self.access.resolve(mistakes);
        Some(ServingSettings {
            address: port.map(|port| SocketAddr::new(self.bind_address, port)),
            address_file: self.serving_address_file.clone(),
            share_port: self.permit_port_sharing,
            tls: tls?,
            access: access?,
        })
    }
}

pub(crate) fn ip(text: &str) -> Result<IpAddr, Wrong> {
    text.parse().map_err(|_| {
        Wrong::new("is not an IP address", "give 0.0.0.0 for all interfaces, or one such as 127.0.0.1")
    })
}

fn port(text: &str) -> Result<Port, Wrong> {
    match text {
        "auto" => Ok(Port(Some(0))),
        "0" => Ok(Port(None)),
        _ => text.parse().map(|port| Port(Some(port))).map_err(|_| {
            Wrong::new("is not a port", "give 1 to 65535, auto for a free one, or 0 to serve nothing")
        }),
    }
}
