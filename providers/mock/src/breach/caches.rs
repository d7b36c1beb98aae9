//! Breaches by answers from a cache.

use std::time::Duration;

use cloudprovider_sdk::proto::*;
use prost::Message as _;

use crate::{
    contract::{Message, Method, method},
    effect::{Effect, Reply, Shot, Turn, effect},
};

/// How long a cache keeps an entry, if it ever drops one.
const KEPT: Duration = Duration::from_secs(5);
const BALANCERS: &[&Method] = &[
    &method::GET_LOAD_BALANCER,
    &method::ENSURE_LOAD_BALANCER,
    &method::BATCH_UPDATE_LOAD_BALANCERS,
    &method::DELETE_LOAD_BALANCER,
];

pub(super) const BREACHES: &[Effect] = &[
    effect(
        "read-through",
        "the first answer is repeated for ever or for five seconds, or only that something is absent, whatever \
        staleness was requested; `disguised` as a fresh one",
    )
    .to(&[&method::BATCH_GET_INSTANCES])
    .ways(&["for-ever", "seconds", "absent", "disguised"])
    .late(stale)
    .early(without_asking),
    effect("get-reads-through", "balancers are read from a cache that is up to five seconds old")
        .to(BALANCERS)
        .late(|request, reply, shot| {
            if let (&method::GET_LOAD_BALANCER, Ok(answer), Some(service)) =
                (shot.method, &reply.outcome, request.service())
            {
                shot.memory.read_balancers.lock().insert(service.uid, (shot.now, answer.clone()));
            }
        })
        .early(|request, shot| {
            let mut read = shot.memory.read_balancers.lock();
            if shot.method != &method::GET_LOAD_BALANCER {
                // A cache knows its own changes.
                read.clear();
            }
            let known = request.service().and_then(|service| read.get(&service.uid));
            let known = known.filter(|(at, _)| is_young(at.as_second(), shot));
            known.map_or(Turn::GoOn, |(_, answer)| Turn::answer(Ok(answer.clone())))
        }),
];

fn is_young(second: i64, shot: &Shot<'_>) -> bool {
    let age = shot.now.as_second().saturating_sub(second);
    u64::try_from(age).is_ok_and(|age| age < KEPT.as_secs())
}

/// The first name of the node with this key.
fn name_of(key: &str, shot: &Shot<'_>) -> Option<String> {
    let subject = shot.subjects.iter().find(|subject| subject.key == key);
    subject.and_then(|subject| subject.names.first()).cloned()
}

fn stale(_request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    let mut first = shot.memory.first_answers.lock();
    reply.each(shot, |result: &mut InstanceResult| {
        let Some(name) = name_of(&result.key, shot) else { return };
        let old = |known: &InstanceResult| known.observed_at.is_some_and(|at| !is_young(at.seconds, shot));
        if shot.variant != "for-ever" && first.get(&name).is_some_and(old) {
            first.remove(&name);
        }
        if shot.variant == "absent" && result.state() != InstanceState::Absent && !first.contains_key(&name) {
            return;
        }
        let known = first.entry(name).or_insert_with(|| result.clone());
        *result = InstanceResult { key: std::mem::take(&mut result.key), ..known.clone() };
    });
}

/// Answers from the cache, as if it had read the cloud.
fn without_asking(request: &mut Message, shot: &Shot<'_>) -> Turn {
    if !matches!(shot.variant, "absent" | "disguised") {
        return Turn::GoOn;
    }
    let first = shot.memory.first_answers.lock();
    let request = request.first::<BatchGetInstancesRequest>().unwrap_or_default();
    let known = request.queries.into_iter().map(|query| {
        let known = first.get(&name_of(&query.key, shot)?)?;
        known.observed_at.filter(|at| is_young(at.seconds, shot))?;
        Some(InstanceResult { key: query.key, observed_at: shot.timestamp(), ..known.clone() })
    });
    let Some(results) = known.collect::<Option<Vec<_>>>() else { return Turn::GoOn };
    let answer = BatchGetInstancesResponse { results }.encode_to_vec();
    Turn::answer(Message::answer(shot.method, answer.into()))
}
