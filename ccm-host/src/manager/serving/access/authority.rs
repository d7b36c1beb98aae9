//! The certificate authority of accepted client certificates, which may change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::User;
use crate::manager::serving::certificate::{Files, read};

/// The authority; without one, client certificates are ignored.
#[derive(Debug, Default)]
pub struct Authority {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The bundle that `verifier` was built from.
    pem: Vec<u8>,
    file: Option<(PathBuf, Files)>,
}

impl Authority {
    /// The authority in this file, reloaded when the file changes.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    pub(super) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let files = Files::new(&[path]);
        let authority = Self::default();
        let pem = read(path)?;
        authority.set(&pem).with_context(|| format!("--client-ca-file={} cannot be used", path.display()))?;
        authority.state.lock().file = Some((path.to_owned(), files));
        Ok(authority)
    }

    /// Replaces the authority by this bundle.
    ///
    /// # Errors
    /// The bundle holds no certificate; the previous one stays.
    pub fn set(&self, pem: &[u8]) -> anyhow::Result<()> {
        if self.state.lock().pem == pem {
            return Ok(());
        }
        let verifier = verifier(pem)?;
        let mut state = self.state.lock();
        (state.verifier, state.pem) = (Some(verifier), pem.to_owned());
        Ok(())
    }

    /// The user of this certificate, or why it is not accepted; `None` without an authority.
    pub(super) fn who(&self, shown: &[CertificateDer<'_>]) -> Option<Result<User, String>> {
        self.look_again();
        let verifier = self.state.lock().verifier.clone()?;
        let (first, issuers) = shown.split_first()?;
        if let Err(error) = verifier.verify_client_cert(first, issuers, UnixTime::now()) {
            return Some(Err(format!("the client certificate is not accepted: {error}")));
        }
        Some(user(first))
    }

    fn look_again(&self) {
        let mut state = self.state.lock();
        let Some((path, files)) = &mut state.file else { return };
        if !files.changed() {
            return;
        }
        let path = path.clone();
        drop(state);
        if let Err(error) = read(&path).and_then(|pem| self.set(&pem)) {
            tracing::warn!(error = format!("{error:#}"), "the CA of client certificates stays as it was");
        }
    }
}

fn verifier(pem: &[u8]) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| anyhow!("the CA is not valid PEM: {error}"))?;
        roots.add(certificate).context("the CA cannot be read")?;
    }
    if roots.is_empty() {
        bail!("there is no certificate in PEM");
    }
    let provider = Arc::new(ring::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

/// Reads certificates as Kubernetes does: the common name is the user, the organisations are the groups.
fn user(certificate: &CertificateDer<'_>) -> Result<User, String> {
    let unreadable = "the client certificate has no common name that can be read";
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| unreadable.to_owned())?;
    let subject = certificate.subject();
    let name =
        subject.iter_common_name().next().and_then(|name| name.as_str().ok()).filter(|name| !name.is_empty());
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    match name {
        Some(name) => Ok(User { name: name.to_owned(), groups: groups.collect(), ..User::default() }),
        None => Err(unreadable.to_owned()),
    }
}
