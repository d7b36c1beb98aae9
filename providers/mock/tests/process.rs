//! The binary as a process: what survives a kill, what a stop does, what it refuses to start with, what people type.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use cloudprovider_sdk::{contract::service_names, proto::*};
use provider_mock::cloud::{ConditionsPatch, NewInstances};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
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
    let serving = |serving| ConditionsPatch { serving: Some(serving), ..Default::default() };
    mock.admin.patch_conditions(&serving(false)).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    mock.admin.patch_conditions(&serving(true)).await.unwrap();
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
        (vec!["--advertise", "sizes=1"], "\"sizes\" is nothing that can be advertised"),
        (vec!["--advertise", "max-message-bytes=1"], "max_message_bytes"),
        (vec!["--fault", "storm"], "\"storm\" is no kind of fault"),
        (vec!["--latency", "soon"], "\"soon\" is no duration"),
        (vec!["--state-file", broken.to_str().unwrap()], "does not hold a cloud"),
    ] {
        let output = command(folder.path()).args(&arguments).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(wanted), "{arguments:?}: {said}");
    }
}

impl Mock {
    /// What a person sees who types this.
    async fn type_in(&self, line: &str) -> String {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_provider-mock"))
            .env("PROVIDER_MOCK_ADMIN", self.admin.address().to_string())
            .arg("admin")
            .args(line.split(' '))
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{line}: {said}{}", String::from_utf8(output.stderr).unwrap());
        said
    }

    async fn type_in_json(&self, line: &str) -> Value {
        serde_json::from_str(&self.type_in(&format!("{line} --json")).await).unwrap()
    }
}

#[tokio::test]
async fn people_can_do_everything_by_typing() {
    let mock = Mock::start(&[]).await;
    let table = mock.type_in("instances create --count 2 --zone z1,z2 --type mock.large --label a=b").await;
    assert!(table.starts_with("NAME    STATE    TYPE        ZONE"), "{table}");
    assert!(table.contains("node-1  running  mock.large  z2"), "{table}");
    mock.type_in("instances stop node-0").await;
    mock.type_in("instances set node-1 --zone z9 --node-address InternalIP=10.0.0.9 --remove-label a").await;
    let machines = mock.type_in_json("instances list").await;
    assert_eq!((&machines[0]["state"], &machines[1]["zone"]), (&"stopped".into(), &"z9".into()));
    assert_eq!(machines[1]["addresses"][0]["address"], "10.0.0.9");
    mock.type_in("instances terminate node-0 --linger 0").await;
    mock.type_in("instances delete node-1").await;
    assert_eq!(mock.type_in_json("instances list").await, Value::Array(vec![]));

    mock.type_in("balancers legacy --service-uid u1 --service ns/old").await;
    assert!(mock.type_in("balancers list").await.contains("ns/old"));
    assert!(mock.type_in("balancers drift ns/old").await.contains("drifted"));
    mock.type_in("balancers delete ns/old").await;

    mock.type_in("routes create 10.1.0.0/24 --cluster c").await;
    assert!(mock.type_in("routes point 10.1.0.0/24 --node n").await.contains("blackhole"));
    mock.type_in("routes delete 10.1.0.0/24").await;

    mock.type_in("volumes create disk --zone z1,z2").await;
    assert!(mock.type_in("volumes list").await.contains("z1,z2"));
    mock.type_in("clusters create one api.example --port 6443").await;
    assert!(mock.type_in("clusters list").await.contains("6443"));
    assert_eq!(mock.type_in_json("quota set --max-routes 3").await["max_routes"], 3);
    assert!(mock.type_in("conditions set --credentials expired").await.contains("expired"));
    assert_eq!(mock.type_in_json("conditions show").await["credentials"], "expired");

    mock.type_in("faults add hang,method=GetStatus,times=1 breach,rule=batch-keys,variant=doubled").await;
    assert!(mock.type_in("faults list").await.contains("breach batch-keys/doubled"));
    mock.type_in("faults remove 1").await;
    mock.type_in("faults clear").await;
    assert_eq!(mock.type_in_json("faults list").await, Value::Array(vec![]));
    assert!(mock.type_in("faults kinds").await.contains("breach,rule=batch-keys"));

    mock.get(&["x"]).await.unwrap_err();
    assert!(mock.type_in("calls list").await.contains("UNAUTHENTICATED CLOUD_CREDENTIALS_EXPIRED"));
    assert!(mock.type_in("calls summary").await.contains("cloud instances:read"));
    mock.type_in("calls reset").await;
    assert_eq!(mock.type_in_json("calls list").await, Value::Array(vec![]));
    assert!(mock.type_in("info").await.contains("unix://"));
    assert!(mock.type_in("ssh-keys").await.starts_with("CLUSTER"));
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
    assert!(run(&["info"]).await.contains("tell where the admin door is"));
    assert!(run(&["info", "--address-file", "none"]).await.contains("no admin address appeared in none"));
    // Port 1 is nobody's.
    assert!(
        run(&["info", "--address", "127.0.0.1:1"])
            .await
            .contains("the admin door at 127.0.0.1:1 does not answer")
    );
}
