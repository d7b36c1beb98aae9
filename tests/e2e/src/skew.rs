//! A peer of another version, for tests: a proxy on a Unix socket between a host and a provider.
//!
//! In: calls of the contract, as bytes. Out: the same calls, as a peer of another version would have sent them: a later
//! one with fields and enum values that this version does not know, the first released one, one that sends nothing
//! that is optional. Both directions are translated, so that each side meets a skewed peer. It knows the contract by
//! its baseline descriptors only, and no language of either side.

mod frames;
mod optional;
mod proxy;
mod versions;

pub use proxy::Proxy;
pub use versions::{Skew, Versions};
