//! The handshake: versions, ciphers, the server's certificate, and optional client certificates.

use std::sync::Arc;

use anyhow::Context as _;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::certificate::Certificates;
use super::connections::Handshake;
use super::settings::TlsSettings;

/// The TLS configuration of the server.
pub(super) fn handshake(settings: &TlsSettings, certificates: Certificates) -> anyhow::Result<Handshake> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: settings.cipher_suites.clone(),
        ..ring::default_provider()
    });
    let versions = if settings.only_tls13 { vec![&TLS13] } else { vec![&TLS13, &TLS12] };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .context("--tls-cipher-suites leaves nothing for --tls-min-version")?
        .with_client_cert_verifier(Arc::new(AnyClient(provider)))
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would keep the old certificate, and sessions take memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Lets clients present a certificate and prove that they own its key. The signer is verified with the request, which
/// may carry a token as well: as upstream, a certificate of an unknown authority does not end the connection.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
