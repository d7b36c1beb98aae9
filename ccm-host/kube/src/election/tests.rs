use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::apiserver::{ApiServer, Asked, Fault, Refusal, Verb};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::task::JoinHandle;

use super::*;
use ccm_base::clock;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> ElectionSettings {
    ElectionSettings {
        leader_elect: true,
        leader_elect_lease_duration: 15 * SECOND,
        leader_elect_renew_deadline: 10 * SECOND,
        leader_elect_retry_period: 2 * SECOND,
        leader_elect_resource_lock: "leases".to_owned(),
        leader_elect_resource_name: "ccm".to_owned(),
        leader_elect_resource_namespace: "kube-system".to_owned(),
    }
}

struct Replica {
    leadership: Leadership,
    /// Whether a provider answers it.
    is_fit: Arc<AtomicBool>,
    health: Health,
    registry: Registry,
    events: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Replica {
    fn start(server: &ApiServer, name: &str) -> Self {
        let (leading, leadership) = Leadership::standby();
        let stop = CancellationToken::new();
        let is_fit = Arc::new(AtomicBool::new(true));
        let fitness = Arc::clone(&is_fit);
        let fitness = Box::new(move || fitness.load(Ordering::SeqCst));
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        let tell = Box::new(move |_: &str, message| told.lock().push(message));
        let lock = Lock::new(server.client(name), settings(), name.to_owned(), fitness, tell);
        let health = lock.health();
        let mut registry = Registry::default();
        let metrics = ElectionMetrics::register(&mut registry);
        let ends = (leading, leadership.clone());
        let task = tokio::spawn(run(lock, settings(), metrics, ends, stop.clone()));
        Self { leadership, is_fit, health, registry, events, stop, task }
    }

    /// Returns what was told on the Lease.
    async fn stop(self) -> Vec<String> {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        std::mem::take(&mut self.events.lock())
    }
}

fn server() -> ApiServer {
    clock::follow_tokio(Timestamp::UNIX_EPOCH);
    ApiServer::default()
}

fn lease(server: &ApiServer) -> Lease {
    let value = server.world().object::<Lease>("kube-system", "ccm").unwrap().value();
    serde_json::from_value(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_one_follows_at_once_when_it_stops() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let second = Replica::start(&server, "second");
    sleep(60 * SECOND).await;
    assert!(first.leadership.holds() && !second.leadership.holds());
    assert_eq!(first.leadership.fencing().epoch, 1);

    let begun = Instant::now();
    let told = first.stop().await;
    second.leadership.elected().await;
    assert!(begun.elapsed() < SECOND / 2, "not at the next look: {:?}", begun.elapsed());
    assert_eq!(told, ["first became leader", "first stopped leading"]);
    let fencing = second.leadership.fencing();
    assert_eq!((fencing.epoch, Some(fencing.scope)), (2, lease(&server).metadata.uid));
    second.stop().await;
    assert_eq!(lease(&server).spec.unwrap().holder_identity.as_deref(), Some(""));
}

/// The end comes while a renewal is under way, which the apiserver has written.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_not_heard_does_not_keep_the_lease() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let second = Replica::start(&server, "second");
    sleep(5 * SECOND).await;
    let hangs = std::sync::atomic::AtomicBool::new(true);
    let once = move |is_write: bool| is_write && hangs.swap(false, std::sync::atomic::Ordering::SeqCst);
    let faults = server.faults_of("first");
    faults.intercept(move |asked| once(asked.verb == Some(Verb::Update)).then_some(Fault::HangAfter)).stay();
    sleep(3 * SECOND).await;
    let begun = Instant::now();
    first.stop().await;
    second.leadership.elected().await;
    assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());
    second.stop().await;
}

/// The provider stops working for the old leader before the new one leads; behind one that does not hear it, the Lease
/// runs out.
#[tokio::test(start_paused = true)]
async fn the_lease_is_given_back_when_the_providers_have_heard_it() {
    for (hears_after, earliest, latest) in
        [(SECOND / 2, SECOND / 2, SECOND), (60 * SECOND, 12 * SECOND, 15 * SECOND)]
    {
        let server = server();
        let first = Replica::start(&server, "first");
        first.leadership.elected().await;
        let believer = first.leadership.believer();
        let second = Replica::start(&server, "second");
        sleep(5 * SECOND).await;

        let begun = Instant::now();
        let hearing = tokio::spawn(async move {
            sleep(hears_after).await;
            drop(believer);
        });
        first.stop().await;
        second.leadership.elected().await;
        let took = begun.elapsed();
        assert!(earliest <= took && took < latest, "{took:?}, not {earliest:?} to {latest:?}");
        hearing.abort();
        second.stop().await;
    }
}

