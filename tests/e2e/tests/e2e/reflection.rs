//! The mock lists all services to a reflection client such as grpcurl.

use anyhow::{Context as _, Result};
use cloudprovider_proto::service_names;
use tokio_stream::StreamExt as _;
use tonic::transport::Endpoint;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::quick;

#[tokio::test(flavor = "multi_thread")]
async fn the_mock_lists_all_services() -> Result<()> {
    let cluster = quick().start_without_host().await?;
    let channel = Endpoint::from_shared(format!("unix://{}", cluster.socket().display()))?.connect().await?;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(request))
        .await?
        .into_inner();
    let answer = answers.next().await.context("an answer")??;
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        anyhow::bail!("no list of services: {answer:?}");
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in [
        service_names::DISCOVERY,
        service_names::CLOUD_PROVIDER,
        service_names::INSTANCES,
        service_names::LOAD_BALANCERS,
        service_names::ROUTES,
        service_names::VOLUMES,
        service_names::CLUSTERS,
    ] {
        assert!(names.contains(&name), "{name} is not listed: {names:?}");
    }
    Ok(())
}
