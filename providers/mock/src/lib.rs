//! A complete in-memory cloud behind the contract, with an admin door.
//!
//! Tests talk to a running mock through this library: [`admin::Client`], and the values that it takes and returns. The
//! mock itself is a process of its own, reached over the wire like any provider; only a simulation serves a
//! [`serve::Mock`] in its own process.
#![warn(missing_docs)]

pub mod admin;
pub mod advertised;
pub mod breach;
pub mod calls;
pub mod cloud;
mod contract;
mod duration;
mod effect;
pub mod fault;
mod mock;
mod provider;
pub mod serve;
mod traffic;
mod wire;
