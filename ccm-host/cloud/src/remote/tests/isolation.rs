//! One item that hangs, or crashes the provider, costs its own call and not the others': on a paused clock.

use std::collections::BTreeMap;

use cloudprovider_proto::v1alpha1 as pb;
use futures::future::join_all;
use parking_lot::Mutex;

use super::*;
use ccm_kube::fixtures::service;

const MINUTE: Duration = Duration::from_secs(60);
const HANGS: &str = "s7-uid";

/// How a provider works on a batch with one item that never ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Works {
    /// On all at the same time, like the bridge.
    AtOnce,
    /// On one after the other.
    InOrder,
    /// On none, like the mock whose call hangs.
    Never,
}

/// The balancers of a cloud: how often each was updated, and what is applied.
#[derive(Default)]
struct Balancers(Mutex<BTreeMap<String, (usize, String)>>);

impl Balancers {
    /// Serves updates and lists, with or without digests.
    fn serve(self: &Arc<Self>, script: &Script, works: Works, digests: bool) {
        let all = Arc::clone(self);
        *script.update.lock() = Box::new(move |request| {
            let hangs = all.update(&request, works);
            Box::pin(async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(all_updated(&request))
            })
        });
        let all = Arc::clone(self);
        *script.list.lock() = Box::new(move |_| {
            let known = all.0.lock();
            let listed = known.iter().map(|(uid, (_, digest))| pb::LoadBalancer {
                service: Some(pb::ServiceRef { uid: uid.clone(), ..Default::default() }),
                state: pb::LoadBalancerState::Active.into(),
                ownership: pb::Ownership::ByUid.into(),
                applied_digest: if digests { digest.clone() } else { String::new() },
                ..Default::default()
            });
            let load_balancers = listed.collect();
            Box::pin(std::future::ready(Ok(pb::ListLoadBalancersResponse {
                load_balancers,
                ..Default::default()
            })))
        });
    }

    fn update(&self, request: &pb::BatchUpdateLoadBalancersRequest, works: Works) -> bool {
        let uid = |item: &pb::LoadBalancerUpdate| item.service.clone().unwrap().r#ref.unwrap().uid;
        let hangs = request.items.iter().any(|item| uid(item) == HANGS);
        for item in &request.items {
            let stops = match works {
                Works::AtOnce => false,
                Works::InOrder => uid(item) == HANGS,
                Works::Never => hangs,
            };
            if stops {
                break;
            }
            if uid(item) != HANGS {
                let mut all = self.0.lock();
                let (times, digest) = all.entry(uid(item)).or_default();
                *times += 1;
                digest.clone_from(&item.desired_digest);
            }
        }
        hangs
    }

    fn times(&self) -> Vec<usize> {
        self.0.lock().values().map(|(times, _)| *times).collect()
    }
}

/// Updates 20 Services, each until it is done or time is up, as a controller would. Returns when the last completed one
/// was done.
async fn update_all(host: &Host, nodes: usize, revision: u64) -> Duration {
    update_as(host, nodes, revision, false).await
}

async fn update_as(host: &Host, nodes: usize, revision: u64, had_it_before: bool) -> Duration {
    let set = host.provider.backend_set((0..nodes).map(|i| Arc::new(node(&format!("n{i}")))).collect());
    let begun = tokio::time::Instant::now();
    let each = (0..20).map(|i| {
        let service = Arc::new(service(&format!("s{i}")).load_balancer());
        let desired_digest = host.provider.desired_digest(&service, &set);
        let wanted = UpdateLoadBalancer {
            service,
            backends: Arc::clone(&set),
            desired_digest,
            revision,
            had_it_before,
        };
        async move {
            while host.provider.update_load_balancer(wanted.clone()).await.is_err() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            begun.elapsed()
        }
    });
    let each = each.map(|one| tokio::time::timeout(20 * MINUTE, one));
    join_all(each).await.into_iter().flatten().max().unwrap()
}

/// S3.
#[tokio::test(start_paused = true)]
async fn one_update_of_twenty_that_hangs_and_the_others_are_done_once() {
    let rows =
        [(Works::AtOnce, Duration::from_secs(15)), (Works::InOrder, 8 * MINUTE), (Works::Never, 8 * MINUTE)];
    for (works, longest) in rows {
        let script = Script::new("e1");
        let cloud = Arc::new(Balancers::default());
        cloud.serve(&script, works, true);
        let host = piped_host(&script).await;
        let took = update_all(&host, 1, 1).await;
        assert_eq!(cloud.times(), [1; 19], "{works:?}");
        assert!(took <= longest, "{works:?}: the last of the others waited {took:?}");
        let calls = script.count("BatchUpdateLoadBalancers");
        assert!(calls <= 30, "{works:?}: {calls} calls in 20 minutes");

        let took = update_all(&host, 2, 2).await;
        assert_eq!(cloud.times(), [2; 19], "{works:?}");
        assert!(took < Duration::from_secs(1), "{works:?}: it is known by now, they waited {took:?}");
    }
}

