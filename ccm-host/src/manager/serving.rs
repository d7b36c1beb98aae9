//! Serves health, metrics and information about the process over HTTPS.
//!
//! In: [`Checks`], [`Metrics`], the flags of [`ServingSettings`]. Out: health, `/metrics`, and [`pages`] about the process.
//! Nothing else is served, and nothing here decides whether the process is healthy.
//!
//! * [`tls`] is the handshake, with the server's certificate: given and reloaded when it changes, or self-signed.
//! * [`access`] asks the apiserver who may read what; health is open to everybody.
//! * `connections` binds the port, accepts connections and ends them.

pub mod access;
pub(crate) mod connections;
pub mod pages;
pub mod settings;
pub mod tls;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse as _,
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{access::Access, connections::Handshake};
use super::{
    flags::Settings,
    health::Checks,
    metrics::{self, Metrics},
};
use pages::Door;
use settings::ServingSettings;
use tls::Certificates;

/// A bound port that does not serve yet.
#[derive(Debug)]
pub struct Serving {
    listener: TcpListener,
    address: SocketAddr,
    address_file: Option<AddressFile>,
    handshake: Handshake,
}

/// Removes the file when serving ends.
#[derive(Debug)]
struct AddressFile(PathBuf);

impl Serving {
    /// Loads or creates the certificate, binds the port and writes the address file; `None` if nothing is to be served.
    pub async fn bind(settings: &ServingSettings) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = settings.address else {
            return Ok(None);
        };
        let certificates = Certificates::new(&settings.tls.certificate, wanted.ip())?;
        let handshake = tls::handshake(&settings.tls, certificates)?;
        let listener = connections::bind(wanted, settings.share_port).with_context(|| {
            format!("cannot serve on {wanted}: give another --secure-port, or 0 to serve nothing")
        })?;
        let address = listener.local_addr().context("the bound port has no address")?;
        let address_file = match &settings.address_file {
            Some(path) => Some(AddressFile::write(path, address)?),
            None => None,
        };
        Ok(Some(Self { listener, address, address_file, handshake }))
    }

    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then finishes the requests under way.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
        let _address_file = self.address_file;
        connections::serve(self.listener, self.handshake, router, connections::OF_ONE_PEER, stop).await;
        Ok(())
    }
}

impl AddressFile {
    /// Writes a temporary file and renames it, so that a reader never sees a partial address.
    fn write(path: &Path, address: SocketAddr) -> anyhow::Result<Self> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        std::fs::write(&beside, format!("{address}\n"))
            .and_then(|()| std::fs::rename(&beside, path))
            .with_context(|| format!("cannot write the serving address to {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        // It does not matter if the file is already gone.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The routes, for a server or for tests without one; each request passes `access` first.
pub fn router(
    checks: Checks,
    metrics: Metrics,
    settings: &Settings,
    state: Door,
    access: Arc<Access>,
) -> Router {
    let scrape = async move || match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded\n").into_response(),
    };
    Router::new()
        .route("/metrics", get(scrape))
        .merge(checks.router())
        .merge(pages::router(settings))
        .merge(state.router())
        .layer(axum::middleware::from_fn_with_state(access, access::check))
}

#[cfg(test)]
mod tests;
