//! What is sent, and what answers mean.

use super::*;

fn patch() -> Patch {
    node_main(&node("a"), &NodeChange { provider_id: Some("x".to_owned()), ..change() }).unwrap()
}

fn status_patch() -> Patch {
    let wanted = WantedCondition { type_: "Ready", status: "True", reason: "R", message: "" };
    node_condition(&node("a"), &wanted, jiff::Timestamp::UNIX_EPOCH).unwrap()
}

async fn sent(
    reply: impl Fn() -> Reply + Send + Sync + 'static,
    patch: &Patch,
) -> Result<Written, WriteError> {
    let server = ApiServer::new(move |_| reply());
    let writer = Writer::new(server.client.clone(), WritePressure::default());
    writer.patch_node("a", patch, &CancellationToken::new()).await
}

#[tokio::test]
async fn patches_go_to_their_target_and_ask_for_metadata_only() {
    let server = ApiServer::new(|_| Reply::ok(json!({"metadata": {"resourceVersion": "9"}})));
    let writer = Writer::new(server.client.clone(), WritePressure::default());
    let cancel = CancellationToken::new();
    let written = writer.patch_node("a", &patch(), &cancel).await.unwrap();
    assert_eq!(written.resource_version, "9");
    writer.patch_node("a", &status_patch(), &cancel).await.unwrap();
    let before = service("s").in_namespace("n");
    let finalizer = service_finalizer(&before, "lb", true).unwrap();
    writer.patch_service(&before.key, &finalizer, &cancel).await.unwrap();
    writer.delete_node("a", "a-uid", &cancel).await.unwrap();
    let calls = server.take_calls();
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
    assert_eq!(calls[0].body, *patch().body.value());
    assert_eq!(calls[3].body["preconditions"], json!({"uid": "a-uid"}));
}

#[tokio::test]
async fn answers_say_what_to_do_next() {
    type Meets = fn(&WriteError) -> bool;
    type Row = (&'static str, Patch, fn() -> Reply, Meets);
    let rows: [Row; 8] = [
        ("gone", patch(), || Reply::status(404, "NotFound"), |e| matches!(e, WriteError::NotFound)),
        (
            "stale version",
            status_patch(),
            || Reply::status(409, "Conflict"),
            |e| matches!(e, WriteError::Conflict),
        ),
        ("failed test", patch(), || Reply::invalid("rejected", &[]), |e| matches!(e, WriteError::Conflict)),
        (
            "bad value in a JSON patch",
            patch(),
            || Reply::invalid("bad label", &["metadata.labels"]),
            |e| matches!(e, WriteError::Invalid(text) if text == "bad label"),
        ),
        (
            "bad value in another patch",
            status_patch(),
            || Reply::invalid("bad", &[]),
            |e| matches!(e, WriteError::Invalid(_)),
        ),
        (
            "recreated under the same name",
            status_patch(),
            || Reply::invalid("immutable", &["metadata.uid"]),
            |e| matches!(e, WriteError::Gone),
        ),
        ("forbidden", patch(), || Reply::status(403, "Forbidden"), |e| matches!(e, WriteError::Other(_))),
        ("broken", patch(), || Reply::status(500, "InternalError"), |e| matches!(e, WriteError::Other(_))),
    ];
    for (name, patch, reply, meets) in rows {
        let error = sent(reply, &patch).await.unwrap_err();
        assert!(meets(&error), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn deleting_tells_a_recreated_node_from_a_missing_one() {
    for (code, reason, gone) in [(409, "Conflict", true), (404, "NotFound", false)] {
        let server = ApiServer::new(move |_| Reply::status(code, reason));
        let writer = Writer::new(server.client.clone(), WritePressure::default());
        let error = writer.delete_node("a", "a-uid", &CancellationToken::new()).await.unwrap_err();
        assert_eq!(matches!(error, WriteError::Gone), gone, "{error:?}");
        assert_eq!(matches!(error, WriteError::NotFound), !gone, "{error:?}");
    }
}

#[tokio::test]
async fn a_cancelled_write_ends_at_once_and_presses_only_while_it_lasts() {
    let server = ApiServer::new(|_| Reply::Silence);
    let pressure = WritePressure::default();
    let writer = Writer::new(server.client.clone(), pressure.clone());
    let (cancel, patch) = (CancellationToken::new(), patch());
    let write = writer.patch_node("a", &patch, &cancel);
    let cancelling = async {
        while server.take_calls().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(pressure.held(), 1);
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(write, cancelling);
    assert!(matches!(result, Err(WriteError::Cancelled)), "{result:?}");
    assert_eq!(pressure.held(), 0);
}

#[tokio::test]
async fn live_reads_are_slim_and_absence_is_no_error() {
    let server = ApiServer::new(|call| match call.path.as_str() {
        "/api/v1/nodes/a" => {
            Reply::ok(json!({"metadata": {"name": "a", "uid": "u", "annotations": {"x": "1"}}}))
        }
        "/api/v1/namespaces/n/services/s" => Reply::ok(json!({"metadata": {"name": "s", "namespace": "n"}})),
        _ => Reply::status(404, "NotFound"),
    });
    let writer = Writer::new(server.client.clone(), WritePressure::default());
    let node = writer.get_node("a", &Keep::default()).await.unwrap().unwrap();
    assert_eq!((node.uid.as_str(), node.annotations.len()), ("u", 0));
    assert!(writer.get_node("b", &Keep::default()).await.unwrap().is_none());
    let key = service("s").in_namespace("n").key;
    assert_eq!(writer.get_service(&key, &Keep::default()).await.unwrap().unwrap().key, key);
}
