//! The certificate of the webhooks as it stands in the Secret, and when it is replaced. Pure, but for the keys it makes.
//!
//! In: the Secret's data, the hosts that the apiserver calls, the time. Out: the next [`SecretStep`], and the data after it.
//!
//! Each certificate has an authority of its own, whose key is thrown away: nothing that could sign for the webhooks is
//! ever stored. A certificate that still works is replaced in two steps, so that at no moment the apiserver meets one
//! that it does not trust: first the authority of the next one is announced, later the next one is served.
//!
//! | The one that is served | | Then |
//! |---|---|---|
//! | missing, unreadable, for other hosts, of no known authority, expired | | `Replace`: made anew and served at once |
//! | good | the configuration has other authorities | `Announce` |
//! | good | a third of its life or more is left | `Keep` |
//! | good | less is left, there is no next one | `Prepare` |
//! | good | less is left, the next one was announced a while ago | `Promote` |

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::manager::serving::tls::pair;

/// From the making of a certificate to its end.
pub(super) const LIFE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// A new certificate is due with less than this left.
const EARLY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Validity begins this long before the making: clocks differ.
const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// By then every apiserver trusts a new authority.
const SETTLED: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretStep {
    Keep,
    /// Write the authorities into the configuration.
    Announce,
    /// Make the next certificate.
    Prepare,
    /// Serve the next certificate.
    Promote,
    /// Make a certificate and serve it.
    Replace,
}

/// The step that is due, by when the certificate that is served is valid, and the one that is served next; `None` if there
/// is none, or one of no use.
fn due(
    serving: Option<&Range<Timestamp>>,
    next: Option<&Range<Timestamp>>,
    is_announced: bool,
    now: Timestamp,
) -> SecretStep {
    let good = |validity: &&Range<Timestamp>| validity.contains(&now);
    let next = next.filter(good);
    let Some(serving) = serving.filter(good) else {
        return if next.is_some() { SecretStep::Promote } else { SecretStep::Replace };
    };
    if !is_announced {
        return SecretStep::Announce;
    }
    if now + EARLY <= serving.end {
        return SecretStep::Keep;
    }
    match next {
        None => SecretStep::Prepare,
        Some(next) if now >= next.start + BACKDATED + SETTLED => SecretStep::Promote,
        Some(_) => SecretStep::Keep,
    }
}

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
    Ok((pair, validity.context("its dates cannot be read")?.end))
}

/// The authorities, as the configuration has them.
pub(super) fn authorities(data: &Data) -> &[u8] {
    data.get(AUTHORITIES).map(Vec::as_slice).unwrap_or_default()
}

/// The step that is due. `is_announced` says whether the configuration has exactly the authorities of the Secret.
pub(super) fn step(data: &Data, hosts: &[String], is_announced: bool, now: Timestamp) -> SecretStep {
    due(good(data, SERVING, hosts).as_ref(), good(data, NEXT, hosts).as_ref(), is_announced, now)
}

