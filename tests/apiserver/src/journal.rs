//! What was written, by whom.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    asked::Verb,
    object::{Key, Object},
};

/// One committed write. A deletion that finalizers hold back is one without being [`Write::is_deletion`].
#[derive(Debug, Clone)]
pub struct Write {
    /// When, on the server's clock.
    pub at: Timestamp,
    /// Who: the name given to [`crate::ApiServer::client`], `world`, or `apiserver` for an Event that expired.
    pub client: Arc<str>,
    /// How.
    pub verb: Verb,
    /// `status`, or empty.
    pub subresource: &'static str,
    /// The plural, such as `nodes`.
    pub resource: &'static str,
    /// What names the object.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// The resource version that the write got.
    pub version: u64,
    /// The object before; none if it is new.
    pub before: Option<Arc<Object>>,
    /// The object after; none if it is gone.
    pub after: Option<Arc<Object>>,
}

impl Write {
    /// Whether the object is gone with it.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.after.is_none()
    }
}
