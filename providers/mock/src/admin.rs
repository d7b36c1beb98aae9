//! The admin door: HTTP and JSON on the loopback address, for tests, demos and people.
//!
//! In: what shall happen in the cloud, to calls, or to the provider's health. Out: what is there now. [`Client`] speaks
//! it from Rust, [`Command`] from a shell; the paths stand in the table of `requests`.

mod client;
mod command;
mod door;
mod requests;

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use command::Command;
pub(crate) use door::{Door, router};

/// Who answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Name of the provider.
    pub name: String,
    /// Its process epoch.
    pub epoch: String,
    /// Where gRPC is served.
    pub endpoint: String,
    /// Version of this crate.
    pub version: String,
}

/// How a termination is wished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Termination {
    /// How long it is seen going; the cloud's own when left out.
    pub linger_ms: Option<u64>,
}

impl Termination {
    fn linger(&self) -> Option<Duration> {
        self.linger_ms.map(Duration::from_millis)
    }
}

/// The body of a refusal.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    error: String,
}

/// Reads an address that nobody outside can reach.
pub(crate) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| format!("{text:?} is no address:port; use for example 127.0.0.1:0"))?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!("admin address {address} is not a loopback address; use for example 127.0.0.1:0"))
}
