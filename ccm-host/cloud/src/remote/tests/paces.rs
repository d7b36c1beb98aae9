//! Durations from a provider that must not be followed blindly, on a paused clock.

use cloudprovider_proto::v1alpha1::{self as pb, Capability, watch_instances_response::Frame};

use super::*;

const AGES: prost_types::Duration = prost_types::Duration { seconds: i64::MAX, nanos: 999_999_999 };
const MINUTE: Duration = Duration::from_secs(60);

fn watched(script: &Script, steps: Vec<WatchStep>) {
    script.can(Capability::InstancesWatch);
    *script.watch.lock() = Box::new(move |_| Box::pin(std::future::ready(Ok(steps.clone()))));
}

fn started() -> WatchStep {
    WatchStep::Frame(Frame::Started(pb::WatchStarted { resumed: false }))
}

fn violations(host: &Host, rule: &str) -> f64 {
    host.metric(&format!("cloudprovider_contract_violations_total{{provider=\"p\",rule=\"{rule}\"}}"))
}

/// The cloud throttles and asks for this delay.
fn throttled(retry: Duration) -> tonic::Status {
    use tonic_types::StatusExt as _;
    let mut details = tonic_types::ErrorDetails::with_error_info(
        "RATE_LIMITED",
        cloudprovider_proto::ERROR_DOMAIN,
        std::collections::HashMap::new(),
    );
    details.set_retry_info(Some(retry));
    tonic::Status::with_error_details(Code::ResourceExhausted, "slow down", details)
}

/// N4.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_as_soon_as_it_started_is_opened_ever_less_often() {
    let script = Script::new("e1");
    watched(&script, vec![started()]);
    let host = piped_host(&script).await;
    tokio::time::sleep(10 * MINUTE).await;
    let streams = script.count("WatchInstances");
    assert!((60..=150).contains(&streams), "{streams} streams in ten minutes");
    assert_eq!(script.count("GetInfo"), 1, "the connection is kept");
    host.ask("n").await.unwrap();
}

/// N6: very long durations are waited out and break nothing.
#[tokio::test(start_paused = true)]
async fn durations_of_ages_end_no_watch() {
    let script = Script::new("e1");
    script.capabilities.lock().intervals = Some(pb::Intervals {
        bookmark_interval: Some(AGES),
        watch_max_age: Some(AGES),
        instance_sweep: Some(AGES),
        ..Default::default()
    });
    let changed = pb::InstanceChanged { provider_id: "test://1".into(), ..Default::default() };
    watched(&script, vec![started(), WatchStep::Frame(Frame::Changed(changed)), WatchStep::Hang]);
    let host = Host::over(piped(&script));
    let mut changes = host.provider.instance_changes();
    let change =
        tokio::time::timeout(PATIENCE, changes.recv()).await.expect("the watch is followed").unwrap();
    assert_eq!(change, "test://1");
    host.serving().await;
    assert_eq!(host.provider.info().unwrap().instance_sweep, Some(Duration::from_secs(24 * 3600)));
    assert_eq!(violations(&host, "duration-bounds"), 3.0);
}

/// N7.
#[tokio::test(start_paused = true)]
async fn a_pause_of_a_century_is_one_of_minutes() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|_| async { Err(throttled(Duration::from_secs(100 * 365 * 24 * 3600))) });
    let error = host.ask("n").await.unwrap_err();
    assert_eq!(error.retry_after, Some(60 * MINUTE), "nobody is told to wait for longer");
    assert_eq!(violations(&host, "duration-bounds"), 1.0);
    script.on_instances(|request| async { Ok(all_running(request)) });
    let paused = host.ask("n").await.unwrap_err();
    assert!(paused.retry_after.is_some_and(|left| left <= 5 * MINUTE), "{paused:?}");
    tokio::time::sleep(5 * MINUTE).await;
    host.ask("n").await.expect("the class is asked again");
}

