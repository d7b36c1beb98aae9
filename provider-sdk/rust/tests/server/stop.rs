//! The end: what began is finished, and no longer than agreed.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time;
use tonic::{Response, Status};

use cloudprovider_sdk::proto::{EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, ErrorReason};

use crate::cloud::Cloud;
use crate::fixture::{Served, StoppedClock, reason, serve, serve_with, within};
use crate::leadership::lead;
use crate::requests::{batch, ensure, fencing};

type Call = JoinHandle<Result<Response<EnsureLoadBalancerResponse>, Status>>;

async fn begin(served: &Served, cloud: &Cloud, name: &'static str) -> Call {
    begin_in_term(0, served, cloud, name).await
}

async fn begin_in_term(epoch: u64, served: &Served, cloud: &Cloud, name: &'static str) -> Call {
    let mut client = served.load_balancers().await;
    let request = EnsureLoadBalancerRequest { fencing: fencing(epoch), ..ensure(name) };
    let call = tokio::spawn(async move { client.ensure_load_balancer(request).await });
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
async fn a_leader_renews_its_term_until_its_last_mutation_has_ended() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let clock = StoppedClock::new();
    lead(&served, 1, Some(Duration::from_secs(5))).await.unwrap();
    let call = begin_in_term(1, &served, &cloud, "slow").await;
    served.handle.stop();
    lead(&served, 1, Some(Duration::from_secs(600))).await.unwrap();
    time::advance(Duration::from_secs(6)).await;
    cloud.go.add_permits(1);
    within(call).await.unwrap().unwrap();
    drop(clock);
    within(served.task).await.unwrap().unwrap();
}

/// [R:lead-ends]
#[tokio::test]
async fn a_leader_may_step_down_from_a_provider_that_stops() {
    for mutating in [true, false] {
        let cloud = Cloud::new();
        let served = serve(cloud.provider()).await;
        lead(&served, 1, Some(Duration::from_secs(600))).await.unwrap();
        let call = if mutating { Some(begin_in_term(1, &served, &cloud, "slow").await) } else { None };
        let clock = StoppedClock::new();
        served.handle.stop();
        lead(&served, 1, Some(Duration::ZERO)).await.unwrap();
        drop(clock);
        if let Some(call) = call {
            let status = within(call).await.unwrap().unwrap_err();
            assert_eq!(reason(&status), ErrorReason::StaleLeader);
        }
        within(served.task).await.unwrap().unwrap();
        assert_eq!(*cloud.finished.borrow(), 0);
    }
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
    let ended = time::timeout(Duration::from_millis(300), &mut task).await;
    assert!(ended.is_err(), "it did not wait");
    cloud.go.add_permits(1);
    within(task).await.unwrap().unwrap();
    assert_eq!(*cloud.finished.borrow(), 1);
}

#[tokio::test]
async fn when_time_is_up_mutations_are_told() {
    for epoch in [0, 1] {
        let cloud = Cloud::new();
        let grace = Duration::from_millis(200);
        let served = serve_with(cloud.provider(), |options| options.shutdown_grace = grace).await;
        if epoch > 0 {
            lead(&served, epoch, Some(Duration::from_secs(600))).await.unwrap();
        }
        let call = begin_in_term(epoch, &served, &cloud, "until-told").await;
        let mut open = served.instances().await;
        let clock = StoppedClock::new();
        served.handle.stop();
        // A refusal shows that the stop, and so its grace, has begun.
        open.batch_get_instances(batch(&["a"])).await.unwrap_err();
        assert_eq!(*cloud.given_up.borrow(), 0);
        time::advance(2 * grace).await;
        within(call).await.unwrap().unwrap();
        drop(clock);
        within(served.task).await.unwrap().unwrap();
        assert_eq!(*cloud.given_up.borrow(), 1);
    }
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
    assert_eq!(reason(&status), ErrorReason::ShuttingDown);
    assert_eq!(*cloud.began.borrow(), 1);
    cloud.go.add_permits(1);
    within(first).await.unwrap().unwrap();
    within(served.task).await.unwrap().unwrap();
}
