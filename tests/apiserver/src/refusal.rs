//! The apiserver's refusals.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kind::Kind;

/// A refusal, as a `Status` on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// Empty for an internal error without a reason.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The object concerned.
    pub about: Option<Box<About>>,
    /// The invalid fields.
    pub causes: Vec<Cause>,
    /// When to retry.
    pub retry_after: Option<Duration>,
}

/// The object that a refusal concerns. Empty parts are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The object's name.
    pub name: String,
    /// Its API group.
    pub group: &'static str,
    /// Its kind, or the kind's plural.
    pub kind: &'static str,
}

/// One invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired` and so on.
    pub reason: &'static str,
    /// The field, as a path with dots.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, message: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {message}"))
    }

    pub(crate) fn required(field: impl Into<String>, message: &str) -> Self {
        let text = if message.is_empty() { String::new() } else { format!(": {message}") };
        Self::new("FieldValueRequired", field, format!("Required value{text}"))
    }

    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"))
    }

    pub(crate) fn forbidden(field: impl Into<String>, message: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {message}"))
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {value:?}: supported values: {supported}");
        Self::new("FieldValueNotSupported", field, message)
    }
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), about: None, causes: Vec::new(), retry_after: None }
    }

    /// Priority and fairness, or the limit of requests in flight, rejects the request.
    pub fn too_many_requests(retry_after: Duration) -> Self {
        let message = "Too many requests, please try again later.";
        Self { retry_after: Some(retry_after), ..Self::new(429, "TooManyRequests", message) }
    }

    /// Something broke.
    pub fn internal() -> Self {
        Self::new(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
    }

    /// It starts or stops.
    pub fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailable", "apiserver is shutting down")
    }

    /// No right to do that.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_empty_details()
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_empty_details()
    }

    /// A JSON patch that cannot be applied, a failed test among others.
    pub(crate) fn patch_failed() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with_empty_details()
    }

    fn with_empty_details(mut self) -> Self {
        self.about = Some(Box::default());
        self
    }

    pub(crate) fn about(mut self, name: &str, group: &'static str, kind: &'static str) -> Self {
        self.about = Some(Box::new(About { name: name.to_owned(), group, kind }));
        self
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(kind.plural, kind.group));
        Self::new(404, "NotFound", message).about(name, kind.group, kind.plural)
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(kind.plural, kind.group));
        Self::new(409, "AlreadyExists", message).about(name, kind.group, kind.plural)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            qualified(kind.plural, kind.group)
        );
        Self::new(409, "Conflict", message).about(name, kind.group, kind.plural)
    }

    /// As [`Refusal::conflict`], of a precondition of a deletion, which names the kind.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(kind.name, kind.group));
        Self::new(409, "Conflict", message).about(name, kind.group, kind.name)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        Self::invalid_as(kind.group, kind.name, name, causes)
    }

    pub(crate) fn invalid_as(
        group: &'static str,
        kind: &'static str,
        name: &str,
        causes: Vec<Cause>,
    ) -> Self {
        let texts: Vec<_> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let all = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} {name:?} is invalid: {all}", qualified(kind, group));
        Self { causes, ..Self::new(422, "Invalid", message).about(name, group, kind) }
    }

    pub(crate) fn options(causes: Vec<Cause>) -> Self {
        Self::invalid_as("meta.k8s.io", "ListOptions", "", causes)
    }

    /// What a watch or an exact list wants to start from is not kept any more.
    pub(crate) fn expired(wanted: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {wanted} ({oldest})"))
    }

    pub(crate) fn from_the_future(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = Cause::new("ResourceVersionTooLarge", "", "Too large resource version");
        Self {
            causes: vec![cause],
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(504, "Timeout", message).with_empty_details()
        }
    }

    /// The `Status`.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if self.about.is_some() || !self.causes.is_empty() || self.retry_after.is_some() {
            status["details"] = self.details();
        }
        status
    }

    fn details(&self) -> Value {
        let mut details = serde_json::Map::new();
        if let Some(About { name, group, kind }) = self.about.as_deref() {
            let parts = [("name", name.as_str()), ("group", group), ("kind", kind)];
            details.extend(
                parts.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| ((*k).to_owned(), json!(v))),
            );
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut wire = json!({"reason": cause.reason, "message": cause.message});
                if !cause.field.is_empty() {
                    wire["field"] = json!(cause.field);
                }
                wire
            });
            details.insert("causes".to_owned(), causes.collect());
        }
        if let Some(after) = self.retry_after {
            details.insert("retryAfterSeconds".to_owned(), json!(after.as_secs()));
        }
        Value::Object(details)
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
