//! The flags of serving: where health and metrics are served, and who may read them. [`super::tls`] has those of the
//! certificate.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;

use super::tls::{self, TlsSettings};
use crate::flag::{self, FlagError, Mistakes, Wrong};

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
    access: AccessFlags,
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

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Authentication and authorization")]
#[group(skip)]
struct AccessFlags {
    /// Kubeconfig file for the apiserver that reviews tokens; empty means --kubeconfig or the pod's ServiceAccount.
    #[arg(long, value_name = "PATH")]
    authentication_kubeconfig: Option<PathBuf>,

    /// Do not read the client CA from the ConfigMap extension-apiserver-authentication.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    authentication_skip_lookup: bool,

    /// Continue if that ConfigMap cannot be read; no client certificate is accepted then.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    authentication_tolerate_lookup_failure: bool,

    /// How long to cache token reviews.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::duration)]
    authentication_token_webhook_cache_ttl: Duration,

    /// CA file for client certificates, instead of the ConfigMap: the common name is the user, the organisations are
    /// the groups. Reloaded when the file changes.
    #[arg(long, value_name = "PATH")]
    client_ca_file: Option<PathBuf>,

    /// Kubeconfig file for the apiserver that authorizes requests; empty means --kubeconfig or the pod's
    /// ServiceAccount.
    #[arg(long, value_name = "PATH")]
    authorization_kubeconfig: Option<PathBuf>,

    /// Paths open to everybody, comma separated; a trailing * matches any suffix. The flag replaces the default.
    #[arg(long, value_name = "LIST", default_value = "/healthz,/readyz,/livez")]
    authorization_always_allow_paths: Vec<String>,

    /// How long to cache allowed requests.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::duration)]
    authorization_webhook_cache_authorized_ttl: Duration,

    /// How long to cache denied requests.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::duration)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

/// Access rules of the serving port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// `None` means that of the rest of the process.
    pub authentication_kubeconfig: Option<PathBuf>,
    /// The same for authorization.
    pub authorization_kubeconfig: Option<PathBuf>,
    pub client_ca: ClientCa,
    pub open: Vec<OpenPath>,
    pub token_ttl: Duration,
    pub allowed_ttl: Duration,
    pub denied_ttl: Duration,
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

/// A path that needs no permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenPath {
    Exactly(String),
    Below(String),
}

impl OpenPath {
    /// Whether it covers this path.
    #[must_use]
    pub fn opens(&self, path: &str) -> bool {
        match self {
            Self::Exactly(open) => path == open,
            Self::Below(begin) => path.starts_with(begin),
        }
    }
}

impl AccessFlags {
    fn resolve(&self, mistakes: &mut Mistakes) -> Option<AccessSettings> {
        Some(AccessSettings {
            authentication_kubeconfig: self.authentication_kubeconfig.clone(),
            authorization_kubeconfig: self.authorization_kubeconfig.clone(),
            open: self.open(mistakes)?,
            client_ca: self.client_ca(),
            token_ttl: self.authentication_token_webhook_cache_ttl,
            allowed_ttl: self.authorization_webhook_cache_authorized_ttl,
            denied_ttl: self.authorization_webhook_cache_unauthorized_ttl,
        })
    }

    fn client_ca(&self) -> ClientCa {
        match &self.client_ca_file {
            Some(file) => ClientCa::File(file.clone()),
            None if self.authentication_skip_lookup => ClientCa::Nobody,
            None => ClientCa::ConfigMap { tolerant: self.authentication_tolerate_lookup_failure },
        }
    }

    fn open(&self, mistakes: &mut Mistakes) -> Option<Vec<OpenPath>> {
        let read: Vec<_> = flag::listed(&self.authorization_always_allow_paths)
            .map(|path| mistakes.keep(open(path)))
            .collect();
        read.into_iter().collect()
    }
}

fn open(path: &str) -> Result<OpenPath, FlagError> {
    if !path.starts_with('/') {
        let wrong = Wrong::new("is not a path", "begin it with /, as in /healthz");
        return Err(wrong.of("authorization-always-allow-paths", path));
    }
    Ok(match path.strip_suffix('*') {
        Some(begin) => OpenPath::Below(begin.to_owned()),
        None => OpenPath::Exactly(path.to_owned()),
    })
}
