//! Reads what a request wants to have signed. Pure, and never panics: anybody may write anything into a request.
//!
//! In: `spec.request`. Out: the subject and the names of a PKCS #10 request whose signature verifies, or the first flaw.
//! What was understood is encoded again and must yield the very bytes received: nothing can stand in a request that this
//! reader skips and a signer reads otherwise.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use x509_parser::{
    asn1_rs::Tag,
    certification_request::X509CertificationRequest,
    cri_attributes::ParsedCriAttribute,
    extensions::{GeneralName, ParsedExtension, X509Extension},
    oid_registry::{
        OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION,
        OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519, OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid,
    },
    prelude::FromDer as _,
    x509::X509Name,
};

use ccm_kube::certificate_request::LONGEST_PEM;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// What a request wants to have signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedCertificate {
    pub(super) common_name: String,
    pub(super) organization: String,
    /// In the request's own spelling, in its order.
    pub(super) dns_names: Vec<String>,
    /// In its order. An IPv4 address in 16 bytes stays an IPv6 address.
    pub(super) addresses: Vec<IpAddr>,
}

/// The first thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    #[error("the request is longer than {LONGEST_PEM} bytes")]
    TooLong,
    #[error("the request is not exactly one PEM block of type CERTIFICATE REQUEST")]
    Pem,
    #[error("the request is not a PKCS #10 request in DER, or holds more than a kubelet's")]
    Encoding,
    #[error("the subject is not one organization and one common name")]
    Subject,
    #[error("the request carries an attribute other than its extensions")]
    Attribute,
    #[error("the request contains an extension other than subject alternative names: {0}")]
    Extension(String),
    #[error(
        "the request contains the subject alternative name {0}, which is neither a DNS name nor an IP address"
    )]
    NameType(&'static str),
    #[error("the request contains no subject alternative name")]
    NoNames,
    #[error(
        "the key is neither ECDSA on P-256 or P-384, nor RSA of 2048 bits or more, nor Ed25519; or the signature uses SHA-1"
    )]
    Key,
    #[error("the signature does not verify: the sender may not hold the key")]
    Signature,
}

/// Reads one request.
pub(super) fn read(pem: &[u8]) -> Result<WantedCertificate, Flaw> {
    if pem.len() > LONGEST_PEM {
        return Err(Flaw::TooLong);
    }
    let der = contents(pem).ok_or(Flaw::Pem)?;
    let (_, request) = X509CertificationRequest::from_der(&der).map_err(|_malformed| Flaw::Encoding)?;
    let subject = &request.certification_request_info.subject;
    let (common_name, organization) = subject_of(subject).ok_or(Flaw::Subject)?;
    let names = names_extension(&request)?;
    let ParsedExtension::SubjectAlternativeName(list) = names.parsed_extension() else {
        return Err(Flaw::Encoding);
    };
    let mut wanted = WantedCertificate {
        common_name: common_name.to_owned(),
        organization: organization.to_owned(),
        dns_names: Vec::new(),
        addresses: Vec::new(),
    };
    for name in &list.general_names {
        match name {
            GeneralName::DNSName(name) => wanted.dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => wanted.addresses.push(address(bytes).ok_or(Flaw::Encoding)?),
            other => return Err(Flaw::NameType(kind_of(other))),
        }
    }
    if list.general_names.is_empty() {
        return Err(Flaw::NoNames);
    }
    let algorithm = algorithm(&request).ok_or(Flaw::Key)?;
    if encoded(&request, names, &list.general_names, algorithm) != der {
        return Err(Flaw::Encoding);
    }
    request.verify_signature().map_err(|_unverified| Flaw::Signature)?;
    Ok(wanted)
}

/// The contents of the only PEM block. Other readers skip what stands before and after a block, and headers in it.
fn contents(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?;
    let body = text.trim_ascii_end().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let body = body.strip_prefix("\r\n").or_else(|| body.strip_prefix('\n'))?;
    let lines: String = body.lines().collect();
    STANDARD.decode(lines).ok()
}

/// Common name and organization, if the subject is just one of each.
fn subject_of<'a>(subject: &X509Name<'a>) -> Option<(&'a str, &'a str)> {
    let (mut common_name, mut organization) = (None, None);
    for part in subject.iter() {
        let mut attributes = part.iter();
        let (attribute, None) = (attributes.next()?, attributes.next()) else { return None };
        let is_text = matches!(attribute.attr_value().tag(), Tag::Utf8String | Tag::PrintableString);
        let value = attribute.as_str().ok().filter(|_| is_text)?;
        let place = match attribute.attr_type() {
            oid if *oid == OID_X509_COMMON_NAME => &mut common_name,
            oid if *oid == OID_X509_ORGANIZATION_NAME => &mut organization,
            _ => return None,
        };
        if place.replace(value).is_some() {
            return None;
        }
    }
    Some((common_name?, organization?))
}

