//! The admin door: HTTP and JSON on the loopback address, for tests, demos and people.
//!
//! In: what shall happen in the cloud, to calls, or to the provider's health. Out: what is there now. [`Client`] speaks
//! it from Rust; the paths stand in one table below.

mod client;
mod doors;
mod refusal;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    routing::{delete, get, post},
};
use serde::{Deserialize, Serialize};

use crate::{calls::Calls, cloud::Cloud, fault::Faults, provider::Clock};

pub use client::{CallFilter, Client, ClientError};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linger_ms: Option<u64>,
}

/// How many were taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleared {
    /// How many.
    pub cleared: usize,
}

/// What the door opens to.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) cloud: Cloud,
    pub(crate) clock: Clock,
    pub(crate) calls: Arc<Calls>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) info: Info,
}

/// Why a door is not opened.
#[derive(Debug, thiserror::Error)]
#[error("admin address {address} is not a loopback address; use for example 127.0.0.1:0")]
pub struct NotLoopback {
    address: SocketAddr,
}

/// Checks that nobody from outside can come in.
///
/// # Errors
///
/// When the address is reachable from outside.
pub fn check_address(address: SocketAddr) -> Result<SocketAddr, NotLoopback> {
    if address.ip().is_loopback() { Ok(address) } else { Err(NotLoopback { address }) }
}

/// All paths.
pub(crate) fn router(door: Door) -> Router {
    Router::new()
        .route("/info", get(doors::info))
        .route("/instances", get(doors::instances::list).post(doors::instances::create))
        .route(
            "/instances/{reference}",
            get(doors::instances::get).patch(doors::instances::patch).delete(doors::instances::delete),
        )
        .route("/instances-named/{prefix}", delete(doors::instances::delete_named))
        .route("/instances/{reference}/stop", post(doors::instances::stop))
        .route("/instances/{reference}/start", post(doors::instances::start))
        .route("/instances/{reference}/terminate", post(doors::instances::terminate))
        .route("/balancers", get(doors::balancers::list))
        .route("/balancers/behind/{node}", get(doors::balancers::behind))
        .route("/balancers/legacy", post(doors::balancers::create_legacy))
        .route(
            "/balancers/{reference}",
            get(doors::balancers::get).patch(doors::balancers::patch).delete(doors::balancers::delete),
        )
        .route("/routes", get(doors::routes::list).post(doors::routes::create))
        .route(
            "/routes/{reference}",
            axum::routing::patch(doors::routes::patch).delete(doors::routes::delete),
        )
        .route("/volumes", get(doors::rest::volumes).post(doors::rest::put_volume))
        .route("/volumes/{id}", delete(doors::rest::delete_volume))
        .route("/clusters", get(doors::rest::clusters).post(doors::rest::put_cluster))
        .route("/clusters/{name}", delete(doors::rest::delete_cluster))
        .route("/ssh-keys", get(doors::rest::ssh_keys))
        .route("/quota", get(doors::rest::quota).put(doors::rest::set_quota))
        .route("/conditions", get(doors::rest::conditions).patch(doors::rest::patch_conditions))
        .route("/held/{cluster_uid}", get(doors::rest::held))
        .route("/calls", get(doors::calls::list).delete(doors::calls::reset))
        .route("/calls/summary", get(doors::calls::summary))
        .route("/faults", get(doors::faults::list).post(doors::faults::add).delete(doors::faults::clear))
        .route("/faults/{id}", delete(doors::faults::remove))
        .with_state(door)
}
