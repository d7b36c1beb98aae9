//! The error of one item of a batch, in both directions.

use cloudprovider_proto::defaults::MAX_MESSAGE_TEXT_BYTES;

use super::{ProviderError, cut};
use crate::proto::{ErrorReason, ItemError};

impl ProviderError {
    /// The error as an item error; an unknown reason becomes `INTERNAL_ERROR`, as the contract requires.
    #[must_use]
    pub fn to_item(&self) -> ItemError {
        let reason = match self.reason() {
            ErrorReason::Unspecified => ErrorReason::InternalError,
            known => known,
        };
        ItemError {
            reason: reason.into(),
            message: cut(self.message(), MAX_MESSAGE_TEXT_BYTES).to_owned(),
            retry_after: self.retry_after().and_then(|after| after.try_into().ok()),
        }
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
