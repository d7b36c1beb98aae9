//! Random sequences of operations against a small model of the guarantees.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const KEYS: u8 = 4;

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    Fail(u8),
    Get,
    Done,
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    prop_oneof![
        key.clone().prop_map(Step::Add),
        (key.clone(), 1_u64..40).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        key.prop_map(Step::Fail),
        Just(Step::Get),
        Just(Step::Done),
        (1_u64..30).prop_map(Step::Advance),
    ]
}

/// The guarantee for each key: when it must be handed out, no earlier and no later.
#[derive(Debug, Default)]
struct Model {
    due: BTreeMap<u8, Instant>,
    running: BTreeSet<u8>,
    failures: BTreeMap<u8, u32>,
}

impl Model {
    fn ask(&mut self, key: u8, at: Instant) {
        let now = Instant::now();
        // A key waiting for a free worker runs before any delay.
        let waiting = !self.running.contains(&key) && self.due.get(&key).is_some_and(|due| *due <= now);
        if !waiting {
            self.due.entry(key).and_modify(|due| *due = at.min(*due)).or_insert(at);
        }
    }

    fn ready(&self) -> BTreeSet<u8> {
        let now = Instant::now();
        let due = self.due.iter().filter(|(_, due)| **due <= now).map(|(key, _)| *key);
        due.filter(|key| !self.running.contains(key)).collect()
    }
}

async fn apply(queue: &WorkQueue<u8>, model: &mut Model, step: Step) {
    match step {
        Step::Add(key) => {
            queue.add(key);
            model.ask(key, Instant::now());
        }
        Step::AddAfter(key, delay) => {
            queue.add_after(key, secs(delay));
            model.ask(key, Instant::now() + secs(delay));
        }
        Step::Fail(key) => {
            let delay = queue.add_rate_limited(key);
            let failures = model.failures.entry(key).or_default();
            assert_eq!(delay, BACKOFF.delay(*failures));
            *failures += 1;
            assert_eq!(queue.retries(&key), *failures);
            model.ask(key, Instant::now() + delay);
        }
        Step::Get => take(queue, model),
        Step::Done => {
            if let Some(key) = model.running.pop_first() {
                queue.done(&key);
            }
        }
        Step::Advance(seconds) => tokio::time::advance(secs(seconds)).await,
    }
}

fn take(queue: &WorkQueue<u8>, model: &mut Model) {
    let ready = model.ready();
    let taken = queue.get().now_or_never().flatten();
    match taken {
        Some(key) => {
            assert!(
                ready.contains(&key),
                "{key} was handed out early, twice at once, or for no reason: {model:?}"
            );
            model.due.remove(&key);
            model.running.insert(key);
        }
        None => assert!(ready.is_empty(), "{ready:?} wait and were not handed out"),
    }
}

proptest! {
    #[test]
    fn no_key_is_lost_doubled_or_early(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let queue = WorkQueue::new("test", BACKOFF, &KubeMetrics::default().queue);
            let mut model = Model::default();
            for step in steps {
                apply(&queue, &mut model, step).await;
            }
            // Everything requested is handed out, at its time and in the end.
            while let Some(key) = model.running.pop_first() {
                queue.done(&key);
            }
            while !model.due.is_empty() {
                take(&queue, &mut model);
                while let Some(key) = model.running.pop_first() {
                    queue.done(&key);
                }
                if model.ready().is_empty() {
                    tokio::time::advance(secs(1)).await;
                }
            }
            take(&queue, &mut model);
        });
    }
}
