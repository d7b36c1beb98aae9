//! The certificate of the webhooks as it stands in the Secret.
//!
//! In: the Secret's data. Out: whether what it holds is good for the hosts that the apiserver calls; a new certificate;
//! the data that carries out a step.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::rotation::{BACKDATED, Facts, LIFE, Step, Validity};
use crate::manager::serving::certificate::pair;

/// The keys of the Secret: the authorities, the certificate that is served, and the one that is served next.
const AUTHORITIES: &str = "ca.crt";
pub(super) const SERVING: [&str; 2] = ["tls.crt", "tls.key"];
const NEXT: [&str; 2] = ["next.crt", "next.key"];

pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// The certificate that is served, with its key and its end; an error if there is none.
pub(super) fn serving(data: &Data) -> Result<(Arc<CertifiedKey>, Timestamp)> {
    let [certificate, key] = SERVING.map(|key| data.get(key).map(Vec::as_slice).unwrap_or_default());
    let pair = pair(certificate, key)?;
    let validity = pair.cert.first().and_then(|der| validity(&X509Certificate::from_der(der).ok()?.1));
    Ok((pair, validity.context("its dates cannot be read")?.until))
}

/// The authorities, as the configuration has them.
pub(super) fn authorities(data: &Data) -> &[u8] {
    data.get(AUTHORITIES).map(Vec::as_slice).unwrap_or_default()
}

/// What the Secret comes to for these hosts.
pub(super) fn facts(data: &Data, hosts: &[String], is_announced: bool) -> Facts {
    let authorities = ders(authorities(data));
    let good = |keys: [&str; 2]| good(keys.map(|key| data.get(key).map(Vec::as_slice)), &authorities, hosts);
    Facts { serving: good(SERVING), next: good(NEXT), is_announced }
}

/// The data after a step.
pub(super) fn after(step: Step, data: &Data, hosts: &[String], now: Timestamp) -> Result<Data> {
    let mut data = data.clone();
    let valid = valid(authorities(&data), now);
    match step {
        Step::Keep | Step::Announce => {}
        Step::Promote => {
            for (from, to) in NEXT.into_iter().zip(SERVING) {
                let moved = data.remove(from).unwrap_or_default();
                data.insert(to.to_owned(), moved);
            }
            data.insert(AUTHORITIES.to_owned(), valid);
        }
        Step::Prepare | Step::Replace => {
            let made = make(hosts, now).context("cannot make a certificate")?;
            let (keys, mut authorities) =
                if step == Step::Prepare { (NEXT, valid) } else { (SERVING, Vec::new()) };
            authorities.extend(made.authority.into_bytes());
            data.retain(|key, _| step == Step::Prepare || !NEXT.contains(&key.as_str()));
            data.insert(AUTHORITIES.to_owned(), authorities);
            data.insert(keys[0].to_owned(), made.certificate.into_bytes());
            data.insert(keys[1].to_owned(), made.key.into_bytes());
            let made = facts(&data, hosts, false);
            let made = if step == Step::Prepare { made.next } else { made.serving };
            ensure!(made.is_some(), "cannot create a certificate for {}", hosts.join(", "));
        }
    }
    Ok(data)
}

/// In PEM.
struct Made {
    authority: String,
    certificate: String,
    key: String,
}

/// A certificate for these hosts, and the authority that signed it and will sign no other.
fn make(hosts: &[String], now: Timestamp) -> Result<Made> {
    let now = SystemTime::from(now);
    let dated = |mut params: CertificateParams, name: String| {
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + LIFE).into();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    // A name of its own: clients look for an authority by its name.
    let name = format!("ccm-host webhooks {}", uuid::Uuid::new_v4());
    let mut params = dated(CertificateParams::default(), name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let mut params = dated(CertificateParams::new(hosts.to_vec())?, "ccm-host webhooks".to_owned());
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &authority)?;
    Ok(Made { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}

/// When a pair is valid, if it is for all hosts and signed by one of the authorities.
fn good(
    pair_: [Option<&[u8]>; 2],
    authorities: &[CertificateDer<'static>],
    hosts: &[String],
) -> Option<Validity> {
    let [certificate, key] = pair_;
    let pair = pair(certificate?, key?).ok()?;
    let (_, certificate) = X509Certificate::from_der(pair.cert.first()?).ok()?;
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let is_for = |host: &String| match host.parse::<std::net::IpAddr>() {
        Ok(address) => names.iter().any(|name| match (name, address) {
            (GeneralName::IPAddress(bytes), std::net::IpAddr::V4(ip)) => *bytes == ip.octets(),
            (GeneralName::IPAddress(bytes), std::net::IpAddr::V6(ip)) => *bytes == ip.octets(),
            _ => false,
        }),
        Err(_) => names.iter().any(|name| matches!(name, GeneralName::DNSName(name) if name == host)),
    };
    let signed = |authority: &CertificateDer<'_>| {
        X509Certificate::from_der(authority)
            .is_ok_and(|(_, it)| certificate.verify_signature(Some(it.public_key())).is_ok())
    };
    if !hosts.iter().all(is_for) || !authorities.iter().any(signed) {
        return None;
    }
    validity(&certificate)
}

fn validity(certificate: &X509Certificate<'_>) -> Option<Validity> {
    let dates = certificate.validity();
    let [from, until] = [dates.not_before, dates.not_after].map(|date| date.timestamp());
    Some(Validity { from: Timestamp::from_second(from).ok()?, until: Timestamp::from_second(until).ok()? })
}

fn ders(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

/// The authorities that have not expired, in PEM.
fn valid(pem: &[u8], now: Timestamp) -> Vec<u8> {
    let text = String::from_utf8_lossy(pem);
    let blocks = text.split_inclusive("-----END CERTIFICATE-----");
    let is_valid = |block: &&str| {
        let ders = ders(block.as_bytes());
        let first = ders.first().and_then(|der| X509Certificate::from_der(der).ok());
        first.and_then(|(_, it)| validity(&it)).is_some_and(|validity| now < validity.until)
    };
    let kept: Vec<_> = blocks.filter(is_valid).map(|block| format!("{}\n", block.trim())).collect();
    kept.concat().into_bytes()
}