/// N7: throttling of the former process does not affect its successor.
#[tokio::test(start_paused = true)]
async fn another_process_owes_no_pause() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|_| async { Err(throttled(4 * MINUTE)) });
    host.ask("n").await.unwrap_err();
    script.on_instances(|request| async { Ok(all_running(request)) });
    script.info.lock().process_epoch = "e2".into();
    // After three silences in a row the host reconnects.
    script.silent.store(true, std::sync::atomic::Ordering::SeqCst);
    tokio::time::sleep(3 * MINUTE).await;
    script.silent.store(false, std::sync::atomic::Ordering::SeqCst);
    host.serving().await;
    host.ask("n").await.expect("nothing is paused");
}

/// N7.
#[tokio::test(start_paused = true)]
async fn a_deadline_of_nanoseconds_is_none() {
    let script = Script::new("e1");
    script.deadline("BatchGetInstances", Duration::from_nanos(300));
    let host = piped_host(&script).await;
    script.on_instances(|request| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(all_running(request))
    });
    host.ask("n").await.expect("nobody answers within nanoseconds");
    assert_eq!(violations(&host, "duration-bounds"), 1.0);
}

/// S7: an answer in which every item failed is not a success.
#[tokio::test(start_paused = true)]
async fn a_batch_whose_items_all_fail_lifts_no_freeze() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    let failing = |reason: ErrorReason| {
        move |request: pb::BatchGetInstancesRequest| async move {
            let failed = |query: pb::InstanceQuery| pb::InstanceResult {
                key: query.key,
                error: Some(pb::ItemError { reason: reason.into(), ..Default::default() }),
                ..Default::default()
            };
            Ok(pb::BatchGetInstancesResponse { results: request.queries.into_iter().map(failed).collect() })
        }
    };
    script.on_instances(failing(ErrorReason::CloudApiUnavailable));
    for name in ["a", "b", "c"] {
        host.ask(name).await.unwrap();
    }
    host.frozen("BatchGetInstances").await;
    script.on_instances(failing(ErrorReason::InternalError));
    host.ask("n").await.unwrap();
    host.provider.list_routes(&[]).await.expect("another kind of call");
    tokio::time::sleep(Duration::from_secs(5)).await;
    host.frozen("BatchGetInstances").await;
    script.on_instances(|request| async { Ok(all_running(request)) });
    host.ask("n").await.unwrap();
    host.serving().await;
}

/// A new node's question goes with the next call, however many nodes a sweep asks about.
#[tokio::test(start_paused = true)]
async fn a_new_node_does_not_wait_behind_a_sweep() {
    let script = Script::new("e1");
    script.capabilities.lock().limits =
        Some(pb::Limits { reads: Some(pb::RateLimit { per_second: 1.0, burst: 1 }), ..Default::default() });
    let host = piped_host(&script).await;
    script.on_instances(|request| async { Ok(all_running(request)) });
    let names: Vec<_> = (0..10_000).map(|i| format!("n{i}")).collect();
    let ask = |name: &str, freshness| {
        let node = Arc::new(node(name));
        host.provider.instance(InstanceQuery { node, view: InstanceView::Metadata, freshness })
    };
    let sweep = futures::future::join_all(names.iter().map(|name| ask(name, Freshness::NOW)));
    let new = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = tokio::time::Instant::now();
        ask("late", Freshness::ReadThrough).await.unwrap();
        begun.elapsed()
    };
    tokio::select! {
        _ = sweep => panic!("twenty calls take twenty seconds"),
        took = new => assert!(took <= Duration::from_secs(3), "{took:?}"),
    }
}

