//! Parses endpoints.

use std::{fmt, path::PathBuf, str::FromStr};

/// Where a provider listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP with mutual TLS.
    Tls {
        /// The host name or address.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no endpoint; use unix:///path/of/the/socket, a path, or https://host:port with --tls-dir"
)]
pub struct EndpointError {
    text: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError { text: text.to_owned() };
        if let Some(authority) = text.strip_prefix("https://").or_else(|| text.strip_prefix("tcp://")) {
            let (host, port) = authority.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
            let port = port.parse().map_err(|_| wrong())?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            return if host.is_empty() { Err(wrong()) } else { Ok(Self::Tls { host, port }) };
        }
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if path.is_empty() || path.contains("://") || path.starts_with('@') {
            return Err(wrong());
        }
        Ok(Self::Unix(PathBuf::from(path)))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix://{}", path.display()),
            Self::Tls { host, port } => write!(out, "https://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_endpoints() {
        let unix = |path: &str| Some(Endpoint::Unix(path.into()));
        let tls = |host: &str, port| Some(Endpoint::Tls { host: host.into(), port });
        for (text, wanted) in [
            ("unix:///run/ccm.sock", unix("/run/ccm.sock")),
            ("/run/ccm.sock", unix("/run/ccm.sock")),
            ("ccm.sock", unix("ccm.sock")),
            ("https://localhost:7443", tls("localhost", 7443)),
            ("tcp://[::1]:7443", tls("::1", 7443)),
            ("http://localhost:80", None),
            ("https://localhost", None),
            ("@abstract", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), wanted, "{text}");
        }
    }
}
