//! What a host in shadow mode would change, served at `/shadow`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that would be different if this host acted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `ShadowReport`.
    pub kind: String,
    pub time: Timestamp,
    /// What holds back longer than this is a difference.
    pub grace_seconds: u64,
    pub verdict: Verdict,
    /// What is not known yet, and why. Never empty with [`Verdict::Unknown`].
    pub unknown: Vec<String>,
    /// By kind, namespace, name and field.
    pub rows: Vec<Row>,
    /// By controller.
    pub agreed: Vec<Agreed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The switch changes nothing that can be seen without calling the cloud.
    NothingWouldChange,
    WouldChange,
    /// Not everything was compared yet.
    Unknown,
}

/// One field of one object, or one call, that this host held back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub controller: String,
    /// The object's kind: that of the API, or `LoadBalancer`, `Route`, `SSHKey`.
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub standing: Standing,
    /// In a sentence.
    pub what: String,
    /// Of a write: a JSON pointer, in which a condition goes by its type; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Of a write: the value of the field; null if it is absent.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub now: Value,
    /// Of a write: the value that this host would set; null if it would remove it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub would: Value,
    /// When it was held back first.
    pub since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Standing {
    /// The other controller has not done so within the grace.
    Differs,
    /// The other controller may still do so.
    Pending,
    /// No difference: a call that takes over what exists, where what it finds to correct is not known without making it;
    /// or a note of the host for itself.
    Once,
}

/// How much the other controller did as this host would have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agreed {
    pub controller: String,
    pub count: u64,
}
