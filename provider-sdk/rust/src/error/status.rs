//! The error as a gRPC status, or as the error of one item of a batch, in both directions, within the contract's sizes.

use std::collections::HashMap;

use cloudprovider_proto::ERROR_DOMAIN;
use cloudprovider_proto::defaults::{MAX_ERROR_DETAIL_BYTES, MAX_MESSAGE_TEXT_BYTES};
use tonic::Status;
use tonic_types::{ErrorDetails, FieldViolation, QuotaViolation, StatusExt as _};

use super::{Inner, ProviderError, causes, cut};
use crate::proto::{ErrorReason, ItemError};

/// Longest key of `ErrorInfo.metadata`.
const MAX_KEY_BYTES: usize = 64;
/// Longest value of one entry of the details, before the total is limited.
pub(super) const MAX_VALUE_BYTES: usize = 256;

impl ProviderError {
    /// The error as a status: the code of the reason, `ErrorInfo` always, `RetryInfo`, `BadRequest` and
    /// `QuotaFailure` if they have content. What does not fit into 4 KiB is left out, metadata last.
    #[must_use]
    pub fn to_status(&self) -> Status {
        let inner = &*self.0;
        let mut quotas = entries(&inner.quotas);
        let mut fields = entries(&inner.fields);
        let mut metadata: Vec<_> =
            inner.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        metadata.retain(|(key, _)| valid_key(key));
        metadata.iter_mut().for_each(|(_, value)| value.truncate(cut(value, MAX_VALUE_BYTES).len()));
        loop {
            let status = encode(inner, &fields, &quotas, &metadata);
            if status.details().len() < MAX_ERROR_DETAIL_BYTES {
                return status;
            }
            if quotas.pop().is_none() && fields.pop().is_none() && metadata.pop().is_none() {
                return status;
            }
        }
    }

    /// The error as an item error; an unknown reason becomes `INTERNAL_ERROR`, as the contract requires. The cause is logged now,
    /// ten of a call at most; once the method returns, a further line names the object.
    #[must_use]
    pub fn to_item(&self) -> ItemError {
        let reason = match self.reason() {
            ErrorReason::Unspecified => ErrorReason::InternalError,
            known => known,
        };
        if self.0.source.is_some() && causes::logs_one_more() {
            self.log_cause();
        }
        ItemError {
            reason: reason.into(),
            message: cut(self.message(), MAX_MESSAGE_TEXT_BYTES).to_owned(),
            retry_after: self.retry_after().and_then(|after| after.try_into().ok()),
        }
    }

    /// For tests and clients: parses a status; `None` if it has no `ErrorInfo` of the contract and so proves
    /// nothing. An unknown reason is read as `UNSPECIFIED`.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let details = status.check_error_details().ok()?;
        let info = details.error_info().filter(|info| info.domain == ERROR_DOMAIN)?;
        let reason = ErrorReason::from_wire_name(&info.reason).unwrap_or(ErrorReason::Unspecified);
        let mut error = Self::new(reason, status.message());
        error.0.metadata = info.metadata.clone().into_iter().collect();
        error.0.retry_after = details.retry_info().and_then(|info| info.retry_delay);
        if let Some(bad) = details.bad_request() {
            let fields = bad.field_violations.iter();
            error.0.fields = fields.map(|one| (one.field.clone(), one.description.clone())).collect();
        }
        if let Some(quota) = details.quota_failure() {
            let quotas = quota.violations.iter();
            error.0.quotas = quotas.map(|one| (one.subject.clone(), one.description.clone())).collect();
        }
        Some(error)
    }
}

impl From<ProviderError> for Status {
    fn from(error: ProviderError) -> Self {
        error.to_status()
    }
}

impl From<ProviderError> for ItemError {
    fn from(error: ProviderError) -> Self {
        error.to_item()
    }
}

/// For tests and clients: parses an item error.
impl From<&ItemError> for ProviderError {
    fn from(item: &ItemError) -> Self {
        let reason = match item.reason() {
            ErrorReason::Unspecified => ErrorReason::InternalError,
            known => known,
        };
        let error = Self::new(reason, item.message.clone());
        match item.retry_after.and_then(|after| after.try_into().ok()) {
            Some(after) => error.with_retry_after(after),
            None => error,
        }
    }
}

fn entries(pairs: &[(String, String)]) -> Vec<(String, String)> {
    let short = |text: &str| cut(text, MAX_VALUE_BYTES).to_owned();
    pairs.iter().map(|(left, right)| (short(left), short(right))).collect()
}

fn valid_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_BYTES
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn encode(
    inner: &Inner,
    fields: &[(String, String)],
    quotas: &[(String, String)],
    metadata: &[(String, String)],
) -> Status {
    let metadata: HashMap<_, _> = metadata.iter().cloned().collect();
    let mut details = ErrorDetails::with_error_info(inner.reason.wire_name(), ERROR_DOMAIN, metadata);
    if inner.retry_after.is_some() {
        details.set_retry_info(inner.retry_after);
    }
    if !fields.is_empty() {
        let fields = fields.iter().map(|(field, why)| FieldViolation::new(field, why));
        details.set_bad_request(fields.collect::<Vec<_>>());
    }
    if !quotas.is_empty() {
        let quotas = quotas.iter().map(|(subject, what)| QuotaViolation::new(subject, what));
        details.set_quota_failure(quotas.collect::<Vec<_>>());
    }
    Status::with_error_details(inner.reason.code(), inner.message.as_str(), details)
}
