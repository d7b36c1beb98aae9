//! The binary as a process: what survives a kill, what a stop does, what it refuses to start with, what people type.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use cloudprovider_sdk::{contract::service_names, proto::*};
use provider_mock::cloud::NewInstances;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::*;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("cloud.json");
    let mock = Mock::start(&["--seed-instances", "2", "--state-file", state.to_str().unwrap()]).await;
    let epoch = mock.epoch().await;
    mock.admin.create_instances(&NewInstances::named("later")).await.unwrap();
    mock.admin.delete_instance("node-1").await.unwrap();
    let made = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d1", 1)).await.unwrap().into_inner();
    let target = Some(node("node-0"));
    let items = vec![RouteToEnsure { key: "k".into(), destination_cidr: "10.1.0.0/24".into(), target }];
    let routes = BatchEnsureRoutesRequest { cluster: cluster(), fencing: fencing(), items };
    mock.routes().batch_ensure_routes(routes).await.unwrap();
    let before = (mock.admin.instances().await.unwrap(), mock.admin.routes().await.unwrap());

    let mock = mock.kill_and_restart().await;
    assert_ne!(mock.epoch().await, epoch, "R:discovery-epoch");
    let after = (mock.admin.instances().await.unwrap(), mock.admin.routes().await.unwrap());
    assert_eq!(after, before, "and nothing is seeded again");
    let again = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d1", 1)).await.unwrap().into_inner();
    assert_eq!(again.load_balancer, made.load_balancer, "R:durable-digest, R:ensure-after-lost-answer");
    assert_eq!(mock.admin.balancers().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cloud_without_tags_forgets_digests_with_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("cloud.json");
    let told = ["--advertise", "without=durable-digest", "--state-file", state.to_str().unwrap()];
    let mock = Mock::start(&told).await;
    mock.balancers().ensure_load_balancer(ensure(SERVICE, "d1", 1)).await.unwrap();
    let digest = async |mock: &Mock| mock.admin.balancers().await.unwrap()[0].applied_digest.clone();
    assert_eq!(digest(&mock).await, "d1");
    let mock = mock.kill_and_restart().await;
    assert_eq!(digest(&mock).await, "");
}

#[tokio::test]
async fn sigterm_ends_it_well() {
    let mut mock = Mock::start(&[]).await;
    let watch = WatchInstancesRequest { cluster: cluster(), ..Default::default() };
    let mut stream = mock.instances().watch_instances(watch).await.unwrap().into_inner();
    stream.message().await.unwrap();
    let pid = mock.child.id().and_then(|id| Pid::from_raw(id.try_into().unwrap())).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(reason(&stream.message().await.unwrap_err()), ErrorReason::ShuttingDown);
    let status = tokio::time::timeout(PATIENCE, mock.child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}\n{}", mock.log());
    assert!(!socket(mock.folder.path()).exists());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut mock = Mock::start(&["--latency", "1h"]).await;
    let mut balancers = mock.balancers();
    let creation =
        tokio::spawn(async move { balancers.ensure_load_balancer(ensure(SERVICE, "d1", 1)).await });
    while mock.admin.call_summary().await.unwrap().methods.is_empty() {
        tokio::task::yield_now().await;
    }
    let pid = mock.child.id().and_then(|id| Pid::from_raw(id.try_into().unwrap())).unwrap();
    let mut health = HealthClient::new(mock.channel.clone());
    let mut stream = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    kill_process(pid, Signal::TERM).unwrap();
    while stream.message().await.unwrap().unwrap().status() == ServingStatus::Serving {}
    kill_process(pid, Signal::INT).unwrap();
    let status = tokio::time::timeout(PATIENCE, mock.child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(143), "{}", mock.log());
    assert!(creation.await.unwrap().is_err());
}

