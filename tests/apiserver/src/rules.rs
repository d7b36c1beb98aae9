//! What the apiserver fills in, takes out and refuses, kind by kind.

mod meta;
mod node;
mod service;

use serde_json::{Value, json};

use crate::{
    kind::Kind,
    refusal::{Cause, Refusal},
    store::Allocator,
};

pub(crate) use meta::{new_meta, seconds};

/// Kinds with rules of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    None,
    Node,
    Service,
    Namespace,
    Lease,
    Event,
    Secret,
    CertificateRequest,
}

impl Special {
    /// What is encoded even if it is empty.
    fn always(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Node | Self::Namespace | Self::CertificateRequest => &[&["spec"], &["status"]],
            Self::Service => &[&["spec"], &["status"], &["status", "loadBalancer"]],
            Self::Lease => &[&["spec"]],
            Self::Event => &[&["involvedObject"], &["source"]],
            Self::Secret | Self::None => &[],
        }
    }
}

/// Maps whose keys are the user's: an empty value means something in them.
const FREE: [&str; 9] = [
    "labels",
    "annotations",
    "data",
    "binaryData",
    "stringData",
    "selector",
    "capacity",
    "allocatable",
    "matchLabels",
];
/// Texts that are sent even if empty.
const KEPT: [&str; 13] = [
    "holderIdentity",
    "reportingComponent",
    "reportingInstance",
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];
/// Numbers and booleans that are omitted if zero.
const DROPPED: [&str; 6] =
    ["nodePort", "healthCheckNodePort", "unschedulable", "publishNotReadyAddresses", "generation", "count"];

/// An object as the apiserver decodes and encodes it: without unknown fields and empty values.
///
/// # Errors
/// A field is of another type.
pub(crate) fn decoded(kind: &Kind, value: Value) -> Result<Value, serde_json::Error> {
    let value = match (kind.decode)(&value) {
        Ok(typed) => typed,
        // Missing fields are zero there, and left to validation.
        Err(error) if error.to_string().starts_with("missing field") => value,
        Err(error) => return Err(error),
    };
    Ok(encoded(kind, value))
}

/// An object of the kind's own type as the apiserver encodes it.
pub(crate) fn encoded(kind: &Kind, mut value: Value) -> Value {
    tidy(kind, &mut value);
    for part in kind.special.always() {
        complete(&mut value, part);
    }
    value
}

/// Adds an empty object where there is none.
fn complete(object: &mut Value, path: &[&str]) {
    let part = path.iter().fold(object, |object, field| &mut object[*field]);
    if part.is_null() {
        *part = json!({});
    }
}

fn tidy(kind: &Kind, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| tidy(kind, item)),
        Value::Object(fields) => fields.retain(|key, value| {
            if FREE.contains(&key.as_str()) {
                return value.as_object().is_some_and(|map| !map.is_empty());
            }
            tidy(kind, value);
            match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::String(text) if text.is_empty() => {
                    let of_condition =
                        kind.special != Special::Node && matches!(key.as_str(), "message" | "reason");
                    of_condition || KEPT.contains(&key.as_str())
                }
                Value::Number(number) => number.as_f64() != Some(0.0) || !DROPPED.contains(&key.as_str()),
                Value::Bool(false) => !DROPPED.contains(&key.as_str()),
                _ => true,
            }
        }),
        _ => {}
    }
}

/// Fills in the defaults.
pub(crate) fn default(kind: &Kind, object: &mut Value) {
    match kind.special {
        Special::Service => service::default(object),
        Special::Namespace => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        Special::Secret => {
            move_texts(object);
            set_default(object, "type", json!("Opaque"));
        }
        Special::Event => {
            for text in ["reportingComponent", "reportingInstance"] {
                set_default(object, text, json!(""));
            }
        }
        Special::Node => node::default(object),
        Special::Lease | Special::CertificateRequest | Special::None => {}
    }
}

fn set_default(object: &mut Value, key: &str, value: Value) {
    if object[key].is_null() {
        object[key] = value;
    }
}

/// `stringData` is write-only.
fn move_texts(secret: &mut Value) {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let texts = secret.as_object_mut().and_then(|map| map.remove("stringData"));
    for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
        secret["data"][key] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

/// Drops what a new object may not have, and adds what it gets automatically.
pub(crate) fn prepare_new(kind: &Kind, object: &mut Value, allocator: &mut Allocator) {
    match kind.special {
        Special::Node => node::taint_not_ready(object),
        Special::Service => {
            object["status"] = json!({"loadBalancer": {}});
            service::allocate(object, allocator);
        }
        Special::Namespace => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        Special::CertificateRequest => object["status"] = json!({}),
        _ if kind.status => _ = object.as_object_mut().and_then(|map| map.remove("status")),
        _ => {}
    }
}

/// The main resource keeps the old status, the status subresource everything else except metadata.
pub(crate) fn prepare_changed(
    kind: &Kind,
    of_status: bool,
    object: &mut Value,
    old: &Value,
    allocator: &mut Allocator,
) {
    if !kind.status {
        return;
    }
    let kept = |field: &str| {
        if of_status {
            !matches!(field, "metadata" | "status" | "kind" | "apiVersion")
        } else {
            field == "status"
        }
    };
    if let (Some(object), Some(old)) = (object.as_object_mut(), old.as_object()) {
        object.retain(|field, _| !kept(field));
        object.extend(
            old.iter().filter(|(field, _)| kept(field)).map(|(field, value)| (field.clone(), value.clone())),
        );
    }
    if kind.special == Special::Namespace && !of_status {
        object["spec"] = old["spec"].clone();
    }
    if kind.special == Special::Service && !of_status {
        service::drop_dependent(object, old);
        service::allocate(object, allocator);
    }
}

/// The errors of an object, new or changed.
pub(crate) fn wrong(kind: &Kind, of_status: bool, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = match kind.special {
        Special::Node => node::wrong(of_status, object, old),
        Special::Service => service::wrong(of_status, object, old),
        Special::Lease => lease(&object["spec"]),
        Special::Event => event(object),
        _ => Vec::new(),
    };
    causes.extend(meta::wrong(object, old));
    causes
}

fn lease(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", &json!(seconds), "must be greater than 0"));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            &json!(count),
            "must be greater than or equal to 0",
        ));
    }
    causes
}

fn event(event: &Value) -> Vec<Cause> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    if about == namespace || (about.is_empty() && namespace == "default") {
        return Vec::new();
    }
    vec![Cause::invalid("involvedObject.namespace", &json!(about), "does not match event.namespace")]
}

/// Nothing can be created in a namespace that is being deleted.
pub(crate) fn refuse_in_namespace(
    kind: &Kind,
    name: &str,
    namespace: &str,
    found: Option<&Value>,
) -> Option<Refusal> {
    let Some(found) = found else {
        let message = format!("namespaces {namespace:?} not found");
        return Some(Refusal::new(404, "NotFound", message).about(namespace, "", "namespaces"));
    };
    if found["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let message = format!(
        "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
        kind.plural
    );
    let cause = Cause::new(
        "NamespaceTerminating",
        "metadata.namespace",
        format!("namespace {namespace} is being terminated"),
    );
    Some(Refusal { causes: vec![cause], ..Refusal::forbidden(message).about(name, kind.group, kind.plural) })
}
