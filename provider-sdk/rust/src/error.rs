//! The error of a provider: a reason of the contract, with its details.
//!
//! In: a condition, one constructor each. Out: a status with `ErrorInfo` within the contract's sizes, or the
//! error of one item of a batch.

pub(crate) mod causes;
mod constructors;
mod status;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use cloudprovider_proto::{defaults::MAX_MESSAGE_TEXT_BYTES, scrub};
use tokio::time::error::Elapsed;

use crate::proto::ErrorReason;

/// A result of a provider.
pub type Result<T, E = ProviderError> = std::result::Result<T, E>;

/// An error with one of the contract's reasons.
///
/// [`with_source`](Self::with_source) attaches a cause: it is logged here and never leaves the process.
pub struct ProviderError(Box<Inner>);

struct Inner {
    reason: ErrorReason,
    message: String,
    retry_after: Option<Duration>,
    metadata: BTreeMap<String, String>,
    fields: Vec<(String, String)>,
    quotas: Vec<(String, String)>,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// The provider's own limit for a call to its cloud has ended it.
    ran_out: bool,
}

impl ProviderError {
    /// An error with any reason. Prefer the constructors that are named after conditions: they require every
    /// detail that belongs to the reason.
    ///
    /// The message is for humans: lowercase, stable from call to call, at most 1 KiB (the rest is cut off).
    /// Anything in it that looks like a secret is redacted.
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
            ran_out: false,
        }))
    }

    /// Sets when the host retries.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Adds text that varies from call to call, such as the cloud's request id. Redacted if it looks like a
    /// secret.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        let value =
            if scrub::names_a_secret(&key) { scrub::REDACTED.to_owned() } else { scrub::text(&value) };
        self.0.metadata.insert(key, value);
        self
    }

    /// Adds an invalid field (a Kubernetes field path) and the reason.
    #[must_use]
    pub fn with_field(mut self, path: impl Into<String>, why: impl Into<String>) -> Self {
        self.0.fields.push((scrub::text(&path.into()), scrub::text(&why.into())));
        self
    }

    /// Adds an exhausted quota: its subject (an account, a region) and a description.
    #[must_use]
    pub fn with_quota(mut self, subject: impl Into<String>, what: impl Into<String>) -> Self {
        self.0.quotas.push((scrub::text(&subject.into()), scrub::text(&what.into())));
        self
    }

    /// Keeps the cause for the log of this process.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// As of a mutation of one object that took this long: the end of the provider's own limit is a failure of the object. Whether the
    /// cloud answers is what many objects show, and reads: three objects that hang in a cloud that works must not hold up what is
    /// deleted elsewhere.
    pub(crate) fn of_its_object(mut self, took: Duration) -> Self {
        if !self.0.ran_out {
            return self;
        }
        let took = took.as_secs_f64().round();
        let text =
            format!("the provider gave up after {took}s: its call to the cloud did not return in time");
        let out = Self::new(ErrorReason::InternalError, text);
        match self.0.source.take() {
            Some(source) => out.with_source(source),
            None => out,
        }
    }

    /// Logs the cause with its own causes, which go no further.
    pub(crate) fn log_cause(&self) {
        let Some(mut next) = self.source() else { return };
        let mut cause = next.to_string();
        while let Some(source) = next.source() {
            cause = format!("{cause}: {source}");
            next = source;
        }
        // As long as a message: a cloud may answer with a whole page. What looks like a secret goes before it could be cut in two.
        let cause = scrub::text(&cause);
        let cause = cut(&cause, MAX_MESSAGE_TEXT_BYTES);
        tracing::warn!(reason = self.reason().wire_name(), cause, "{}", self.message());
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        self.0.reason
    }

    /// The reason's gRPC code.
    #[must_use]
    pub fn code(&self) -> tonic::Code {
        self.0.reason.code()
    }

    /// The human-readable message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// When the host retries, if set.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Text that varies from call to call.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// Invalid fields, as (path, why).
    #[must_use]
    pub fn fields(&self) -> &[(String, String)] {
        &self.0.fields
    }

    /// Exhausted quotas, as (subject, what).
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

/// Any other error becomes `INTERNAL_ERROR`; its text stays in this process.
impl From<Box<dyn Error + Send + Sync>> for ProviderError {
    fn from(source: Box<dyn Error + Send + Sync>) -> Self {
        Self::internal(source)
    }
}

/// Any other error becomes `INTERNAL_ERROR`, and the end of a [`tokio::time::timeout`] `CLOUD_API_UNAVAILABLE`, except from a mutation of
/// one object; its text stays in this process.
impl From<anyhow::Error> for ProviderError {
    fn from(source: anyhow::Error) -> Self {
        // A `ProviderError` that was only wrapped for context keeps its reason.
        match source.downcast::<Self>() {
            Ok(ours) => ours,
            Err(late) if late.is::<Elapsed>() => {
                let mut out = Self::cloud_api_unavailable().with_source(late);
                out.0.ran_out = true;
                out
            }
            Err(foreign) => Self::internal(foreign),
        }
    }
}

#[cfg(test)]
mod tests;
