//! Why a provider cannot be served.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::options::Endpoint;

/// Why a provider cannot be served. Each message names the value and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The directory lets others reach the socket.
    #[error(
        "the directory {} of the socket has mode {mode:04o}; others could reach or replace the socket: use 0700, or 0750 to share it with a group",
        .directory.display()
    )]
    DirectoryMode {
        /// The directory.
        directory: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The directory's owner could replace the socket.
    #[error(
        "the directory {} of the socket belongs to uid {owner}; it must belong to uid {own}, which serves, or to root",
        .directory.display()
    )]
    DirectoryOwner {
        /// The directory.
        directory: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user that serves.
        own: u32,
    },
    /// The directory cannot be created or read.
    #[error("the directory {} of the socket cannot be used", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process answers on the socket.
    #[error("{} is already in use: a process listens on it; stop it or choose another --endpoint", .path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The socket's path exists and is not a socket.
    #[error("{} exists but is not a socket; remove it or choose another --endpoint", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The endpoint cannot be opened.
    #[error("cannot listen on {endpoint}")]
    Listen {
        /// The endpoint.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// TCP without all the files of mutual TLS.
    #[error(
        "TCP needs mutual TLS: give --tls-cert-file, --tls-key-file and --tls-client-ca-file, or listen on unix:///path"
    )]
    NoTls,
    /// TLS flags with a Unix socket.
    #[error("{} is a Unix socket, which has no TLS; drop the --tls flags or listen on tcp://address:port", .path.display())]
    TlsOverUnix {
        /// The socket.
        path: PathBuf,
    },
    /// A TLS file is unusable.
    #[error("the {what} in {} cannot be used: {why}", .file.display())]
    TlsFile {
        /// Its expected content.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The metrics address cannot be opened.
    #[error("cannot serve metrics on {address}; choose another --metrics-address")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Reflection cannot be set up.
    #[error("cannot serve reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot listen to SIGTERM and SIGINT")]
    Signals(#[source] io::Error),
    /// The server failed.
    #[error("the gRPC server failed")]
    Transport(#[from] tonic::transport::Error),
}
