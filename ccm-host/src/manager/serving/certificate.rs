//! The certificate that is shown at each handshake, always the newest.
//!
//! In: files that somebody else replaces, a folder, or nothing. Out: [`Certificates`], which rustls asks. A pair that
//! cannot be read, or whose halves do not belong together because only one was replaced yet, is told in the log, and the
//! one before stays. What was made here is made anew long before it expires.

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
use super::settings::CertificateSource;
use made::Made;

/// As upstream's are called.
const PAIR_NAME: &str = "cloud-controller-manager";

/// What is shown, and how it stays current.
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
    /// Read again when it changes.
    Given { certificate: PathBuf, key: PathBuf, files: Files },
    /// Made anew in time, and written where it came from.
    Ours { folder: Option<PathBuf>, bind: IpAddr, until: SystemTime },
}

impl Certificates {
    /// Reads or makes the first one.
    ///
    /// # Errors
    /// The files cannot be read or are no pair; the folder cannot be written.
    pub fn new(source: &CertificateSource, bind: IpAddr) -> anyhow::Result<Self> {
        let current = match source {
            CertificateSource::Files { certificate, key } => given(certificate.clone(), key.clone())
                .context("--tls-cert-file and --tls-private-key-file are of no use")?,
            CertificateSource::Folder(folder) => in_folder(folder, bind)
                .with_context(|| format!("--cert-dir={} is of no use", folder.display()))?,
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
    /// The one that takes its place, if it is time.
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
                // Not again at every handshake, should the folder have become read-only.
                *until += made::AGAIN;
                ours(folder.clone(), *bind).map(Some)
            }
        }
    }
}

fn given(certificate: PathBuf, key: PathBuf) -> anyhow::Result<Current> {
    // Before they are read: what is replaced meanwhile is read again.
    let files = Files::new(&[&certificate, &key]);
    let shown = pair(&files::read(&certificate)?, &files::read(&key)?)
        .with_context(|| format!("{} and {}", certificate.display(), key.display()))?;
    Ok(Current { shown, upkeep: Upkeep::Given { certificate, key, files } })
}

/// What is there and not made by an earlier process that is about to expire; otherwise a new one.
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

/// A certificate with its issuers, and its key.
fn pair(certificate: &[u8], key: &[u8]) -> anyhow::Result<Arc<CertifiedKey>> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| anyhow!("the certificate is no PEM: {error}"))?;
    if chain.is_empty() {
        bail!("there is no certificate in PEM");
    }
    // What the parser says of a key is not repeated.
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
