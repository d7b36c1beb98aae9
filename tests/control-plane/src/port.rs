//! A free port on loopback, for servers that do not accept port 0 or must come back to theirs.
//!
//! It is below the range that kernels use for outgoing connections, so that the port remains free
//! while the server is stopped. Another process may still take it between our check and the server's bind:
//! the apiserver's start is then repeated.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use anyhow::{Context as _, Result};

const BELOW_OUTGOING: Range<u16> = 20_000..30_000;
const ATTEMPTS: usize = 200;

/// A port that nobody listens on now.
pub fn free_port() -> Result<u16> {
    (0..ATTEMPTS)
        .map(|_| fastrand::u16(BELOW_OUTGOING))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .with_context(|| format!("no free port on 127.0.0.1 in {BELOW_OUTGOING:?} after {ATTEMPTS} attempts"))
}
