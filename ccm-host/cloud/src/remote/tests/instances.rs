//! Reads of instances over a socket.

use std::sync::atomic::{AtomicUsize, Ordering};

use cloudprovider_proto::v1alpha1 as pb;
use futures::future::join_all;

use super::*;

#[tokio::test]
async fn a_question_travels_with_all_that_the_contract_wants() {
    let script = Script::new("e1");
    let seen = Arc::new(parking_lot::Mutex::new(None));
    let (host, _running, _dir) = served(&script).await;
    script.on_instances({
        let seen = Arc::clone(&seen);
        move |request| {
            *seen.lock() = Some(request.clone());
            async { Ok(all_running(request)) }
        }
    });
    let answer = host.ask("n1").await.unwrap();
    assert_eq!((answer.state, answer.authoritative), (InstanceState::Running, true));
    assert_eq!(answer.instance.unwrap().provider_id, "test://n1");

    let request: pb::BatchGetInstancesRequest = seen.lock().take().unwrap();
    assert_eq!(
        request.cluster.unwrap(),
        pb::ClusterRef { uid: "cluster-uid".into(), name: "cluster".into() }
    );
    assert_eq!(request.view, i32::from(pb::InstanceView::Metadata));
    assert_eq!(request.max_staleness, Some(prost_types::Duration::default()));
    let node = request.queries[0].node.clone().unwrap();
    assert_eq!((node.name.as_str(), node.uid.as_str()), ("n1", "n1-uid"));

    let metadata = script.metadata.lock()["BatchGetInstances"].clone();
    assert_eq!(metadata.get("x-request-id").unwrap().to_str().unwrap().len(), 36);
    let timeout =
        metadata.get("grpc-timeout").expect("D25: the deadline is on the wire").to_str().unwrap().to_owned();
    assert!(timeout.starts_with("30"), "{timeout}");
    let agent = metadata.get("user-agent").unwrap().to_str().unwrap().to_owned();
    assert!(agent.starts_with("ccm-host/"), "{agent}");
    let series = "cloudprovider_rpc_duration_seconds_count{provider=\"p\",service=\"Instances\",\
                  method=\"BatchGetInstances\",code=\"OK\",reason=\"\"}";
    assert_eq!(host.metric(series), 1.0);
    assert_eq!(host.metric("cloudprovider_rpcs_in_flight{provider=\"p\",method=\"BatchGetInstances\"}"), 0.0);
}

#[tokio::test]
async fn two_thousand_questions_are_four_calls() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let answers = join_all((0..2000).map(|i| {
        let provider = Arc::clone(&host.provider);
        tokio::spawn(async move {
            let node = Arc::new(node(&format!("n{i}")));
            let query = InstanceQuery { node, view: InstanceView::All, freshness: Freshness::ReadThrough };
            provider.instance(query).await
        })
    }))
    .await;
    for (i, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap().unwrap().instance.unwrap().provider_id, format!("test://n{i}"));
    }
    assert_eq!(script.count("BatchGetInstances"), 4);
}

#[tokio::test]
async fn an_advertised_batch_size_is_kept() {
    let script = Script::new("e1");
    script.limits(|limits| limits.max_batch_instances = 100);
    let (host, _running, _dir) = served(&script).await;
    let names: Vec<_> = (0..250).map(|i| format!("n{i}")).collect();
    join_all(names.iter().map(|name| host.ask(name))).await;
    assert_eq!(script.count("BatchGetInstances"), 3);
}

/// 20,000 parts of two bytes each would take megabytes, and 16 MiB of them gigabytes.
#[tokio::test]
async fn an_answer_that_would_take_more_than_its_questions_warrant_is_not_decoded() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let flat = vec![pb::InstanceResult::default(); 20_000];
    let addresses = vec![pb::NodeAddress::default(); 50_000];
    let instance = Some(pb::Instance { addresses, ..Default::default() });
    let deep = vec![pb::InstanceResult { instance, ..Default::default() }];
    for results in [flat, deep] {
        script.on_instances(move |_| {
            let results = results.clone();
            async { Ok(pb::BatchGetInstancesResponse { results }) }
        });
        let error = host.ask("n").await.unwrap_err();
        assert!(error.message.contains("more than 1114112"), "{error}");
    }
    script.on_instances(|request| async { Ok(all_running(request)) });
    host.ask("n").await.unwrap();
}

#[tokio::test]
async fn a_batch_that_is_refused_as_too_large_is_halved_and_the_next_is_smaller() {
    for refuse in [
        refusal(Code::InvalidArgument, "BATCH_TOO_LARGE"),
        tonic::Status::out_of_range(
            "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
        ),
    ] {
        let script = Script::new("e1");
        let (host, _running, _dir) = served(&script).await;
        let ours = !refuse.details().is_empty();
        script.on_instances(move |request| {
            let refuse = refuse.clone();
            async move { if request.queries.len() > 10 { Err(refuse) } else { Ok(all_running(request)) } }
        });
        let names: Vec<_> = (0..20).map(|i| format!("n{i}")).collect();
        let answers = join_all(names.iter().map(|name| host.ask(name))).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(script.count("BatchGetInstances"), 3);
        join_all(names.iter().map(|name| host.ask(name))).await;
        assert_eq!(script.count("BatchGetInstances"), if ours { 5 } else { 6 });
    }
}

