//! What manifests grant, one verb on one resource at a time.

use std::{collections::BTreeSet, fmt};

use control_plane::AuditEvent;
use serde_json::{Value, json};

const CLIENT_CA: &str = "extension-apiserver-authentication";

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The subject that has it.
    pub user: String,
    /// `nodes`, `nodes/status`, ...
    pub resource: String,
    /// `get`, `patch`, ...
    pub verb: String,
    /// Empty for the whole cluster.
    pub namespace: String,
    /// Empty for all.
    pub name: String,
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.verb, self.resource)?;
        let place =
            [&self.namespace, &self.name].map(String::as_str).into_iter().filter(|part| !part.is_empty());
        place
            .enumerate()
            .try_for_each(|(at, part)| write!(out, "{}{part}", if at == 0 { " in " } else { "/" }))
    }
}

impl Right {
    /// Whether this request used it. The apiserver itself checks the permission for a signer at each
    /// decision about a request for a certificate.
    pub fn allows(&self, request: &AuditEvent) -> bool {
        let fits = |own: &str, asked: &str| own.is_empty() || own == asked;
        if self.resource == "signers" {
            return request.code != 403
                && self.user == request.user
                && request.resource == "certificatesigningrequests/approval";
        }
        request.code != 403
            && self.user == request.user
            && self.resource == request.resource
            && self.verb == request.verb
            && fits(&self.namespace, &request.namespace)
            && fits(&self.name, &request.name)
    }
}

/// What these objects grant, and to whom. The apiserver's own Role for the CA of client certificates counts as the only
/// verb of it that is used.
pub fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(|object| !object["roleRef"].is_null()) {
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        let bound = &binding["roleRef"];
        let of_apiserver = json!({ "rules": [{ "resources": ["configmaps"], "resourceNames": [CLIENT_CA], "verbs": ["watch"] }] });
        let role = objects.iter().find(|object| {
            object["kind"] == bound["kind"]
                && object["metadata"]["name"] == bound["name"]
                && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
        });
        let role = match bound["name"].as_str() {
            Some("extension-apiserver-authentication-reader") => Some(&of_apiserver),
            _ => role,
        };
        for user in binding["subjects"].as_array().into_iter().flatten().filter_map(user) {
            rights.extend(role.into_iter().flat_map(|role| of_role(role, namespace, &user)));
        }
    }
    rights
}

fn user(subject: &Value) -> Option<String> {
    let account = (subject["namespace"].as_str()?, subject["name"].as_str()?);
    Some(format!("system:serviceaccount:{}:{}", account.0, account.1))
}

fn of_role(role: &Value, namespace: &str, user: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = words(&rule["resourceNames"]);
        for resource in words(&rule["resources"]) {
            for verb in words(&rule["verbs"]) {
                let of = |name: &str| Right {
                    user: user.to_owned(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                };
                match names.is_empty() {
                    true => rights.push(of("")),
                    false => rights.extend(names.iter().map(|name| of(name))),
                }
            }
        }
    }
    rights
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}
