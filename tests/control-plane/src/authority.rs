//! The certificate authority of one control plane. The apiserver trusts what it signs: a certificate's common name is
//! the user, its organisations are the groups. EC keys, because making RSA keys takes longer than starting etcd.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};

/// The object identifier of "organisation".
const ORGANISATION: &[u64] = &[2, 5, 4, 10];

/// Signs certificates for one control plane while it lives.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("control-plane");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, new_key()?).context("cannot sign the authority")?;
        Ok(Self { issuer })
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub(crate) fn der(&self) -> &[u8] {
        self.issuer.der()
    }

    /// The apiserver's certificate. Pods call it by the first address of the Services' network.
    pub(crate) fn serving(&self, address: Option<Ipv4Addr>) -> Result<Certificate> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1"].map(str::to_owned);
        let names: Vec<String> =
            names.into_iter().chain(address.map(|address| address.to_string())).collect();
        let mut params =
            CertificateParams::new(names).context("cannot name the apiserver in a certificate")?;
        params.distinguished_name = common_name("kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A user's certificate.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Certificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, groups)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Certificate> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer).context("cannot sign a certificate")?;
        Ok(Certificate { pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

pub(crate) fn new_key() -> Result<KeyPair> {
    KeyPair::generate().context("cannot make a key")
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// The library keeps one value of each type, but treats "organisation" and the same type given as a number as two
/// types: enough for a service account's groups. A third group is refused rather than lost.
fn subject(user: &str, groups: &[&str]) -> Result<DistinguishedName> {
    let mut subject = common_name(user);
    let types = [DnType::OrganizationName, DnType::CustomDnType(ORGANISATION.to_vec())];
    if groups.len() > types.len() {
        bail!(
            "{user} has {} groups ({}); at most 2 fit into a certificate here",
            groups.len(),
            groups.join(", ")
        );
    }
    for (kind, group) in types.into_iter().zip(groups) {
        subject.push(kind, *group);
    }
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_group_is_refused_by_name() {
        let error = Authority::new().unwrap().client("jane", &["a", "b", "c"]).unwrap_err();
        assert!(error.to_string().contains("jane has 3 groups (a, b, c)"), "{error}");
    }
}