#[tokio::test]
async fn a_provider_that_hangs_costs_a_deadline_and_no_more() {
    let script = Script::new("e1");
    script.deadline("BatchGetInstances", Duration::from_millis(100));
    let (host, _running, _dir) = served(&script).await;
    script.on_instances(|_| std::future::pending());
    let error = tokio::time::timeout(PATIENCE, host.ask("n")).await.unwrap().unwrap_err();
    assert_eq!((error.code, error.reason), (Code::DeadlineExceeded, None));
    script.on_instances(|request| async { Ok(all_running(request)) });
    // The connection is as good as before. A busy machine may miss the deadline now and then.
    let answered = async {
        while host.ask("n").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap();
    assert_eq!(script.count("GetInfo"), 1, "nobody reconnected");
}

#[tokio::test]
async fn a_provider_that_is_killed_in_a_call_is_unavailable_and_comes_back() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    let running = Running::at(&path, &script);
    let host = Host::at(&path);
    host.serving().await;
    script.on_instances(|_| std::future::pending());
    let kill = async {
        eventually("the call has begun", || script.count("BatchGetInstances") == 1).await;
        drop(running);
    };
    let (answer, ()) = tokio::join!(host.ask("n"), kill);
    let error = answer.unwrap_err();
    assert_eq!((error.code, error.reason), (Code::Unavailable, None), "{error}");

    let script = Script::new("e2");
    let _running = Running::at(&path, &script);
    eventually("the new epoch is known", || host.provider.info().unwrap().epoch == "e2").await;
    host.serving().await;
    host.ask("n").await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_a_call_that_nobody_else_waits_for() {
    struct Ended(Arc<AtomicUsize>);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let ended = Arc::new(AtomicUsize::new(0));
    script.on_instances({
        let ended = Arc::clone(&ended);
        move |_| {
            let guard = Ended(Arc::clone(&ended));
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        }
    });
    let ask = tokio::time::timeout(Duration::from_millis(300), host.ask("n"));
    assert!(ask.await.is_err());
    eventually("the provider's handler ended", || ended.load(Ordering::SeqCst) == 1).await;
}

/// [R:batch-keys]
#[tokio::test]
async fn answers_are_matched_and_what_is_wrong_is_unknown_and_counted() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    script.on_instances(|_| async {
        let mut newer = running("newer", "test://newer");
        newer.state = 99;
        let results = vec![
            running("doubled", "test://a"),
            running("foreign", "other://1"),
            newer,
            running("nobody-asked", "test://x"),
            running("fine", "test://fine"),
            running("doubled", "test://b"),
        ];
        Ok(pb::BatchGetInstancesResponse { results })
    });
    let (fine, missing, doubled, newer, foreign) = tokio::join!(
        host.ask("fine"),
        host.ask("missing"),
        host.ask("doubled"),
        host.ask("newer"),
        host.ask("foreign")
    );
    assert_eq!(script.count("BatchGetInstances"), 1);
    assert_eq!(fine.unwrap().instance.unwrap().provider_id, "test://fine");
    assert!(missing.unwrap_err().is(ErrorReason::InternalError));
    assert!(doubled.unwrap_err().is(ErrorReason::InternalError));
    assert_eq!(newer.unwrap().state, InstanceState::Unspecified);
    assert_eq!(foreign.unwrap().instance, None);
    for (rule, times) in [("batch-keys", 3.0), ("unknown-enum", 1.0), ("provider-id-prefix", 1.0)] {
        let series = format!("cloudprovider_contract_violations_total{{provider=\"p\",rule=\"{rule}\"}}");
        assert_eq!(host.metric(&series), times, "{rule}");
    }
}

#[tokio::test]
async fn another_order_is_accepted_and_counted() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    script.on_instances(|request| async {
        let mut answer = all_running(request);
        answer.results.reverse();
        Ok(answer)
    });
    let (a, b) = tokio::join!(host.ask("a"), host.ask("b"));
    assert_eq!(a.unwrap().instance.unwrap().provider_id, "test://a");
    assert_eq!(b.unwrap().instance.unwrap().provider_id, "test://b");
    assert_eq!(host.metric("cloudprovider_batch_reordered_total{provider=\"p\"}"), 1.0);
    assert!(!host.metrics().contains("rule=\"batch-keys\""));
}

/// D38: the whole class pauses, for all callers.
#[tokio::test]
async fn a_throttling_cloud_pauses_all_reads() {
    use tonic_types::StatusExt as _;
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    script.on_instances(|_| async {
        let mut details = tonic_types::ErrorDetails::with_error_info(
            "RATE_LIMITED",
            cloudprovider_proto::ERROR_DOMAIN,
            std::collections::HashMap::new(),
        );
        details.set_retry_info(Some(Duration::from_secs(60)));
        Err(tonic::Status::with_error_details(Code::ResourceExhausted, "slow down", details))
    });
    let first = host.ask("a").await.unwrap_err();
    assert_eq!(first.retry_after, Some(Duration::from_secs(60)));
    let second = host.ask("b").await.unwrap_err();
    assert!(second.is(ErrorReason::RateLimited));
    assert!(second.retry_after.is_some_and(|left| left > Duration::from_secs(50)), "{second:?}");
    assert_eq!(script.count("BatchGetInstances"), 1, "the second never left");
    let series = "cloudprovider_rate_limited_seconds_total{provider=\"p\",class=\"read\"}";
    assert!((59.0..61.0).contains(&host.metric(series)));
    assert_eq!(host.provider.list_load_balancers().await.unwrap_err().reason, Some(ErrorReason::RateLimited));
}

#[tokio::test]
async fn a_service_that_is_not_served_is_never_called() {
    let script = Script::new("e1");
    script.info.lock().services.retain(|name| !name.ends_with("Instances"));
    let (host, _running, _dir) = served(&script).await;
    assert!(!host.provider.info().unwrap().instances);
    assert!(host.ask("n").await.unwrap_err().is(ErrorReason::MethodNotSupported));
    assert_eq!(script.count("BatchGetInstances"), 0);
}