/// Nodes 13: the sidecar of the leader's pod crashes again and again, that of the standby's does not.
#[tokio::test(start_paused = true)]
async fn a_leader_that_no_provider_answers_hands_over_to_a_replica_that_one_answers() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let second = Replica::start(&server, "second");
    let third = Replica::start(&server, "third");
    third.is_fit.store(false, Ordering::SeqCst);

    first.is_fit.store(false, Ordering::SeqCst);
    sleep(100 * SECOND).await;
    first.is_fit.store(true, Ordering::SeqCst);
    sleep(100 * SECOND).await;
    assert!(first.leadership.holds(), "a provider that restarts is no reason");

    first.is_fit.store(false, Ordering::SeqCst);
    sleep(115 * SECOND).await;
    assert!(first.leadership.holds());
    sleep(15 * SECOND).await;
    assert!(second.leadership.holds(), "it leads at once, not when the Lease would have run out");
    assert!(!first.leadership.holds());
    let error = first.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("second"), "{error}");
    assert_eq!(lease(&server).metadata.annotations.unwrap_or_default().len(), 0);
    sleep(600 * SECOND).await;
    assert!(second.leadership.holds(), "one hand-over is enough");
    for replica in [second, third] {
        replica.stop().await;
    }
}

/// Nobody would lead.
#[tokio::test(start_paused = true)]
async fn a_leader_that_no_provider_answers_leads_on_while_none_answers_anybody() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let second = Replica::start(&server, "second");
    for replica in [&first, &second] {
        replica.is_fit.store(false, Ordering::SeqCst);
    }
    sleep(600 * SECOND).await;
    assert!(first.leadership.holds());
    first.is_fit.store(true, Ordering::SeqCst);
    sleep(10 * SECOND).await;
    second.is_fit.store(true, Ordering::SeqCst);
    sleep(600 * SECOND).await;
    assert!(first.leadership.holds(), "its provider came back first");
    for replica in [first, second] {
        replica.stop().await;
    }
}

/// A cluster with permissions older than the host, or whose watches all break off: the standby polls as upstream's
/// does.
#[tokio::test(start_paused = true)]
async fn who_may_not_watch_the_lease_follows_at_the_next_look() {
    let ends = Fault::EndWatch { after: 0, cut: ::apiserver::Cut::End };
    for fault in [Fault::Refuse(Refusal::forbidden("leases")), ends] {
        let server = server();
        let first = Replica::start(&server, "first");
        first.leadership.elected().await;
        server.faults_of("second").every(|asked| asked.verb == Some(Verb::Watch), fault).stay();
        let second = Replica::start(&server, "second");
        sleep(60 * SECOND).await;

        let begun = Instant::now();
        first.stop().await;
        second.leadership.elected().await;
        assert!(begun.elapsed() <= 3 * SECOND, "{:?}", begun.elapsed());
        second.stop().await;
    }
}

/// As with missing permissions: the probe says since when and why, but not for a brief failure.
#[tokio::test(start_paused = true)]
async fn a_lease_that_may_not_be_read_is_told() {
    let server = server();
    let refused = Fault::Refuse(Refusal::forbidden("leases"));
    let fault = server.faults_of("one").every(|asked| asked.verb == Some(Verb::Get), refused);
    let one = Replica::start(&server, "one");
    sleep(5 * SECOND).await;
    assert_eq!(one.health.check(), Ok(()));
    sleep(10 * SECOND).await;
    let why = one.health.check().unwrap_err();
    assert!(why.starts_with("the Lease cannot be held since 1970-01-01T00:00:00Z: "), "{why}");
    assert!(why.contains("Forbidden"), "{why}");
    drop(fault);
    one.leadership.elected().await;
    assert_eq!(one.health.check(), Ok(()));
    one.stop().await;
}

/// Nor can one be made in a namespace that is not there.
#[tokio::test(start_paused = true)]
async fn a_lease_without_its_namespace_is_told() {
    let server = server();
    let lacks = Refusal::new(404, "NotFound", "namespaces \"kube-system\" not found");
    server.faults_of("one").every(|asked| asked.verb == Some(Verb::Create), Fault::Refuse(lacks)).stay();
    let one = Replica::start(&server, "one");
    sleep(20 * SECOND).await;
    let why = one.health.check().unwrap_err();
    assert!(why.contains("namespaces \"kube-system\" not found"), "{why}");
    one.stop().await;
}

/// Not only at the next check after that, and whatever somebody writes to its labels meanwhile.
#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_leader_is_taken_when_it_runs_out() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let second = Replica::start(&server, "second");
    sleep(61 * SECOND).await;
    first.task.abort();

    let begun = Instant::now();
    let (world, mut touched) = (server.world(), 0);
    let touching = async {
        loop {
            sleep(SECOND).await;
            touched += 1;
            let mut labelled = lease(&server);
            labelled.metadata.labels = Some([("touched".to_owned(), touched.to_string())].into());
            world.put_value(serde_json::to_value(labelled).unwrap()).unwrap();
        }
    };
    tokio::select! {
        () = second.leadership.elected() => {}
        () = touching => {}
    }
    let took = begun.elapsed();
    assert!(13 * SECOND <= took && took <= 15 * SECOND, "{took:?} after a leader that renewed every 2 s");
    second.stop().await;
}

