//! The connection to the provider under test.
//!
//! In: an endpoint. Out: [`Wire`], which the generated clients use. The deadline of a call is sent but
//! *not* enforced here, so that a provider that does not honour it is noticed. Nothing is ever retried.

mod endpoint;
mod raw;
mod stream;
mod tls;
mod wire;

pub use endpoint::{Endpoint, EndpointError};
pub use raw::raw_call;
pub use wire::{GRACE, Wire, WireError};
