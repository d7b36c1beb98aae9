//! The server on a free port: its certificates, client certificates, and its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

/// A server that runs until it is dropped.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Server {
    async fn start(words: &[&str]) -> Self {
        let settings = settings(&[&["--bind-address=127.0.0.1"], words].concat());
        let serving = Serving::bind(&settings.serving).await.unwrap().unwrap();
        let address = serving.address();
        let metrics = Metrics::default();
        let access = Access::new(&settings.serving.access, &metrics).unwrap();
        access.ask(Arc::new(access::tests::Judge::default()));
        let stop = CancellationToken::new();
        let router = router(checks(), metrics, &settings, Door::default(), access);
        Self { address, ended: tokio::spawn(serving.serve(router, stop.clone())), stop }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.ended)
            .await
            .expect("serving ends when it is told to")
            .unwrap()
            .unwrap();
    }
}

/// The response to a client that trusts `pem`, or why there was no handshake.
async fn get(address: SocketAddr, pem: &[u8], client: Option<&Pair>, path: &str) -> Result<String, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
            config
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
    Ok(answer)
}

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// Signs the certificates of the tests.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, None);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn server(&self) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn client(&self, user: &str, group: &str) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, Some(group));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject
}

fn write(folder: &Path, pair: &Pair) {
    // Replaced as in a Secret: never half a file.
    for (name, text) in [("tls.crt", &pair.certificate), ("tls.key", &pair.key)] {
        let beside = folder.join(format!("{name}.new"));
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, folder.join(name)).unwrap();
    }
}

#[tokio::test]
async fn binds_a_free_port_tells_it_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("address");
    let certificates = dir.path().join("certificates");
    let words = [
        format!("--serving-address-file={}", file.display()),
        format!("--cert-dir={}", certificates.display()),
    ];
    let server = Server::start(&words.each_ref().map(String::as_str)).await;
    let address = server.address;
    assert_ne!(address.port(), 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{address}\n"));

    let ours = std::fs::read(certificates.join("cloud-controller-manager.crt")).unwrap();
    let answer = get(address, &ours, None, "/livez").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");

    server.end().await;
    assert!(!file.exists());
    assert!(TcpStream::connect(address).await.is_err());

    let again = Server::start(&[&words[1]]).await;
    assert!(
        get(again.address, &ours, None, "/livez").await.is_ok(),
        "the folder keeps the certificate over a restart"
    );
}

#[tokio::test]
async fn a_given_certificate_is_shown_and_followed_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    write(dir.path(), &first.server());
    let files = [("tls-cert-file", "tls.crt"), ("tls-private-key-file", "tls.key")]
        .map(|(flag, name)| format!("--{flag}={}", dir.path().join(name).display()));
    let server = Server::start(&files.each_ref().map(String::as_str)).await;
    assert!(get(server.address, first.pem().as_bytes(), None, "/livez").await.is_ok());

    // A half-replaced pair is not a pair.
    std::fs::write(dir.path().join("tls.crt"), &second.server().certificate).unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        assert!(get(server.address, first.pem().as_bytes(), None, "/livez").await.is_ok());
    }
    write(dir.path(), &second.server());
    let began = std::time::Instant::now();
    while get(server.address, second.pem().as_bytes(), None, "/livez").await.is_err() {
        assert!(began.elapsed() < LIMIT, "the new certificate is shown");
    }
    assert!(get(server.address, first.pem().as_bytes(), None, "/livez").await.is_err());
}

#[tokio::test]
async fn a_client_certificate_says_who_asks() {
    let dir = tempfile::tempdir().unwrap();
    let (known, other) = (Authority::new("clients"), Authority::new("others"));
    let (ca, certificates) = (dir.path().join("ca.crt"), dir.path().join("certificates"));
    std::fs::write(&ca, known.pem()).unwrap();
    let words =
        [format!("--client-ca-file={}", ca.display()), format!("--cert-dir={}", certificates.display())];
    let server = Server::start(&words.each_ref().map(String::as_str)).await;
    let ours = std::fs::read(certificates.join("cloud-controller-manager.crt")).unwrap();
    let rows = [
        (Some(known.client("jane", "monitors")), "200", "may"),
        (Some(known.client("joe", "visitors")), "403", "User \\\"joe\\\" cannot get path \\\"/metrics\\\""),
        (Some(known.client("root", "system:masters")), "200", "may"),
        (Some(other.client("jane", "monitors")), "401", "the client certificate is not accepted"),
        (None, "403", "User \\\"system:anonymous\\\" cannot get"),
    ];
    for (client, status, text) in rows {
        let answer = get(server.address, &ours, client.as_ref(), "/metrics").await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text}: {answer}");
        assert!(status == "200" || answer.contains(text), "{text}: {answer}");
    }
    let foreign = other.client("jane", "monitors");
    let answer = get(server.address, &ours, Some(&foreign), "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "health is open: {answer}");
}

#[tokio::test]
async fn unusable_certificates_are_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("any");
    let (one, two) = (authority.server(), authority.server());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let rows = [
        (one.certificate.as_str(), two.key.as_str(), "the private key belongs to another certificate"),
        ("", one.key.as_str(), "there is no certificate in PEM"),
        (one.certificate.as_str(), "", "there is no private key in PEM"),
    ];
    for (certificate, key, expected) in rows {
        std::fs::write(path("tls.crt"), certificate).unwrap();
        std::fs::write(path("tls.key"), key).unwrap();
        let (certificate, key) = (
            format!("--tls-cert-file={}", path("tls.crt")),
            format!("--tls-private-key-file={}", path("tls.key")),
        );
        let error = Serving::bind(&settings(&[&certificate, &key]).serving).await.unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    let missing = settings(&["--tls-cert-file=/no/such", "--tls-private-key-file=/no/such"]);
    let error = format!("{:#}", Serving::bind(&missing.serving).await.unwrap_err());
    assert!(error.contains("cannot read /no/such"), "{error}");
}

/// A pod that holds as many connections as there are must not stop the kubelet's probes.
#[tokio::test]
async fn whoever_takes_all_connections_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("served");
    write(dir.path(), &authority.server());
    let words = [
        format!("--tls-cert-file={}", dir.path().join("tls.crt").display()),
        format!("--tls-private-key-file={}", dir.path().join("tls.key").display()),
    ];
    let server = Server::start(&words.each_ref().map(String::as_str)).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        held.push(socket.connect(server.address).await.unwrap());
    }
    // The oldest is closed long before its handshake is overdue.
    let mut oldest = held.swap_remove(0);
    let ended = tokio::time::timeout(Duration::from_secs(8), oldest.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let answer = get(server.address, authority.pem().as_bytes(), None, "/livez").await;
    assert!(answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")), "{answer:?}");
    server.end().await;
}
