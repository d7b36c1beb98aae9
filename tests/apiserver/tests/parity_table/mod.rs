//! The requests.

mod lists;
mod nodes;
mod others;
mod services;

use serde_json::Value;

/// One request. `<name>` in the path or body stands for the value remembered under that name.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: String,
    /// A name, and where its value is in the answer.
    pub(crate) remember: Option<(&'static str, &'static str)>,
}

impl Step {
    fn new(method: &'static str, path: &'static str, body: String) -> Self {
        Self {
            method,
            path,
            content_type: "application/json",
            accept: "application/json",
            body,
            remember: None,
        }
    }

    /// Remembers the object's version.
    pub(crate) fn version_as(mut self, name: &'static str) -> Self {
        self.remember = Some((name, "/metadata/resourceVersion"));
        self
    }

    pub(crate) fn remember(mut self, name: &'static str, path: &'static str) -> Self {
        self.remember = Some((name, path));
        self
    }

    pub(crate) fn of_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(crate) fn partial(mut self) -> Self {
        self.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        self
    }

    pub(crate) fn partial_list(mut self) -> Self {
        self.accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        self
    }
}

pub(crate) fn get(path: &'static str) -> Step {
    Step::new("GET", path, String::new())
}

pub(crate) fn post(path: &'static str, body: Value) -> Step {
    Step::new("POST", path, body.to_string())
}

pub(crate) fn put(path: &'static str, body: Value) -> Step {
    Step::new("PUT", path, body.to_string())
}

pub(crate) fn delete(path: &'static str) -> Step {
    Step::new("DELETE", path, String::new())
}

pub(crate) fn delete_with(path: &'static str, options: Value) -> Step {
    Step::new("DELETE", path, options.to_string())
}

pub(crate) fn merge(path: &'static str, body: Value) -> Step {
    Step::new("PATCH", path, body.to_string()).of_type("application/merge-patch+json")
}

pub(crate) fn strategic(path: &'static str, body: Value) -> Step {
    Step::new("PATCH", path, body.to_string()).of_type("application/strategic-merge-patch+json")
}

pub(crate) fn json_patch(path: &'static str, body: Value) -> Step {
    Step::new("PATCH", path, body.to_string()).of_type("application/json-patch+json")
}

/// A body that is not JSON.
pub(crate) fn broken(method: &'static str, path: &'static str) -> Step {
    Step::new(method, path, "{nope".to_owned())
}

pub(crate) fn table() -> Vec<Step> {
    [nodes::steps(), services::steps(), others::steps(), lists::steps()].concat()
}
