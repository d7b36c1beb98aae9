//! The guard's rules on a paused clock, and the whole client against a loopback server.

mod secure;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, client::Body};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{io::AsyncWriteExt, net::TcpListener, time::Instant};

use super::*;
use crate::metrics::KubeMetrics;
use ccm_base::text::with_sources;

/// A status (0: no answer) and `Retry-After`.
type Answer = (u16, Option<&'static str>);

/// A client whose transport gives each answer once (the last one for ever), and the number of attempts.
fn scripted(
    options: &ClientOptions,
    metrics: &ClientMetrics,
    answers: Vec<Answer>,
) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let transport = tower::service_fn(move |request: Request<Body>| {
        let at = counted.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let (code, after) = answers[at];
        async move {
            if code == 0 {
                std::future::pending::<()>().await;
            }
            let mut response = Response::builder().status(code);
            if let Some(after) = after {
                response = response.header("retry-after", after);
            }
            let (_, body) = request.into_parts();
            drop(body);
            let body =
                Bytes::from_static(br#"{"metadata":{"name":"a"},"message":"m","code":0,"reason":"R"}"#);
            Ok::<_, Infallible>(response.body(Full::new(body)).unwrap())
        }
    });
    let rules = RequestRules {
        limiter: RequestLimiter::new(options.qps, options.burst),
        deadline: options.request_timeout,
        retries: options.retries,
        metrics: metrics.clone(),
        read_only: false,
        recognition: Some(options.recognition.clone()),
    };
    (Client::new(guarded(transport, rules), "default"), asked)
}

async fn get(client: &Client) -> Result<Node, ::kube::Error> {
    Api::<Node>::all(client.clone()).get("a").await
}

#[tokio::test(start_paused = true)]
async fn only_what_was_sent_away_is_repeated_and_not_for_ever() {
    // name, answers, attempts, seconds spent
    let rows: [(&str, Vec<Answer>, usize, u64); 7] = [
        ("ok", vec![(200, None)], 1, 0),
        ("429 with a time", vec![(429, Some("2")), (200, None)], 2, 2),
        ("503 with a time", vec![(503, Some("1")), (200, None)], 2, 1),
        ("503 without", vec![(503, None)], 1, 0),
        ("500", vec![(500, Some("1"))], 1, 0),
        ("409", vec![(409, None)], 1, 0),
        ("a long time is cut", vec![(429, Some("3600")), (200, None)], 2, 10),
    ];
    for (name, answers, attempts, seconds) in rows {
        let (client, asked) = scripted(&ClientOptions::default(), &KubeMetrics::default().client, answers);
        let start = Instant::now();
        let _outcome = get(&client).await;
        assert_eq!((asked.load(Ordering::SeqCst), start.elapsed().as_secs()), (attempts, seconds), "{name}");
    }
    let (client, asked) =
        scripted(&ClientOptions::default(), &KubeMetrics::default().client, vec![(429, Some("1"))]);
    get(&client).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 4, "the first and three repeats");
    let options = ClientOptions { retries: 0, ..ClientOptions::default() };
    let (client, asked) = scripted(&options, &KubeMetrics::default().client, vec![(429, Some("1"))]);
    get(&client).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_costs_the_deadline_and_no_more() {
    let (client, _) = scripted(&ClientOptions::default(), &KubeMetrics::default().client, vec![(0, None)]);
    let start = Instant::now();
    let error = get(&client).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert!(
        with_sources(&error).contains("no answer from the apiserver within 30s"),
        "{}",
        with_sources(&error)
    );
}

/// As when the client certificate of a kubeconfig was rotated: it is read at the start.
#[tokio::test(start_paused = true)]
async fn who_is_rejected_for_a_minute_is_no_longer_known() {
    for (name, second, last, is_lost) in [
        ("rejected", 200, 401, true),
        ("not allowed", 200, 403, false),
        ("failed", 200, 500, false),
        ("no answer", 200, 0, false),
        ("no answer after the first", 0, 0, false),
    ] {
        let options = ClientOptions { retries: 0, ..ClientOptions::default() };
        let answers = vec![(401, None), (second, None), (last, None)];
        let (client, _) = scripted(&options, &KubeMetrics::default().client, answers);
        let asking = async {
            loop {
                let _any = get(&client).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let ended = async {
            tokio::select! {
                () = options.recognition.lost() => true,
                () = asking => false,
                () = tokio::time::sleep(Duration::from_secs(300)) => false,
            }
        };
        let began = Instant::now();
        assert_eq!(ended.await, is_lost, "{name}");
        assert!(
            began.elapsed() >= Duration::from_secs(70),
            "{name}: a moment is forgiven: {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_no_deadline() {
    let (client, _) = scripted(&ClientOptions::default(), &KubeMetrics::default().client, vec![(0, None)]);
    let api = Api::<Node>::all(client);
    let watch = async { drop(api.watch(&::kube::api::WatchParams::default(), "0").await) };
    tokio::time::timeout(Duration::from_secs(3600), watch).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn the_limiter_spreads_requests() {
    let options = ClientOptions { qps: 10.0, burst: 5, ..ClientOptions::default() };
    let (client, _) = scripted(&options, &KubeMetrics::default().client, vec![(200, None)]);
    let start = Instant::now();
    futures::stream::iter(0..25).for_each_concurrent(None, |_| async { drop(get(&client).await) }).await;
    assert_eq!(start.elapsed().as_millis(), 2000);
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_under_upstreams_names() {
    let mut registry = Registry::default();
    let metrics = KubeMetrics::register(&mut registry);
    let (client, _) =
        scripted(&ClientOptions::default(), &metrics.client, vec![(429, Some("1")), (200, None), (0, None)]);
    get(&client).await.unwrap();
    get(&client).await.unwrap_err();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"rest_client_requests_total{code="429",method="GET",host=""} 1"#,
        r#"rest_client_requests_total{code="200",method="GET",host=""} 1"#,
        r#"rest_client_requests_total{code="<error>",method="GET",host=""} 1"#,
        r#"rest_client_request_retries_total{code="429",verb="GET",host=""} 1"#,
        r#"rest_client_request_duration_seconds_sum{verb="GET",host=""} 31.0"#,
        r#"rest_client_request_duration_seconds_bucket{le="60.0",verb="GET",host=""} 2"#,
        r#"rest_client_rate_limiter_duration_seconds_count{verb="GET",host=""} 3"#,
        r#"rest_client_request_size_bytes_count{verb="GET",host=""} 3"#,
        r#"rest_client_response_size_bytes_count{verb="GET",host=""} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

/// One connection with one answer, headers and all; returns the request.
async fn answer_once(listener: TcpListener, answer: impl Fn(&str) -> Vec<u8>) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut asked = String::new();
    while !asked.ends_with("\r\n\r\n") {
        stream.readable().await.unwrap();
        let mut buffer = [0; 1024];
        match stream.try_read(&mut buffer) {
            Ok(read) => asked.push_str(std::str::from_utf8(&buffer[..read]).unwrap()),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    stream.write_all(&answer(&asked)).await.unwrap();
    asked
}

fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// From 1.37 on, kube-apiserver compresses the start of a watch for whoever takes gzip: each flush is a gzip member of its
/// own, of which the library reads only the first.
#[tokio::test]
async fn a_watch_is_readable_whatever_the_apiserver_compresses() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let master = format!("http://{}", listener.local_addr().unwrap());
    let options = ClientOptions { master: Some(master.parse().unwrap()), ..ClientOptions::default() };
    let client = build(&options, &KubeMetrics::default().client).await.unwrap();
    let event = |name: &str| {
        let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        format!("{}\n", serde_json::json!({"type": "ADDED", "object": node}))
    };
    let member = |text: String| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let answer = |asked: &str| {
        if asked.to_lowercase().contains("accept-encoding: gzip") {
            ok("content-encoding: gzip\r\n", &[member(event("a")), member(event("b"))].concat())
        } else {
            ok("", (event("a") + &event("b")).as_bytes())
        }
    };
    let api = Api::<Node>::all(client);
    let params = ::kube::api::WatchParams::default();
    let names = async {
        let events = api.watch(&params, "0").await.unwrap();
        let names = events.map(|event| match event {
            Ok(::kube::api::WatchEvent::Added(node)) => node.metadata.name.unwrap(),
            other => panic!("{other:?}"),
        });
        names.collect::<Vec<_>>().await
    };
    let (_, names) = tokio::join!(answer_once(listener, answer), names);
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn master_alone_reaches_the_server_and_says_who_asks() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let master = format!("http://{}", listener.local_addr().unwrap());
    let options = ClientOptions {
        master: Some(master.parse().unwrap()),
        user_agent: "ccm/test".to_owned(),
        ..ClientOptions::default()
    };
    let client = build(&options, &KubeMetrics::default().client).await.unwrap();
    let (asked, node) =
        tokio::join!(answer_once(listener, |_| ok("", br#"{"metadata":{"name":"a"}}"#)), get(&client));
    assert_eq!(node.unwrap().metadata.name.as_deref(), Some("a"));
    assert!(asked.starts_with("GET /api/v1/nodes/a"), "{asked}");
    for header in ["user-agent: ccm/test\r\n", "accept-encoding: gzip\r\n"] {
        assert!(asked.contains(header), "{asked}");
    }
}

#[tokio::test]
async fn bad_input_is_named_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let proxied = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://x', proxy-url: 'http://user:secret@p'}}]\n";
    let rows = [
        (Some(folder.path().join("absent")), "kubeconfig "),
        (file("broken", "clusters: 7"), "kubeconfig "),
        (file("proxied", proxied), "names a proxy, which is not supported: remove proxy-url"),
        (None, "not in a pod: give --kubeconfig or --master"),
    ];
    for (kubeconfig, want) in rows {
        // If the tests run in a pod, its service account is found.
        if kubeconfig.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            continue;
        }
        let options = ClientOptions { kubeconfig, ..ClientOptions::default() };
        let error = build(&options, &KubeMetrics::default().client).await.err().unwrap().to_string();
        assert!(error.contains(want), "{error}");
    }
}

/// Also for a token that was renewed meanwhile; a second rejection is the answer.
#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_and_the_request_repeated_once() {
    let tokens = Arc::new(AtomicUsize::new(0));
    let granting = Arc::clone(&tokens);
    let root = crate::fixtures::ApiServer::new(move |_| {
        let number = granting.fetch_add(1, Ordering::SeqCst) + 1;
        crate::fixtures::Reply::Json(
            201,
            serde_json::json!({
                "spec": { "audiences": [], "expirationSeconds": 3600 },
                "status": { "token": number.to_string(), "expirationTimestamp": "2020-01-01T00:00:00Z" },
            }),
        )
    });
    for (accepted, outcome, attempts) in [("Bearer 2", true, 2), ("none", false, 2)] {
        tokens.store(0, Ordering::SeqCst);
        let account = Account::new("node-controller");
        tokio::spawn(account.clone().run(root.client.clone(), tokio_util::sync::CancellationToken::new()));
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let transport = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let code = if request.headers()["authorization"] == accepted { 200 } else { 401 };
            async move {
                let body =
                    Bytes::from_static(br#"{"metadata":{"name":"a"},"message":"m","code":401,"reason":"R"}"#);
                Ok::<_, Infallible>(Response::builder().status(code).body(Full::new(body)).unwrap())
            }
        });
        let client = layered(
            transport,
            &Config::new(Uri::from_static("http://apiserver")),
            Some(account),
            &ClientOptions::default(),
            &KubeMetrics::default().client,
        );
        assert_eq!(get(&client.unwrap()).await.is_ok(), outcome, "{accepted}");
        assert_eq!(asked.load(Ordering::SeqCst), attempts, "{accepted}");
    }
}
