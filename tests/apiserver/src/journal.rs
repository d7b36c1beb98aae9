//! The journal of writes.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    asked::Verb,
    object::{Key, Object},
};

/// One committed write. A deletion that finalizers hold back is a write, but not [`Write::is_deletion`].
#[derive(Debug, Clone)]
pub struct Write {
    /// When, by the server's clock.
    pub at: Timestamp,
    /// The writer: the name given to [`crate::ApiServer::client`], `world`, or `apiserver` for an Event that expired.
    pub client: Arc<str>,
    pub verb: Verb,
    /// `status`, or empty.
    pub subresource: &'static str,
    /// The plural, such as `nodes`.
    pub resource: &'static str,
    /// The object's namespace and name.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// The resource version of the write.
    pub version: u64,
    /// The object before; none if it was created.
    pub before: Option<Arc<Object>>,
    /// The object after; none if it was removed.
    pub after: Option<Arc<Object>>,
}

impl Write {
    /// Whether the write removed the object.
    pub fn is_deletion(&self) -> bool {
        self.after.is_none()
    }
}
