//! When tokens are requested, and what is said without one, on a paused clock.

use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;

use super::*;
use crate::fixtures::{ApiServer, Call, Reply};

const TOKEN: &str = "POST /api/v1/namespaces/kube-system/serviceaccounts/node-controller/token";
const CREATE: &str = "POST /api/v1/namespaces/kube-system/serviceaccounts";

fn granted(token: &str, seconds: u64) -> Reply {
    Reply::Json(
        201,
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "audiences": [], "expirationSeconds": seconds },
            "status": { "token": token, "expirationTimestamp": "2020-01-01T00:00:00Z" },
        }),
    )
}

fn lines(server: &ApiServer) -> Vec<String> {
    server.take_calls().iter().map(Call::line).collect()
}

fn running(server: &ApiServer) -> Arc<Account> {
    let account = Account::new("node-controller");
    tokio::spawn(account.clone().run(server.client.clone(), CancellationToken::new()));
    account
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_after_four_fifths_of_the_lifetime_that_was_granted() {
    let server = ApiServer::new(|_| granted("a", 1000));
    let account = running(&server);
    assert_eq!(account.health(), Err("no token yet".to_owned()));
    account.ready().await;
    let asked = server.take_calls();
    assert_eq!(asked.iter().map(Call::line).collect::<Vec<_>>(), [TOKEN]);
    assert_eq!(asked[0].body["spec"]["expirationSeconds"], 3600);
    assert_eq!(account.health(), Ok(()));

    sleep(Duration::from_secs(799)).await;
    assert_eq!(lines(&server), [""; 0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(lines(&server), [TOKEN]);
}

#[tokio::test(start_paused = true)]
async fn a_service_account_that_does_not_exist_is_created() {
    let missing = AtomicU16::new(404);
    let server = ApiServer::new(move |call| match call.line().as_str() {
        CREATE => {
            missing.store(201, Ordering::SeqCst);
            Reply::Json(201, json!({ "metadata": { "name": "node-controller" } }))
        }
        _ if missing.load(Ordering::SeqCst) == 404 => Reply::status(404, "NotFound"),
        _ => granted("a", 3600),
    });
    let account = running(&server);
    account.ready().await;
    assert_eq!(lines(&server), [TOKEN, CREATE, TOKEN]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_waited_for() {
    let rows = [
        (403, 201, "create serviceaccounts/token of node-controller in kube-system"),
        (404, 403, "create serviceaccounts in kube-system"),
        (500, 201, "InternalError"),
    ];
    for (token, create, right) in rows {
        let answer = std::sync::Arc::new(AtomicU16::new(token));
        let now = std::sync::Arc::clone(&answer);
        let server = ApiServer::new(move |call| match (call.line().as_str(), now.load(Ordering::SeqCst)) {
            (CREATE, _) => Reply::status(create, "Forbidden"),
            (_, 201) => granted("a", 3600),
            (_, code) => Reply::status(code, "InternalError"),
        });
        let account = running(&server);
        let said = account.token().await.unwrap_err().to_string();
        assert!(said.starts_with("no token of the ServiceAccount kube-system/node-controller: "), "{said}");
        assert!(said.contains(right), "{said}");
        assert!(account.health().unwrap_err().contains(right));
        answer.store(201, Ordering::SeqCst);
        account.ready().await;
        assert_eq!(account.health(), Ok(()), "{right}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_outlives_the_failure_of_its_renewal() {
    let answer = std::sync::Arc::new(AtomicU16::new(201));
    let now = std::sync::Arc::clone(&answer);
    let server = ApiServer::new(move |_| match now.load(Ordering::SeqCst) {
        201 => granted("a", 1000),
        code => Reply::status(code, "Forbidden"),
    });
    let account = running(&server);
    let token = account.token().await.unwrap();
    answer.store(403, Ordering::SeqCst);
    sleep(Duration::from_secs(900)).await;
    assert!(server.take_calls().len() > 2);
    assert_eq!(account.token().await.unwrap(), token);
    assert_eq!(account.health(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_all_rejected_are_requested_once_a_second() {
    let server = ApiServer::new(|_| granted("a", 3600));
    let account = running(&server);
    let start = Instant::now();
    for _ in 0..10 {
        let token = account.token().await.unwrap();
        account.rejected(&token);
    }
    account.token().await.unwrap();
    assert_eq!((server.take_calls().len(), start.elapsed().as_secs()), (11, 10));
}
