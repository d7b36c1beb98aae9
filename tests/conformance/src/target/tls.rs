//! Mutual TLS from a directory with `ca.crt`, `tls.crt` and `tls.key`, as in the host.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// The configuration of a client, without its own certificate if `anonymous`.
pub(super) fn config(folder: &Path, anonymous: bool) -> Result<Arc<ClientConfig>> {
    let authority = folder.join("ca.crt");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&authority)? {
        roots.add(certificate).with_context(|| format!("cannot trust {}", authority.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS versions")?
        .with_root_certificates(roots);
    let mut config = if anonymous {
        builder.with_no_client_auth()
    } else {
        let key = folder.join("tls.key");
        let key =
            PrivateKeyDer::from_pem_file(&key).with_context(|| format!("cannot use {}", key.display()))?;
        builder
            .with_client_auth_cert(certificates(&folder.join("tls.crt"))?, key)
            .context("unusable certificate")?
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let unusable = || format!("cannot use {}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).with_context(unusable)?.collect();
    found.with_context(unusable)
}