/// S7, F8: what fails of one family of calls says nothing about the others; the Services of one namespace, and one node, say
/// nothing at all.
#[tokio::test(start_paused = true)]
async fn one_tenant_who_fails_freezes_nothing_and_several_freeze_their_family() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    *script.ensure.lock() =
        Box::new(|_| Box::pin(async { Err(refusal(Code::Unavailable, "CLOUD_API_UNAVAILABLE")) }));
    let set = host.provider.backend_set(vec![]);
    let service = |namespace: &str, name: &str| {
        Arc::new(ccm_kube::fixtures::service(name).in_namespace(namespace).load_balancer())
    };
    let ensure = async |namespace: &str, name: &str| {
        let service = service(namespace, name);
        let (backends, desired_digest) = (Arc::clone(&set), "d".to_owned());
        let wanted = EnsureLoadBalancer { service, backends, desired_digest, revision: 1, adopt: false };
        host.provider.ensure_load_balancer(wanted).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    let of = |family| host.provider.status(family).borrow().clone();
    for n in 0..10 {
        ensure("a", &format!("stuck-{n}")).await;
        assert_eq!(of(Family::LoadBalancers), ProviderStatus::Serving, "it may be its own fault");
    }
    ensure("b", "other").await;
    ensure("c", "third").await;
    assert!(
        matches!(of(Family::LoadBalancers), ProviderStatus::Frozen(why) if why.contains("EnsureLoadBalancer"))
    );
    for family in [Family::Instances, Family::Routes] {
        assert_eq!(of(family), ProviderStatus::Serving);
    }
    assert_eq!(host.metric("cloudprovider_serving{provider=\"p\"}"), 0.0);
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(of(Family::LoadBalancers), ProviderStatus::Serving, "for a while");

    let failing = |request: pb::BatchGetInstancesRequest| async move {
        let failed = |query: pb::InstanceQuery| pb::InstanceResult {
            key: query.key,
            error: Some(pb::ItemError {
                reason: ErrorReason::CloudApiUnavailable.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        Ok(pb::BatchGetInstancesResponse { results: request.queries.into_iter().map(failed).collect() })
    };
    script.on_instances(failing);
    for _ in 0..10 {
        host.ask("sick").await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(of(Family::Instances), ProviderStatus::Serving, "a batch of one");
    }
    futures::future::join_all(["a", "b", "c"].map(|name| host.ask(name))).await;
    assert!(matches!(of(Family::Instances), ProviderStatus::Frozen(_)));
    assert_eq!(of(Family::Routes), ProviderStatus::Serving);
}

/// Twenty Services share a call, and the cloud fails each of them, or refuses it in the words of lost credentials.
#[tokio::test(start_paused = true)]
async fn a_batch_counts_as_many_times_as_it_has_tenants() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    let set = host.provider.backend_set(vec![]);
    let update_all = async |reason: ErrorReason, namespaces: &[&str]| {
        *script.update.lock() = Box::new(move |request| {
            let failed = move |item: &pb::LoadBalancerUpdate| pb::LoadBalancerUpdateResult {
                service_uid: item.service.as_ref().unwrap().r#ref.as_ref().unwrap().uid.clone(),
                error: Some(pb::ItemError { reason: reason.into(), ..Default::default() }),
                ..Default::default()
            };
            let results = request.items.iter().map(failed).collect();
            Box::pin(async { Ok(pb::BatchUpdateLoadBalancersResponse { results }) })
        });
        let each = namespaces.iter().cycle().take(20).enumerate().map(|(n, namespace)| {
            let service = ccm_kube::fixtures::service(&format!("s{n}")).in_namespace(namespace);
            let (service, backends) = (Arc::new(service.load_balancer()), Arc::clone(&set));
            let wanted = UpdateLoadBalancer {
                service,
                backends,
                desired_digest: "d".to_owned(),
                revision: 1,
                had_it_before: false,
            };
            host.provider.update_load_balancer(wanted)
        });
        assert!(futures::future::join_all(each).await.iter().all(Result::is_err));
        tokio::time::sleep(Duration::from_secs(5)).await;
        *host.provider.status(Family::LoadBalancers).borrow() != ProviderStatus::Serving
    };
    for reason in [ErrorReason::CloudCredentialsInvalid, ErrorReason::CloudApiUnavailable] {
        assert!(!update_all(reason, &["a"]).await, "{reason:?}: their own fault");
        assert!(update_all(reason, &["a", "b", "c"]).await, "{reason:?}: everybody's");
        tokio::time::sleep(2 * MINUTE).await;
    }
}

/// The credentials are everybody's.
#[tokio::test(start_paused = true)]
async fn refused_credentials_freeze_every_family() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|_| async { Err(refusal(Code::Unauthenticated, "CLOUD_CREDENTIALS_EXPIRED")) });
    host.ask("n").await.unwrap_err();
    for family in Family::ALL {
        assert!(matches!(*host.provider.status(family).borrow(), ProviderStatus::Frozen(_)), "{family:?}");
    }
}
