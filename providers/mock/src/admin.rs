//! The admin door: HTTP and JSON on the loopback address, for tests, demos and people.
//!
//! In: changes of the cloud, faults, and the provider's health. Out: the current state. Use [`Client`] from Rust and
//! [`Command`] from a shell; the table in `requests` lists the paths.

mod client;
mod door;
mod requests;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use client::{Client, Command};
pub(crate) use door::{Door, router};

/// How to terminate an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Termination {
    /// How long it stays visible as terminating; the cloud's default if absent.
    pub linger_ms: Option<u64>,
}

/// Parses an address that must be on loopback.
pub(crate) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| format!("{text:?} is not address:port; use for example 127.0.0.1:0"))?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!("admin address {address} is not a loopback address; use for example 127.0.0.1:0"))
}
