//! One call, from its context to its end.

use std::time::Duration;

use cloudprovider_sdk::ProviderError;
use cloudprovider_sdk::proto::{
    AddSshKeyToAllInstancesRequest, BatchUpdateLoadBalancersResponse, EnsureLoadBalancerRequest, ErrorReason,
    GetCapabilitiesResponse, ItemError, Limits,
};
use tokio::time;
use tonic::{Code, Request, Status};

use crate::cloud::{Cloud, capabilities};
use crate::fixture::{PATIENCE, reason, serve, within};
use crate::requests::{batch, cluster, ensure, fencing, update, updates, watch};

const CANARY: &str = "canary-hunter2";

fn is_internal(status: &Status) {
    assert_eq!(status.code(), Code::Internal);
    let error = ProviderError::from_status(status).unwrap();
    assert_eq!(error.reason(), ErrorReason::InternalError);
    assert!(!error.metadata()["request_id"].is_empty());
    let wire = format!("{status:?}{}", String::from_utf8_lossy(status.details()));
    assert!(!wire.contains(CANARY), "{wire}");
}

#[tokio::test]
async fn panics_are_internal_errors_and_harm_no_other_call() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut instances = served.instances().await;
    is_internal(&instances.batch_get_instances(batch(&["panic"])).await.unwrap_err());
    is_internal(&served.load_balancers().await.ensure_load_balancer(ensure("panic")).await.unwrap_err());
    is_internal(&instances.batch_get_instances(batch(&["broken"])).await.unwrap_err());
    let mut stream = instances.watch_instances(watch("panic")).await.unwrap().into_inner();
    stream.message().await.unwrap();
    is_internal(&stream.message().await.unwrap_err());
    instances.batch_get_instances(batch(&["fine"])).await.unwrap();
}

#[tokio::test]
async fn a_typed_error_arrives_as_it_was_made() {
    let served = serve(Cloud::new().provider()).await;
    let status = served.instances().await.batch_get_instances(batch(&["throttled"])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let error = ProviderError::from_status(&status).unwrap();
    assert_eq!(error.reason(), ErrorReason::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(9)));
}

#[tokio::test]
async fn a_method_is_told_about_its_call() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut request = Request::new(batch(&["fine"]));
    request.set_timeout(Duration::from_secs(30));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request.metadata_mut().insert("x-request-id", "req-7".parse().unwrap());
    served.instances().await.batch_get_instances(request).await.unwrap();
    let told = cloud.told.lock().clone();
    assert_eq!(told["method"], "BatchGetInstances");
    assert_eq!(told["cluster"], "cluster-1");
    assert_eq!(told["request_id"], "req-7");
    assert_eq!(told["traceparent"], traceparent);
    assert_eq!(told["peer"], rustix::process::geteuid().as_raw().to_string());
    let remaining: u64 = told["remaining_ms"].parse().unwrap();
    assert!((20_000..=30_000).contains(&remaining), "{remaining}");
}

#[tokio::test]
async fn without_a_deadline_none_is_made_up() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    served.instances().await.batch_get_instances(batch(&["fine"])).await.unwrap();
    assert_eq!(cloud.told.lock()["remaining_ms"], "none");
    assert!(!cloud.told.lock()["request_id"].is_empty());
}

/// [R:mutation-finishes]
#[tokio::test]
async fn a_mutation_is_finished_when_the_caller_is_gone() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut client = served.load_balancers().await;
    let call = tokio::spawn(async move { client.ensure_load_balancer(ensure("slow")).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // A second call, answered after the first one's stream was reset, shows that the server saw it.
    served.instances().await.batch_get_instances(batch(&["fine"])).await.unwrap();
    cloud.go.add_permits(1);
    within(cloud.finished.subscribe().wait_for(|count| *count == 1)).await.unwrap();
}

/// [R:mutation-finishes]
#[tokio::test]
async fn a_mutation_is_finished_when_its_deadline_passed() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut client = served.load_balancers().await;
    // On a busy machine the first may pass before the call has arrived.
    for deadline in [Duration::from_millis(300), Duration::from_secs(3), PATIENCE] {
        let mut request = Request::new(ensure("slow"));
        request.set_timeout(deadline);
        let status = client.ensure_load_balancer(request).await.unwrap_err();
        // Usually the server's answer arrives; on a busy machine the client's own timer is first, and says CANCELLED.
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
        assert!(ProviderError::from_status(&status).is_none(), "the deadline proves nothing");
        if *cloud.began.borrow() > 0 {
            break;
        }
    }
    cloud.go.add_permits(1);
    within(cloud.finished.subscribe().wait_for(|count| *count == 1)).await.unwrap();
}

