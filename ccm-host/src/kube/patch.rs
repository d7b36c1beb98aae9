//! The smallest writes that make the apiserver's copy match a decision, each with its preconditions.
//!
//! In: the object as last seen and the desired changes. Out: a [`Patch`], or none if nothing differs. The functions are
//! pure; [`Writer`] sends. The controllers decide on the changes.
//!
//! | Write | Kind | Guard |
//! |---|---|---|
//! | a node's provider ID, labels, annotations, taints | JSON patch | `test` of the uid and of every old value |
//! | a node's pod CIDRs | JSON patch | `test` of the uid, and that there are none |
//! | a node's addresses | JSON patch | `test` of the uid and of the whole list |
//! | a Service's ingress and annotations | merge patch (replaces lists) | `metadata.uid` |
//! | a condition | strategic merge patch (merges by type) | `metadata.uid` |
//! | a Service's finalizers | JSON patch | `test` of the uid and of the whole list |
//! | the decision about a certificate request | JSON patch | `test` of the uid, of the resource version, and that there is none |
//! | labels of a volume, and the node affinity of one that has none | JSON patch | `test` of the uid and of every old value |
//! | deletion of a node | DELETE | uid precondition |
//! | the certificate of the webhooks in its Secret | merge patch | resource version |
//! | the authorities of a webhook configuration | JSON patch | `test` of the resource version |
//! | a record in a ConfigMap | merge patch | resource version |
//!
//! Taints and finalizers use a JSON patch with `test` instead of a resource version, because it fails only if somebody
//! else changed the value itself: heartbeats, and our own write of the addresses just before, do not make it fail. The
//! price: a failed `test` differs from an invalid value only in that its 422 names no field, which [`WriteError`]
//! checks.

mod certificate_request;
mod error;
mod fields;
mod json;
mod lease;
mod node;
mod persistent_volume;
mod record;
mod secret;
mod service;
#[cfg(test)]
mod tests;
mod webhook_configuration;
mod writer;

use serde_json::Value;

pub use certificate_request::{Decision, certificate_decision};
pub use error::WriteError;
pub use lease::NodeLease;
pub use node::{NodeChange, node_addresses, node_condition, node_main, node_pod_cidrs};
pub use persistent_volume::{volume_admission, volume_topology};
pub use record::{Record, RecordKey};
pub use secret::Secret;
pub use service::{service_annotations, service_condition, service_finalizer, service_ingress};
pub use webhook_configuration::{Called, WebhookConfiguration};
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
    /// The approval subresource of a CertificateSigningRequest.
    Approval,
}

/// The body of a patch, by patch type.
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

/// The desired state of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCondition<'a> {
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}
