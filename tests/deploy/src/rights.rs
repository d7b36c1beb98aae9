//! What manifests grant, one verb on one resource at a time.

use std::{collections::BTreeSet, fmt};

use control_plane::AuditEvent;
use serde_json::Value;

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
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
    /// Whether this request made use of it.
    #[must_use]
    pub fn allows(&self, request: &AuditEvent) -> bool {
        let fits = |own: &str, asked: &str| own.is_empty() || own == asked;
        request.code != 403
            && self.resource == request.resource
            && self.verb == request.verb
            && fits(&self.namespace, &request.namespace)
            && fits(&self.name, &request.name)
    }
}

/// What these objects grant. The apiserver's own Role for the CA of client certificates is counted as the one verb of it
/// that is asked for.
#[must_use]
pub fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for object in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        match object["kind"].as_str() {
            Some("ClusterRole" | "Role") => rights.extend(of_role(object, namespace)),
            Some("RoleBinding")
                if object["roleRef"]["name"] == "extension-apiserver-authentication-reader" =>
            {
                rights.insert(Right {
                    resource: "configmaps".to_owned(),
                    verb: "watch".to_owned(),
                    namespace: namespace.to_owned(),
                    name: "extension-apiserver-authentication".to_owned(),
                });
            }
            _ => {}
        }
    }
    rights
}

fn of_role(role: &Value, namespace: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = words(&rule["resourceNames"]);
        for resource in words(&rule["resources"]) {
            for verb in words(&rule["verbs"]) {
                let of = |name: &str| Right {
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
