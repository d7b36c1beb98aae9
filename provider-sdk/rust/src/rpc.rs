//! From the wire to the traits: what all services share, and the one that no trait is for.
//!
//! In: a decoded request. Out: the method's response, or its error as a status. [`crate::services`] map RPCs to methods;
//! `core` has checks, deadlines, panics and the life of mutations.

mod background;
mod core;
mod deadline;
mod discovery;
mod lanes;
pub(crate) mod method;

use std::sync::Arc;

pub(crate) use self::core::{Core, RequestId, fail};
pub use deadline::timeout;
pub(crate) use discovery::DiscoveryRpc;

/// One of the provider's services, on the wire.
pub(crate) struct Served<S: ?Sized> {
    pub(crate) core: Arc<Core>,
    pub(crate) ours: Arc<S>,
}

impl<S: ?Sized> Served<S> {
    pub(crate) fn new(core: &Arc<Core>, ours: Arc<S>) -> Self {
        Self { core: Arc::clone(core), ours }
    }
}
