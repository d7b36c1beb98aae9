//! Batches: keys, sizes and shapes, the same for all five.

mod calls;

use std::collections::BTreeSet;

use cloudprovider_proto::v1alpha1::ErrorReason;
use futures::future::LocalBoxFuture;

use crate::{
    case::{
        Case, Outcome,
        Profile::{self, Instances, LoadBalancers, Routes, Volumes},
        Run,
    },
    trial::{Trial, failed, good, refused, same},
};
use calls::Batch;

const KEYS: &[&str] = &["batch-keys"];
const QUERIES: &[&str] = &["| too many queries | INVALID_ARGUMENT | BATCH_TOO_LARGE"];
const ITEMS: &[&str] = &["| too many items | INVALID_ARGUMENT | BATCH_TOO_LARGE"];

pub(super) const CASES: &[Case] = &[
    one("BATCH-01", Instances, &Keys(Batch::Instances, Size::One)),
    most("BATCH-02", Instances, &Keys(Batch::Instances, Size::Most)),
    too_many("BATCH-03", Instances, &TooMany(Batch::Instances), QUERIES),
    Case::new("BATCH-09", Instances, "any text of up to 1 KiB is a key", KEYS, &odd_keys),
    one("BATCH-11", LoadBalancers, &Keys(Batch::Updates, Size::One)),
    most("BATCH-12", LoadBalancers, &Keys(Batch::Updates, Size::Most)),
    too_many("BATCH-13", LoadBalancers, &TooMany(Batch::Updates), ITEMS),
    one("BATCH-21", Routes, &Keys(Batch::EnsureRoutes, Size::One)),
    too_many("BATCH-22", Routes, &TooMany(Batch::EnsureRoutes), ITEMS),
    one("BATCH-25", Routes, &Keys(Batch::DeleteRoutes, Size::One)),
    most("BATCH-26", Routes, &Keys(Batch::DeleteRoutes, Size::Most)),
    too_many("BATCH-27", Routes, &TooMany(Batch::DeleteRoutes), ITEMS),
    one("BATCH-31", Volumes, &Keys(Batch::Volumes, Size::One)),
    most("BATCH-32", Volumes, &Keys(Batch::Volumes, Size::Most)),
    too_many("BATCH-33", Volumes, &TooMany(Batch::Volumes), QUERIES),
];

type Words = &'static [&'static str];

const fn one(id: &'static str, profile: Profile, run: &'static dyn Run) -> Case {
    Case::new(id, profile, "one key in a batch, the same key out", KEYS, run)
}

const fn most(id: &'static str, profile: Profile, run: &'static dyn Run) -> Case {
    Case::new(id, profile, "a batch of as many as advertised is answered key by key", KEYS, run)
}

const fn too_many(id: &'static str, profile: Profile, run: &'static dyn Run, words: Words) -> Case {
    Case::new(id, profile, "a batch of one more than advertised is BATCH_TOO_LARGE", &[], run).words(words)
}

#[derive(Debug, Clone, Copy)]
enum Size {
    One,
    Most,
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key-{number}")).collect()
}

/// Each key is answered exactly once, and no other key is.
fn each_once(sent: &str, asked: &[String], answered: &[String]) -> Outcome {
    let (asked_set, answered_set): (BTreeSet<_>, BTreeSet<_>) =
        (asked.iter().collect(), answered.iter().collect());
    let fits = asked_set == answered_set && answered.len() == asked.len();
    let strange: Vec<_> = asked_set.symmetric_difference(&answered_set).take(5).collect();
    let seen = format!("{} keys; missing or strange: {strange:?}", answered.len());
    if fits {
        Ok(())
    } else {
        Err(failed(format!("{sent}: each of {} keys exactly once", asked.len()), seen))
    }
}

struct Keys(Batch, Size);
struct TooMany(Batch);

impl Run for Keys {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Self(batch, size) = *self;
            let mut asked = keys(match size {
                Size::One => 1,
                Size::Most => batch.most(t),
            });
            t.shuffle(&mut asked);
            let sent = batch.sent(&asked);
            let answered = good(&sent, batch.call(t, &asked).await)?;
            each_once(&sent, &asked, &answered)
        })
    }
}

impl Run for TooMany {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let most = self.0.most(t);
            let asked = keys(most + 1);
            let answer = self.0.call(t, &asked).await;
            let seen = refused(&self.0.sent(&asked), answer, ErrorReason::BatchTooLarge)?;
            let told = seen.info.and_then(|info| info.metadata.get("max").cloned());
            same("metadata \"max\"", &told, &Some(most.to_string()))
        })
    }
}

async fn odd_keys(t: &Trial) -> Outcome {
    let asked = vec![
        "k".repeat(1 << 10),
        "blank and /slash".to_owned(),
        "Schlüssel-☃".to_owned(),
        "\u{1}\n\t".to_owned(),
    ];
    let sent = Batch::Instances.sent(&asked);
    let answered = good(&sent, Batch::Instances.call(t, &asked).await)?;
    each_once(&sent, &asked, &answered)
}
