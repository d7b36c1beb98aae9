//! The suite over TCP with mutual TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{Mock, free_address, told};

/// An authority, and a certificate of it for both ends.
fn write_certificates(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
    fs::write(folder.join("tls.crt"), leaf.pem()).unwrap();
    fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn strangers_over_tcp_are_kept_out_and_the_suite_is_not() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key, authority) = (file("tls.crt"), file("tls.key"), file("ca.crt"));
    let address = free_address();
    let flags = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-client-ca-file", &authority];
    let certificates = folder.path().display().to_string();
    let mock = Mock::start_at(tempfile::tempdir().unwrap(), &format!("tcp://{address}"), &flags).await;
    let endpoint = format!("https://{address}");
    let arguments = [
        "run",
        "--endpoint",
        &endpoint,
        "--tls-dir",
        &certificates,
        "--filter",
        "SEC,DISC-01,CAP-01,IDEM-03",
    ];
    let output = mock.suite(&arguments).arg("--ledger-dir").arg(mock.folder.path()).output().await.unwrap();
    let told = told(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for id in ["SEC-04", "SEC-05", "DISC-01", "CAP-01", "IDEM-03"] {
        assert!(told.contains(&format!("pass {id}")), "{told}");
    }
    let without = mock.suite(&["run", "--endpoint", &endpoint]).output().await.unwrap();
    assert_eq!(without.status.code(), Some(2));
}
