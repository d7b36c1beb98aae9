//! What a stranger learns: discovery, capabilities, reflection.

use std::collections::BTreeSet;

use cloudprovider_sdk::contract::discovery::v1::GetInfoRequest;
use cloudprovider_sdk::contract::service_names;
use cloudprovider_sdk::proto::cloud_provider_client::CloudProviderClient;
use cloudprovider_sdk::proto::routes_client::RoutesClient;
use cloudprovider_sdk::proto::{Capability, GetCapabilitiesRequest, GetStatusRequest, ListRoutesRequest};
use tonic::Code;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::cloud::{Cloud, capabilities};
use crate::fixture::{Served, serve, serve_with};

/// [R:discovery-services] [R:discovery-epoch]
#[tokio::test]
async fn discovery_names_exactly_what_is_served() {
    let provider = Cloud::new().provider();
    let epoch = provider.process_epoch().to_owned();
    let served = serve(provider).await;
    let info = served.discovery().await.get_info(GetInfoRequest::default()).await.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), ("double", "1.2.3"));
    assert_eq!(info.provider_id_prefixes, ["double://"]);
    assert_eq!(info.process_epoch, epoch);
    assert!(info.sdk_name.contains("rust") && !info.sdk_version.is_empty());
    let wanted = [
        service_names::DISCOVERY,
        service_names::CLOUD_PROVIDER,
        service_names::INSTANCES,
        service_names::LOAD_BALANCERS,
        "grpc.health.v1.Health",
    ];
    assert_eq!(info.services, wanted);
    let mut routes = RoutesClient::new(served.channel().await);
    let status = routes.list_routes(ListRoutesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

/// [R:capabilities-constant]
#[tokio::test]
async fn capabilities_go_out_as_they_were_given_and_with_what_the_crate_does() {
    let served = serve(Cloud::new().provider()).await;
    let mut base = CloudProviderClient::new(served.channel().await);
    let answer = base.get_capabilities(GetCapabilitiesRequest::default()).await.unwrap().into_inner();
    // Former leaders are refused, and sets of backends kept, by the crate, so the crate advertises it.
    let mut given = capabilities();
    given.capabilities.extend([Capability::Leadership, Capability::BackendSetsByDigest].map(i32::from));
    assert_eq!(answer, given);
    let status = base.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert!(status.conditions.is_empty());
}

async fn reflect(
    served: &Served,
    request: MessageRequest,
) -> Result<ServerReflectionResponse, tonic::Status> {
    let mut client = ServerReflectionClient::new(served.channel().await);
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let requests = futures::stream::iter([request]);
    let mut answers = client.server_reflection_info(requests).await?.into_inner();
    answers.message().await.map(|answer| answer.expect("an answer"))
}

#[tokio::test]
async fn reflection_lists_all_services() {
    let served = serve_with(Cloud::new().provider(), |options| options.reflection = true).await;
    let answer = reflect(&served, MessageRequest::ListServices(String::new())).await.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let listed: BTreeSet<_> = list.service.into_iter().map(|service| service.name).collect();
    let info = served.discovery().await.get_info(GetInfoRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed, info.services.into_iter().collect());
    assert!(listed.contains("grpc.reflection.v1.ServerReflection"));
    for service in listed {
        let answer = reflect(&served, MessageRequest::FileContainingSymbol(service.clone())).await.unwrap();
        let found = matches!(answer.message_response, Some(MessageResponse::FileDescriptorResponse(_)));
        assert!(found, "{service}: {answer:?}");
    }
}

#[tokio::test]
async fn reflection_is_off_unless_asked_for() {
    let served = serve(Cloud::new().provider()).await;
    let status = reflect(&served, MessageRequest::ListServices(String::new())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}
