//! Certificates from files, reloaded when they change: rotation needs no restart.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::options::{ClientName, ServeOptions};
use crate::server::error::ServeError;

#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    client_authorities: PathBuf,
}

/// Shows that a file was changed or replaced: device, inode, size, times of change in nanoseconds.
type Stamp = [(u64, u64, u64, i64, i64); 3];

/// The certificates in use.
#[derive(Debug)]
pub(in crate::server) struct Certificates {
    files: Files,
    loaded: Mutex<(Stamp, Arc<ServerConfig>)>,
    client_names: Vec<ClientName>,
}

impl Certificates {
    /// Reads the files named by the options; all three are required.
    pub(in crate::server) fn from_options(options: &ServeOptions) -> Result<Self, ServeError> {
        let named = (&options.tls_cert_file, &options.tls_key_file, &options.tls_client_ca_file);
        let (Some(certificate), Some(key), Some(client_authorities)) = named else {
            return Err(ServeError::NoTls);
        };
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: client_authorities.clone(),
        };
        // The stamp is taken first: the next check then sees a change during the read.
        let stamp = files.stamp().unwrap_or_default();
        let config = Arc::new(files.load()?);
        let client_names = options.tls_client_names.clone();
        Ok(Self { files, loaded: Mutex::new((stamp, config)), client_names })
    }

    /// Whether a client with a trusted certificate may call: the certificate carries a required name, if any
    /// name is required.
    pub(in crate::server) fn trust(&self, certificate: &CertificateDer<'_>) -> io::Result<()> {
        let found = webpki::EndEntityCert::try_from(certificate).map_err(io::Error::other)?;
        let carries = |name: &ClientName| match name {
            ClientName::Dns(name) => {
                found.verify_is_valid_for_subject_name(&ServerName::DnsName(name.clone())).is_ok()
            }
            ClientName::Uri(uri) => found.valid_uri_names().any(|carried| carried == uri),
        };
        if self.client_names.is_empty() || self.client_names.iter().any(carries) {
            return Ok(());
        }
        Err(io::Error::other("the client's certificate carries no name of --tls-client-names"))
    }

    /// The configuration for the next handshake. Changed files are reloaded; if they are unusable (half
    /// written, or a key that does not match yet), the last good ones stay in use and the next handshake
    /// tries again.
    pub(in crate::server) fn current(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock();
        match self.files.stamp() {
            Ok(stamp) if stamp != loaded.0 => match self.files.load() {
                Ok(config) => {
                    tracing::info!(file = %self.files.certificate.display(), "certificates were reloaded");
                    *loaded = (stamp, Arc::new(config));
                }
                Err(error) => tracing::warn!(%error, "the last good certificates stay in use"),
            },
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the last good certificates stay in use"),
        }
        Arc::clone(&loaded.1)
    }
}

impl Files {
    fn stamp(&self) -> io::Result<Stamp> {
        Ok([stamp(&self.certificate)?, stamp(&self.key)?, stamp(&self.client_authorities)?])
    }

    fn load(&self) -> Result<ServerConfig, ServeError> {
        let chain = certificates("certificate", &self.certificate)?;
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| bad("private key", &self.key, error))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("client authorities", &self.client_authorities)? {
            roots
                .add(authority)
                .map_err(|error| bad("client authorities", &self.client_authorities, error))?;
        }
        let crypto = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&crypto))
            .build()
            .map_err(|error| bad("client authorities", &self.client_authorities, error))?;
        let mut config = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| bad("certificate", &self.certificate, error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|error| bad("certificate", &self.certificate, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A session that goes on has its certificate not looked at again, though it may have expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn stamp(path: &Path) -> io::Result<(u64, u64, u64, i64, i64)> {
    let file = fs::metadata(path)?;
    let nanoseconds = |seconds: i64, rest: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest);
    let modified = nanoseconds(file.mtime(), file.mtime_nsec());
    Ok((file.dev(), file.ino(), file.len(), modified, nanoseconds(file.ctime(), file.ctime_nsec())))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| bad(what, path, error))?;
    if found.is_empty() {
        return Err(bad(what, path, "it holds no certificate"));
    }
    Ok(found)
}

fn bad(what: &'static str, file: &Path, why: impl std::fmt::Display) -> ServeError {
    ServeError::TlsFile { what, file: file.to_owned(), why: why.to_string() }
}
