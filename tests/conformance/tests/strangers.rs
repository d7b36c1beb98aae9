//! Endpoints that are not providers, or stop being one, are reported in words, and nobody waits for ever.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{path::Path, process::Output};

use cloudprovider_proto::{
    discovery::v1::{
        GetInfoRequest, GetInfoResponse,
        discovery_server::{Discovery, DiscoveryServer},
    },
    v1alpha1::{
        GetCapabilitiesRequest, GetCapabilitiesResponse, GetStatusRequest, GetStatusResponse, LeadRequest,
        LeadResponse,
        cloud_provider_server::{CloudProvider, CloudProviderServer},
    },
};
use support::{Mock, scenario, told};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixListener,
    process::Command,
};
use tonic::{Request, Response, Status};

const NO_PROVIDER: Option<i32> = Some(3);

async fn suite(socket: &Path) -> Output {
    let mut suite = Command::new(env!("CARGO_BIN_EXE_provider-conformance"));
    suite.args(["run", "--endpoint"]).arg(socket).arg("--ledger-dir").arg(socket.parent().unwrap());
    suite.kill_on_drop(true).output().await.unwrap()
}

fn says(output: &Output, words: &str) {
    let told = told(output);
    assert!(output.status.code() == NO_PROVIDER && told.contains(words), "{:?}: {told}", output.status);
}

fn socket() -> (TempDir, UnixListener) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    (folder, listener)
}

#[tokio::test]
async fn nobody_is_there() {
    let folder = tempfile::tempdir().unwrap();
    says(&suite(&folder.path().join("s")).await, "nobody answers at");
}

#[tokio::test]
async fn somebody_speaks_another_protocol() {
    let (folder, listener) = socket();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _read = stream.read(&mut [0; 24]).await;
            let _written = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    says(&suite(&folder.path().join("s")).await, "no provider at");
}

#[tokio::test]
async fn somebody_takes_calls_and_never_answers() {
    let (folder, listener) = socket();
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });
    says(&suite(&folder.path().join("s")).await, "does not answer GetInfo: Unknown: no answer within 11s");
}

fn accepted(listener: UnixListener) -> impl futures::Stream<Item = std::io::Result<tokio::net::UnixStream>> {
    futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    })
}

/// Serves the least that a provider may serve.
struct Least;

#[tonic::async_trait]
impl Discovery for Least {
    async fn get_info(&self, _request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let services =
            ["ccm.discovery.v1.Discovery", "ccm.cloudprovider.v1alpha1.CloudProvider"].map(str::to_owned);
        Ok(Response::new(GetInfoResponse {
            name: "least".into(),
            services: services.into(),
            process_epoch: "e".into(),
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl CloudProvider for Least {
    async fn get_capabilities(
        &self,
        _request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        Ok(Response::new(GetCapabilitiesResponse::default()))
    }

    async fn get_status(
        &self,
        _request: Request<GetStatusRequest>,
    ) -> Result<Response<GetStatusResponse>, Status> {
        Ok(Response::new(GetStatusResponse::default()))
    }

    async fn lead(&self, _request: Request<LeadRequest>) -> Result<Response<LeadResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// D24: the contract does not ask for grpc.health.v1.
#[tokio::test]
async fn a_provider_without_health_is_not_failed_for_it() {
    let (folder, listener) = socket();
    let server = tonic::transport::Server::builder()
        .add_service(DiscoveryServer::new(Least))
        .add_service(CloudProviderServer::new(Least));
    tokio::spawn(server.serve_with_incoming(accepted(listener)));
    let mut suite = Command::new(env!("CARGO_BIN_EXE_provider-conformance"));
    suite.args(["run", "--filter", "HLTH,STAT-01", "--endpoint"]).arg(folder.path().join("s"));
    let output = suite.arg("--ledger-dir").arg(folder.path()).output().await.unwrap();
    let told = told(&output);
    assert!(told.contains("not-advertised HLTH-01") && !told.contains("FAIL"), "{told}");
}

struct Newer;

#[tonic::async_trait]
impl Discovery for Newer {
    async fn get_info(&self, _request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let services = vec!["ccm.discovery.v1.Discovery".into(), "ccm.cloudprovider.v2.Instances".into()];
        Ok(Response::new(GetInfoResponse { name: "newer".into(), services, ..Default::default() }))
    }
}

#[tokio::test]
async fn a_provider_speaks_only_a_newer_version() {
    let (folder, listener) = socket();
    let server = tonic::transport::Server::builder().add_service(DiscoveryServer::new(Newer));
    tokio::spawn(server.serve_with_incoming(accepted(listener)));
    let output = suite(&folder.path().join("s")).await;
    says(&output, "provider newer at");
    says(&output, "ccm.cloudprovider.v2.Instances");
}

#[tokio::test]
async fn a_provider_dies_in_mid_run() {
    let mock = Mock::start(&["--fault", "crash,method=BatchGetInstances"]).await;
    mock.start_no_more();
    let mut suite = mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", "BATCH-0,CAP-01"]);
    let output = suite.arg("--ledger-dir").arg(mock.folder.path()).output().await.unwrap();
    says(&output, "the provider does not answer any more since BATCH-01");
    says(&output, "[7/7] not-run");
}

#[tokio::test]
async fn a_call_that_hangs_fails_its_case_and_no_other() {
    let mock = Mock::start(&["--fault", "hang,method=GetStatus"]).await;
    let mut suite =
        mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", "STAT-01,HLTH-01", "--scenario"]);
    let output = suite.arg(scenario()).arg("--ledger-dir").arg(mock.folder.path()).output().await.unwrap();
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("FAIL STAT-01") && told.contains("seen:     "), "{told}");
    let end = String::from_utf8(output.stdout).unwrap();
    assert!(
        end.contains("failed: STAT-01") && end.contains("seen:     "),
        "its end says it once more: {end}"
    );
    assert!(told.contains("pass HLTH-01"), "{told}");
}

#[tokio::test]
async fn without_hooks_the_verdict_is_incomplete_and_names_them() {
    let mock = Mock::start(&[]).await;
    let mut suite = mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", "INST-01,CAP-01"]);
    let output = suite.arg("--ledger-dir").arg(mock.folder.path()).output().await.unwrap();
    let told = told(&output);
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("not-run INST-01") && told.contains("no hook create-instance"), "{told}");
}
