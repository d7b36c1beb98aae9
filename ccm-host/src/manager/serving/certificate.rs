//! The serving certificate, always the newest at each handshake.
//!
//! In: files that somebody else replaces, a folder, or nothing. Out: [`Certificates`], which rustls queries. If a pair
//! cannot be read, or does not match because only one half was replaced yet, the log says so and the previous pair
//! stays. Certificates created here are renewed long before they expire.

mod made;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, bail};
use parking_lot::Mutex;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::files::{self, Files};
use made::Made;

/// Upstream's file name.
const PAIR_NAME: &str = "cloud-controller-manager";

/// The source of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files that somebody else writes.
    Files { certificate: PathBuf, key: PathBuf },
    /// Read from this folder, or created and written there.
    Folder(PathBuf),
    /// Self-signed and kept in memory.
    Memory,
}

/// The current certificate, and how it stays current.
#[derive(Debug)]
pub struct Certificates {
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    shown: Arc<CertifiedKey>,
    upkeep: Upkeep,
}

#[derive(Debug)]
enum Upkeep {
    /// Reloaded when it changes.
    Given { certificate: PathBuf, key: PathBuf, files: Files },
    /// Renewed in time, and written back to its folder.
    Ours { folder: Option<PathBuf>, bind: IpAddr, until: SystemTime },
}

impl Certificates {
    /// Loads or creates the first certificate.
    ///
    /// # Errors
    /// The files cannot be read or do not match; the folder cannot be written.
    pub fn new(source: &CertificateSource, bind: IpAddr) -> anyhow::Result<Self> {
        let current = match source {
            CertificateSource::Files { certificate, key } => given(certificate.clone(), key.clone())
                .context("--tls-cert-file and --tls-private-key-file cannot be used")?,
            CertificateSource::Folder(folder) => in_folder(folder, bind)
                .with_context(|| format!("--cert-dir={} cannot be used", folder.display()))?,
            CertificateSource::Memory => ours(None, bind)?,
        };
        Ok(Self { current: Mutex::new(current) })
    }

    fn newest(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock();
        match current.next() {
            Ok(None) => {}
            Ok(Some(next)) => {
                tracing::info!("the serving certificate was renewed");
                *current = next;
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "the serving certificate stays as it was");
            }
        }
        Arc::clone(&current.shown)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.newest())
    }
}

impl Current {
    /// The replacement, if one is due.
    fn next(&mut self) -> anyhow::Result<Option<Self>> {
        match &mut self.upkeep {
            Upkeep::Given { certificate, key, files } => match files.changed() {
                true => given(certificate.clone(), key.clone()).map(Some),
                false => Ok(None),
            },
            Upkeep::Ours { folder, bind, until } => {
                if SystemTime::now() < *until {
                    return Ok(None);
                }
                // Not on every handshake, should the folder have become read-only.
                *until += made::AGAIN;
                ours(folder.clone(), *bind).map(Some)
            }
        }
    }
}

fn given(certificate: PathBuf, key: PathBuf) -> anyhow::Result<Current> {
    // Stamped before they are read, so that a replacement in between is noticed.
    let files = Files::new(&[&certificate, &key]);
    let shown = pair(&files::read(&certificate)?, &files::read(&key)?)
        .with_context(|| format!("{} and {}", certificate.display(), key.display()))?;
    Ok(Current { shown, upkeep: Upkeep::Given { certificate, key, files } })
}

/// The pair in the folder, unless this host created it earlier and it is about to expire; otherwise a new one.
fn in_folder(folder: &Path, bind: IpAddr) -> anyhow::Result<Current> {
    let (certificate, key) = paths(folder);
    if !certificate.exists() && !key.exists() {
        return ours(Some(folder.to_owned()), bind);
    }
    let current = given(certificate, key)?;
    match current.shown.cert.first().and_then(|shown| made::until(shown)) {
        Some(until) if until <= SystemTime::now() => ours(Some(folder.to_owned()), bind),
        Some(until) => {
            let upkeep = Upkeep::Ours { folder: Some(folder.to_owned()), bind, until };
            Ok(Current { upkeep, ..current })
        }
        None => Ok(current),
    }
}

fn ours(folder: Option<PathBuf>, bind: IpAddr) -> anyhow::Result<Current> {
    let Made { certificate, key, until } = made::make(bind).context("cannot make a certificate")?;
    if let Some(folder) = &folder {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (certificate_path, key_path) = paths(folder);
        made::write(&key_path, &key)?;
        made::write(&certificate_path, &certificate)?;
    }
    let shown = pair(certificate.as_bytes(), key.as_bytes())?;
    Ok(Current { shown, upkeep: Upkeep::Ours { folder, bind, until } })
}

fn paths(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join(format!("{PAIR_NAME}.crt")), folder.join(format!("{PAIR_NAME}.key")))
}

/// Parses a certificate with its issuers, and its key.
pub(crate) fn pair(certificate: &[u8], key: &[u8]) -> anyhow::Result<Arc<CertifiedKey>> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| anyhow!("the certificate is not valid PEM: {error}"))?;
    if chain.is_empty() {
        bail!("there is no certificate in PEM");
    }
    // The parser's message about a key is not repeated.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| anyhow!("there is no private key in PEM"))?;
    let key =
        any_supported_type(&key).map_err(|_| anyhow!("the private key is neither RSA, ECDSA nor Ed25519"))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(pair)),
        Err(Error::InconsistentKeys(_)) => bail!("the private key belongs to another certificate"),
        Err(error) => Err(error).context("the certificate cannot be read"),
    }
}

#[cfg(test)]
mod tests;
