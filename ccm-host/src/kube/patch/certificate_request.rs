//! The decision about a CertificateSigningRequest.

use serde_json::{Value, json};

use super::{Patch, Target, json::Operations};
use crate::kube::certificate_request::CertificateRequest;

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Approved,
    Denied,
}

/// Approves or denies exactly the request that was looked at, in the version that was looked at. `None` if it is
/// decided already, or carries conditions of somebody else: then that one decides.
#[must_use]
pub fn certificate_decision(
    before: &CertificateRequest,
    decision: Decision,
    reason: &str,
    message: &str,
) -> Option<Patch> {
    if before.is_decided || before.is_issued || before.has_conditions {
        return None;
    }
    let type_ = match decision {
        Decision::Approved => "Approved",
        Decision::Denied => "Denied",
    };
    let condition = json!({"type": type_, "status": "True", "reason": reason, "message": message});
    let mut operations = Operations::on(&before.uid);
    operations.unchanged_since(&before.resource_version);
    operations.set("/status/conditions", Value::Null, json!([condition]));
    operations.finish(Target::Approval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::patch::Body;

    #[test]
    fn a_decision_is_for_one_version_of_one_request() {
        let open = CertificateRequest {
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
            ..CertificateRequest::default()
        };
        for (decision, type_) in [(Decision::Approved, "Approved"), (Decision::Denied, "Denied")] {
            let patch = certificate_decision(&open, decision, "R", "m").unwrap();
            let condition = json!([{"type": type_, "status": "True", "reason": "R", "message": "m"}]);
            let body = json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "test", "path": "/status/conditions", "value": null},
                {"op": "add", "path": "/status/conditions", "value": condition},
            ]);
            assert_eq!((patch.target, patch.body), (Target::Approval, Body::Json(body)));
        }
        for taken in [
            CertificateRequest { is_decided: true, ..open.clone() },
            CertificateRequest { is_issued: true, ..open.clone() },
            CertificateRequest { has_conditions: true, ..open },
        ] {
            assert_eq!(certificate_decision(&taken, Decision::Approved, "R", "m"), None, "{taken:?}");
        }
    }
}
