//! The handshake: versions, ciphers, the server's certificate, and optional client certificates; and the flags of them.
//!
//! In: files that are replaced from outside, a folder, or nothing. Out: [`Certificates`], which rustls queries, always the
//! newest at each handshake. If a pair cannot be read, or does not match because only one half was replaced yet, the log
//! says so and the previous pair stays. Certificates created here are self-signed, for clients that trust the file or do
//! not verify, and renewed long before they expire.
//!
//! `Files` notices that a file was replaced when its contents are used, at most once a second: an idle process reads
//! nothing.

use std::{
    fs::OpenOptions,
    io::Write as _,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, anyhow, bail};
use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, InconsistentKeys, ProtocolVersion, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider,
        ring::{self, ALL_CIPHER_SUITES, sign::any_supported_type},
        verify_tls12_signature, verify_tls13_signature,
    },
    server::{
        ClientHello, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _};
use tokio::time::Instant;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::connections::{Handshake, plain_sessions};
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
    plain_sessions(&mut config);
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

/// Upstream's file name.
const PAIR_NAME: &str = "cloud-controller-manager";

/// The least time between two looks at files.
const OFTEN_ENOUGH: Duration = Duration::from_secs(1);

/// Tolerates clients whose clocks are behind.
const BEFORE: Duration = Duration::from_secs(60 * 60);
const VALID: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A new one is due this long before the end.
const EARLY: Duration = Duration::from_secs(73 * 24 * 60 * 60);
/// The pause between two attempts to renew.
const AGAIN: Duration = Duration::from_secs(60 * 60);
/// Marks certificates that this host created.
const ORGANISATION: &str = "ccm-host self-signed";

/// The source of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files that are written from outside.
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
    upkeep: CertificateUpkeep,
}

#[derive(Debug)]
enum CertificateUpkeep {
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
            CertificateUpkeep::Given { certificate, key, files } => match files.changed() {
                true => given(certificate.clone(), key.clone()).map(Some).inspect_err(|_| files.read_again()),
                false => Ok(None),
            },
            CertificateUpkeep::Ours { folder, bind, until } => {
                if SystemTime::now() < *until {
                    return Ok(None);
                }
                // Not on every handshake, should the folder have become read-only.
                *until += AGAIN;
                ours(folder.clone(), *bind).map(Some)
            }
        }
    }
}

fn given(certificate: PathBuf, key: PathBuf) -> anyhow::Result<Current> {
    // Stamped before they are read, so that a replacement in between is noticed.
    let files = Files::new(&[&certificate, &key]);
    let shown = pair(&read(&certificate)?, &read(&key)?)
        .with_context(|| format!("{} and {}", certificate.display(), key.display()))?;
    Ok(Current { shown, upkeep: CertificateUpkeep::Given { certificate, key, files } })
}

/// The pair in the folder, unless this host created it earlier and it is about to expire; otherwise a new one.
fn in_folder(folder: &Path, bind: IpAddr) -> anyhow::Result<Current> {
    let (certificate, key) = paths(folder);
    if !certificate.exists() && !key.exists() {
        return ours(Some(folder.to_owned()), bind);
    }
    let current = given(certificate, key)?;
    match current.shown.cert.first().and_then(|shown| due(shown)) {
        Some(until) if until <= SystemTime::now() => ours(Some(folder.to_owned()), bind),
        Some(until) => {
            let upkeep = CertificateUpkeep::Ours { folder: Some(folder.to_owned()), bind, until };
            Ok(Current { upkeep, ..current })
        }
        None => Ok(current),
    }
}