/// The data after a step.
pub(super) fn after(step: SecretStep, data: &Data, hosts: &[String], now: Timestamp) -> Result<Data> {
    let mut data = data.clone();
    let valid = valid(authorities(&data), now);
    match step {
        SecretStep::Keep | SecretStep::Announce => {}
        SecretStep::Promote => {
            for (from, to) in NEXT.into_iter().zip(SERVING) {
                let moved = data.remove(from).unwrap_or_default();
                data.insert(to.to_owned(), moved);
            }
            data.insert(AUTHORITIES.to_owned(), valid);
        }
        SecretStep::Prepare | SecretStep::Replace => {
            let made = make(hosts, now).context("cannot make a certificate")?;
            let (keys, mut authorities) =
                if step == SecretStep::Prepare { (NEXT, valid) } else { (SERVING, Vec::new()) };
            authorities.extend(made.authority.into_bytes());
            data.retain(|key, _| step == SecretStep::Prepare || !NEXT.contains(&key.as_str()));
            data.insert(AUTHORITIES.to_owned(), authorities);
            data.insert(keys[0].to_owned(), made.certificate.into_bytes());
            data.insert(keys[1].to_owned(), made.key.into_bytes());
            ensure!(
                good(&data, keys, hosts).is_some(),
                "cannot create a certificate for {}",
                hosts.join(", ")
            );
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

/// When the pair under these keys is valid, if it is for all hosts and signed by one of the authorities.
fn good(data: &Data, [certificate, key]: [&str; 2], hosts: &[String]) -> Option<Range<Timestamp>> {
    let pair = pair(data.get(certificate)?, data.get(key)?).ok()?;
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
    if !hosts.iter().all(is_for) || !ders(authorities(data)).iter().any(signed) {
        return None;
    }
    validity(&certificate)
}

fn validity(certificate: &X509Certificate<'_>) -> Option<Range<Timestamp>> {
    let dates = certificate.validity();
    let [from, until] = [dates.not_before, dates.not_after].map(|date| date.timestamp());
    Some(Timestamp::from_second(from).ok()?..Timestamp::from_second(until).ok()?)
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
        first.and_then(|(_, it)| validity(&it)).is_some_and(|validity| now < validity.end)
    };
    let kept: Vec<_> = blocks.filter(is_valid).map(|block| format!("{}\n", block.trim())).collect();
    kept.concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    /// A certificate that was made so many days ago.
    fn made(days: i64) -> Range<Timestamp> {
        let at = NOW - SignedDuration::from_hours(24 * days);
        at - BACKDATED..at + LIFE
    }

    fn minutes_ago(minutes: i64) -> Range<Timestamp> {
        let at = NOW - SignedDuration::from_mins(minutes);
        at - BACKDATED..at + LIFE
    }

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[test]
    fn each_state_has_its_step() {
        let future = NOW + SignedDuration::from_hours(1)..made(0).end;
        let third = made(60);
        let spans = [made(1), made(61), made(91), future, minutes_ago(1), minutes_ago(3)];
        let [young, old, dead, future, fresh, settled] = spans.each_ref().map(Some);
        let rows = [
            ("nothing yet", None, None, false, SecretStep::Replace),
            ("unusable, though announced", None, None, true, SecretStep::Replace),
            ("expired", dead, None, true, SecretStep::Replace),
            ("not valid yet: a clock went back", future, None, true, SecretStep::Replace),
            ("expired, with a next one", dead, fresh, true, SecretStep::Promote),
            ("lost, with a next one", None, settled, false, SecretStep::Promote),
            ("both expired", dead, dead, true, SecretStep::Replace),
            ("made, not announced", young, None, false, SecretStep::Announce),
            ("somebody wrote the configuration", old, settled, false, SecretStep::Announce),
            ("young", young, None, true, SecretStep::Keep),
            ("exactly a third is left", Some(&third), None, true, SecretStep::Keep),
            ("less is left", old, None, true, SecretStep::Prepare),
            ("the next one is new", old, fresh, true, SecretStep::Keep),
            ("the next one is known everywhere", old, settled, true, SecretStep::Promote),
            ("the next one expired", old, dead, true, SecretStep::Prepare),
        ];
        for (row, serving, next, is_announced, want) in rows {
            assert_eq!(due(serving, next, is_announced, NOW), want, "{row}");
        }
    }

    /// A whole rotation, in which the apiserver trusts what is served at every moment.
    #[test]
    fn a_rotation_comes_to_rest() {
        let (old, next, later) = (made(61), minutes_ago(0), NOW + SETTLED);
        let (old, next) = (Some(&old), Some(&next));
        let steps = [
            due(old, None, true, NOW),
            due(old, next, false, NOW),
            due(old, next, true, NOW),
            due(old, next, true, later),
            due(next, None, true, later),
        ];
        let want = [
            SecretStep::Prepare,
            SecretStep::Announce,
            SecretStep::Keep,
            SecretStep::Promote,
            SecretStep::Keep,
        ];
        assert_eq!(steps, want);
    }
}