#[tokio::test]
async fn reflection_lists_all_services_when_it_is_asked_for() {
    let mock = Mock::start(&["--reflection"]).await;
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = ServerReflectionClient::new(mock.channel.clone())
        .server_reflection_info(tokio_stream_of(ask))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let served: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in [
        service_names::DISCOVERY,
        service_names::CLOUD_PROVIDER,
        service_names::INSTANCES,
        service_names::LOAD_BALANCERS,
        service_names::ROUTES,
        service_names::VOLUMES,
        service_names::CLUSTERS,
    ] {
        assert!(served.iter().any(|service| service == name), "{name} is not in {served:?}");
    }
}

fn tokio_stream_of<T: Send + 'static>(item: T) -> impl futures::Stream<Item = T> + Send + 'static {
    futures::stream::iter([item])
}

#[tokio::test]
async fn health_follows_the_conditions() {
    let mock = Mock::start(&[]).await;
    let mut health = HealthClient::new(mock.channel.clone());
    let mut stream = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    mock.admin.patch_conditions(&json!({"serving": false})).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    mock.admin.patch_conditions(&json!({"serving": true})).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.json");
    std::fs::write(&broken, "no cloud").unwrap();
    for (arguments, wanted) in [
        (
            vec!["--admin-address", "0.0.0.0:0"],
            "0.0.0.0:0 is not a loopback address; use for example 127.0.0.1:0",
        ),
        (vec!["--advertise", "sizes=1"], "\"sizes\" cannot be advertised"),
        (vec!["--advertise", "max-message-bytes=1"], "max_message_bytes"),
        (vec!["--fault", "storm"], "\"storm\" is not a kind of fault"),
        (vec!["--latency", "soon"], "\"soon\" is not a duration"),
        (vec!["--state-file", broken.to_str().unwrap()], "does not hold a cloud"),
    ] {
        let output = command(folder.path()).args(&arguments).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(wanted), "{arguments:?}: {said}");
    }
}

impl Mock {
    /// What a person sees who types this.
    async fn type_in(&self, line: &[&str]) -> Value {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-mock"))
            .env("PROVIDER_MOCK_ADMIN", self.admin.address().to_string())
            .arg("admin")
            .args(line)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{line:?}: {said}{}", String::from_utf8(output.stderr).unwrap());
        serde_json::from_str(&said).unwrap()
    }
}

