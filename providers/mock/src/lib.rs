//! A complete in-memory cloud behind the contract, with an admin door.
//!
//! The library is what tests speak to a running mock with: [`admin::Client`], and the values it takes and gives. The
//! mock itself is its own process, met on the wire like any provider; only a simulation serves a [`serve::Mock`] within
//! its own.
#![warn(missing_docs)]

pub mod admin;
pub mod advertised;
pub mod breach;
pub mod calls;
pub mod cloud;
mod contract;
mod duration;
pub mod fault;
mod mock;
mod provider;
mod scene;
pub mod serve;
mod wire;

pub use contract::Method;