/// A Lease that is free but cannot be written is requested no more often than one that is held.
#[tokio::test(start_paused = true)]
async fn a_lease_that_may_not_be_written_is_asked_for_at_intervals() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let writes = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    server
        .faults_of("second")
        .intercept(move |asked| {
            let write = asked.verb == Some(Verb::Update);
            write.then(|| counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
            write.then(|| Fault::Refuse(Refusal::forbidden("leases")))
        })
        .stay();
    let second = Replica::start(&server, "second");
    sleep(10 * SECOND).await;
    first.stop().await;
    sleep(60 * SECOND).await;
    let asked = writes.load(std::sync::atomic::Ordering::SeqCst);
    assert!((25..=35).contains(&asked), "{asked} times in a minute");
    second.task.abort();
}

/// Upstream's default: others wait for the whole lease duration, and the leader has stopped well before.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let second = Replica::start(&server, "second");
    sleep(7 * SECOND).await;
    let cut = server.faults_of("first");
    cut.every(|_: &Asked| true, Fault::Hang).stay();

    first.leadership.lost().await;
    assert!(!second.leadership.holds());
    let lost = Instant::now();
    let error = first.task.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "leadership was lost: the Lease kube-system/ccm could not be renewed within 10s");
    second.leadership.elected().await;
    assert!(lost.elapsed() > 3 * SECOND, "{:?}", lost.elapsed());
    second.stop().await;
}

/// SIGSTOP, then SIGCONT: its clock has moved on.
#[tokio::test(start_paused = true)]
async fn a_leader_that_was_paused_holds_nothing_when_it_wakes() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    tokio::time::advance(11 * SECOND).await;
    assert!(!first.leadership.holds());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_else_took_is_lost() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let mut taken = serde_json::to_value(lease(&server)).unwrap();
    taken["spec"]["holderIdentity"] = "other".into();
    server.world().put_value(taken).unwrap();
    let error = first.task.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "leadership was lost: the Lease kube-system/ccm is another replica's, or deleted");
    assert!(!first.leadership.holds());
}

/// Core L2: until its renewal deadline it would act beside whoever makes a new one at once.
#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deleted_is_lost_at_the_next_renewal() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    sleep(5 * SECOND).await;
    let deleted = Instant::now();
    server.world().remove::<Lease>("kube-system", "ccm").unwrap();
    let error = first.task.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "leadership was lost: the Lease kube-system/ccm is another replica's, or deleted");
    assert!(deleted.elapsed() <= 3 * SECOND, "{:?}", deleted.elapsed());
    assert!(!first.leadership.holds());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_has_to_read_the_lease_is_counted() {
    let server = server();
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    let served = || {
        let mut text = String::new();
        encode(&mut text, &first.registry).unwrap();
        text
    };
    sleep(20 * SECOND).await;
    assert!(served().contains(r#"leader_election_master_status{name="ccm"} 1"#), "{}", served());
    assert!(!served().contains("slowpath_total{"), "{}", served());
    let mut touched = serde_json::to_value(lease(&server)).unwrap();
    touched["metadata"]["labels"] = serde_json::json!({"somebody": "was-here"});
    server.world().put_value(touched).unwrap();
    sleep(20 * SECOND).await;
    assert!(first.leadership.holds());
    assert!(served().contains(r#"leader_election_slowpath_total{name="ccm"} 1"#), "{}", served());
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_fails_for_a_moment_costs_no_leadership() {
    // The last is of a proxy before the apiserver.
    for refusal in [Refusal::internal(), Refusal::new(404, "", "404 page not found")] {
        let server = server();
        let first = Replica::start(&server, "first");
        first.leadership.elected().await;
        let refusals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&refusals);
        let faults = server.faults_of("first");
        faults
            .intercept(move |asked| {
                let counts = matches!(asked.verb, Some(Verb::Update | Verb::Get));
                (counts && counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3)
                    .then(|| Fault::Refuse(refusal.clone()))
            })
            .stay();
        sleep(60 * SECOND).await;
        assert!(first.leadership.holds());
        assert!(refusals.load(std::sync::atomic::Ordering::SeqCst) > 3);
        first.stop().await;
    }
}

/// Each renewal has until the end of the term, however slow the ones before it were.
#[tokio::test(start_paused = true)]
async fn an_apiserver_that_takes_half_a_term_costs_no_leadership() {
    let server = server();
    server.faults().latency(4 * SECOND, SECOND / 2);
    let first = Replica::start(&server, "first");
    first.leadership.elected().await;
    for _ in 0..600 {
        sleep(SECOND / 4).await;
        assert!(first.leadership.holds());
    }
    first.stop().await;
}

/// The whole process is paused, its timers too: by the real clock.
#[tokio::test]
async fn whoever_wakes_after_the_end_has_lost_at_once() {
    let (leading, leadership) = Leadership::standby();
    leading.send_replace(Leading::Until { fencing: Fencing::default(), end: Instant::now() + SECOND / 20 });
    let mut waiting = std::pin::pin!(leadership.lost());
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    std::thread::sleep(SECOND / 10);
    assert!(futures::poll!(waiting).is_ready(), "before the runtime has looked at its timers");
    assert!(futures::poll!(std::pin::pin!(leadership.lost())).is_ready());
}