fn ours(folder: Option<PathBuf>, bind: IpAddr) -> anyhow::Result<Current> {
    let SelfSigned { certificate, key, until } = make(bind).context("cannot make a certificate")?;
    if let Some(folder) = &folder {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (certificate_path, key_path) = paths(folder);
        write(&key_path, &key)?;
        write(&certificate_path, &certificate)?;
    }
    let shown = pair(certificate.as_bytes(), key.as_bytes())?;
    Ok(Current { shown, upkeep: CertificateUpkeep::Ours { folder, bind, until } })
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

/// A new certificate and its key, in PEM.
struct SelfSigned {
    certificate: String,
    key: String,
    /// When the next one is due.
    until: SystemTime,
}

/// Creates a certificate for every name and address of this process.
fn make(bind: IpAddr) -> anyhow::Result<SelfSigned> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names(&host, bind))?;
    let mut subject = rcgen::DistinguishedName::new();
    subject.push(DnType::CommonName, host);
    subject.push(DnType::OrganizationName, ORGANISATION);
    params.distinguished_name = subject;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + VALID).into();
    let certificate = params.self_signed(&key)?;
    Ok(SelfSigned { certificate: certificate.pem(), key: key.serialize_pem(), until: now + VALID - EARLY })
}

/// When a certificate that this host created is due for renewal; `None` for any other certificate.
fn due(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let ours = |organisation: &str| organisation == ORGANISATION;
    certificate.issuer().iter_organization().filter_map(|name| name.as_str().ok()).find(|name| ours(name))?;
    let end = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(end) - EARLY)
}

fn names(host: &str, bind: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1", host].map(str::to_owned).to_vec();
    match bind.is_unspecified() {
        true => names.extend(own_addresses()),
        false => names.push(bind.to_string()),
    }
    names.sort();
    names.dedup();
    names.retain(|name| !name.is_empty());
    names
}

/// The addresses that others see: the source addresses of outgoing routes. Nothing is sent.
fn own_addresses() -> impl Iterator<Item = String> {
    let from = |any: &str, out: &str| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(out).ok()?;
        socket.local_addr().ok().as_ref().map(SocketAddr::ip).as_ref().map(IpAddr::to_string)
    };
    [from("0.0.0.0:0", "192.0.2.1:9"), from("[::]:0", "[2001:db8::1]:9")].into_iter().flatten()
}

/// Writes a file that only its owner may read, and that is never seen half-written.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Files that belong together.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    seen: Vec<Option<Stamp>>,
    looked: Instant,
}

/// The version of a file: inode, length, modification time.
type Stamp = (u64, u64, i64, i64);

impl Files {
    /// These files in their current version.
    pub(super) fn new(paths: &[&Path]) -> Self {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        Self { seen: stamps(&paths), paths, looked: Instant::now() }
    }

    /// Whether any file was replaced since the last check that reported it.
    pub(super) fn changed(&mut self) -> bool {
        if self.looked.elapsed() < OFTEN_ENOUGH {
            return false;
        }
        self.looked = Instant::now();
        let now = stamps(&self.paths);
        std::mem::replace(&mut self.seen, now) != self.seen
    }

    /// They could not be read: the next look finds them changed, whatever was done to them.
    pub(super) fn read_again(&mut self) {
        self.seen.clear();
    }
}

/// Follows links, which is how Secrets are replaced.
fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    };
    paths.iter().map(stamp).collect()
}

/// Reads a whole file.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const BIND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

    fn shown(certificates: &Certificates) -> CertificateDer<'static> {
        certificates.newest().cert[0].clone()
    }

    #[test]
    fn ours_is_made_anew_when_it_is_due_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let source = CertificateSource::Folder(folder.path().join("made"));
        let certificates = Certificates::new(&source, BIND).unwrap();
        let first = shown(&certificates);
        assert_eq!(shown(&certificates), first);

        match &mut certificates.current.lock().upkeep {
            CertificateUpkeep::Ours { until, .. } => {
                assert!(*until > SystemTime::now() + Duration::from_secs(200 * 24 * 60 * 60));
                *until = SystemTime::now();
            }
            CertificateUpkeep::Given { .. } => panic!("it is ours"),
        }
        let second = shown(&certificates);
        assert_ne!(second, first);
        let again = Certificates::new(&source, BIND).unwrap();
        assert_eq!(shown(&again), second, "the next process finds the new one");
    }

    #[test]
    fn only_ours_is_taken_for_ours() {
        let made = make(BIND).unwrap();
        let ours = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
        let until = due(&ours).unwrap();
        assert!(made.until.duration_since(until).unwrap_or_default() < Duration::from_secs(2));

        let key = rcgen::KeyPair::generate().unwrap();
        let other =
            rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(due(other.der()), None, "somebody else renews it");
    }
}