/// The only extension of the only attribute: the subject alternative names.
fn names_extension<'a>(request: &'a X509CertificationRequest<'a>) -> Result<&'a X509Extension<'a>, Flaw> {
    let mut names = None;
    for attribute in request.certification_request_info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute() else {
            return Err(Flaw::Attribute);
        };
        for extension in &asked.extensions {
            if !matches!(extension.parsed_extension(), ParsedExtension::SubjectAlternativeName(_)) {
                return Err(Flaw::Extension(extension.oid.to_id_string()));
            }
            if names.replace(extension).is_some() {
                return Err(Flaw::Encoding);
            }
        }
    }
    names.ok_or(Flaw::NoNames)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

fn kind_of(name: &GeneralName<'_>) -> &'static str {
    match name {
        GeneralName::RFC822Name(_) => "an email address",
        GeneralName::URI(_) => "a URI",
        _ => "a name of another type",
    }
}

/// The encoding of the signature's algorithm, if key and signature are of a kind that is strong enough. The length of an
/// RSA key is checked with its signature.
fn algorithm(request: &X509CertificationRequest<'_>) -> Option<Vec<u8>> {
    const NULL: [u8; 2] = [5, 0];
    let key = &request.certification_request_info.subject_pki.algorithm;
    let signature = &request.signature_algorithm.algorithm;
    let one_of = |known: &[Oid<'_>]| known.contains(signature);
    let (is_strong, parameters): (_, &[u8]) = match &key.algorithm {
        oid if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY => {
            let curve = key.parameters.as_ref()?.as_oid().ok()?;
            let is_known = curve == OID_EC_P256 || curve == OID_NIST_EC_P384;
            (is_known && one_of(&[OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384]), &[])
        }
        oid if *oid == OID_PKCS1_RSAENCRYPTION => {
            (one_of(&[OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA]), &NULL)
        }
        oid if *oid == OID_SIG_ED25519 => (one_of(&[OID_SIG_ED25519]), &[]),
        _ => return None,
    };
    is_strong.then(|| der(0x30, &[&oid(signature), parameters]))
}

/// The request as a kubelet's library encodes it, made of nothing but what was understood, and the key.
fn encoded(
    request: &X509CertificationRequest<'_>,
    extension: &X509Extension<'_>,
    names: &[GeneralName<'_>],
    algorithm: Vec<u8>,
) -> Vec<u8> {
    const VERSION: [u8; 3] = [2, 1, 0];
    const EXTENSION_REQUEST: [u8; 11] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 14];
    const CRITICAL: [u8; 3] = [1, 1, 0xff];
    let info = &request.certification_request_info;
    let subject = info.subject.iter_attributes().flat_map(|attribute| {
        let tag = if attribute.attr_value().tag() == Tag::Utf8String { 0x0c } else { 0x13 };
        let value = der(tag, &[attribute.as_slice()]);
        der(0x31, &[&der(0x30, &[&oid(attribute.attr_type()), &value])])
    });
    let subject: Vec<u8> = subject.collect();
    let names = names.iter().flat_map(|name| match name {
        GeneralName::DNSName(name) => der(0x82, &[name.as_bytes()]),
        GeneralName::IPAddress(bytes) => der(0x87, &[bytes]),
        _ => Vec::new(),
    });
    let names: Vec<u8> = names.collect();
    let critical: &[u8] = if extension.critical { &CRITICAL } else { &[] };
    let value = der(4, &[&der(0x30, &[&names])]);
    let extensions = der(0x30, &[&der(0x30, &[&oid(&extension.oid), critical, &value])]);
    let attributes = der(0xa0, &[&der(0x30, &[&EXTENSION_REQUEST, &der(0x31, &[&extensions])])]);
    let info = der(0x30, &[&VERSION, &der(0x30, &[&subject]), info.subject_pki.raw, &attributes]);
    let signature = der(3, &[&[0], &request.signature_value.data]);
    der(0x30, &[&info, &algorithm, &signature])
}

fn oid(oid: &Oid<'_>) -> Vec<u8> {
    der(6, &[oid.as_bytes()])
}

/// One value in DER.
pub(super) fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut encoded = vec![tag];
    match (length, u8::try_from(significant.len())) {
        (0..0x80, _) => encoded.push(bytes[bytes.len() - 1]),
        (_, count) => {
            encoded.push(0x80 | count.unwrap_or(8));
            encoded.extend_from_slice(significant);
        }
    }
    parts.iter().for_each(|part| encoded.extend_from_slice(part));
    encoded
}

#[cfg(test)]
mod tests;