/// F13: a list shows what a balancer had before, while the provider still works on something else.
#[tokio::test(start_paused = true)]
async fn what_a_balancer_had_before_is_no_proof_that_it_has_it() {
    let script = Script::new("e1");
    let cloud = Arc::new(Balancers::default());
    cloud.serve(&script, Works::AtOnce, true);
    let host = piped_host(&script).await;
    update_all(&host, 1, 1).await;
    cloud.serve(&script, Works::Never, true);
    // One that does not know yet which of them hangs.
    let host = piped_host(&script).await;
    update_as(&host, 1, 2, true).await;
    assert_eq!(cloud.times(), [2; 19], "each is answered");
}

/// S3: a provider that cannot report what is applied is asked again, but not for ever.
#[tokio::test(start_paused = true)]
async fn without_digests_the_others_are_done_a_few_times_and_then_no_more() {
    let script = Script::new("e1");
    let cloud = Arc::new(Balancers::default());
    cloud.serve(&script, Works::AtOnce, false);
    let host = piped_host(&script).await;
    update_all(&host, 1, 1).await;
    assert!(cloud.times().iter().all(|times| (1..=3).contains(times)), "{:?}", cloud.times());
}

/// Asks about 500 nodes and returns how many got an answer.
async fn ask_all(host: &Host) -> usize {
    let names: Vec<_> = (0..500).map(|i| format!("n{i}")).collect();
    join_all(names.iter().map(|name| host.ask(name))).await.into_iter().filter(Result::is_ok).count()
}

type Breaks = fn() -> tonic::Status;

/// The provider crashes on every batch that holds this node.
fn breaks_on(script: &Script, name: &'static str, how: Breaks) {
    script.on_instances(move |request| async move {
        if request.queries.iter().any(|query| query.key == name) {
            Err(how())
        } else {
            Ok(all_running(request))
        }
    });
}

/// N8.
#[tokio::test(start_paused = true)]
async fn a_node_on_which_the_provider_breaks_costs_its_own_call() {
    let rows: [(&str, Breaks); 7] = [
        ("the contract's word", || refusal(Code::Internal, "INTERNAL_ERROR")),
        ("a recovered panic of grpc-go", || tonic::Status::internal("panic: nil map")),
        ("an exception of grpcio", || tonic::Status::unknown("Exception calling application: 'zone'")),
        ("a promise that was rejected", || tonic::Status::cancelled("Call cancelled")),
        ("one is gone, all are", || tonic::Status::not_found("no such machine")),
        ("one is malformed, all are", || tonic::Status::invalid_argument("bad id")),
        ("a panic of tonic", || panic!("as a provider does")),
    ];
    for (name, how) in rows {
        let script = Script::new("e1");
        let host = piped_host(&script).await;
        breaks_on(&script, "n77", how);
        assert_eq!(ask_all(&host).await, 499, "{name}");
        let calls = script.count("BatchGetInstances");
        assert!(calls <= 30, "{name}: {calls} calls");
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(ask_all(&host).await, 499, "{name}");
        }
        let calls = script.count("BatchGetInstances") - calls;
        assert!(
            (61..=70).contains(&calls),
            "{name}: one call each time, the node's own ever less often: {calls}"
        );

        script.on_instances(|request| async { Ok(all_running(request)) });
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(ask_all(&host).await, 500, "{name}: it is well again");
        let calls = script.count("BatchGetInstances");
        assert_eq!(ask_all(&host).await, 500);
        assert_eq!(script.count("BatchGetInstances"), calls + 1, "{name}: and forgiven");
    }
}

/// N8.
#[tokio::test(start_paused = true)]
async fn a_node_on_which_the_provider_hangs_holds_nobody_up_for_long() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|request| async {
        if request.queries.iter().any(|query| query.key == "n77") {
            std::future::pending::<()>().await;
        }
        Ok(all_running(request))
    });
    let begun = tokio::time::Instant::now();
    assert_eq!(ask_all(&host).await, 499);
    assert!(begun.elapsed() <= 3 * MINUTE, "{:?}", begun.elapsed());
    let again = tokio::time::Instant::now();
    assert_eq!(ask_all(&host).await, 499);
    assert!(again.elapsed() < Duration::from_secs(1), "it is known by now: {:?}", again.elapsed());
}

