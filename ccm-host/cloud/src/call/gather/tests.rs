use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;

use super::*;

/// A question that makes the call panic.
const PANICS: u32 = 4242;

/// Answers `key * 10`; remembers its calls.
#[derive(Default)]
struct Fake {
    most: usize,
    latency: Duration,
    permits: Option<tokio::sync::Semaphore>,
    calls: Mutex<Vec<(u64, Vec<u32>)>>,
    ended: AtomicUsize,
}

/// Lanes are ages in seconds: an answer serves every question that accepts its age on arrival.
#[derive(Clone)]
struct Reads(Arc<Fake>);

impl Batched for Reads {
    type Lane = u64;
    type Key = u32;
    type Question = u32;
    type Answer = Option<u32>;
    type Turn = ();

    fn most(&self) -> usize {
        self.0.most
    }

    fn serves(&self, other: &u64, asked: &u64, age: Duration) -> bool {
        Duration::from_secs(*other) + age <= Duration::from_secs(*asked)
    }

    fn same(&self, a: &u32, b: &u32) -> bool {
        a == b
    }

    async fn turn(&self) {
        if let Some(permits) = &self.0.permits {
            permits.acquire().await.unwrap().forget();
        }
    }

    async fn call(&self, lane: &u64, items: Vec<(u32, u32)>, (): (), landing: &Landing<'_, Self>) {
        let mut keys: Vec<_> = items.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        self.0.calls.lock().push((*lane, keys));
        tokio::time::sleep(self.0.latency).await;
        assert!(items.iter().all(|(_, question)| *question != PANICS), "as a bug of ours does");
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        let answered = items.into_iter().filter(|(key, _)| *key != u32::MAX);
        landing.land(answered.map(|(key, question)| (key, Some(question * 10))));
    }

    fn lost(&self, _: &'static str) -> Option<u32> {
        None
    }
}

impl<B: Batched> Batcher<B> {
    /// Asserts that no call is under way and none is remembered.
    pub(crate) fn assert_idle(&self) {
        let state = self.state.lock();
        assert!(state.flying.is_empty() && state.lanes.values().all(|lane| lane.len() == 0));
    }
}

fn batcher(most: usize, latency: u64, permits: Option<usize>) -> (Arc<Batcher<Reads>>, Arc<Fake>) {
    let fake = Arc::new(Fake {
        most,
        latency: Duration::from_millis(latency),
        permits: permits.map(tokio::sync::Semaphore::new),
        ..Fake::default()
    });
    (Batcher::new(Reads(Arc::clone(&fake))), fake)
}

