//! Why something behind the provider's back cannot be done; what the provider asks is refused in the contract's words.

use cloudprovider_sdk::ProviderError;

/// Why the cloud did not do as the admin door asked.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// Something of that name exists already.
    #[error("{0} exists already")]
    AlreadyExists(String),
    /// There is no such thing.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The provider would be refused, too.
    #[error("{}", .0.message())]
    Refused(#[from] ProviderError),
}

/// What there is, unless there is none.
pub(crate) fn existing<T>(what: &str, reference: &str, found: Option<T>) -> Result<T, CloudError> {
    found.ok_or_else(|| CloudError::NotFound(format!("{what} {reference}")))
}
