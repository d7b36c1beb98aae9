//! What chosen users requested from the apiserver: exact, from its own audit log, which a policy restricts to those
//! users.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

/// The policy: metadata of every request of these users, nothing of anybody else.
pub(crate) fn policy(users: &[String]) -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // An open watch has only the stage in which its response started.
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata", "users": users }, { "level": "None" }],
    })
    .to_string()
}

/// One request, in the order in which the apiserver recorded them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// The user.
    pub user: String,
    /// The user agent.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `patch`, ...; the lowercase HTTP method for a path that is not a resource's.
    pub verb: String,
    /// `nodes`, `nodes/status`, ...; or the path, if it is not a resource's.
    pub resource: String,
    /// Empty if there is none.
    pub namespace: String,
    /// Empty for lists.
    pub name: String,
    /// The HTTP status; 0 while there is none.
    pub code: u16,
    /// The client's address.
    pub source: String,
    /// When the request arrived, as the apiserver wrote it (RFC 3339 with microseconds).
    pub received: String,
    /// The time of the last recorded stage: when the answer was complete, except for a watch.
    pub answered: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(rename = "sourceIPs", default)]
    sources: Vec<String>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    code: Option<u16>,
}

/// Reads what has been recorded so far, except a line that is still being written.
pub(crate) fn read(log: &Path) -> Result<Vec<AuditEvent>> {
    let text = match fs::read_to_string(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", log.display()))?,
    };
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    parse(complete)
}

/// A request has up to two lines, when its response starts and when it is complete. They share an ID; the later one
/// counts.
fn parse(text: &str) -> Result<Vec<AuditEvent>> {
    let mut events: Vec<AuditEvent> = Vec::new();
    let mut by_id = HashMap::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).with_context(|| format!("no audit event: {line}"))?;
        let index = *by_id.entry(line.audit_id.clone()).or_insert(events.len());
        let event = line.event();
        match events.get_mut(index) {
            Some(earlier) => *earlier = event,
            None => events.push(event),
        }
    }
    Ok(events)
}

/// The requests of one user by (verb, resource).
pub(crate) fn count(events: &[AuditEvent], user: &str) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for event in events.iter().filter(|event| event.user == user) {
        *counts.entry((event.verb.clone(), event.resource.clone())).or_default() += 1;
    }
    counts
}

impl Line {
    fn event(self) -> AuditEvent {
        let path = || self.request_uri.split('?').next().unwrap_or_default().to_owned();
        let (resource, namespace, name) = match self.object_ref {
            None => (path(), String::new(), String::new()),
            Some(of) if of.subresource.is_empty() => (of.resource, of.namespace, of.name),
            Some(of) => (format!("{}/{}", of.resource, of.subresource), of.namespace, of.name),
        };
        AuditEvent {
            user: self.user.username,
            user_agent: self.user_agent,
            verb: self.verb,
            resource,
            namespace,
            name,
            code: self.response_status.and_then(|status| status.code).unwrap_or(0),
            source: self.sources.into_iter().next().unwrap_or_default(),
            received: self.request_received_timestamp,
            answered: self.stage_timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, verb: &str, object: &serde_json::Value, code: Option<u16>) -> String {
        json!({
            "auditID": id, "verb": verb, "requestURI": "/readyz?verbose", "user": { "username": "jane" },
            "objectRef": object, "responseStatus": { "code": code },
            "requestReceivedTimestamp": "t", "stageTimestamp": "u", "sourceIPs": ["127.0.0.1"],
        })
        .to_string()
    }

    #[test]
    fn a_request_counts_once_under_its_resource_and_subresource() {
        let node = json!({ "resource": "nodes", "name": "n1" });
        let status = json!({ "resource": "nodes", "subresource": "status", "name": "n1" });
        let none = serde_json::Value::Null;
        let log = [
            line("1", "watch", &node, None),
            line("2", "patch", &status, Some(200)),
            line("1", "watch", &node, Some(200)),
            line("3", "get", &none, Some(403)),
        ];
        let events = parse(&log.join("\n")).unwrap();
        let key = |verb: &str, resource: &str| (verb.to_owned(), resource.to_owned());
        let expected =
            [(key("get", "/readyz"), 1), (key("patch", "nodes/status"), 1), (key("watch", "nodes"), 1)];
        assert_eq!(count(&events, "jane"), BTreeMap::from(expected));
        assert_eq!(events.iter().map(|event| event.code).collect::<Vec<_>>(), [200, 200, 403]);
        assert!(count(&events, "joe").is_empty());
    }

    #[test]
    fn a_line_that_is_just_being_written_is_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let node = json!({ "resource": "nodes" });
        fs::write(file.path(), line("1", "list", &node, Some(200)) + "\n{\"auditID\":\"2\",").unwrap();
        assert_eq!(read(file.path()).unwrap().len(), 1);
    }
}
