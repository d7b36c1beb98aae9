//! Access decisions, with a judge in place of the apiserver.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;
use axum::Router;
use axum::body::Body;
use axum::http::Request as HttpRequest;
use axum::routing::get;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::manager::flags::{self, Request as CommandLine};

/// Knows the tokens `jane` and `joe`; jane, and everybody in the group `monitors`, may get `/metrics`. `away` gets no
/// answer.
#[derive(Debug, Default)]
pub(in crate::manager::serving) struct Judge {
    tokens: AtomicUsize,
    rights: AtomicUsize,
}

#[async_trait]
impl Reviewer for Judge {
    async fn who(&self, token: &str) -> anyhow::Result<Option<User>> {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        match token {
            "away" => bail!("nobody answers"),
            "jane" | "joe" => Ok(Some(User { name: token.to_owned(), ..User::default() })),
            "root" => Ok(Some(User {
                name: "root".to_owned(),
                groups: vec![MASTERS.to_owned()],
                ..User::default()
            })),
            _ => Ok(None),
        }
    }

    async fn may(&self, user: &User, verb: &str, path: &str) -> anyhow::Result<bool> {
        self.rights.fetch_add(1, Ordering::Relaxed);
        let monitors = user.groups.iter().any(|group| group == "monitors");
        assert!(user.name == "system:anonymous" || user.groups.iter().any(|group| group == AUTHENTICATED));
        Ok((user.name == "jane" || monitors) && verb == "get" && path == "/metrics")
    }
}

fn access(words: &[&str]) -> Arc<Access> {
    measured(words, &Metrics::default())
}

fn measured(words: &[&str], metrics: &Metrics) -> Arc<Access> {
    match flags::parse(["--provider=mock=/run/mock.sock"].iter().chain(words)) {
        Ok(CommandLine::Run(settings)) => Access::new(&settings.serving.access, metrics).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn ask(access: &Arc<Access>, authorization: Option<&str>, path: &str) -> (u16, String) {
    let routes = Router::new()
        .route("/metrics", get("shown"))
        .route("/healthz", get("ok"))
        .layer(axum::middleware::from_fn_with_state(access.clone(), check));
    let mut request = HttpRequest::get(path).body(Body::empty()).unwrap();
    if let Some(value) = authorization {
        request.headers_mut().insert(header::AUTHORIZATION, value.parse().unwrap());
    }
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// manager.md 4.1 and 4.4.
#[tokio::test]
async fn who_is_let_in() {
    let access = access(&[]);
    access.ask(Arc::new(Judge::default()));
    let rows = [
        (Some("Bearer jane"), "/metrics", 200, "shown"),
        (Some("bearer  jane "), "/metrics", 200, "shown"),
        (Some("Bearer root"), "/metrics", 200, "shown"),
        (Some("Bearer root"), "/nothing", 404, ""),
        (Some("Bearer joe"), "/metrics", 403, "User \\\"joe\\\" cannot get path \\\"/metrics\\\""),
        (Some("Bearer jane"), "/nothing", 403, "cannot get path \\\"/nothing\\\""),
        (Some("Bearer mallory"), "/metrics", 401, "the token is not accepted"),
        (Some("Bearer away"), "/metrics", 503, "the log says why"),
        (None, "/metrics", 403, "User \\\"system:anonymous\\\" cannot get"),
        (Some("Basic amFuZTo="), "/metrics", 403, "User \\\"system:anonymous\\\" cannot get"),
        (None, "/healthz", 200, "ok"),
        (Some("Bearer mallory"), "/healthz", 200, "ok"),
        (Some("Bearer away"), "/healthz", 200, "ok"),
    ];
    for (authorization, path, status, text) in rows {
        let (got, body) = ask(&access, authorization, path).await;
        assert_eq!(got, status, "{authorization:?} {path}: {body}");
        assert!(body.contains(text), "{authorization:?} {path}: {body}");
    }
}

/// manager.md 5.4: names and labels are upstream's.
#[tokio::test]
async fn those_who_ask_are_counted() {
    let metrics = Metrics::default();
    let access = measured(&[], &metrics);
    access.ask(Arc::new(Judge::default()));
    for token in ["jane", "root", "joe", "mallory", "away"] {
        ask(&access, Some(&format!("Bearer {token}")), "/metrics").await;
    }
    ask(&access, None, "/healthz").await;
    let served = metrics.encode().unwrap();
    for line in [
        r#"authenticated_user_requests{username="other"} 3"#,
        r#"authentication_attempts{result="success"} 3"#,
        r#"authentication_attempts{result="failure"} 1"#,
        r#"authentication_attempts{result="error"} 1"#,
        r#"authentication_duration_seconds_count{result="success"} 3"#,
        r#"authorization_attempts_total{result="allowed"} 2"#,
        r#"authorization_attempts_total{result="denied"} 1"#,
        r#"authorization_duration_seconds_count{result="denied"} 1"#,
        "# TYPE authentication_attempts unknown",
    ] {
        assert!(served.lines().any(|found| found == line), "{line} is not in\n{served}");
    }
}

#[tokio::test]
async fn before_the_apiserver_can_be_asked_only_open_paths_are_answered() {
    let access = access(&[]);
    assert_eq!(ask(&access, Some("Bearer jane"), "/metrics").await.0, 503);
    assert_eq!(ask(&access, None, "/healthz").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn the_flag_of_open_paths_replaces_the_default() {
    let access = access(&["--authorization-always-allow-paths=/metrics"]);
    access.ask(Arc::new(Judge::default()));
    assert_eq!(ask(&access, None, "/metrics").await.0, 200);
    assert_eq!(ask(&access, None, "/healthz").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn answers_are_remembered_for_as_long_as_the_flags_say() {
    let access = access(&[
        "--authentication-token-webhook-cache-ttl=30s",
        "--authorization-webhook-cache-authorized-ttl=20s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ]);
    let judge = Arc::new(Judge::default());
    access.ask(Arc::clone(&judge) as Arc<dyn Reviewer>);
    let asked = || (judge.tokens.load(Ordering::Relaxed), judge.rights.load(Ordering::Relaxed));
    for _ in 0..5 {
        assert_eq!(ask(&access, Some("Bearer jane"), "/metrics").await.0, 200);
    }
    assert_eq!(asked(), (1, 1));
    tokio::time::advance(Duration::from_secs(25)).await;
    ask(&access, Some("Bearer jane"), "/metrics").await;
    assert_eq!(asked(), (1, 2), "the right was forgotten, the token was not");
    for _ in 0..3 {
        assert_eq!(ask(&access, Some("Bearer joe"), "/metrics").await.0, 403);
    }
    assert_eq!(asked(), (2, 5), "what was refused is asked about each time");
}

#[tokio::test(start_paused = true)]
async fn answers_are_forgotten_in_time() {
    let memory = BoundedCache::default();
    memory.put(key(["a"]), 1, Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(memory.get(&key(["a"])), Some(1));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(memory.get(&key(["a"])), None);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_many_are_kept() {
    let memory = BoundedCache::default();
    for number in 0..10 * MOST {
        memory.put(key([number.to_string().as_str()]), number, Duration::from_secs(10));
    }
    assert!(memory.answers.lock().len() <= MOST);
    let last = 10 * MOST - 1;
    assert_eq!(memory.get(&key([last.to_string().as_str()])), Some(last));
}

#[test]
fn questions_differ_where_their_words_do() {
    assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
    assert_ne!(key(["a"]), key(["a", ""]));
}
