//! The queue on a paused clock: order, delays, failures, panics, shutdown.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::FutureExt;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::KubeMetrics;

mod properties;

const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

fn queue() -> Arc<WorkQueue<&'static str>> {
    WorkQueue::new("test", BACKOFF, &KubeMetrics::default().queue)
}

impl<K: Key> WorkQueue<K> {
    async fn get(&self) -> Option<K> {
        self.take().await.map(|(key, _waited)| key)
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs to completion, with a time limit.
async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(1_000_000), work).await.expect("it never ends")
}

/// Takes the next key, and the time that took on the paused clock.
async fn next<K: Key>(queue: &WorkQueue<K>) -> (Option<K>, Duration) {
    let start = Instant::now();
    let key = bounded(queue.get()).await;
    (key, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn duplicates_collapse_and_order_is_kept() {
    let queue = queue();
    for key in ["a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.get().await, Some("a"));
    assert_eq!(queue.get().await, Some("b"));
    assert!(queue.get().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_runs_is_run_again_afterwards_and_not_before() {
    let queue = queue();
    queue.add("a");
    assert_eq!(queue.get().await, Some("a"));
    queue.add("a");
    assert!(queue.get().now_or_never().is_none(), "never two workers on one key");
    queue.done(&"a");
    assert_eq!(queue.get().await, Some("a"));
    queue.done(&"a");
    assert!(queue.get().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_delays_counts() {
    let queue = queue();
    queue.add_after("a", secs(30));
    queue.add_after("a", secs(10));
    queue.add_after("a", secs(20));
    assert_eq!(next(&queue).await, (Some("a"), secs(10)));
    queue.done(&"a");
    assert!(queue.get().now_or_never().is_none(), "one schedule per key");
    tokio::time::advance(secs(60)).await;
    assert!(queue.get().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_notices_an_earlier_delay() {
    let queue = queue();
    queue.add_after("late", secs(100));
    let mut waiting = Box::pin(queue.get());
    assert!(waiting.as_mut().now_or_never().is_none());
    queue.add_after("early", secs(1));
    let start = Instant::now();
    assert_eq!(waiting.await, Some("early"));
    assert_eq!(start.elapsed(), secs(1));
}

/// NODE-33 and SW-20: an event during backoff runs the key at once, keeps the count, and leaves no second
/// run behind.
#[tokio::test(start_paused = true)]
async fn node_33_an_add_during_backoff_runs_at_once_and_keeps_the_count() {
    let queue = queue();
    queue.add("a");
    queue.get().await;
    assert_eq!(queue.add_rate_limited("a"), secs(5));
    queue.done(&"a");
    assert_eq!(queue.retries(&"a"), 1);
    queue.add("a");
    assert_eq!(next(&queue).await, (Some("a"), Duration::ZERO));
    assert_eq!(queue.retries(&"a"), 1, "the failure count is kept");
    queue.forget(&"a");
    queue.done(&"a");
    tokio::time::advance(secs(3600)).await;
    assert!(queue.get().now_or_never().is_none(), "the old delay is gone with the success");
}

#[tokio::test(start_paused = true)]
async fn a_key_fails_from_its_first_failure_to_its_next_success() {
    let queue = queue();
    queue.add("a");
    queue.get().await;
    assert_eq!(queue.failing_for(&"a"), Duration::ZERO);
    queue.add_rate_limited("a");
    queue.done(&"a");
    tokio::time::advance(secs(2)).await;
    queue.add("a");
    queue.get().await;
    queue.add_rate_limited("a");
    queue.done(&"a");
    tokio::time::advance(secs(1)).await;
    assert_eq!(queue.failing_for(&"a"), secs(3));
    queue.forget(&"a");
    assert_eq!(queue.failing_for(&"a"), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_delay_asked_for_while_the_key_runs_is_kept_unless_it_runs_at_once() {
    let queue = queue();
    queue.add("a");
    queue.get().await;
    queue.add_after("a", secs(7));
    queue.done(&"a");
    assert_eq!(next(&queue).await, (Some("a"), secs(7)));
    queue.add_after("a", secs(7));
    queue.add("a");
    queue.done(&"a");
    assert_eq!(next(&queue).await, (Some("a"), Duration::ZERO));
    queue.done(&"a");
    tokio::time::advance(secs(60)).await;
    assert!(queue.get().now_or_never().is_none());
}

#[test]
fn a_jittered_pause_is_at_least_half_of_it() {
    let second = Duration::from_secs(1);
    assert_eq!([0.0, 0.5, 1.0].map(|random| jittered(second, random).as_millis()), [1000, 750, 500]);
}

#[test]
fn backoff_doubles_up_to_its_limit() {
    let delays: Vec<_> = (0..8).map(|failures| BACKOFF.delay(failures).as_secs()).collect();
    assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(BACKOFF.delay(u32::MAX), secs(300));
}

#[tokio::test(start_paused = true)]
async fn shut_down_drains_what_waits_drops_what_is_delayed_and_ignores_adds() {
    let queue = queue();
    queue.add("running");
    queue.get().await;
    queue.add("running");
    queue.add("waiting");
    queue.add_after("delayed", secs(1));
    queue.shut_down();
    queue.add("too late");
    queue.add_after("too late", secs(1));
    assert_eq!(queue.get().await, Some("waiting"));
    queue.done(&"running");
    assert_eq!(queue.get().await, Some("running"), "what was added before the end is still handed out");
    assert_eq!(queue.get().await, None);
    assert_eq!(queue.get().await, None, "every worker learns of the end");
}

#[tokio::test(start_paused = true)]
async fn shut_down_wakes_every_waiting_worker() {
    let queue = queue();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn({
                let queue = queue.clone();
                async move { queue.get().await }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in workers {
        assert_eq!(worker.await.unwrap(), None);
    }
}

/// Runs one key to its first outcome; returns how long until it runs again, and its failure count then.
async fn after_one(outcome: Outcome) -> (Option<Duration>, u32) {
    let queue = queue();
    queue.add("a");
    // One earlier failure, to distinguish a kept count from a cleared one.
    queue.get().await;
    queue.add_rate_limited("a");
    queue.done(&"a");
    queue.add("a");
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let mut outcomes = vec![outcome];
    let cancel = CancellationToken::new();
    let outcomes = Mutex::new(std::mem::take(&mut outcomes));
    let worker = run(queue.clone(), 1, cancel.clone(), move |_| {
        starts.send(Instant::now()).unwrap();
        let outcome = outcomes.lock().pop();
        async move { if let Some(outcome) = outcome { outcome } else { pending().await } }
    });
    let observe = async {
        let first = started.recv().await.unwrap();
        let second = tokio::time::timeout(secs(100_000), started.recv()).await.ok().flatten();
        (second.map(|second| second - first), queue.retries(&"a"))
    };
    tokio::select! {
        () = worker => unreachable!("nobody cancels"),
        seen = observe => seen,
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_set_delay_and_failure_count() {
    let rows = [
        ("Q-1", Outcome::Done, None, 0),
        ("Q-2", Outcome::retry("boom"), Some(secs(10)), 2),
        ("Q-3", Outcome::RetryAfter(secs(42)), Some(secs(42)), 1),
        ("slow", Outcome::Slow(secs(42)), Some(secs(42)), 0),
        ("at once", Outcome::RetryAfter(Duration::ZERO), Some(Duration::ZERO), 1),
    ];
    for (id, outcome, again, retries) in rows {
        assert_eq!(after_one(outcome).await, (again, retries), "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_retried_with_backoff_and_loses_no_key() {
    let queue = queue();
    queue.add("a");
    let runs = Arc::new(AtomicUsize::new(0));
    let cancel = CancellationToken::new();
    let start = Instant::now();
    let (counted, ended) = (Arc::clone(&runs), cancel.clone());
    let worker = run(queue.clone(), 1, cancel, move |_| {
        let (runs, ended) = (Arc::clone(&counted), ended.clone());
        async move {
            assert!(runs.fetch_add(1, Ordering::SeqCst) != 0, "the first run panics");
            ended.cancel();
            Outcome::Done
        }
    });
    bounded(worker).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(start.elapsed(), secs(5));
    assert_eq!(queue.retries(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelling_hands_out_nothing_more_and_waits_for_what_runs() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    let (cancel, runs) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let worker = run(queue.clone(), 1, cancel.clone(), move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(secs(20)).await;
            Outcome::Done
        }
    });
    let start = Instant::now();
    let stop = async {
        tokio::time::sleep(secs(5)).await;
        cancel.cancel();
    };
    bounded(async { tokio::join!(worker, stop) }).await;
    assert_eq!(start.elapsed(), secs(20), "the run in flight was waited for");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the second key was not handed out");
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_run_at_once() {
    let queue = WorkQueue::<usize>::new("test", BACKOFF, &KubeMetrics::default().queue);
    (0..10).for_each(|key| queue.add(key));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, highest, cancel) = (Arc::clone(&running), Arc::clone(&most), CancellationToken::new());
    let worker = run(queue.clone(), 3, cancel, move |_| {
        let (now, highest) = (Arc::clone(&now), Arc::clone(&highest));
        async move {
            highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Outcome::Done
        }
    });
    let start = Instant::now();
    let shut_down = async { queue.shut_down() };
    bounded(async { tokio::join!(worker, shut_down) }).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_eq!(start.elapsed(), secs(4), "ten runs of a second, three at a time");
}

#[tokio::test(start_paused = true)]
async fn metrics_carry_upstreams_names_and_values() {
    let mut registry = Registry::default();
    let queue = WorkQueue::new("Nodes", BACKOFF, &KubeMetrics::register(&mut registry).queue);
    queue.add("a");
    queue.add("b");
    queue.add("b");
    tokio::time::advance(secs(2)).await;
    queue.get().await;
    tokio::time::advance(secs(3)).await;
    queue.add_rate_limited("c");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"workqueue_depth{name="Nodes"} 1.0"#,
        r#"workqueue_adds_total{name="Nodes"} 2"#,
        r#"workqueue_retries_total{name="Nodes"} 1"#,
        r#"workqueue_queue_duration_seconds_sum{name="Nodes"} 2.0"#,
        r#"workqueue_queue_duration_seconds_bucket{le="10.0",name="Nodes"} 1"#,
        r#"workqueue_unfinished_work_seconds{name="Nodes"} 3.0"#,
        r#"workqueue_longest_running_processor_seconds{name="Nodes"} 3.0"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    queue.done(&"a");
    text.clear();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"workqueue_work_duration_seconds_sum{name="Nodes"} 3.0"#), "{text}");
    assert!(text.contains(r#"workqueue_unfinished_work_seconds{name="Nodes"} 0.0"#), "{text}");
}

/// A run that panics waits like one that fails: what comes by itself does not cut its backoff short.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_delay_is_left_to_it() {
    let (queue, cancel) = (queue(), CancellationToken::new());
    let runs = Arc::new(AtomicUsize::new(0));
    queue.add("a");
    let seen = Arc::clone(&runs);
    let running = tokio::spawn(run(queue.clone(), 1, cancel.clone(), move |_| {
        let runs = Arc::clone(&seen);
        async move {
            assert!(runs.fetch_add(1, Ordering::SeqCst) != 0, "the first run panics");
            Outcome::Done
        }
    }));
    tokio::time::sleep(secs(1)).await;
    queue.add_unless_delayed("a");
    tokio::time::sleep(secs(1)).await;
    assert_eq!((runs.load(Ordering::SeqCst), queue.delayed()), (1, 1));
    assert_eq!(queue.retries(&"a"), 1);
    tokio::time::sleep(BACKOFF.base).await;
    assert_eq!((runs.load(Ordering::SeqCst), queue.delayed(), queue.retries(&"a")), (2, 0, 0));
    queue.add_unless_delayed("a");
    tokio::time::sleep(secs(1)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 3, "nothing keeps it");
    cancel.cancel();
    running.await.unwrap();
}
