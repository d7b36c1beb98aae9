//! Requests against the routes, and the server on a free port.

mod tls;

use axum::body::Body;
use axum::http::Request as HttpRequest;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::manager::{
    flags::{self, Request},
    health::Probe,
};

/// Two live checks, and three ready ones of which one fails.
fn checks() -> Checks {
    let checks = Checks::default();
    checks.add(Probe::Live, "ping", || Ok(()));
    checks.add(Probe::Live, "lease", || Ok(()));
    checks.add(Probe::Ready, "kube", || Ok(()));
    checks.add(Probe::Ready, "provider-mock", || Err("no answer for 12s".to_owned()));
    checks.add(Probe::Ready, "caches", || Ok(()));
    checks
}

/// The settings of these flags.
fn settings(words: &[&str]) -> Settings {
    match flags::parse(["--provider=mock=/run/mock.sock", "--secure-port=auto"].iter().chain(words)) {
        Ok(Request::Run(settings)) => *settings,
        other => panic!("{words:?} gave {other:?}"),
    }
}

/// Routes open to everybody.
fn open_routes() -> Router {
    let settings = settings(&[
        "--authorization-always-allow-paths=/*",
        "--cluster-name=shop",
        "--use-service-account-credentials=true",
    ]);
    let metrics = Metrics::default();
    let access = Access::new(&settings.serving.access, &metrics).unwrap();
    router(checks(), metrics, &settings, Door::default(), access)
}

async fn ask(method: &str, path: &str) -> (u16, String, String) {
    let request = HttpRequest::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = open_routes().oneshot(request).await.unwrap();
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

/// manager.md 4.1: unknown paths are not found.
#[tokio::test]
async fn nothing_else_is_served() {
    for path in ["/", "/healthz/ping", "/debug/pprof/", "/version", "/metrics/slis"] {
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

/// manager.md 4.6.
#[tokio::test]
async fn configuration_and_flags_are_shown() {
    let (status, kind, body) = ask("GET", "/configz").await;
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    let config: serde_json::Value = serde_json::from_str(&body).unwrap();
    let upstream = &config["cloudcontrollermanager.config.k8s.io"];
    assert_eq!(upstream["kind"], "CloudControllerManagerConfiguration");
    assert_eq!(upstream["KubeCloudShared"]["ClusterName"], "shop");
    assert_eq!(upstream["KubeCloudShared"]["NodeMonitorPeriod"], "5s");
    assert_eq!(upstream["NodeStatusUpdateFrequency"], "5m0s");
    assert_eq!(upstream["KubeCloudShared"]["UseServiceAccountCredentials"], true);
    assert_eq!(config["ccm-host"]["providers"][0]["name"], "mock");
    let (status, _, flags) = ask("GET", "/flagz").await;
    assert!(status == 200 && flags.contains("\ncluster-name=shop\n"), "{flags}");
    let (status, _, text) = ask("GET", "/statusz").await;
    assert!(
        status == 200 && text.contains("Up: 0 hr 00 min 0") && text.contains(env!("CARGO_PKG_VERSION")),
        "{text}"
    );
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let port = format!("--secure-port={}", address.port());
    let settings = settings(&["--bind-address=127.0.0.1", &port]);
    let error = Serving::bind(&settings.serving).await.unwrap_err();
    let expected = format!("cannot serve on {address}: give another --secure-port, or 0 to serve nothing");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn two_may_share_a_port_if_both_say_so() {
    let shared = settings(&["--bind-address=127.0.0.1", "--permit-port-sharing"]).serving;
    let first = Serving::bind(&shared).await.unwrap().unwrap();
    let again = ServingSettings { address: Some(first.address()), ..shared };
    assert!(Serving::bind(&again).await.is_ok());
    let alone = ServingSettings { share_port: false, ..again };
    assert!(Serving::bind(&alone).await.is_err());
}

#[tokio::test]
async fn nothing_is_bound_without_an_address() {
    let settings = ServingSettings { address: None, ..settings(&[]).serving };
    assert!(Serving::bind(&settings).await.unwrap().is_none());
}
