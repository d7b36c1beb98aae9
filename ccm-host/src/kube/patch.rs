//! The smallest writes that make the apiserver's copy match a decision, each with its preconditions.
//!
//! In go the object as it was seen and what shall differ; out comes a [`Patch`], or none when nothing
//! differs. The functions are pure; [`Writer`] sends. What shall differ is decided by the controllers.
//!
//! | Write | Kind | Guard |
//! |---|---|---|
//! | a node's provider ID, labels, annotations, taints | JSON patch | `test` of the uid and of every old value |
//! | a node's pod CIDRs | JSON patch | `test` of the uid, and that there are none |
//! | a node's addresses | JSON patch | `test` of the uid and of the whole list |
//! | a Service's ingress and annotations | merge patch (replaces lists) | `metadata.uid` |
//! | a condition | strategic merge patch (merges by type) | `metadata.uid` |
//! | a Service's finalizers | JSON patch | `test` of the uid and of the whole list |
//! | deletion of a node | DELETE | uid precondition |
//! | a record in a ConfigMap | merge patch | resource version |
//!
//! A JSON patch with `test` was chosen over a resource version for taints and finalizers because it fails
//! only if the value itself was changed by somebody else: heartbeats, and our own write of the addresses
//! just before, do not make it fail. The price: a failed `test` is told from an invalid value only by its
//! 422 naming no field, which [`WriteError`] does.

mod error;
mod json;
mod lease;
mod node;
mod record;
mod service;
#[cfg(test)]
mod tests;
mod writer;

use serde_json::Value;

pub use error::WriteError;
pub use lease::NodeLease;
pub use node::{NodeChange, node_addresses, node_condition, node_main, node_pod_cidrs};
pub use record::{Record, RecordKey};
pub use service::{service_annotations, service_condition, service_finalizer, service_ingress};
pub use writer::{Writer, Written};

/// One write to one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    pub target: Target,
    pub body: Body,
}

/// The part of an object that a patch addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The object itself, without its status.
    Main,
    /// The status subresource. For Services it also takes metadata, and needs fewer rights.
    Status,
}

/// A patch by its kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// RFC 6902: a list of operations, all or nothing.
    Json(Value),
    /// RFC 7386: lists are replaced.
    Merge(Value),
    /// Kubernetes' own: lists with a merge key are merged.
    Strategic(Value),
}

impl Body {
    fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
        }
    }

    /// The JSON that is sent.
    #[must_use]
    pub fn value(&self) -> &Value {
        match self {
            Self::Json(value) | Self::Merge(value) | Self::Strategic(value) => value,
        }
    }
}

/// A condition as it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCondition<'a> {
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}
