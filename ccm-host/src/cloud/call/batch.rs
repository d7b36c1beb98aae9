//! RPCs that carry several items, each with its own answer.
//!
//! In: single questions. Out: the answer to each. [`Batcher`] gathers questions that are asked at about the same time,
//! this module matches answers to questions by the echoed key, and [`Errand`] splits a call that fails as a whole. Each
//! such RPC implements [`BatchRpc`].

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use cloudprovider_proto::defaults;
use jiff::Timestamp;

use super::{
    gather::{Batched, Batcher, Landing},
    limit::Permit,
    method::Method,
    split::{Errand, Offenders},
};
use crate::cloud::{
    CloudError,
    check::Findings,
    connection::{Link, session::Session},
    status,
};

/// An RPC that carries several items.
pub(crate) trait BatchRpc: Debug + Send + Sync + Sized + 'static {
    /// Only questions of the same lane may share a call.
    type Lane: Clone + Eq + Hash + Debug + Send + Sync + 'static;
    type Question: Clone + Send + Sync + 'static;
    /// The answer to one item, as received.
    type Result: Send;
    /// The answer after its checks.
    type Done: Clone + Send + Sync + 'static;

    const METHOD: &'static Method;
    /// Callers ask again whatever the answer, so the backoff of items that spoil calls is kept here.
    const PACED: bool = false;

    fn key(question: &Self::Question) -> ItemKey;

    /// Whether an answer asked for in lane `other`, `age` ago, is good enough for a question in lane `asked`.
    fn serves(_other: &Self::Lane, _asked: &Self::Lane, _age: Duration) -> bool {
        true
    }

    /// Whether two questions with the same key ask the same.
    fn same(link: &Link, a: &Self::Question, b: &Self::Question) -> bool;

    /// Divides items into calls.
    fn plan(_: &Session, items: Vec<Item<Self>>) -> Planned<Self> {
        Planned { chunks: vec![items], too_large: Vec::new() }
    }

    /// The key of each item on the wire: unique in a call, and echoed.
    fn wire_keys(items: &[Item<Self>]) -> Vec<String>;

    /// Makes one call and returns its results with the keys that they echo.
    fn send(
        call: &Call<'_, Self>,
        keys: &[String],
        items: &[Item<Self>],
    ) -> impl Future<Output = Result<Vec<(String, Self::Result)>, CloudError>> + Send;

    /// Checks the answer to one item.
    fn read(
        call: &Call<'_, Self>,
        question: &Self::Question,
        result: Self::Result,
        findings: &mut Findings,
    ) -> Answer<Self>;

    /// The failure that an answer reports of the cloud.
    fn failure(answer: &Answer<Self>) -> Option<&CloudError> {
        answer.as_ref().err()
    }

    /// The items that are already done, whatever happened to their call. Empty if that cannot be known.
    fn done_already(_: &Link, _: &[Item<Self>]) -> impl Future<Output = Answers<Self>> + Send {
        std::future::ready(HashMap::new())
    }
}

/// Identifies a question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ItemKey {
    /// What the question is about, whatever state is desired this time.
    pub(crate) subject: String,
    /// Distinguishes two desired states of one subject.
    pub(crate) version: String,
}

impl ItemKey {
    pub(crate) fn new(subject: String) -> Self {
        Self { subject, version: String::new() }
    }
}

pub(crate) type Item<R> = (ItemKey, <R as BatchRpc>::Question);
pub(crate) type Answer<R> = Result<<R as BatchRpc>::Done, CloudError>;
pub(crate) type Answers<R> = HashMap<ItemKey, Answer<R>>;

/// Items, divided into calls.
pub(crate) struct Planned<R: BatchRpc> {
    pub(crate) chunks: Vec<Vec<Item<R>>>,
    /// Items that fit into no message.
    pub(crate) too_large: Vec<(ItemKey, CloudError)>,
}

/// A call under way.
pub(crate) struct Call<'a, R: BatchRpc> {
    pub(crate) link: &'a Link,
    pub(crate) session: &'a Session,
    pub(crate) lane: &'a R::Lane,
    pub(crate) began: Timestamp,
}

/// Makes one call about these items.
pub(crate) async fn call<R: BatchRpc>(
    link: &Link,
    session: &Session,
    lane: &R::Lane,
    items: &[Item<R>],
) -> Result<Answers<R>, CloudError> {
    let call = Call { link, session, lane, began: crate::clock::now() };
    let keys = R::wire_keys(items);
    let given = R::send(&call, &keys, items).await?;
    let mut matched = matched(&keys, given);
    link.metrics.wrong_keys(matched.wrong);
    if matched.reordered {
        link.metrics.reordered();
    }
    let read = |(wire, (key, question)): (&String, &Item<R>)| {
        let result = matched.answers.remove(wire)?;
        let answer = link.metrics.checked(|findings| R::read(&call, question, result, findings));
        Some((key.clone(), answer))
    };
    let answers: Answers<R> = keys.iter().zip(items).filter_map(read).collect();
    link.answered(R::METHOD, answers.values().map(R::failure));
    Ok(answers)
}

