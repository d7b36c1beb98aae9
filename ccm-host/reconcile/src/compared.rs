//! What shadow mode compares held back writes with: the objects, as the caches of the controllers show them.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::Parts;
use ccm_kube::{
    CertificateRequest, Node, ObjectKey, PersistentVolume, Service,
    keep::Pairs,
    shadow::{Objects, Observed, ShadowSubject, condition},
};

impl Objects for Parts {
    fn observe(&self, subject: &ShadowSubject) -> Option<Observed> {
        match subject.kind.as_str() {
            "Node" => self.nodes.get(subject.name.as_str()).map(|node| of_node(&node)),
            "Service" => {
                let key = ObjectKey::new(subject.namespace.as_str(), subject.name.as_str());
                self.services.get(&key).map(|service| of_service(&service))
            }
            "CertificateSigningRequest" => {
                self.certificate_requests.get(subject.name.as_str()).map(|request| of_request(&request))
            }
            "PersistentVolume" => self.volumes.get(subject.name.as_str()).map(|volume| of_volume(&volume)),
            _ => None,
        }
    }
}

fn of_node(node: &Node) -> Observed {
    let said = node.conditions.iter().map(|one| (&one.type_, &one.status, &one.reason, &one.message));
    let value = json!({
        "metadata": {"labels": pairs(&node.labels), "annotations": pairs(&node.annotations)},
        "spec": {
            "providerID": node.provider_id,
            "podCIDR": node.pod_cidrs.first(),
            "podCIDRs": node.pod_cidrs,
            "taints": node.taints,
        },
        "status": {"addresses": node.addresses, "conditions": conditions(said)},
    });
    Observed { uid: node.uid.clone(), value }
}

fn of_service(service: &Service) -> Observed {
    let said = service.conditions.iter().map(|one| (&one.type_, &one.status, &one.reason, &one.message));
    let value = json!({
        "metadata": {"annotations": pairs(&service.annotations), "finalizers": service.finalizers},
        "status": {"loadBalancer": {"ingress": service.ingress}, "conditions": conditions(said)},
    });
    Observed { uid: service.uid.clone(), value }
}

/// The slim form records that the request was decided, not how; decided requests need no further work.
fn of_request(request: &CertificateRequest) -> Observed {
    let decided = request.has_conditions.then(|| json!({"Approved": "decided", "Denied": "decided"}));
    Observed { uid: request.uid.clone(), value: json!({"status": {"conditions": decided}}) }
}

/// Its slim form knows which keys the node affinity uses: one that is there never changes.
fn of_volume(volume: &PersistentVolume) -> Observed {
    let value = json!({
        "metadata": {"labels": pairs(&volume.labels)},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": volume.affinity_keys}}},
    });
    Observed { uid: volume.uid.clone(), value }
}

fn pairs(pairs: &Pairs) -> Map<String, Value> {
    pairs.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

fn conditions<'a>(
    all: impl Iterator<Item = (&'a String, &'a String, &'a String, &'a String)>,
) -> Map<String, Value> {
    let one = |(type_, status, reason, message): (&String, _, _, _)| {
        (type_.clone(), condition(&json!({"status": status, "reason": reason, "message": message})))
    };
    all.map(one).collect()
}
