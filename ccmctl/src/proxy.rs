//! A port on this machine that shows the host's status page to a browser, with the credentials of whoever runs `ccmctl`.
//!
//! It listens on the loopback interface only, passes on GET of `/status` and `/state`, and answers nobody who reached it
//! under another name, so that no page of elsewhere can read it. Other users of this machine can.

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

use anyhow::{Context as _, Result};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::Mutex,
    task::{LocalSet, spawn_local},
};

use crate::{
    cli::Way,
    door::{Answer, Door},
};

/// What the host says about its answer that matters to a browser.
const PASSED_ON: [header::HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::CONTENT_SECURITY_POLICY,
    header::REFERRER_POLICY,
    header::X_CONTENT_TYPE_OPTIONS,
    header::X_FRAME_OPTIONS,
];

/// The way to the host, and the connection that was used last.
struct Proxy {
    way: Way,
    /// How a browser may call us.
    names: [String; 2],
    door: Mutex<Option<Door>>,
}

/// Serves until the process ends.
pub(crate) async fn serve(way: Way, port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| {
        format!("cannot listen on 127.0.0.1:{port}: give another --port, or 0 for a free one")
    })?;
    let port = listener.local_addr()?.port();
    // Whoever may not see anything shall learn it here, not in the browser.
    let door = Door::open(&way).await?;
    let names = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}"));
    println!("http://127.0.0.1:{port}/status");
    let proxy = Arc::new(Proxy { way, names, door: Mutex::new(Some(door)) });
    // One thread does for one browser.
    LocalSet::new()
        .run_until(async move {
            loop {
                let (stream, _) = listener.accept().await?;
                let proxy = Arc::clone(&proxy);
                let service = service_fn(move |request: Request<Incoming>| {
                    let proxy = Arc::clone(&proxy);
                    async move { Ok::<_, Infallible>(proxy.answer(&request).await) }
                });
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new());
                spawn_local(server.serve_connection(TokioIo::new(stream), service));
            }
        })
        .await
}

impl Proxy {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if let Err((status, why)) =
            allowed(&self.names, request.method(), request.uri().path(), request.headers())
        {
            return refusal(status, why);
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        match self.fetch(path).await {
            Ok(answer) => {
                let mut response = Response::new(Full::new(answer.body));
                *response.status_mut() = answer.status;
                for name in PASSED_ON {
                    if let Some(value) = answer.headers.get(&name) {
                        response.headers_mut().insert(name, value.clone());
                    }
                }
                response
            }
            Err(error) => refusal(StatusCode::BAD_GATEWAY, &format!("{error:#}")),
        }
    }

    /// Over a new connection, to the present leader, if the last one is of no more use.
    async fn fetch(&self, path: &str) -> Result<Answer> {
        let mut kept = self.door.lock().await;
        if let Some(mut door) = kept.take()
            && let Ok(answer) = door.fetch(path).await
            // A token may have run out.
            && answer.status != StatusCode::UNAUTHORIZED
        {
            *kept = Some(door);
            return Ok(answer);
        }
        let mut door = Door::open(&self.way).await?;
        let answer = door.fetch(path).await?;
        *kept = Some(door);
        Ok(answer)
    }
}

fn allowed(
    names: &[String],
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), (StatusCode, &'static str)> {
    let called = headers.get(header::HOST).and_then(|name| name.to_str().ok()).unwrap_or_default();
    if !names.iter().any(|name| name == called) {
        return Err((StatusCode::FORBIDDEN, "this port answers only as 127.0.0.1 and localhost"));
    }
    if method != Method::GET {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "this port only reads"));
    }
    if path != "/status" && path != "/state" && !path.starts_with("/state/") {
        return Err((StatusCode::NOT_FOUND, "this port has /status and /state"));
    }
    Ok(())
}

fn refusal(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": why });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_this_port_is_answered() {
        let names = ["127.0.0.1:8001".to_owned(), "localhost:8001".to_owned()];
        let rows = [
            ("127.0.0.1:8001", Method::GET, "/status", 200),
            ("localhost:8001", Method::GET, "/state/nodes/a", 200),
            ("evil.example:8001", Method::GET, "/state", 403),
            ("", Method::GET, "/state", 403),
            ("127.0.0.1:8001", Method::POST, "/state", 405),
            ("127.0.0.1:8001", Method::GET, "/configz", 404),
            ("127.0.0.1:8001", Method::GET, "/statefulsets", 404),
        ];
        for (host, method, path, want) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            let seen =
                allowed(&names, &method, path, &headers).map_or_else(|(status, _)| status.as_u16(), |()| 200);
            assert_eq!(seen, want, "{method} {host}{path}");
        }
    }
}