/// What a host does after an answer that was lost, or a deadline that passed.
#[tokio::test]
async fn an_equal_mutation_joins_the_one_that_runs() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let (mut one, mut other) = (served.load_balancers().await, served.load_balancers().await);
    let first = tokio::spawn(async move { one.ensure_load_balancer(ensure("slow")).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    let mut hasty = Request::new(ensure("slow"));
    hasty.set_timeout(Duration::from_millis(200));
    other.ensure_load_balancer(hasty).await.unwrap_err();
    let second = tokio::spawn(async move { other.ensure_load_balancer(ensure("slow")).await });
    served.instances().await.batch_get_instances(batch(&["fine"])).await.unwrap();
    cloud.go.add_permits(1);
    within(first).await.unwrap().unwrap();
    within(second).await.unwrap().unwrap();
    assert_eq!((*cloud.began.borrow(), *cloud.finished.borrow()), (1, 1));

    // What has ended is no longer joined.
    cloud.go.add_permits(1);
    served.load_balancers().await.ensure_load_balancer(ensure("slow")).await.unwrap();
    assert_eq!(*cloud.finished.borrow(), 2);
}

#[tokio::test]
async fn a_mutation_on_a_key_that_another_one_works_on_is_refused() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut client = served.load_balancers().await;
    let running = tokio::spawn(async move { client.ensure_load_balancer(ensure("slow")).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();

    let mut client = served.load_balancers().await;
    let other = EnsureLoadBalancerRequest { desired_digest: "other".to_owned(), ..ensure("slow") };
    let refused = client.ensure_load_balancer(other.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), ErrorReason::ConcurrentOperation);
    let batch = updates(vec![update("uid-slow", 1), update("free", 1)]);
    let outcome = |answer: BatchUpdateLoadBalancersResponse| {
        let mut results: Vec<_> = answer
            .results
            .into_iter()
            .map(|result| (result.service_uid, result.error.map(|error| error.reason())))
            .collect();
        results.sort();
        results
    };
    let answer = client.batch_update_load_balancers(batch).await.unwrap().into_inner();
    let busy = ("uid-slow".to_owned(), Some(ErrorReason::ConcurrentOperation));
    assert_eq!(outcome(answer), [("free".to_owned(), None), busy.clone()]);
    let answer = client.batch_update_load_balancers(updates(vec![update("uid-slow", 2)])).await.unwrap();
    assert_eq!(outcome(answer.into_inner()), [busy], "an empty batch reaches no method");

    cloud.go.add_permits(2);
    within(running).await.unwrap().unwrap();
    client.ensure_load_balancer(other).await.unwrap();
}

/// D3: one Service that hangs in a cloud that works is that Service's failure; many at once, or a read, show the cloud.
#[tokio::test]
async fn the_own_limit_of_a_mutation_of_one_object_is_that_objects_failure() {
    let served = serve(Cloud::new().provider()).await;
    let mut client = served.load_balancers().await;
    let status = client.ensure_load_balancer(ensure("too-long")).await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::InternalError);
    assert_eq!(
        status.message(),
        "the provider gave up after 0s: its call to the cloud did not return in time"
    );
    let one = updates(vec![update("too-long", 1)]);
    let several = updates(vec![update("too-long", 2), update("other", 1)]);
    for (batch, wanted) in [(one, ErrorReason::InternalError), (several, ErrorReason::CloudApiUnavailable)] {
        let status = client.batch_update_load_balancers(batch).await.unwrap_err();
        assert_eq!(reason(&status), wanted);
    }
}

