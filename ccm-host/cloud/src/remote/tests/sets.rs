//! Sets of backends that are sent once.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use cloudprovider_proto::v1alpha1 as pb;
use futures::future::join_all;
use parking_lot::Mutex;

use super::{
    balancers::{ensured, on_ensure, update, wanted},
    *,
};

/// Records the bytes of each request, and the node count of its set, -1 if nodes are omitted.
#[derive(Default)]
struct Arrived {
    bytes: usize,
    sets: Vec<i64>,
    known: HashMap<String, usize>,
}

impl Arrived {
    /// Behaves as the SDKs do.
    fn take(
        &mut self,
        request: &impl prost::Message,
        set: Option<&pb::BackendSet>,
    ) -> Result<(), tonic::Status> {
        self.bytes += request.encoded_len();
        let set = set.unwrap();
        self.sets.push(if set.nodes_omitted { -1 } else { set.nodes.len() as i64 });
        if !set.nodes_omitted {
            self.known.insert(set.digest.clone(), set.nodes.len());
        }
        match self.known.contains_key(&set.digest) {
            true => Ok(()),
            false => Err(refusal(Code::FailedPrecondition, "UNKNOWN_BACKEND_SET")),
        }
    }
}

fn keeping(script: &Script) -> Arc<Mutex<Arrived>> {
    script.can(pb::Capability::BackendSetsByDigest);
    let arrived = Arc::new(Mutex::new(Arrived::default()));
    let (ensures, updates) = (Arc::clone(&arrived), Arc::clone(&arrived));
    on_ensure(script, move |request| {
        ensures.lock().take(&request, request.backends.as_ref()).map(|()| ensured(&request))
    });
    *script.update.lock() = Box::new(move |request| {
        let taken = updates.lock().take(&request, request.backends.as_ref());
        Box::pin(std::future::ready(taken.map(|()| all_updated(&request))))
    });
    arrived
}

async fn ensure(host: &Host, name: &str, nodes: usize) {
    host.provider.ensure_load_balancer(wanted(host, name, nodes)).await.unwrap();
}

#[tokio::test]
async fn a_set_travels_once_in_ensures_and_updates_alike() {
    let script = Script::new("e1");
    let arrived = keeping(&script);
    let (host, _running, _dir) = served(&script).await;
    ensure(&host, "a", 3).await;
    ensure(&host, "b", 3).await;
    host.provider.update_load_balancer(update(wanted(&host, "c", 3))).await.unwrap();
    let two = ["d", "e"].into_iter().zip([3, 4]).map(|(name, nodes)| update(wanted(&host, name, nodes)));
    join_all(two.map(|update| host.provider.update_load_balancer(update))).await;
    ensure(&host, "f", 4).await;
    let mut sets = std::mem::take(&mut arrived.lock().sets);
    // The two calls of the fourth step, in either order.
    sets[3..5].sort_unstable();
    assert_eq!(sets, [3, -1, -1, -1, 4, -1]);
}

/// It is not a failed attempt: no caller notices.
#[tokio::test]
async fn what_the_provider_forgot_is_sent_along_at_once() {
    let script = Script::new("e1");
    let arrived = keeping(&script);
    let (host, _running, _dir) = served(&script).await;
    ensure(&host, "a", 3).await;
    arrived.lock().known.clear();
    ensure(&host, "b", 3).await;
    arrived.lock().known.clear();
    host.provider.update_load_balancer(update(wanted(&host, "c", 3))).await.unwrap();
    ensure(&host, "d", 3).await;
    assert_eq!(arrived.lock().sets, [3, -1, 3, -1, 3, -1]);
}

