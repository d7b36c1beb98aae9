//! Errors of the admin door; the provider's requests fail with errors of the contract.

use cloudprovider_sdk::ProviderError;

/// Why a change behind the provider's back failed.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The name is taken.
    #[error("{0} exists already")]
    AlreadyExists(String),
    /// The object does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The provider would be refused as well.
    #[error("{}", .0.message())]
    Refused(#[from] ProviderError),
}

/// The object, or the error that it does not exist.
pub(crate) fn existing<T>(what: &str, reference: &str, found: Option<T>) -> Result<T, CloudError> {
    found.ok_or_else(|| CloudError::NotFound(format!("{what} {reference}")))
}
