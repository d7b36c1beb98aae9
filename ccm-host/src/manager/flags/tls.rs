//! The certificate that is shown, and how strict the handshake is.

use std::path::PathBuf;

use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::{ProtocolVersion, SupportedCipherSuite};

use super::error::{FlagError, Mistakes};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
pub(super) struct RawTls {
    /// File with the certificate that is shown, its issuers behind it; read again when it changes.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub tls_cert_file: String,

    /// File with the key of --tls-cert-file.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub tls_private_key_file: String,

    /// Folder of cloud-controller-manager.crt and .key, which are made if they are not there; without it and without
    /// --tls-cert-file a self-signed certificate is made in memory.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub cert_dir: String,

    /// Lowest version of TLS: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    pub tls_min_version: String,

    /// Cipher suites of TLS 1.2, by their Go names, comma separated; empty means all that are safe. Those of TLS 1.3 are
    /// always offered.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub tls_cipher_suites: Vec<String>,
}

/// The certificate that is shown, and how strict the handshake is.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsSettings {
    pub certificate: CertificateSource,
    /// TLS 1.2 is refused.
    pub only_tls13: bool,
    /// At least one.
    pub cipher_suites: Vec<SupportedCipherSuite>,
}

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Somebody else writes these files.
    Files { certificate: PathBuf, key: PathBuf },
    /// Read from this folder, or made and written there.
    Folder(PathBuf),
    /// Self-signed, known to this process only.
    Memory,
}

impl RawTls {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes, warnings: &mut Vec<String>) -> Option<TlsSettings> {
        let certificate = mistakes.keep(self.certificate());
        let only_tls13 = mistakes.keep(self.only_tls13(warnings));
        let cipher_suites = mistakes.keep(self.cipher_suites(warnings));
        Some(TlsSettings {
            certificate: certificate?,
            only_tls13: only_tls13?,
            cipher_suites: cipher_suites?,
        })
    }

    fn certificate(&self) -> Result<CertificateSource, FlagError> {
        let half = |flag: &str, value: &str, other: &str| {
            FlagError::value(
                flag,
                value,
                format!("is of no use without --{other}"),
                format!("give --{other} as well, or leave both out for a self-signed certificate"),
            )
        };
        match (self.tls_cert_file.as_str(), self.tls_private_key_file.as_str(), self.cert_dir.as_str()) {
            ("", "", "") => Ok(CertificateSource::Memory),
            ("", "", folder) => Ok(CertificateSource::Folder(PathBuf::from(folder))),
            (file, "", _) => Err(half("tls-cert-file", file, "tls-private-key-file")),
            ("", file, _) => Err(half("tls-private-key-file", file, "tls-cert-file")),
            (certificate, key, _) => {
                Ok(CertificateSource::Files { certificate: certificate.into(), key: key.into() })
            }
        }
    }

    fn only_tls13(&self, warnings: &mut Vec<String>) -> Result<bool, FlagError> {
        let version = self.tls_min_version.as_str();
        match version {
            "" | "VersionTLS12" => Ok(false),
            "VersionTLS13" => Ok(true),
            "VersionTLS10" | "VersionTLS11" => {
                warnings.push(format!(
                    "--tls-min-version={version} has no effect: TLS 1.2 is the lowest that is spoken"
                ));
                Ok(false)
            }
            _ => Err(FlagError::value(
                "tls-min-version",
                version,
                "is no version of TLS",
                "give VersionTLS12 or VersionTLS13",
            )),
        }
    }

    /// As in Go: who names suites chooses among those of TLS 1.2.
    fn cipher_suites(&self, warnings: &mut Vec<String>) -> Result<Vec<SupportedCipherSuite>, FlagError> {
        let names: Vec<&str> = self
            .tls_cipher_suites
            .iter()
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        if names.is_empty() {
            return Ok(ALL_CIPHER_SUITES.to_vec());
        }
        let given = names.join(",");
        let error = |problem: String| {
            FlagError::value("tls-cipher-suites", &given, problem, format!("give some of {}", known()))
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
                None => return Err(error(format!("{name:?} is no cipher suite"))),
            }
        }
        Ok(suites)
    }
}

/// Go's name: that of the registry.
fn go_name(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// Go also knows the older, shorter names of two suites.
fn is_called(suite: SupportedCipherSuite, name: &str) -> bool {
    let ours = go_name(suite);
    ours == name || ours.ends_with("CHACHA20_POLY1305_SHA256") && ours.strip_suffix("_SHA256") == Some(name)
}

fn known() -> String {
    ALL_CIPHER_SUITES.iter().map(|suite| go_name(*suite)).collect::<Vec<_>>().join(", ")
}
