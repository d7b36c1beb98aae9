//! Changes behind the provider's back: JSON merge patches (RFC 7396) of what the admin door shows, and why a change fails.
//! The provider's requests fail with errors of the contract.

use cloudprovider_sdk::ProviderError;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

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

/// The object with the patch applied; the cloud itself sets the `fixed` fields.
pub(super) fn patched<T: Serialize + DeserializeOwned>(
    object: &T,
    patch: &Value,
    fixed: &[&str],
) -> Result<T, CloudError> {
    let misfit = |error: serde_json::Error| CloudError::Invalid(format!("the patch does not fit: {error}"));
    let mut value = serde_json::to_value(object).map_err(misfit)?;
    let known = value.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
    let free: Vec<_> = known.filter(|field| !fixed.contains(field)).collect();
    let asked = patch.as_object().ok_or_else(|| CloudError::Invalid("a patch is a JSON object".into()))?;
    if let Some(field) = asked.keys().find(|field| !free.contains(&field.as_str())) {
        let text = format!("{field:?} cannot be patched; use {}", free.join(", "));
        return Err(CloudError::Invalid(text));
    }
    json_patch::merge(&mut value, patch);
    serde_json::from_value(value).map_err(misfit)
}
