//! The handshake: versions, ciphers, the server's certificate, and optional client certificates; and the flags of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ProtocolVersion, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::{
    certificate::{CertificateSource, Certificates},
    connections::Handshake,
};
use ccm_base::flag::{self, FlagError, Mistakes, Wrong};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
#[group(skip)]
pub(super) struct TlsFlags {
    /// Serving certificate, followed by its intermediates; reloaded when the file changes.
    #[arg(long, value_name = "PATH")]
    tls_cert_file: Option<PathBuf>,

    /// Private key for --tls-cert-file.
    #[arg(long, value_name = "PATH")]
    tls_private_key_file: Option<PathBuf>,

    /// Directory for cloud-controller-manager.crt and .key, which are created if missing. With neither this flag nor
    /// --tls-cert-file, the host creates a self-signed certificate in memory.
    #[arg(long, value_name = "PATH")]
    cert_dir: Option<PathBuf>,

    /// Minimum TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12", value_parser = version)]
    tls_min_version: String,

    /// TLS 1.2 cipher suites by their Go names, comma separated; empty means all secure ones. TLS 1.3 suites are always
    /// enabled.
    #[arg(long, value_name = "LIST", default_value = "")]
    tls_cipher_suites: Vec<String>,
}

/// The serving certificate, and how strict the handshake is.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsSettings {
    pub certificate: CertificateSource,
    pub only_tls13: bool,
    /// At least one.
    pub cipher_suites: Vec<SupportedCipherSuite>,
}

impl TlsFlags {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes, warnings: &mut Vec<String>) -> Option<TlsSettings> {
        let certificate = mistakes.keep(self.certificate());
        let version = self.tls_min_version.as_str();
        if matches!(version, "VersionTLS10" | "VersionTLS11") {
            warnings.push(format!(
                "--tls-min-version={version} has no effect: TLS 1.2 is the lowest supported version"
            ));
        }
        let cipher_suites = mistakes.keep(self.cipher_suites(warnings));
        Some(TlsSettings {
            certificate: certificate?,
            only_tls13: version == "VersionTLS13",
            cipher_suites: cipher_suites?,
        })
    }

    fn certificate(&self) -> Result<CertificateSource, FlagError> {
        let half = |flag: &str, file: &Path, other: &str| {
            Wrong::new(
                format!("has no effect without --{other}"),
                format!("give --{other} as well, or leave both out for a self-signed certificate"),
            )
            .of(flag, &file.display().to_string())
        };
        match (&self.tls_cert_file, &self.tls_private_key_file, &self.cert_dir) {
            (None, None, None) => Ok(CertificateSource::Memory),
            (None, None, Some(folder)) => Ok(CertificateSource::Folder(folder.clone())),
            (Some(file), None, _) => Err(half("tls-cert-file", file, "tls-private-key-file")),
            (None, Some(file), _) => Err(half("tls-private-key-file", file, "tls-cert-file")),
            (Some(certificate), Some(key), _) => {
                Ok(CertificateSource::Files { certificate: certificate.clone(), key: key.clone() })
            }
        }
    }

    /// As in Go: named suites select among those of TLS 1.2.
    fn cipher_suites(&self, warnings: &mut Vec<String>) -> Result<Vec<SupportedCipherSuite>, FlagError> {
        let names: Vec<&str> = flag::listed(&self.tls_cipher_suites).collect();
        if names.is_empty() {
            return Ok(ALL_CIPHER_SUITES.to_vec());
        }
        let given = names.join(",");
        let error = |problem: String| {
            Wrong::new(problem, format!("give some of {}", known())).of("tls-cipher-suites", &given)
        };
        let is_tls13 = |suite: &SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
        let mut suites: Vec<SupportedCipherSuite> =
            ALL_CIPHER_SUITES.iter().copied().filter(is_tls13).collect();
        for name in names {
            match ALL_CIPHER_SUITES.iter().find(|suite| is_called(**suite, name)) {
                Some(suite) if suites.contains(suite) => {}
                Some(suite) => suites.push(*suite),
                None if name.starts_with("TLS_") => {
                    warnings.push(format!(
                        "--tls-cipher-suites: {name} is not offered: only suites that are safe are"
                    ));
                }
                None => return Err(error(format!("{name:?} is not a cipher suite"))),
            }
        }
        Ok(suites)
    }
}

fn version(text: &str) -> Result<String, Wrong> {
    match text {
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13" => Ok(text.to_owned()),
        _ => Err(Wrong::new("is not a TLS version", "give VersionTLS12 or VersionTLS13")),
    }
}

/// Go's name of a suite, which is the registry's.
fn go_name(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// Go also accepts the older, shorter names of two suites.
fn is_called(suite: SupportedCipherSuite, name: &str) -> bool {
    let ours = go_name(suite);
    ours == name || ours.ends_with("CHACHA20_POLY1305_SHA256") && ours.strip_suffix("_SHA256") == Some(name)
}

fn known() -> String {
    ALL_CIPHER_SUITES.iter().map(|suite| go_name(*suite)).collect::<Vec<_>>().join(", ")
}

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