fn sizes(fake: &Fake) -> Vec<usize> {
    fake.calls.lock().iter().map(|(_, keys)| keys.len()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lone_question_waits_five_milliseconds() {
    let (batcher, fake) = batcher(500, 0, None);
    let start = Instant::now();
    for _ in 0..3 {
        let asked = Instant::now();
        assert_eq!(batcher.ask(0, 1, 4).await, Some(40));
        assert!(asked.elapsed() <= Duration::from_millis(6), "{:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(sizes(&fake), [1, 1, 1]);
    assert!(start.elapsed() > Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_burst_costs_exactly_as_many_calls_as_it_needs() {
    for (questions, calls) in [(2000, 4), (2001, 5), (500, 1), (7, 1)] {
        let (batcher, fake) = batcher(500, 300, None);
        let start = Instant::now();
        let answers = join_all((0..questions).map(|i| batcher.ask(0, i, i))).await;
        assert!(answers.iter().zip(0..).all(|(answer, i)| *answer == Some(i * 10)));
        assert_eq!(fake.calls.lock().len(), calls, "{questions} questions");
        assert!(
            start.elapsed() < Duration::from_millis(330),
            "chunks run at the same time: {:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_over_some_milliseconds_still_fills_its_calls() {
    let (batcher, fake) = batcher(500, 50, None);
    join_all((0..2000_u32).map(|i| {
        let batcher = &batcher;
        async move {
            tokio::time::sleep(Duration::from_micros(u64::from(i) * 8)).await;
            batcher.ask(0, i, i).await
        }
    }))
    .await;
    assert_eq!(sizes(&fake), [500; 4]);
}

async fn trickle(per_second: u32, seconds: u32) -> (usize, Duration) {
    let (batcher, fake) = batcher(500, 20, None);
    let waits = join_all((0..per_second * seconds).map(|i| {
        let batcher = &batcher;
        async move {
            tokio::time::sleep(Duration::from_secs(1) / per_second * i).await;
            let asked = Instant::now();
            batcher.ask(0, i, i).await;
            asked.elapsed()
        }
    }))
    .await;
    let calls = fake.calls.lock().len();
    (calls, waits.into_iter().max().unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_stream_over_seconds_costs_a_few_tens_of_calls() {
    for per_second in [60, 100, 400, 1000] {
        let (calls, longest) = trickle(per_second, 5).await;
        assert!(calls <= 40, "{per_second} a second cost {calls} calls");
        assert!(longest <= WIDEST + Duration::from_millis(50), "{per_second} a second waited {longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_stream_is_bounded_by_its_own_rate() {
    let (calls, longest) = trickle(10, 5).await;
    assert_eq!(calls, 50);
    assert!(longest < Duration::from_millis(30), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_after_each_answer_is_not_held_up() {
    let (batcher, _) = batcher(500, 1, None);
    let start = Instant::now();
    for i in 0..100 {
        batcher.ask(0, i, i).await;
    }
    assert!(start.elapsed() < Duration::from_secs(1), "100 questions took {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_same_question_is_asked_once() {
    let (batcher, fake) = batcher(500, 50, None);
    let answers = join_all((0..100).map(|i| batcher.ask(0, i % 5, i % 5))).await;
    assert_eq!(answers.len(), 100);
    assert_eq!(sizes(&fake), [5]);
}

/// Not shared with a read-through asked after the call began; shared if the question accepts the age.
#[tokio::test(start_paused = true)]
async fn an_answer_under_way_is_shared_if_it_is_fresh_enough() {
    let (batcher, fake) = batcher(500, 1000, None);
    let ask = |lane, after| {
        let batcher = &batcher;
        async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            batcher.ask(lane, 1, 1).await
        }
    };
    // Read-through at 0, sent at 5; then: old enough (shared), read-through again (its own call).
    tokio::join!(ask(0, 0), ask(60, 100), ask(0, 200), ask(60, 300));
    assert_eq!(*fake.calls.lock(), [(0, vec![1]), (0, vec![1])]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_serves_who_asks_for_less() {
    let (batcher, fake) = batcher(500, 10, None);
    tokio::join!(batcher.ask(0, 1, 1), batcher.ask(60, 1, 1), batcher.ask(60, 2, 2));
    let mut calls = fake.calls.lock().clone();
    calls.sort();
    assert_eq!(calls, [(0, vec![1]), (60, vec![2])]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_question_is_not_answered_by_an_old_call() {
    let (batcher, fake) = batcher(500, 100, None);
    let later = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        batcher.ask(60, 1, 8).await
    };
    assert_eq!(tokio::join!(batcher.ask(0, 1, 7), later), (Some(70), Some(80)));
    assert_eq!(fake.calls.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_there_is_no_permit_questions_gather() {
    let (batcher, fake) = batcher(500, 10, Some(0));
    let release = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        fake.permits.as_ref().unwrap().add_permits(2);
    };
    let asked = join_all((0..600_u32).map(|i| {
        let batcher = &batcher;
        async move {
            tokio::time::sleep(Duration::from_millis(u64::from(i))).await;
            batcher.ask(0, i, i).await
        }
    }));
    tokio::join!(release, asked);
    assert_eq!(sizes(&fake), [500, 100]);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_costs_the_others_nothing() {
    let (batcher, fake) = batcher(500, 1000, None);
    let gone = tokio::time::timeout(Duration::from_millis(1), batcher.ask(0, 1, 1));
    let leaves = tokio::time::timeout(Duration::from_millis(500), batcher.ask(0, 2, 2));
    let stays = batcher.ask(0, 2, 2);
    let (gone, leaves, stays) = tokio::join!(gone, leaves, stays);
    assert!(gone.is_err() && leaves.is_err());
    assert_eq!(stays, Some(20));
    assert_eq!(*fake.calls.lock(), [(0, vec![2])], "a question that nobody has any more is not sent");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let (batcher, fake) = batcher(500, 1000, None);
    let both = async { tokio::join!(batcher.ask(0, 1, 1), batcher.ask(0, 2, 2)) };
    assert!(tokio::time::timeout(Duration::from_millis(100), both).await.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(sizes(&fake), [2]);
    assert_eq!(fake.ended.load(Ordering::SeqCst), 0, "the call ended though nobody waited");
    assert!(batcher.state.lock().flying.is_empty());
    assert_eq!(batcher.ask(60, 1, 1).await, Some(10), "a cancelled call is never joined");
}

#[tokio::test(start_paused = true)]
async fn a_question_without_an_answer_is_lost_not_stuck() {
    let (batcher, _) = batcher(500, 10, None);
    assert_eq!(tokio::join!(batcher.ask(0, u32::MAX, 1), batcher.ask(0, 2, 2)), (None, Some(20)));
}

/// N6.
#[tokio::test(start_paused = true)]
async fn a_call_that_panics_leaves_nobody_waiting() {
    let (batcher, _) = batcher(500, 10, None);
    let both = async { tokio::join!(batcher.ask(0, 1, PANICS), batcher.ask(0, 2, 2)) };
    let answers = tokio::time::timeout(Duration::from_secs(60), both).await.expect("everybody is told");
    assert_eq!(answers, (None, None));
    assert!(batcher.state.lock().flying.is_empty());
    assert_eq!(batcher.ask(60, 1, 1).await, Some(10), "and may ask again");
}

#[tokio::test(start_paused = true)]
async fn lanes_are_forgotten() {
    let (batcher, _) = batcher(500, 0, None);
    for lane in 0..10 {
        batcher.ask(lane, 1, 1).await;
    }
    tokio::time::sleep(FORGET_LANE * 2).await;
    batcher.ask(99, 1, 1).await;
    assert_eq!(batcher.state.lock().lanes.len(), 1);
}
