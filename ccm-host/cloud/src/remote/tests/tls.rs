//! TCP with mutual TLS.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::*;
use crate::Endpoint;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed(authority: &Authority) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

fn write(dir: &Path, trusts: &Authority, signed_by: &Authority) {
    let (certificate, key) = signed(signed_by);
    std::fs::write(dir.join("ca.crt"), trusts.pem()).unwrap();
    std::fs::write(dir.join("tls.crt"), certificate).unwrap();
    std::fs::write(dir.join("tls.key"), key).unwrap();
}

fn server(authority: &Authority) -> ServerTlsConfig {
    let (certificate, key) = signed(authority);
    ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(Certificate::from_pem(authority.pem()))
}

fn endpoint(port: u16, dir: PathBuf) -> Endpoint {
    Endpoint::Https { host: "localhost".into(), port, tls: dir }
}

#[tokio::test]
async fn both_sides_show_certificates_and_rotated_ones_are_taken_up() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (ours, other) = (authority(), authority());
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new("e1");
    let (running, port) = Running::over_tls(&script, server(&ours), 0);

    let host = Host::with(endpoint(port, dir.path().to_owned()));
    host.disconnected("ca.crt").await;
    write(dir.path(), &other, &ours);
    host.disconnected("invalid peer certificate").await;
    write(dir.path(), &ours, &other);
    host.until(|status| {
        matches!(status, ProviderStatus::Disconnected(why)
            if !why.contains("ca.crt") && !why.contains("invalid peer certificate"))
    })
    .await;
    assert_eq!(script.log.lock().len(), 0, "nobody without our certificate was let in");
    write(dir.path(), &ours, &ours);
    host.serving().await;
    host.ask("n").await.unwrap();

    drop(running);
    host.until(ProviderStatus::is_away).await;
    let renewed = authority();
    write(dir.path(), &renewed, &renewed);
    let (_running, _) = Running::over_tls(&Script::new("e2"), server(&renewed), port);
    host.serving().await;
    assert_eq!(host.provider.info().unwrap().epoch, "e2");
}