/// Gathers questions into calls of one RPC.
#[derive(Debug)]
pub(crate) struct Batch<R> {
    link: Arc<Link>,
    offenders: Offenders,
    rpc: std::marker::PhantomData<R>,
}

impl<R: BatchRpc> Batcher<Batch<R>> {
    pub(crate) fn over(link: &Arc<Link>) -> Self {
        let offenders = if R::PACED { Offenders::paced() } else { Offenders::unpaced() };
        Self::new(Batch { link: Arc::clone(link), offenders, rpc: std::marker::PhantomData })
    }

    /// The answer to one question. Without a session, it fails at once instead of after gathering a batch.
    pub(crate) async fn answer(&self, lane: R::Lane, question: R::Question) -> Answer<R> {
        self.batched().link.session(R::METHOD)?;
        self.ask(lane, R::key(&question), question).await
    }
}

impl<R: BatchRpc> Batched for Batch<R> {
    type Lane = R::Lane;
    type Key = ItemKey;
    type Question = R::Question;
    type Answer = Answer<R>;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        let session = self.link.present();
        session.map_or(defaults::MAX_BATCH as usize, |session| session.most_items(R::METHOD))
    }

    fn serves(&self, other: &R::Lane, asked: &R::Lane, age: Duration) -> bool {
        R::serves(other, asked, age)
    }

    fn same(&self, a: &R::Question, b: &R::Question) -> bool {
        R::same(&self.link, a, b)
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.link.permit(R::METHOD).await
    }

    async fn call(
        &self,
        lane: &R::Lane,
        items: Vec<Item<R>>,
        turn: Result<Permit, CloudError>,
        landing: &Landing<'_, Self>,
    ) {
        match turn.and_then(|permit| Ok((permit, self.link.session(R::METHOD)?))) {
            Ok((permit, session)) => {
                let Planned { chunks, too_large } = R::plan(&session, items);
                landing.land(too_large.into_iter().map(|(key, error)| (key, Err(error))));
                let (link, offenders) = (&*self.link, &self.offenders);
                let land = |answers| landing.land(answers);
                Errand::<R, _> { link, session: &session, lane, offenders, land }.run(permit, chunks).await;
            }
            Err(error) => landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone())))),
        }
    }

    fn lost(&self, why: &'static str) -> Answer<R> {
        Err(status::defect(R::METHOD.name, why))
    }
}

/// The answers of a batch, matched by key.
#[derive(Debug, PartialEq, Eq)]
struct Matched<A> {
    /// The answer to each key that was answered exactly once.
    answers: HashMap<String, A>,
    /// Keys without an answer, with several answers, or never asked for.
    wrong: usize,
    /// All answers are present, in another order.
    reordered: bool,
}

/// Matches answers to keys. A key with a missing or duplicate answer has none.
fn matched<A>(keys: &[String], given: Vec<(String, A)>) -> Matched<A> {
    let asked: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let in_order = keys.len() == given.len() && keys.iter().zip(&given).all(|(key, (other, _))| key == other);
    let mut answers = HashMap::with_capacity(given.len());
    let mut doubled = HashSet::new();
    let mut wrong = 0;
    for (key, answer) in given {
        if !asked.contains(key.as_str()) {
            wrong += 1;
            continue;
        }
        match answers.entry(key) {
            Entry::Vacant(place) => {
                place.insert(answer);
            }
            Entry::Occupied(place) => {
                doubled.insert(place.key().clone());
            }
        }
    }
    for key in &doubled {
        answers.remove(key);
    }
    // Duplicate answers count as missing.
    wrong += asked.len() - answers.len();
    Matched { answers, wrong, reordered: wrong == 0 && !in_order }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_matched_by_key() {
        type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], usize, bool);
        let rows: [Row<'_>; 8] = [
            ("in order", &["a", "b"], &["a", "b"], 0, false),
            ("reordered", &["b", "a"], &["a", "b"], 0, true),
            ("short", &["a"], &["a"], 1, false),
            ("empty", &[], &[], 2, false),
            ("long", &["a", "b", "c"], &["a", "b"], 1, false),
            ("doubled", &["a", "b", "a"], &["b"], 1, false),
            ("tripled", &["a", "a", "a", "b"], &["b"], 1, false),
            ("other keys", &["x", "y"], &[], 4, false),
        ];
        for (name, given, want, wrong, reordered) in rows {
            let keys = ["a", "b"].map(str::to_owned);
            let given = given.iter().enumerate().map(|(i, key)| ((*key).to_owned(), i)).collect();
            let matched = matched(&keys, given);
            let mut answered: Vec<_> = matched.answers.keys().cloned().collect();
            answered.sort();
            assert_eq!(answered, want, "{name}");
            assert_eq!((matched.wrong, matched.reordered), (wrong, reordered), "{name}");
        }
    }
}
