//! The one error of a provider: a reason of the contract, and what goes with it.
//!
//! In: a condition, named by a constructor. Out: a status with `ErrorInfo` within the contract's sizes, or the error of
//! one item of a batch. Which code belongs to which reason is decided here, in one table.

mod constructors;
mod item;
mod status;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use cloudprovider_proto::defaults::MAX_MESSAGE_TEXT_BYTES;

use crate::proto::ErrorReason;
use crate::scrub;

/// A result of a provider.
pub type Result<T, E = ProviderError> = std::result::Result<T, E>;

/// What went wrong, as the contract names it.
///
/// A cause may ride along with [`with_source`](Self::with_source): it is logged here and never leaves the process.
pub struct ProviderError(Box<Inner>);

struct Inner {
    reason: ErrorReason,
    message: String,
    retry_after: Option<Duration>,
    metadata: BTreeMap<String, String>,
    fields: Vec<(String, String)>,
    quotas: Vec<(String, String)>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ProviderError {
    /// An error with any reason. Prefer the constructors that are named by condition: they ask for all that belongs to it.
    ///
    /// The message is for people: lowercase, the same from call to call, at most 1 KiB (longer ones are cut). What looks
    /// like a secret in it is redacted.
    #[must_use]
    pub fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            reason,
            message: cut(&scrub::text(&message.into()), MAX_MESSAGE_TEXT_BYTES).to_owned(),
            retry_after: None,
            metadata: BTreeMap::new(),
            fields: Vec::new(),
            quotas: Vec::new(),
            source: None,
        }))
    }

    /// Says when to come back.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Adds text that varies from call to call, such as the cloud's request id. Redacted where it looks like a secret.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        let value =
            if scrub::names_a_secret(&key) { scrub::REDACTED.to_owned() } else { scrub::text(&value) };
        self.0.metadata.insert(key, value);
        self
    }

    /// Names a field that is wrong (a Kubernetes field path) and why.
    #[must_use]
    pub fn with_field(mut self, path: impl Into<String>, why: impl Into<String>) -> Self {
        self.0.fields.push((path.into(), scrub::text(&why.into())));
        self
    }

    /// Names a quota that is used up: its subject (an account, a region) and what it says.
    #[must_use]
    pub fn with_quota(mut self, subject: impl Into<String>, what: impl Into<String>) -> Self {
        self.0.quotas.push((subject.into(), scrub::text(&what.into())));
        self
    }

    /// Keeps the cause for the log of this process.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        self.0.reason
    }

    /// The gRPC code that belongs to the reason.
    #[must_use]
    pub fn code(&self) -> tonic::Code {
        self.0.reason.code()
    }

    /// The message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// When to come back, if that was said.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Text that varies from call to call.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// Fields that are wrong, as (path, why).
    #[must_use]
    pub fn fields(&self) -> &[(String, String)] {
        &self.0.fields
    }

    /// Quotas that are used up, as (subject, what).
    #[must_use]
    pub fn quotas(&self) -> &[(String, String)] {
        &self.0.quotas
    }
}

/// The longest start of a text that has at most `max` bytes and ends between characters.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

impl fmt::Display for ProviderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.0.message, self.0.reason.wire_name())
    }
}

impl fmt::Debug for ProviderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProviderError")
            .field("reason", &self.0.reason.wire_name())
            .field("message", &self.0.message)
            .field("retry_after", &self.0.retry_after)
            .field("metadata", &self.0.metadata)
            .finish_non_exhaustive()
    }
}

impl Error for ProviderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// A cause of unknown kind becomes `INTERNAL_ERROR`; its text stays in this process.
impl From<Box<dyn Error + Send + Sync>> for ProviderError {
    fn from(source: Box<dyn Error + Send + Sync>) -> Self {
        Self::internal(source)
    }
}

/// A cause of unknown kind becomes `INTERNAL_ERROR`; its text stays in this process.
impl From<anyhow::Error> for ProviderError {
    fn from(source: anyhow::Error) -> Self {
        // A typed error that was only wrapped for its context keeps its meaning.
        match source.downcast::<Self>() {
            Ok(ours) => ours,
            Err(foreign) => Self::internal(foreign),
        }
    }
}

#[cfg(test)]
mod tests;
