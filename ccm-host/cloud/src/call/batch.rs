//! RPCs that carry several items, each with its own answer.
//!
//! In: questions that [`super::gather`] brought together. Out: the answer to each, matched by the echoed key. Each such
//! RPC implements [`BatchRpc`], which says what is particular to it; [`super::split`] sends its calls.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt::Debug,
    hash::Hash,
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use cloudprovider_proto::v1alpha1 as pb;

use super::sets;
use crate::findings::Findings;
use crate::{
    BackendSet, CloudError, ErrorReason,
    connection::{Link, session::Session},
    method::{Method, Rpc},
};

/// An RPC that carries several items.
pub(crate) trait BatchRpc: Debug + Send + Sync + Sized + 'static {
    /// Only questions of the same lane may share a call.
    type Lane: Clone + Eq + Hash + Debug + Send + Sync + 'static;
    type Question: Clone + Send + Sync + 'static;
    type Request: Rpc;
    /// The answer to one item, as received.
    type Result: Send;
    /// The answer after its checks.
    type Done: Clone + Send + Sync + 'static;

    const METHOD: &'static Method = Self::Request::METHOD;
    /// Callers ask again whatever the answer, so the backoff of items that spoil calls is kept here.
    const PACED: bool = false;

    fn key(question: &Self::Question) -> ItemKey;

    /// What the provider wanted to know when the question was put; `None` if nothing in it depends on that.
    fn wants(_: &Self::Question) -> Option<&pb::Wants> {
        None
    }

    /// Whose object an item is about.
    fn whose(item: &Item<Self>) -> &str {
        &item.0.subject
    }

    /// Whether an answer asked for in lane `other`, `age` ago, is good enough for a question in lane `asked`.
    fn serves(_other: &Self::Lane, _asked: &Self::Lane, _age: Duration) -> bool {
        true
    }

    /// Whether two questions with the same key ask the same.
    fn same(link: &Link, a: &Self::Question, b: &Self::Question) -> bool;

    /// The key of each item on the wire: echoed.
    fn wire_keys(items: &[Item<Self>]) -> Vec<String>;

    /// Divides items into calls, none of which has two items with the same wire key.
    fn plan(_: &Session, items: Vec<Item<Self>>) -> Planned<Self> {
        let mut calls: Vec<(HashSet<String>, Vec<Item<Self>>)> = Vec::new();
        for (key, item) in Self::wire_keys(&items).into_iter().zip(items) {
            match calls.iter_mut().find(|(taken, _)| !taken.contains(&key)) {
                Some((taken, call)) => {
                    taken.insert(key);
                    call.push(item);
                }
                None => calls.push((HashSet::from([key]), vec![item])),
            }
        }
        Planned { chunks: calls.into_iter().map(|(_, call)| call).collect(), refused: Vec::new() }
    }

    /// The number of the field for the set of backends that all items get, and the set.
    fn set(_: &[Item<Self>]) -> Option<(u32, &BackendSet)> {
        None
    }

    /// The message of one call, without its set.
    fn request(call: &Call<'_, Self>, keys: &[String], items: &[Item<Self>]) -> Self::Request;

    /// Takes the results out of an answer, with the keys that they echo.
    fn results(answer: <Self::Request as Rpc>::Answer) -> Vec<(String, Self::Result)>;

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

    /// The items that are already done, as of then or later, whatever happened to their call. Empty if that cannot be
    /// known.
    fn done_already(
        _: &Link,
        _: &[Item<Self>],
        _since: Instant,
    ) -> impl Future<Output = Answers<Self>> + Send {
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
    /// Items that are not sent, and why.
    pub(crate) refused: Vec<(ItemKey, CloudError)>,
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
    let call = Call { link, session, lane, began: ccm_base::clock::now() };
    let keys = R::wire_keys(items);
    let request = || R::request(&call, &keys, items);
    let given = match R::set(items) {
        Some(set) => sets::call(link, session, Some(items.len()), set, request).await,
        None => link.call(session, Some(items.len()), request()).await,
    };
    let given = given.inspect_err(|error| {
        if error.is(ErrorReason::CloudApiUnavailable) {
            link.answered(R::METHOD, items.iter().map(|item| (R::whose(item), Some(error))));
        }
    })?;
    let mut matched = matched(&keys, R::results(given));
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
    if !answers.is_empty() {
        let by_whom = |item| Some((R::whose(item), R::failure(answers.get(&item.0)?)));
        link.answered(R::METHOD, items.iter().filter_map(by_whom));
    }
    Ok(answers)
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
