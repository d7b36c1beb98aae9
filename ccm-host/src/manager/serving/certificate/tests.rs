//! Certificates created here, and their renewal.

use std::net::Ipv4Addr;
use std::time::Duration;

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
        Upkeep::Ours { until, .. } => {
            assert!(*until > SystemTime::now() + Duration::from_secs(200 * 24 * 60 * 60));
            *until = SystemTime::now();
        }
        Upkeep::Given { .. } => panic!("it is ours"),
    }
    let second = shown(&certificates);
    assert_ne!(second, first);
    let again = Certificates::new(&source, BIND).unwrap();
    assert_eq!(shown(&again), second, "the next process finds the new one");
}

#[test]
fn only_ours_is_taken_for_ours() {
    let made = made::make(BIND).unwrap();
    let ours = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
    let until = made::until(&ours).unwrap();
    assert!(made.until.duration_since(until).unwrap_or_default() < Duration::from_secs(2));

    let key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    assert_eq!(made::until(other.der()), None, "somebody else renews it");
}
