//! Self-signed certificates: for clients that trust the file, or do not verify.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Tolerates clients whose clocks are behind.
const BEFORE: Duration = Duration::from_secs(60 * 60);
const VALID: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Renewal is due this long before the end.
const EARLY: Duration = Duration::from_secs(73 * 24 * 60 * 60);
/// The pause between two attempts to renew.
pub(super) const AGAIN: Duration = Duration::from_secs(60 * 60);
/// Marks certificates that this host created.
const ORGANISATION: &str = "ccm-host self-signed";

/// In PEM.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) certificate: String,
    pub(super) key: String,
    /// When the next one is due.
    pub(super) until: SystemTime,
}

/// Creates a certificate for every name and address of this process.
pub(super) fn make(bind: IpAddr) -> anyhow::Result<Made> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names(&host, bind))?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, host);
    subject.push(DnType::OrganizationName, ORGANISATION);
    params.distinguished_name = subject;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + VALID).into();
    let certificate = params.self_signed(&key)?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem(), until: now + VALID - EARLY })
}

/// When a certificate that this host created is due for renewal; `None` for any other certificate.
pub(super) fn until(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
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
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
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
