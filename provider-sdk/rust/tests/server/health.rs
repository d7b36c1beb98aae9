//! Health says whether work is accepted.

use cloudprovider_sdk::contract::service_names;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::cloud::Cloud;
use crate::fixture::{serve, within};

async fn status(client: &mut HealthClient<Channel>, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest { service: service.into() };
    client.check(request).await.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
}

#[tokio::test]
async fn health_is_there_for_the_whole_and_each_service() {
    let served = serve(Cloud::new().provider()).await;
    let mut client = HealthClient::new(served.channel().await);
    for service in ["", service_names::INSTANCES, service_names::DISCOVERY] {
        assert_eq!(status(&mut client, service).await, Ok(ServingStatus::Serving), "{service:?}");
    }
    assert_eq!(status(&mut client, service_names::ROUTES).await, Err(Code::NotFound));
    served.handle.set_serving(false);
    assert_eq!(status(&mut client, "").await, Ok(ServingStatus::NotServing));
    assert_eq!(status(&mut client, service_names::INSTANCES).await, Ok(ServingStatus::NotServing));
    served.handle.set_serving(true);
    assert!(served.handle.set_service_serving(service_names::INSTANCES, false));
    assert!(!served.handle.set_service_serving(service_names::ROUTES, false));
    assert_eq!(status(&mut client, "").await, Ok(ServingStatus::Serving));
    assert_eq!(status(&mut client, service_names::INSTANCES).await, Ok(ServingStatus::NotServing));
}

#[tokio::test]
async fn a_watcher_sees_each_change_and_the_stop() {
    let served = serve(Cloud::new().provider()).await;
    let mut client = HealthClient::new(served.channel().await);
    let mut stream = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let mut other = client.watch(HealthCheckRequest { service: "x.Y".into() }).await.unwrap().into_inner();
    let unknown = within(other.message()).await.unwrap().unwrap();
    assert_eq!(unknown.status(), ServingStatus::ServiceUnknown);
    for (act, wanted) in [(None, ServingStatus::Serving), (Some(false), ServingStatus::NotServing)] {
        if let Some(serving) = act {
            served.handle.set_serving(serving);
        }
        assert_eq!(within(stream.message()).await.unwrap().unwrap().status(), wanted);
    }
    served.handle.set_serving(true);
    assert_eq!(within(stream.message()).await.unwrap().unwrap().status(), ServingStatus::Serving);
    served.handle.stop();
    served.handle.set_serving(true);
    assert_eq!(within(stream.message()).await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(within(stream.message()).await.unwrap().is_none(), "the stream ends");
    assert!(within(other.message()).await.unwrap().is_none(), "the stream ends");
    within(served.task).await.unwrap().unwrap();
}