/// Seed 7253 of the simulation: the resent call counts against the cloud's rate.
#[tokio::test(start_paused = true)]
async fn what_is_sent_along_keeps_the_rate() {
    let script = Script::new("e1");
    script.limits(|limits| limits.mutations = Some(pb::RateLimit { per_second: 0.1, burst: 2 }));
    let arrived = keeping(&script);
    let host = piped_host(&script).await;
    ensure(&host, "a", 3).await;
    arrived.lock().known.clear();
    let begun = tokio::time::Instant::now();
    ensure(&host, "b", 3).await;
    assert!(begun.elapsed() >= Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!(arrived.lock().sets.len(), 3);
}

#[tokio::test]
async fn more_sets_than_a_provider_must_keep_travel_whole() {
    let script = Script::new("e1");
    let arrived = keeping(&script);
    let (host, _running, _dir) = served(&script).await;
    for nodes in [1, 2, 3, 4, 5, 1, 5] {
        ensure(&host, "a", nodes).await;
    }
    assert_eq!(arrived.lock().sets, [1, 2, 3, 4, 5, 1, -1]);
}

#[tokio::test]
async fn a_new_process_gets_whole_sets() {
    let script = Script::new("e1");
    let arrived = keeping(&script);
    let (dir, path) = folder();
    let running = Running::at(&path, &script);
    let host = Host::at(&path);
    host.serving().await;
    ensure(&host, "a", 3).await;
    drop(running);
    host.until(ProviderStatus::is_away).await;
    script.info.lock().process_epoch = "e2".into();
    let _running = Running::at(&path, &script);
    host.serving().await;
    ensure(&host, "b", 3).await;
    assert_eq!(arrived.lock().sets, [3, 3]);
    drop(dir);
}

#[tokio::test]
async fn without_the_capability_sets_are_always_whole() {
    let script = Script::new("e1");
    let arrived = keeping(&script);
    script.capabilities.lock().capabilities.clear();
    let (host, _running, _dir) = served(&script).await;
    ensure(&host, "a", 3).await;
    ensure(&host, "b", 3).await;
    assert_eq!(arrived.lock().sets, [3, 3]);
}

#[tokio::test]
async fn a_provider_that_never_knows_a_set_gets_it_once_and_fails() {
    let script = Script::new("e1");
    script.can(pb::Capability::BackendSetsByDigest);
    on_ensure(&script, |_| Err(refusal(Code::FailedPrecondition, "UNKNOWN_BACKEND_SET")));
    let (host, _running, _dir) = served(&script).await;
    let error = host.provider.ensure_load_balancer(wanted(&host, "a", 3)).await.unwrap_err();
    assert!(error.is(ErrorReason::UnknownBackendSet));
    assert_eq!(script.count("EnsureLoadBalancer"), 1);
}

#[tokio::test(start_paused = true)]
async fn of_calls_that_begin_together_one_brings_the_set_however_long_it_takes() {
    for takes in [Duration::ZERO, Duration::from_secs(5)] {
        let script = Script::new("e1");
        let arrived = keeping(&script);
        let (ensures, first) = (Arc::clone(&arrived), AtomicBool::new(true));
        *script.ensure.lock() = Box::new(move |request| {
            let taken = ensures.lock().take(&request, request.backends.as_ref());
            let time = if first.swap(false, Ordering::Relaxed) { takes } else { Duration::ZERO };
            Box::pin(async move {
                tokio::time::sleep(time).await;
                taken.map(|()| ensured(&request))
            })
        });
        let host = piped_host(&script).await;
        let begun = tokio::time::Instant::now();
        let ended = async |name| {
            ensure(&host, name, 3).await;
            begun.elapsed()
        };
        let names = ["a", "b", "c", "d", "e", "f"].map(ended);
        let mut ends = join_all(names).await;
        ends.sort_unstable();
        assert_eq!(arrived.lock().sets, [3, -1, -1, -1, -1, -1], "{takes:?}");
        assert!(ends[4] < Duration::from_secs(1), "{ends:?}");
    }
}

/// At most as many copies of the set as there are concurrent calls.
#[tokio::test]
async fn a_thousand_services_on_five_thousand_nodes_are_a_few_megabytes() {
    let script = Script::new("e1");
    let arrived = keeping(&script);
    let (host, _running, _dir) = served(&script).await;
    let first = wanted(&host, "s", 5000);
    let set = first.backends.encoded.len();
    assert!(set > 100_000, "{set}");
    let asked = (0..1000).map(|number| EnsureLoadBalancer {
        service: Arc::new(ccm_kube::fixtures::service(&format!("s{number}")).load_balancer()),
        ..first.clone()
    });
    let answers = join_all(asked.map(|wanted| host.provider.ensure_load_balancer(wanted))).await;
    assert!(answers.iter().all(Result::is_ok));
    let arrived = arrived.lock();
    assert!(arrived.sets.len() >= 1000);
    let at_once = cloudprovider_proto::defaults::MAX_CONCURRENT_MUTATIONS as usize;
    let most = at_once * set + arrived.sets.len() * 1024;
    assert!(arrived.bytes <= most, "{} bytes of {most}", arrived.bytes);
}
