//! The suite over TCP with mutual TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, net::SocketAddr, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{Mock, free_address, told};

/// An authority, a certificate from it for both ends, and the next one as `renewed.crt` and `renewed.key`.
fn write_certificates(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
    for name in ["tls", "renewed"] {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &authority).unwrap();
        fs::write(folder.join(format!("{name}.crt")), leaf.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// A mock with the certificate in this directory.
async fn over_tls(folder: &Path) -> (Mock, SocketAddr) {
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key, authority) = (file("tls.crt"), file("tls.key"), file("ca.crt"));
    let address = free_address();
    let flags = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-client-ca-file", &authority];
    let mock = Mock::start_at(tempfile::tempdir().unwrap(), &format!("tcp://{address}"), &flags).await;
    (mock, address)
}

#[tokio::test]
async fn certificates_that_are_renewed_are_seen_and_those_that_are_not_fail_the_case() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_certificates(theirs.path());
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        fs::copy(theirs.path().join(name), ours.path().join(name)).unwrap();
    }
    let (mock, address) = over_tls(theirs.path()).await;
    let scenario = ours.path().join("scenario.yaml");
    let renew = format!("cd {}; mv renewed.key tls.key; mv renewed.crt tls.crt", theirs.path().display());
    for (hook, wanted) in [("true", "FAIL SEC-07"), (renew.as_str(), "pass SEC-07")] {
        fs::write(&scenario, format!("settle: 1s\nhooks: {{renew-certificates: '{hook}'}}\n")).unwrap();
        let mut suite =
            mock.suite(&["run", "--filter", "SEC-07", "--endpoint", &format!("https://{address}")]);
        suite.arg("--tls-dir").arg(ours.path()).arg("--scenario").arg(&scenario);
        let output = suite.arg("--ledger-dir").arg(mock.folder.path()).output().await.unwrap();
        assert!(told(&output).contains(wanted), "{wanted}: {}", told(&output));
    }
}

#[tokio::test]
async fn strangers_over_tcp_are_kept_out_and_the_suite_is_not() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let (mock, address) = over_tls(folder.path()).await;
    let certificates = folder.path().display().to_string();
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
