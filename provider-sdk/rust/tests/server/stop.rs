//! The end: what began is finished, and no longer than agreed.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tonic::{Response, Status};

use cloudprovider_sdk::proto::{EnsureLoadBalancerResponse, ErrorReason};

use crate::cloud::Cloud;
use crate::fixture::{Served, reason, serve, serve_with, within};
use crate::requests::{batch, ensure};

type Call = JoinHandle<Result<Response<EnsureLoadBalancerResponse>, Status>>;

async fn begin(served: &Served, cloud: &Cloud, name: &'static str) -> Call {
    let mut client = served.load_balancers().await;
    let call = tokio::spawn(async move { client.ensure_load_balancer(ensure(name)).await });
    within(cloud.began.subscribe().wait_for(|count| *count > 0)).await.unwrap();
    call
}

#[tokio::test]
async fn a_running_mutation_is_finished_and_answered() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut open = served.instances().await;
    open.batch_get_instances(batch(&["a"])).await.unwrap();
    let call = begin(&served, &cloud, "slow").await;
    served.handle.stop();
    let refused = open.batch_get_instances(batch(&["a"])).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    assert!(!served.task.is_finished() && served.socket.exists());
    cloud.go.add_permits(1);
    within(call).await.unwrap().unwrap();
    within(served.task).await.unwrap().unwrap();
    assert!(!served.socket.exists());
}

#[tokio::test]
async fn a_mutation_of_a_caller_that_is_gone_is_waited_for() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let call = begin(&served, &cloud, "slow").await;
    call.abort();
    call.await.unwrap_err();
    served.handle.stop();
    let mut task = served.task;
    // No connection is left that the server could be waiting for.
    let ended = tokio::time::timeout(Duration::from_millis(300), &mut task).await;
    assert!(ended.is_err(), "it did not wait");
    cloud.go.add_permits(1);
    within(task).await.unwrap().unwrap();
    assert_eq!(*cloud.finished.borrow(), 1);
}

#[tokio::test]
async fn when_time_is_up_mutations_are_told() {
    let cloud = Cloud::new();
    let grace = Duration::from_millis(200);
    let served = serve_with(cloud.provider(), |options| options.shutdown_grace = grace).await;
    let call = begin(&served, &cloud, "until-told").await;
    let asked = Instant::now();
    served.handle.stop();
    within(call).await.unwrap().unwrap();
    within(served.task).await.unwrap().unwrap();
    assert_eq!(*cloud.given_up.borrow(), 1);
    assert!(asked.elapsed() >= grace);
}

#[tokio::test]
async fn a_mutation_that_does_not_listen_does_not_keep_the_process() {
    let cloud = Cloud::new();
    let grace = Duration::from_millis(100);
    let served = serve_with(cloud.provider(), |options| options.shutdown_grace = grace).await;
    let call = begin(&served, &cloud, "deaf").await;
    served.handle.stop();
    within(served.task).await.unwrap().unwrap();
    within(call).await.unwrap().unwrap_err();
}

#[tokio::test]
async fn cut_connections_answer_nothing() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let call = begin(&served, &cloud, "slow").await;
    served.handle.cut_connections();
    let status = within(call).await.unwrap().unwrap_err();
    assert!(cloudprovider_sdk::ProviderError::from_status(&status).is_none(), "{status:?}");
}

#[tokio::test]
async fn nothing_new_begins_on_a_connection_that_is_still_open() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let channel = served.channel().await;
    let mut balancers =
        cloudprovider_sdk::proto::load_balancers_client::LoadBalancersClient::new(channel.clone());
    let first = tokio::spawn({
        let mut balancers = balancers.clone();
        async move { balancers.ensure_load_balancer(ensure("slow")).await }
    });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    served.handle.stop();
    let status = balancers.ensure_load_balancer(ensure("late")).await.unwrap_err();
    // Either the server said so, or the connection was on its way out already.
    if cloudprovider_sdk::ProviderError::from_status(&status).is_some() {
        assert_eq!(reason(&status), ErrorReason::ShuttingDown);
    }
    assert_eq!(*cloud.began.borrow(), 1);
    cloud.go.add_permits(1);
    within(first).await.unwrap().unwrap();
    within(served.task).await.unwrap().unwrap();
}
