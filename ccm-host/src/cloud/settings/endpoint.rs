//! Parses a provider's endpoint: text in, an [`Endpoint`] or a problem and its remedy out.

use std::{fmt, path::PathBuf};

use crate::flag::Wrong;

/// Where a provider listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, by absolute path.
    Unix(PathBuf),
    /// TCP with mutual TLS.
    Https {
        /// A DNS name or an IP address (IPv6 in brackets); also the name that the provider's certificate must carry.
        host: String,
        port: u16,
        tls: TlsDir,
    },
}

/// The folder with the credentials of a TCP connection. The files are read anew on each connection, so that rotated
/// certificates take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsDir(pub PathBuf);

impl TlsDir {
    /// The authorities that may have signed the provider's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.0.join("ca.crt")
    }

    /// The host's own certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.0.join("tls.crt")
    }

    /// The host's own key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.0.join("tls.key")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix://{}", path.display()),
            Self::Https { host, port, .. } => write!(out, "https://{host}:{port}"),
        }
    }
}

/// The longest path that fits into a socket address on Linux, without the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

pub(super) fn parse(name: &str, address: &str, tls_dir: Option<PathBuf>) -> Result<Endpoint, Wrong> {
    if address.starts_with('/') {
        return socket(address);
    }
    if let Some(path) = address.strip_prefix("unix:") {
        return socket(path.strip_prefix("//").unwrap_or(path));
    }
    if let Some(authority) = address.strip_prefix("https://") {
        return https(name, authority, tls_dir);
    }
    Err(match address.split_once("://") {
        Some(("http", rest)) => plain(name, rest),
        Some((scheme, _)) => Wrong::new(
            format!("the scheme {scheme:?} is not supported"),
            "use unix:///path, or https://host:port with --provider-tls-dir",
        ),
        None if address.contains(':') => plain(name, address),
        None => Wrong::new(
            format!("{address:?} is neither an absolute path nor a URL"),
            "use unix:///path, or https://host:port with --provider-tls-dir",
        ),
    })
}

fn socket(path: &str) -> Result<Endpoint, Wrong> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(Wrong::new(
            format!("{path:?} is not the absolute path of a socket"),
            "write unix:///path/of/the/socket",
        ));
    }
    if path.len() > LONGEST_SOCKET_PATH {
        return Err(Wrong::new(
            format!("the path has {} bytes, a socket address holds {LONGEST_SOCKET_PATH}", path.len()),
            "use a shorter path",
        ));
    }
    Ok(Endpoint::Unix(PathBuf::from(path)))
}

fn https(name: &str, authority: &str, tls_dir: Option<PathBuf>) -> Result<Endpoint, Wrong> {
    let Some((host, port)) = host_and_port(authority) else {
        return Err(Wrong::new(
            format!("{authority:?} is not host:port"),
            "write https://host:port, without a path",
        ));
    };
    match tls_dir {
        Some(dir) => Ok(Endpoint::Https { host, port, tls: TlsDir(dir) }),
        None => Err(Wrong::new(
            "an https endpoint needs certificates of both sides",
            format!("add --provider-tls-dir {name}=DIR with ca.crt, tls.crt and tls.key"),
        )),
    }
}

fn host_and_port(authority: &str) -> Option<(String, u16)> {
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let parsed: http::uri::Authority = authority.parse().ok()?;
    let port = parsed.port_u16().filter(|port| *port > 0)?;
    let user_info = parsed.as_str().contains('@');
    (!user_info && !parsed.host().is_empty()).then(|| (parsed.host().to_owned(), port))
}

/// Refuses plain TCP: anyone on the path could read the traffic and answer for the provider.
fn plain(name: &str, rest: &str) -> Wrong {
    Wrong::new(
        "plain TCP has neither encryption nor proof of who answers",
        format!(
            "use unix:///path, or {name}=https://{} with --provider-tls-dir {name}=DIR",
            rest.trim_end_matches('/')
        ),
    )
}
