//! The slim CertificateSigningRequest: requests for serving certificates of kubelets, and none of any other signer.
//!
//! In: the apiserver's JSON. Out: who asks, for what, and whether it is decided. A decided request keeps no PEM: a
//! cluster holds many of them, and no controller reads them.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::{
    cache::Slim,
    keep::{Interner, Keep},
};

/// The signer of the certificates that kubelets serve with.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// The prefix of the user that a kubelet is.
pub const NODE_USER: &str = "system:node:";

/// The longest PEM that is kept, which a kubelet's never reaches: anybody may make a request, of any size.
pub const LONGEST_PEM: usize = 16 << 10;

/// The conditions after which nothing is left to decide.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

/// A CertificateSigningRequest as its controller sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.creationTimestamp`
    pub created: Option<Timestamp>,
    /// Whether its deletion was requested.
    pub is_deleting: bool,
    /// `spec.signerName`
    pub signer: String,
    /// `spec.username`: set by the apiserver, for ever.
    pub username: String,
    /// `spec.groups`: set by the apiserver, for ever.
    pub groups: Vec<String>,
    /// `spec.usages`
    pub usages: Vec<String>,
    /// `spec.request`, up to one byte more than [`LONGEST_PEM`]; empty once decided.
    pub pem: Vec<u8>,
    /// Whether it was approved or denied, or has failed.
    pub is_decided: bool,
    /// Whether `status.certificate` is there.
    pub is_issued: bool,
    /// Whether there are any conditions, also such as decide nothing.
    pub has_conditions: bool,
}

impl CertificateRequest {
    /// The name of the node whose kubelet asks; `None` if no kubelet does.
    pub fn node(&self) -> Option<&str> {
        self.username.strip_prefix(NODE_USER).filter(|name| !name.is_empty())
    }
}

impl Slim for CertificateRequest {
    type Key = String;
    type Kind = CertificateSigningRequest;
    type Wire = CertificateSigningRequest;
    const KIND: &'static str = "CertificateSigningRequest";
    const FIELDS: Option<&'static str> = Some("spec.signerName=kubernetes.io/kubelet-serving");

    crate::cache::cluster_scoped!();

    fn index(&self) -> Option<&str> {
        self.node()
    }

    fn project(wire: CertificateSigningRequest, _: &Keep, _: &Interner) -> Self {
        let CertificateSigningRequest { metadata, spec, status } = wire;
        let status = status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_decided = conditions.iter().any(|condition| FINAL.contains(&condition.type_.as_str()));
        let mut pem = if is_decided { Vec::new() } else { spec.request.0 };
        pem.truncate(LONGEST_PEM + 1);
        pem.shrink_to_fit();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|time| time.0),
            is_deleting: metadata.deletion_timestamp.is_some(),
            signer: spec.signer_name,
            username: spec.username.unwrap_or_default(),
            groups: spec.groups.unwrap_or_default(),
            usages: spec.usages.unwrap_or_default(),
            pem,
            is_decided,
            is_issued: status.certificate.is_some_and(|certificate| !certificate.0.is_empty()),
            has_conditions: !conditions.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn projected(status: Value, pem: &[u8]) -> CertificateRequest {
        let mut object = json!({
            "metadata": {"name": "csr-1", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"signerName": KUBELET_SERVING, "username": "system:node:a", "groups": ["system:nodes"],
                "usages": ["server auth"], "request": k8s_openapi::ByteString(pem.to_vec())},
        });
        object["status"] = status;
        let wire = serde_json::from_value(object).unwrap();
        CertificateRequest::project(wire, &Keep::default(), &Interner::default())
    }

    #[test]
    fn a_decided_request_keeps_no_pem() {
        let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True"}]});
        let rows = [
            (json!({}), false, false, "pem"),
            (Value::Null, false, false, "pem"),
            (condition("Approved"), true, true, ""),
            (condition("Denied"), true, true, ""),
            (condition("Failed"), true, true, ""),
            (condition("Reviewed"), false, true, "pem"),
        ];
        for (status, is_decided, has_conditions, pem) in rows {
            let request = projected(status.clone(), b"pem");
            assert_eq!(
                (request.is_decided, request.has_conditions),
                (is_decided, has_conditions),
                "{status}"
            );
            assert_eq!(request.pem, pem.as_bytes(), "{status}");
            assert_eq!((request.node(), request.is_issued), (Some("a"), false));
        }
        assert!(projected(json!({"certificate": k8s_openapi::ByteString(vec![1])}), b"").is_issued);
    }

    #[test]
    fn a_huge_request_is_cut_so_that_it_shows() {
        assert_eq!(projected(json!({}), &vec![b'x'; 1 << 20]).pem.len(), LONGEST_PEM + 1);
    }

    #[test]
    fn no_node_asks_as_anybody_else() {
        for username in ["", "system:node:", "system:nodes:a", "system:serviceaccount:a:system:node:a"] {
            let request =
                CertificateRequest { username: username.to_owned(), ..CertificateRequest::default() };
            assert_eq!(request.node(), None, "{username}");
        }
    }
}
