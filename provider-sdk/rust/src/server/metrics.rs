//! `/metrics` over HTTP, on its own address.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::error::ServeError;
use crate::metrics::{CONTENT_TYPE, Metrics};

/// Opens the address, if there is one.
pub(super) async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|source| ServeError::Metrics { address, source })
}

/// Serves until dropped; waits forever without a listener.
pub(super) async fn serve(listener: Option<TcpListener>, metrics: Arc<Metrics>) -> Infallible {
    let Some(listener) = listener else { return std::future::pending().await };
    let app = Router::new().route("/metrics", get(move || async move { text(&metrics) }));
    if let Err(error) = axum::serve(listener, app).await {
        tracing::warn!(%error, "metrics are not served any more");
    }
    std::future::pending().await
}

fn text(metrics: &Metrics) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::warn!(%error, "the metrics cannot be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
