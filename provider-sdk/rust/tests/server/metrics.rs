//! What is measured, and where it is read.

use cloudprovider_sdk::Server;
use cloudprovider_sdk::prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cloud::Cloud;
use crate::fixture::{options, private, serve, within};
use crate::requests::batch;

#[tokio::test]
async fn every_outcome_is_counted() {
    let own = Counter::<u64>::default();
    let register = own.clone();
    let provider = Cloud::new()
        .builder()
        .metrics(|registry| registry.register("double_api_calls", "Calls of the cloud", register))
        .build()
        .unwrap();
    let served = serve(provider).await;
    own.inc();
    let mut client = served.instances().await;
    client.batch_get_instances(batch(&["a", "b"])).await.unwrap();
    client.batch_get_instances(batch(&["throttled"])).await.unwrap_err();
    let text = served.handle.metrics_text().unwrap();
    let rpc = r#"role="provider",service="ccm.cloudprovider.v1alpha1.Instances",method="BatchGetInstances""#;
    for line in [
        format!(r#"cloudprovider_rpc_duration_seconds_count{{{rpc},code="OK",reason=""}} 1"#),
        format!(
            r#"cloudprovider_rpc_duration_seconds_count{{{rpc},code="RESOURCE_EXHAUSTED",reason="RATE_LIMITED"}} 1"#
        ),
        format!(r#"cloudprovider_rpcs_in_flight{{{rpc}}} 0"#),
        format!(r#"cloudprovider_rpc_batch_size_sum{{{rpc}}} 3.0"#),
        "double_api_calls_total 1".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn calls_that_never_end_are_counted_when_they_are_gone() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut client = served.instances().await;
    let call = tokio::spawn(async move { client.batch_get_instances(batch(&["hang"])).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    assert!(served.handle.metrics_text().unwrap().contains(r#"method="BatchGetInstances"} 1"#));
    call.abort();
    within(async {
        while !served.handle.metrics_text().unwrap().contains(r#"code="CANCELLED""#) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn metrics_are_served_over_http() {
    let directory = private();
    let mut options = options(&directory.path().join("a.sock"));
    options.metrics_address = Some("127.0.0.1:0".parse().unwrap());
    let bound = Server::new(Cloud::new().provider(), options).without_signals().bind().await.unwrap();
    let (address, handle) = (bound.metrics_address().unwrap(), bound.handle());
    let task = tokio::spawn(bound.run());
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    within(stream.read_to_string(&mut text)).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("application/openmetrics-text") && text.contains("# EOF"), "{text}");
    handle.stop();
    within(task).await.unwrap().unwrap();
}
