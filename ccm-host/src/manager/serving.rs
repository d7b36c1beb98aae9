//! Serves health, metrics and information about the process over HTTPS.
//!
//! In: [`Checks`], [`Metrics`], the settings. Out: `/livez`, `/readyz` and `/healthz` (the same as `/livez`) with
//! `?verbose` and `?exclude=name`, each check alone below the first two, `/metrics`, `/configz`, `/flagz`, `/statusz`,
//! [`state`], and `/status`, which shows that to people in a browser.
//! Nothing else is served, and nothing here decides whether the process is healthy.
//!
//! * [`certificate`] is the server's certificate: given and reloaded when it changes, or self-signed.
//! * [`access`] asks the apiserver who may read what; health is open to everybody.
//! * `connections` binds the port, accepts connections and ends them.

pub mod access;
mod answer;
pub mod certificate;
pub(crate) mod connections;
mod files;
mod pages;
pub mod settings;
pub mod state;
mod status;
pub mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path as UrlPath, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::access::Access;
use self::certificate::Certificates;
use self::connections::Handshake;
use self::pages::Pages;
use self::settings::ServingSettings;
use self::state::Door;
use super::flags::Settings;
use super::health::{Checks, Probe};
use super::metrics::{self, Metrics};

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
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then finishes the requests under way.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
        let _address_file = self.address_file;
        connections::serve(self.listener, self.handshake, router, stop).await;
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
pub fn router(checks: Checks, metrics: Metrics, settings: &Settings, state: Door, access: Access) -> Router {
    let pages = Pages::new(settings);
    Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/livez/{check}", get(live_check))
        .route("/readyz/{check}", get(ready_check))
        .with_state(checks)
        .merge(Router::new().route("/metrics", get(scrape)).with_state(metrics))
        .merge(pages.router())
        .merge(state.router())
        .merge(status::router())
        .layer(axum::middleware::from_fn_with_state(access, access::check))
}

async fn live(State(checks): State<Checks>, RawQuery(query): RawQuery) -> Response {
    answer::all(&checks, Probe::Live, query.as_deref())
}

async fn ready(State(checks): State<Checks>, RawQuery(query): RawQuery) -> Response {
    answer::all(&checks, Probe::Ready, query.as_deref())
}

async fn live_check(State(checks): State<Checks>, UrlPath(name): UrlPath<String>) -> Response {
    answer::one(&checks, Probe::Live, &name)
}

async fn ready_check(State(checks): State<Checks>, UrlPath(name): UrlPath<String>) -> Response {
    answer::one(&checks, Probe::Ready, &name)
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded\n").into_response(),
    }
}

#[cfg(test)]
mod tests;