#[tokio::test]
async fn a_mutation_that_hangs_frees_its_key_in_the_end() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let (mut one, mut other) = (served.load_balancers().await, served.load_balancers().await);
    let hanging = tokio::spawn(async move { one.ensure_load_balancer(ensure("slow")).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    time::pause();
    time::advance(Duration::from_secs(600)).await;
    time::resume();
    let status = within(hanging).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert!(cloud.calls.lock()[0].cancellation().is_cancelled(), "tasks of its own are told, too");
    cloud.go.add_permits(1);
    let edited = EnsureLoadBalancerRequest { desired_digest: "other".to_owned(), ..ensure("slow") };
    other.ensure_load_balancer(edited).await.unwrap();
    assert_eq!((*cloud.began.borrow(), *cloud.finished.borrow()), (2, 1));
}

#[tokio::test]
async fn a_key_that_was_answered_not_once_is_unknown() {
    let served = serve(Cloud::new().provider()).await;
    let asked = updates(["lacking", "doubled", "fine"].map(|uid| update(uid, 1)).into());
    let answer = served.load_balancers().await.batch_update_load_balancers(asked).await.unwrap().into_inner();
    let mut results: Vec<_> = answer
        .results
        .iter()
        .map(|result| (&*result.service_uid, result.error.as_ref().map(ItemError::reason)))
        .collect();
    results.sort();
    let unknown = Some(ErrorReason::InternalError);
    assert_eq!(results, [("doubled", unknown), ("fine", None), ("lacking", unknown)]);
}

#[tokio::test]
async fn a_read_is_given_up_with_its_caller() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    let mut client = served.instances().await;
    let call = tokio::spawn(async move { client.batch_get_instances(batch(&["hang"])).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    call.abort();
    within(cloud.given_up.subscribe().wait_for(|count| *count == 1)).await.unwrap();
}

#[tokio::test]
async fn an_optional_rpc_that_is_not_advertised_is_not_served() {
    let served = serve(Cloud::new().provider()).await;
    let request = AddSshKeyToAllInstancesRequest {
        cluster: cluster(),
        fencing: fencing(0),
        user: "a".into(),
        public_key: "ssh-ed25519 AAAA".into(),
    };
    let status = served.instances().await.add_ssh_key_to_all_instances(request).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::Unimplemented, ErrorReason::MethodNotSupported));
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_are_advertised() {
    let cloud = Cloud::new();
    let limits = Some(Limits { max_concurrent_mutations: 1, ..Default::default() });
    let advertised = GetCapabilitiesResponse { limits, ..capabilities() };
    let served = serve(cloud.builder().capabilities(advertised).build().unwrap()).await;
    let (mut one, mut other) = (served.load_balancers().await, served.load_balancers().await);
    let first = tokio::spawn(async move { one.ensure_load_balancer(ensure("slow")).await });
    within(cloud.began.subscribe().wait_for(|count| *count == 1)).await.unwrap();
    let second =
        tokio::spawn(
            async move { other.batch_update_load_balancers(updates(vec![update("free", 1)])).await },
        );
    served.instances().await.batch_get_instances(batch(&["fine"])).await.unwrap();
    assert!(!second.is_finished());
    cloud.go.add_permits(1);
    within(first).await.unwrap().unwrap();
    within(second).await.unwrap().unwrap();
}

#[tokio::test]
async fn messages_may_be_as_large_as_advertised() {
    let served = serve(Cloud::new().provider()).await;
    let sized = |bytes: usize| {
        let mut request = batch(&["fine"]);
        let annotations = [("example.io/x".to_owned(), "x".repeat(bytes))];
        request.queries[0].node.as_mut().unwrap().annotations = annotations.into();
        request
    };
    let mut client = served.instances().await;
    client.batch_get_instances(sized(15 << 20)).await.unwrap();
    let status = client.batch_get_instances(sized(17 << 20)).await.unwrap_err();
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status:?}");
    let mut large = served.instances().await.max_decoding_message_size(16 << 20);
    large.batch_get_instances(batch(&["huge"])).await.unwrap();
}
