//! The one way to the provider under test.
//!
//! In: an endpoint. Out: [`Wire`], over which the generated clients speak. The deadline of a call goes on the wire and is
//! *not* enforced here: a provider that does not answer by itself is seen as such. Nothing is ever retried.

mod endpoint;
mod raw;
mod stream;
mod tls;
mod wire;

pub use endpoint::{Endpoint, EndpointError};
pub use raw::raw_call;
pub use wire::{GRACE, Wire, WireError};