/// N8: splitting helps nobody if nothing works.
#[tokio::test(start_paused = true)]
async fn a_provider_that_breaks_on_everything_is_not_asked_in_parts_for_ever() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|_| async { Err(tonic::Status::internal("everything")) });
    assert_eq!(ask_all(&host).await, 0);
    let first = script.count("BatchGetInstances");
    assert!(first <= 80, "{first} calls");
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(ask_all(&host).await, 0);
    }
    assert_eq!(script.count("BatchGetInstances") - first, 6);
}

/// S3, for routes.
#[tokio::test(start_paused = true)]
async fn one_route_that_hangs_does_not_hold_up_the_others() {
    let script = Script::new("e1");
    *script.ensure_routes.lock() = Box::new(|request| {
        Box::pin(async move {
            if request.items.iter().any(|item| item.destination_cidr == "10.0.7.0/24") {
                std::future::pending::<()>().await;
            }
            Ok(all_routed(request))
        })
    });
    let host = piped_host(&script).await;
    let wish = |i: u8| EnsureRoute {
        destination: format!("10.0.{i}.0/24").parse().unwrap(),
        node: Arc::new(node(&format!("n{i}"))),
    };
    let answers = join_all((0..20).map(|i| host.provider.ensure_route(wish(i)))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 19);
}

/// S4: eight calls that hang do not take all of a provider's permits.
#[tokio::test(start_paused = true)]
async fn a_slow_kind_of_call_does_not_hold_up_the_others() {
    let script = Script::new("e1");
    *script.ensure.lock() = Box::new(|_| Box::pin(std::future::pending()));
    let host = piped_host(&script).await;
    let set = host.provider.backend_set(vec![]);
    let ensure = |i: usize| {
        let service = Arc::new(service(&format!("s{i}")).load_balancer());
        let (backends, desired_digest) = (Arc::clone(&set), "d".to_owned());
        host.provider.ensure_load_balancer(EnsureLoadBalancer {
            service,
            backends,
            desired_digest,
            revision: 1,
            adopt: false,
        })
    };
    let slow = join_all((0..20).map(ensure));
    let quick = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = tokio::time::Instant::now();
        let service = Arc::new(service("other").load_balancer());
        let (backends, desired_digest) = (Arc::clone(&set), "d".to_owned());
        let update = UpdateLoadBalancer {
            service: Arc::clone(&service),
            backends,
            desired_digest,
            revision: 1,
            had_it_before: false,
        };
        let route = EnsureRoute { destination: "10.0.1.0/24".parse().unwrap(), node: Arc::new(node("n")) };
        let delete = DeleteLoadBalancer {
            key: service.key.clone(),
            uid: service.uid.clone(),
            last_known: None,
            revision: 1,
            adopt: false,
        };
        let (updated, routed, deleted) = tokio::join!(
            host.provider.update_load_balancer(update),
            host.provider.ensure_route(route),
            host.provider.delete_load_balancer(delete),
        );
        updated.unwrap();
        routed.unwrap();
        assert!(deleted.unwrap_err().is(ErrorReason::MethodNotSupported), "it was asked");
        begun.elapsed()
    };
    tokio::select! {
        _ = slow => panic!("the slow ones never end"),
        took = quick => assert!(took < Duration::from_secs(1), "{took:?}"),
    }
}

/// A provider that needs its time for each item is sent smaller batches from then on.
#[tokio::test(start_paused = true)]
async fn a_batch_that_takes_too_long_makes_the_next_ones_smaller() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|request| async {
        tokio::time::sleep(Duration::from_millis(100) * u32::try_from(request.queries.len()).unwrap()).await;
        Ok(all_running(request))
    });
    assert_eq!(ask_all(&host).await, 500, "in parts");
    let calls = script.count("BatchGetInstances");
    for _ in 0..3 {
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(ask_all(&host).await, 500);
    }
    let late = script.count("BatchGetInstances") - calls;
    assert!(late <= 8, "{late} calls for three times 500");
}

/// A part of a batch that nobody waits for any more is not sent: that is no proof that the provider works, and the others spoil
/// it.
#[tokio::test(start_paused = true)]
async fn callers_who_leave_prove_nothing() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    script.on_instances(|_| std::future::pending());
    let names: Vec<_> = (0..40).map(|i| format!("n{i}")).collect();
    let asked = names.iter().enumerate().map(|(at, name)| {
        let patience = if at < 20 { Duration::from_secs(1) } else { 20 * MINUTE };
        tokio::time::timeout(patience, host.ask(name))
    });
    join_all(asked).await;
    script.on_instances(|request| async { Ok(all_running(request)) });
    let answers = join_all(names.iter().map(|name| host.ask(name))).await;
    assert_eq!(answers.into_iter().filter(Result::is_ok).count(), names.len());
}
