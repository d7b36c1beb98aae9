//! The flags of serving: where health and metrics are served, and who may read them. [`super::tls`] has those of the
//! certificate.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;

use super::tls::{self, TlsSettings};
use ccm_base::flag::{self, Mistakes, Wrong};

/// The flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
#[group(skip)]
pub struct ServingFlags {
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
    tls: tls::TlsFlags,

    #[command(flatten)]
    access: AccessSettings,
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

impl ServingFlags {
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
        self.access.check(mistakes);
        Some(ServingSettings {
            address: port.map(|port| SocketAddr::new(self.bind_address, port)),
            address_file: self.serving_address_file.clone(),
            share_port: self.permit_port_sharing,
            tls: tls?,
            access: self.access.clone(),
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

/// Access rules of the serving port, one field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Authentication and authorization")]
#[group(skip)]
pub struct AccessSettings {
    /// Kubeconfig file for the apiserver that reviews tokens; empty means --kubeconfig or the pod's ServiceAccount.
    #[arg(long, value_name = "PATH")]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Do not read the client CA from the ConfigMap extension-apiserver-authentication.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub authentication_skip_lookup: bool,

    /// Continue if that ConfigMap cannot be read; no client certificate is accepted then.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub authentication_tolerate_lookup_failure: bool,

    /// How long to cache token reviews.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::duration)]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// CA file for client certificates, instead of the ConfigMap: the common name is the user, the organisations are
    /// the groups. Reloaded when the file changes.
    #[arg(long, value_name = "PATH")]
    pub client_ca_file: Option<PathBuf>,

    /// Kubeconfig file for the apiserver that authorizes requests; empty means --kubeconfig or the pod's
    /// ServiceAccount.
    #[arg(long, value_name = "PATH")]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths open to everybody, comma separated; a trailing * matches any suffix. The flag replaces the default.
    #[arg(long, value_name = "LIST", default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,

    /// How long to cache allowed requests.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,

    /// How long to cache denied requests.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

/// The client certificates to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCa {
    /// Those of the CA in this file.
    File(PathBuf),
    /// Those of the CA in the cluster's ConfigMap.
    ConfigMap {
        /// Whether to continue without permission to read it.
        tolerant: bool,
    },
    /// None.
    Nobody,
}

impl AccessSettings {
    fn check(&self, mistakes: &mut Mistakes) {
        for path in self.open().filter(|path| !path.starts_with('/')) {
            let remedy = "begin it with /, as in /healthz";
            mistakes.refuse("authorization-always-allow-paths", path, "is not a path", remedy);
        }
    }

    fn open(&self) -> impl Iterator<Item = &str> {
        flag::listed(&self.authorization_always_allow_paths)
    }

    /// Whether this path needs no permission.
    pub fn opens(&self, path: &str) -> bool {
        self.open().any(|open| match open.strip_suffix('*') {
            Some(begin) => path.starts_with(begin),
            None => path == open,
        })
    }

    pub fn client_ca(&self) -> ClientCa {
        match &self.client_ca_file {
            Some(file) => ClientCa::File(file.clone()),
            None if self.authentication_skip_lookup => ClientCa::Nobody,
            None => ClientCa::ConfigMap { tolerant: self.authentication_tolerate_lookup_failure },
        }
    }
}
