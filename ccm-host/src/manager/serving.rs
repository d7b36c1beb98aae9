//! Health and metrics over plain HTTP.
//!
//! In: [`Checks`] and [`Metrics`]. Out: `/livez`, `/readyz` and `/healthz` (the same as `/livez`) with `?verbose` and
//! `?exclude=name`, each check alone below the first two, and `/metrics`. Nothing else is served, and nothing here
//! decides whether the process is healthy. Plain HTTP tells whoever can reach the port how the process is doing; it
//! shows neither objects nor credentials.

mod answer;

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

use super::flags::ServingSettings;
use super::health::{Checks, Probe};
use super::metrics::{self, Metrics};

/// A bound port that does not answer yet.
#[derive(Debug)]
pub struct Serving {
    listener: TcpListener,
    address: SocketAddr,
    address_file: Option<AddressFile>,
}

/// Takes the file away again when serving ends.
#[derive(Debug)]
struct AddressFile(PathBuf);

impl Serving {
    /// Binds the port and writes the address file; `None` if nothing shall be served.
    pub async fn bind(settings: &ServingSettings) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = settings.address else {
            return Ok(None);
        };
        let listener =
            TcpListener::bind(wanted).await.with_context(|| format!("cannot serve on {wanted}"))?;
        let address = listener.local_addr().context("the bound port has no address")?;
        let address_file = match &settings.address_file {
            Some(path) => Some(AddressFile::write(path, address)?),
            None => None,
        };
        Ok(Some(Self { listener, address, address_file }))
    }

    /// The address in use.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`, then finishes the requests under way.
    pub async fn serve(
        self,
        checks: Checks,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let _address_file = self.address_file;
        axum::serve(self.listener, router(checks, metrics))
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
            .context("serving health and metrics failed")
    }
}

impl AddressFile {
    /// Written beside and renamed, so that a reader never sees half an address.
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
        // A file that is already gone is what we want.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The routes, for a server or for tests without one.
pub fn router(checks: Checks, metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/livez/{check}", get(live_check))
        .route("/readyz/{check}", get(ready_check))
        .with_state(checks)
        .merge(Router::new().route("/metrics", get(scrape)).with_state(metrics))
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
