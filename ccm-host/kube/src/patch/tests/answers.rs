//! The requests that are sent, and the meaning of answers.

use ::apiserver::{ApiServer, Fault, Refusal};

use super::*;
use crate::fixtures::{invalid, refusal};

fn patch() -> Patch {
    node_main(&node("a"), &NodeChange { provider_id: Some("x".to_owned()), ..change() }).unwrap()
}

fn status_patch() -> Patch {
    let wanted = WantedCondition { type_: "Ready", status: "True", reason: "R", message: "".into() };
    node_condition(&node("a"), &wanted, jiff::Timestamp::UNIX_EPOCH).unwrap()
}

/// A server with the node `a` and the Service `n/s`.
fn server() -> ApiServer {
    let server = ApiServer::default();
    server.world().namespace("n");
    let metadata = json!({"name": "a", "uid": "a-uid", "annotations": {"x": "1"}});
    for object in [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n", "uid": "s-uid"}}),
    ] {
        server.world().put_value(object).unwrap();
    }
    server
}

fn writer(server: &ApiServer) -> Writer {
    Writer::new(server.client("host"), WritePressure::default())
}

async fn refused(refusal: Refusal, patch: &Patch) -> WriteError {
    let server = server();
    server.faults().next(|_| true, Fault::Refuse(refusal));
    writer(&server).patch::<Node>(&"a".to_owned(), patch).await.unwrap_err()
}

#[tokio::test]
async fn patches_go_to_their_target_and_ask_for_metadata_only() {
    let server = server();
    let writer = writer(&server);
    let written = writer.patch::<Node>(&"a".to_owned(), &patch()).await.unwrap();
    assert_eq!(written, server.version().to_string());
    writer.patch::<Node>(&"a".to_owned(), &status_patch()).await.unwrap();
    let before = service("s").in_namespace("n");
    let finalizer = service_finalizer(&before, "lb.example/cleanup", true).unwrap();
    writer.patch::<Service>(&before.key, &finalizer).await.unwrap();
    writer.delete::<Node>(&"a".to_owned(), "a-uid").await.unwrap();
    let calls = server.take_requests();
    let lines: Vec<_> = calls.iter().map(|call| format!("{} {}", call.line(), call.content_type)).collect();
    assert_eq!(
        lines,
        [
            "PATCH /api/v1/nodes/a application/json-patch+json",
            "PATCH /api/v1/nodes/a/status application/strategic-merge-patch+json",
            "PATCH /api/v1/namespaces/n/services/s/status application/json-patch+json",
            "DELETE /api/v1/nodes/a application/json",
        ]
    );
    assert!(calls[0].accept.contains("PartialObjectMetadata"));
    assert_eq!(calls[0].json(), *patch().body.value());
    assert_eq!(calls[3].json()["preconditions"], json!({"uid": "a-uid"}));
}

#[tokio::test]
async fn answers_say_what_to_do_next() {
    type Meets = fn(&WriteError) -> bool;
    type Row = (&'static str, Patch, Refusal, Meets);
    let rows: [Row; 9] = [
        ("gone", patch(), refusal(404, "NotFound"), |e| matches!(e, WriteError::NotFound)),
        ("a proxy's 404", patch(), refusal(404, ""), |e| matches!(e, WriteError::Other(_))),
        ("stale version", status_patch(), refusal(409, "Conflict"), |e| matches!(e, WriteError::Conflict)),
        ("failed test", patch(), invalid("rejected", &[]), |e| matches!(e, WriteError::Conflict)),
        (
            "bad value in a JSON patch",
            patch(),
            invalid("bad label", &["metadata.labels"]),
            |e| matches!(e, WriteError::Invalid(text) if text == "bad label"),
        ),
        ("bad value in another patch", status_patch(), invalid("bad", &[]), |e| {
            matches!(e, WriteError::Invalid(_))
        }),
        ("recreated under the same name", status_patch(), invalid("immutable", &["metadata.uid"]), |e| {
            matches!(e, WriteError::Gone)
        }),
        ("forbidden", patch(), refusal(403, "Forbidden"), |e| matches!(e, WriteError::Other(_))),
        ("broken", patch(), refusal(500, "InternalError"), |e| matches!(e, WriteError::Other(_))),
    ];
    for (name, patch, refusal, meets) in rows {
        let error = refused(refusal, &patch).await;
        assert!(meets(&error), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn deleting_tells_a_recreated_node_from_a_missing_one() {
    for (name, gone) in [("a", true), ("b", false)] {
        let error = writer(&server()).delete::<Node>(&name.to_owned(), "another-uid").await.unwrap_err();
        assert_eq!(matches!(error, WriteError::Gone), gone, "{error:?}");
        assert_eq!(matches!(error, WriteError::NotFound), !gone, "{error:?}");
    }
}

#[tokio::test]
async fn a_write_that_is_dropped_presses_only_while_it_lasts() {
    let (server, pressure) = (server(), WritePressure::default());
    server.faults().next(|_| true, Fault::Hang);
    let writer = Writer::new(server.client("host"), pressure.clone());
    let (name, patch) = ("a".to_owned(), patch());
    let sent = async {
        while server.take_requests().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(pressure.held(), 1);
    };
    tokio::select! {
        result = writer.patch::<Node>(&name, &patch) => panic!("{result:?}"),
        () = sent => {}
    }
    assert_eq!(pressure.held(), 0);
}

#[tokio::test]
async fn live_reads_are_slim_and_absence_is_no_error() {
    let writer = writer(&server());
    let node = writer.get::<Node>(&"a".to_owned(), &Keep::default()).await.unwrap().unwrap();
    assert_eq!((node.uid.as_str(), node.annotations.iter().count()), ("a-uid", 0));
    assert!(writer.get::<Node>(&"b".to_owned(), &Keep::default()).await.unwrap().is_none());
    let key = service("s").in_namespace("n").key;
    assert_eq!(writer.get::<Service>(&key, &Keep::default()).await.unwrap().unwrap().key, key);
}