#[tokio::test]
async fn people_can_do_everything_by_typing() {
    let mock = Mock::start(&[]).await;
    let wish = r#"{"count": 2, "zones": ["z1", "z2"], "labels": {"a": "b"}}"#;
    let made = mock.type_in(&["post", "instances", "--body", wish]).await;
    assert_eq!((&made[1]["name"], &made[1]["zone"]), (&"node-1".into(), &"z2".into()));
    mock.type_in(&["post", "instances", "node-0", "stop"]).await;
    let provider_id = made[1]["provider_id"].as_str().unwrap();
    mock.type_in(&["patch", "instances", provider_id, "--body", r#"{"labels": {"a": null}}"#]).await;
    let machines = mock.type_in(&["get", "instances"]).await;
    assert_eq!((&machines[0]["state"], &machines[1]["labels"]), (&"stopped".into(), &json!({})));
    let now = r#"{"linger_ms": 0}"#;
    mock.type_in(&["post", "instances", "node-0", "terminate", "--body", now]).await;
    mock.type_in(&["delete", "instances-named", "node-"]).await;
    assert_eq!(mock.type_in(&["get", "instances"]).await, json!([]));

    let legacy = r#"{"service_uid": "u1", "namespace": "ns", "service_name": "old", "cluster_uid": "c"}"#;
    mock.type_in(&["post", "balancers", "legacy", "--body", legacy]).await;
    let inspected = mock.type_in(&["get", "balancers", "inspect", "u1"]).await;
    assert_eq!((&inspected[0]["families"], &inspected[0]["health_check"]), (&json!(["IPv4"]), &Value::Null));
    let drifted = mock.type_in(&["patch", "balancers", "ns/old", "--body", r#"{"backends": []}"#]).await;
    assert_eq!(drifted["drifted"], true);
    assert_eq!(mock.type_in(&["get", "held", "c"]).await[0]["kind"], "load-balancer");
    mock.type_in(&["delete", "balancers", "ns/old"]).await;

    mock.type_in(&["post", "routes", "--body", r#"{"destination_cidr": "10.1.0.0/24"}"#]).await;
    let to_nothing = mock.type_in(&["patch", "routes", "10.1.0.0/24", "--body", r#"{"target": null}"#]).await;
    assert_eq!(to_nothing["state"], "blackhole");
    mock.type_in(&["delete", "routes", "10.1.0.0/24"]).await;

    mock.type_in(&["post", "volumes", "--body", r#"{"id": "disk"}"#]).await;
    assert_eq!(mock.type_in(&["delete", "volumes", "disk"]).await["region"], "mock-1");
    mock.type_in(&["post", "clusters", "--body", r#"{"name": "one", "host": "api.example"}"#]).await;
    assert_eq!(mock.type_in(&["delete", "clusters", "one"]).await["host"], "api.example");
    mock.type_in(&["put", "quota", "--body", r#"{"max_routes": 3}"#]).await;
    assert_eq!(mock.type_in(&["get", "quota"]).await["max_routes"], 3);
    mock.type_in(&["patch", "conditions", "--body", r#"{"credentials": "expired"}"#]).await;
    assert_eq!(mock.type_in(&["get", "conditions"]).await["credentials"], "expired");
    assert_eq!(mock.type_in(&["get", "ssh-keys"]).await, json!([]));
    assert_eq!(mock.type_in(&["get", "info"]).await["name"], "mock");

    for fault in
        [r#"{"kind": "hang", "method": "GetStatus"}"#, r#"{"kind": "absent"}"#, r#"{"kind": "hang"}"#]
    {
        mock.type_in(&["post", "faults", "--body", fault]).await;
    }
    mock.type_in(&["delete", "faults", "3"]).await;
    assert_eq!(mock.type_in(&["delete", "faults", "hang"]).await, json!({"cleared": 1}));
    assert_eq!(mock.type_in(&["get", "faults"]).await[0]["fault"]["kind"], "absent");
    assert_eq!(mock.type_in(&["delete", "faults"]).await, json!({"cleared": 1}));

    mock.get(&["x"]).await.unwrap_err();
    mock.get(&["x"]).await.unwrap_err();
    let calls = mock.type_in(&["get", "calls", "--query", "method=BatchGetInstances&limit=1"]).await;
    assert_eq!(
        (calls.as_array().unwrap().len(), &calls[0]["reason"]),
        (1, &"CLOUD_CREDENTIALS_EXPIRED".into())
    );
    assert_eq!(mock.type_in(&["get", "calls", "summary"]).await["cloud"]["instances:read"], 2);
    assert_eq!(mock.type_in(&["get", "calls", "count"]).await, json!({"calls": 2, "changes": 0}));
    mock.type_in(&["delete", "calls"]).await;
    assert_eq!(mock.type_in(&["get", "calls"]).await, json!([]));
}

#[tokio::test]
async fn typing_at_nothing_says_where_to_look() {
    let folder = tempfile::tempdir().unwrap();
    let run = async |arguments: &[&str]| {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-mock"))
            .current_dir(folder.path())
            .env_remove("PROVIDER_MOCK_ADMIN")
            .arg("admin")
            .args(arguments)
            .output()
            .await
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run(&["get", "info"]).await.contains("--address <ADDRESS:PORT>"));
    assert!(
        run(&["get", "info", "--address-file", "none"]).await.contains("no admin address appeared in none")
    );
    assert!(run(&["fly", "info"]).await.contains("\"fly\" is not get, post, put, patch or delete"));
    // Port 1 is nobody's.
    assert!(
        run(&["get", "info", "--address", "127.0.0.1:1"])
            .await
            .contains("the admin door at 127.0.0.1:1 does not answer")
    );
}
