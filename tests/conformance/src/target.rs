//! The connection to the provider under test.
//!
//! In: an endpoint. Out: [`Wire`], which the generated clients use. The deadline of a call is sent but
//! *not* enforced here, so that a provider that does not honour it is noticed. Only [`Patient`] repeats a call.

mod endpoint;
mod meter;
mod patience;
mod raw;
mod stream;
mod tls;
mod wire;

pub use endpoint::{Endpoint, EndpointError};
pub use meter::{Made, Meter};
pub(crate) use patience::is_temporary;
pub use patience::{Patience, Patient, Waits};
pub use raw::raw_call;
pub use wire::{GRACE, Wire, WireError};
