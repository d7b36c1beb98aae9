//! Where a provider listens: parses the text of an endpoint, or reports the problem and its remedy.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// The longest socket path: every system supports it.
const LONGEST_PATH: usize = 100;

/// Where a provider listens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A Unix socket, by absolute path of at most 100 bytes.
    Unix(PathBuf),
    /// TCP with mutual TLS; plain TCP is not supported. Port 0 picks a free port.
    Tcp(SocketAddr),
}

impl Endpoint {
    /// A Unix socket at this path.
    ///
    /// # Errors
    /// When the path is relative, ends in "/", or has more than 100 bytes.
    pub fn unix(path: impl AsRef<Path>) -> Result<Self, EndpointError> {
        let path = path.as_ref();
        let text = path.to_string_lossy();
        if !path.is_absolute() || text.ends_with('/') {
            return Err(EndpointError::Path { path: text.into_owned() });
        }
        let bytes = path.as_os_str().len();
        if bytes > LONGEST_PATH {
            return Err(EndpointError::LongPath { path: text.into_owned(), bytes });
        }
        Ok(Self::Unix(path.to_owned()))
    }
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Not an absolute path of a file.
    #[error("{path:?} is not the absolute path of a socket; write unix:///path/of/the/socket")]
    Path {
        /// The path.
        path: String,
    },
    /// The path is too long for a socket address.
    #[error(
        "the socket path {path:?} has {bytes} bytes, at most {LONGEST_PATH} work everywhere; use a shorter one"
    )]
    LongPath {
        /// The path.
        path: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Abstract sockets have no file whose mode could restrict access.
    #[error("abstract sockets have no file permissions; write unix:///path/of/the/socket")]
    Abstract,
    /// Plain TCP.
    #[error(
        "plain TCP ({text:?}) is not supported; use unix:///path, or tcp://address:port with the --tls flags"
    )]
    Plain {
        /// The text.
        text: String,
    },
    /// Not an address and port.
    #[error("{text:?} is not address:port; use for example tcp://127.0.0.1:7443")]
    Address {
        /// The text.
        text: String,
    },
    /// An unknown scheme.
    #[error("{text:?} is not an endpoint; use unix:///path/of/the/socket or tcp://address:port")]
    Unknown {
        /// The text.
        text: String,
    },
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("unix-abstract:") || text.starts_with('@') || text.starts_with("unix:@") {
            return Err(EndpointError::Abstract);
        }
        if text.starts_with('/') {
            return Self::unix(text);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix(path.strip_prefix("//").unwrap_or(path));
        }
        if text.starts_with("http://") {
            return Err(EndpointError::Plain { text: text.into() });
        }
        if let Some(address) = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("https://")) {
            let address = address.trim_end_matches('/');
            return address
                .parse()
                .map(Self::Tcp)
                .map_err(|_| EndpointError::Address { text: address.into() });
        }
        Err(EndpointError::Unknown { text: text.into() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix://{}", path.display()),
            Self::Tcp(address) => write!(out, "tcp://{address}"),
        }
    }
}
