//! Requests against the routes, and the server on a free port.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

use super::*;

/// Two live checks, three ready ones of which one fails.
fn checks() -> Checks {
    let checks = Checks::new();
    checks.add(Probe::Live, "ping", || Ok(()));
    checks.add(Probe::Live, "lease", || Ok(()));
    checks.add(Probe::Ready, "kube", || Ok(()));
    checks.add(Probe::Ready, "provider-mock", || Err("no answer for 12s".to_owned()));
    checks.add(Probe::Ready, "caches", || Ok(()));
    checks
}

async fn ask(method: &str, path: &str) -> (u16, String, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = router(checks(), Metrics::new()).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind.unwrap_or_default(), String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn health_answers() {
    let all_ready =
        "[+]kube ok\n[-]provider-mock failed: no answer for 12s\n[+]caches ok\nreadyz check failed\n";
    let rows = [
        ("/livez", 200, "ok"),
        ("/healthz", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\n[+]lease ok\nlivez check passed\n"),
        ("/healthz?verbose=true", 200, "[+]ping ok\n[+]lease ok\nlivez check passed\n"),
        ("/readyz", 500, all_ready),
        ("/readyz?verbose", 500, all_ready),
        ("/readyz?exclude=provider-mock", 200, "ok"),
        (
            "/readyz?verbose&exclude=provider-mock&exclude=nobody",
            200,
            "[+]kube ok\n[+]provider-mock excluded: ok\n[+]caches ok\n\
             warn: there is no check \"nobody\" to exclude\nreadyz check passed\n",
        ),
        ("/readyz?exclude=kube", 500, &all_ready.replace("kube ok", "kube excluded: ok")),
        ("/livez/lease", 200, "ok"),
        ("/readyz/kube", 200, "ok"),
        ("/readyz/provider-mock", 500, "provider-mock failed: no answer for 12s\n"),
        ("/livez/kube", 404, "there is no check \"kube\"\n"),
        ("/readyz/nobody", 404, "there is no check \"nobody\"\n"),
    ];
    for (path, status, body) in rows {
        let (got_status, kind, got_body) = ask("GET", path).await;
        assert_eq!((got_status, got_body.as_str()), (status, body), "{path}");
        assert_eq!(kind, "text/plain; charset=utf-8", "{path}");
    }
}

/// manager.md 4.1: what is not served is not found.
#[tokio::test]
async fn nothing_else_is_served() {
    for path in ["/", "/healthz/ping", "/configz", "/debug/pprof/", "/version", "/metrics/slis"] {
        assert_eq!(ask("GET", path).await.0, 404, "{path}");
    }
    for path in ["/livez", "/readyz/kube", "/metrics"] {
        assert_eq!(ask("POST", path).await.0, 405, "{path}");
    }
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let (status, kind, body) = ask("GET", "/metrics").await;
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(body.contains("# TYPE ccm_build info\n"), "{body}");
    assert!(body.contains("process_cpu_seconds_total "), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
}

#[tokio::test]
async fn binds_a_free_port_tells_it_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("address");
    let settings =
        ServingSettings { address: Some("127.0.0.1:0".parse().unwrap()), address_file: Some(file.clone()) };
    let serving = Serving::bind(&settings).await.unwrap().unwrap();
    let address = serving.address();
    assert_ne!(address.port(), 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{address}\n"));

    let stop = CancellationToken::new();
    let server = tokio::spawn(serving.serve(checks(), Metrics::new(), stop.clone()));
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");

    stop.cancel();
    let limit = std::time::Duration::from_secs(30);
    tokio::time::timeout(limit, server).await.expect("serving ends when it is told to").unwrap().unwrap();
    assert!(!file.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let settings = ServingSettings { address: Some(address), address_file: None };
    let error = Serving::bind(&settings).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot serve on {address}"));
}

#[tokio::test]
async fn nothing_is_bound_without_an_address() {
    let settings = ServingSettings { address: None, address_file: None };
    assert!(Serving::bind(&settings).await.unwrap().is_none());
}
