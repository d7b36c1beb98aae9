//! A layer below the services' messages, as test doubles use it.

use std::convert::Infallible;

use cloudprovider_sdk::{BoxError, GrpcRequest, GrpcResponse, GrpcService};
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _, layer::layer_fn, service_fn};

use crate::cloud::Cloud;
use crate::fixture::{serve_server, within};
use crate::requests::{batch, ensure};

#[tokio::test]
async fn a_hook_answers_as_it_likes() {
    let bare = layer_fn(|_services: GrpcService| {
        let answer = |_request: GrpcRequest| async {
            Ok::<GrpcResponse, Infallible>(Status::not_found("bare").into_http())
        };
        service_fn(answer)
    });
    let served = serve_server(Cloud::new().provider(), |_| {}, |server| server.layer(bare)).await;
    let status = served.instances().await.batch_get_instances(batch(&["a"])).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(cloudprovider_sdk::ProviderError::from_status(&status).is_none());
}

#[tokio::test]
async fn a_hook_drops_an_answer_after_the_work_was_done() {
    let lose = layer_fn(|services: GrpcService| {
        service_fn(move |request: GrpcRequest| {
            let mut services = services.clone();
            async move {
                services.ready().await?.call(request).await?;
                Err::<GrpcResponse, BoxError>("lost".into())
            }
        })
    });
    let cloud = Cloud::new();
    cloud.go.add_permits(1);
    let served = serve_server(cloud.provider(), |_| {}, |server| server.layer(lose)).await;
    let status = within(async { served.load_balancers().await.ensure_load_balancer(ensure("a")).await });
    assert!(status.await.is_err());
    assert_eq!(*cloud.finished.borrow(), 1);
}
