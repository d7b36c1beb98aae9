//! Requests of every kind for tests: good ones as a kubelet writes them, and others.

use std::{net::IpAddr, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

use super::super::request::der;
use ccm_kube::certificate_request::{CertificateRequest, KUBELET_SERVING};

static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().unwrap());

pub(in super::super) const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
pub(in super::super) const ORGANIZATION: [u8; 3] = [0x55, 4, 10];
pub(in super::super) const NAMES: [u8; 3] = [0x55, 0x1d, 17];
pub(in super::super) const DNS: u8 = 0x82;
pub(in super::super) const IP: u8 = 0x87;

/// The parts of a request, each in DER.
#[derive(Clone)]
pub(in super::super) struct Forge {
    pub(in super::super) version: u8,
    pub(in super::super) subject: Vec<Vec<u8>>,
    pub(in super::super) names: Vec<Vec<u8>>,
    /// Besides the names.
    pub(in super::super) extensions: Vec<Vec<u8>>,
    /// Besides the extensions.
    pub(in super::super) attributes: Vec<Vec<u8>>,
    /// After the attributes, within what is signed.
    pub(in super::super) appendix: Vec<u8>,
}

pub(in super::super) fn relative_name(oid: &[u8], value: &str) -> Vec<u8> {
    der(0x31, &[&attribute_value(oid, 0x13, value)])
}

pub(in super::super) fn attribute_value(oid: &[u8], tag: u8, value: &str) -> Vec<u8> {
    der(0x30, &[&der(6, &[oid]), &der(tag, &[value.as_bytes()])])
}

pub(in super::super) fn extension(oid: &[u8], value: &[u8]) -> Vec<u8> {
    der(0x30, &[&der(6, &[oid]), &der(4, &[value])])
}

impl Forge {
    /// What the kubelet of this node asks for; names that are addresses become such.
    pub(in super::super) fn of(node: &str, names: &[&str]) -> Self {
        let name = |name: &&str| match name.parse::<IpAddr>() {
            Ok(IpAddr::V4(v4)) => der(IP, &[&v4.octets()]),
            Ok(IpAddr::V6(v6)) => der(IP, &[&v6.octets()]),
            Err(_) => der(DNS, &[name.as_bytes()]),
        };
        Self {
            version: 0,
            subject: vec![
                relative_name(&ORGANIZATION, "system:nodes"),
                relative_name(&COMMON_NAME, &format!("system:node:{node}")),
            ],
            names: names.iter().map(name).collect(),
            extensions: Vec::new(),
            attributes: Vec::new(),
            appendix: Vec::new(),
        }
    }

    pub(in super::super) fn der(&self) -> Vec<u8> {
        let info = self.info();
        signed(&info, &KEY.sign(&info).unwrap())
    }

    fn info(&self) -> Vec<u8> {
        let names = extension(&NAMES, &der(0x30, &[&self.names.concat()]));
        let extensions = match self.names.is_empty() {
            true => self.extensions.concat(),
            false => [names, self.extensions.concat()].concat(),
        };
        let asked = der(
            0x30,
            &[&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 14], &der(0x31, &[&der(0x30, &[&extensions])])],
        );
        let asked = if extensions.is_empty() { Vec::new() } else { asked };
        der(
            0x30,
            &[
                &[2, 1, self.version],
                &der(0x30, &[&self.subject.concat()]),
                &KEY.subject_public_key_info(),
                &der(0xa0, &[&asked, &self.attributes.concat()]),
                &self.appendix,
            ],
        )
    }

    /// Signed with the key of somebody else.
    pub(in super::super) fn pem_of_a_thief(&self) -> Vec<u8> {
        let info = self.info();
        pem(&signed(&info, &KeyPair::generate().unwrap().sign(&info).unwrap()))
    }

    pub(in super::super) fn pem(&self) -> Vec<u8> {
        pem(&self.der())
    }
}

/// With the algorithm of ECDSA with SHA-256.
fn signed(info: &[u8], signature: &[u8]) -> Vec<u8> {
    let algorithm = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    der(0x30, &[info, &algorithm, &der(3, &[&[0], signature])])
}

pub(in super::super) fn pem(der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", lines.join("\n"))
        .into_bytes()
}

/// A request as the apiserver holds it, made by the kubelet of that node.
pub(in super::super) fn request(node: &str, pem: Vec<u8>) -> CertificateRequest {
    CertificateRequest {
        name: format!("csr-{node}"),
        uid: format!("csr-{node}-uid"),
        resource_version: "1".to_owned(),
        created: Some(jiff::Timestamp::from_second(1_000).unwrap()),
        signer: KUBELET_SERVING.to_owned(),
        username: format!("system:node:{node}"),
        groups: ["system:nodes", "system:authenticated"].map(str::to_owned).to_vec(),
        usages: ["digital signature", "server auth"].map(str::to_owned).to_vec(),
        pem,
        ..CertificateRequest::default()
    }
}
