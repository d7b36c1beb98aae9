//! Breaches by what is answered from memory.

use std::time::Duration;

use cloudprovider_sdk::proto::{BatchGetInstancesResponse, InstanceResult};

use super::{Breach, late};
use crate::{
    provider::timestamp,
    wire::{Answer, Method, Reply, Request, Shot, Turn},
};

/// How long a cache keeps what it read, where it forgets at all.
const KEPT: Duration = Duration::from_secs(5);
const BALANCERS: &[Method] = &[
    Method::GetLoadBalancer,
    Method::EnsureLoadBalancer,
    Method::BatchUpdateLoadBalancers,
    Method::DeleteLoadBalancer,
];

pub(super) const BREACHES: &[Breach] = &[
    late(
        "read-through",
        "an answer is given ever after or for five seconds, whatever staleness was asked for; `disguised` as a new one",
        &[Method::BatchGetInstances],
        stale,
    )
    .ways(&["for-ever", "seconds", "disguised"])
    .and_early(without_asking),
    late("get-reads-through", "a balancer is read from a cache of five seconds", BALANCERS, |request, reply, shot| {
        if let (Ok(Answer::GetLoadBalancer(answer)), Some(service)) = (&reply.outcome, request.service()) {
            let read = (timestamp(shot.mock.now()), answer.clone());
            shot.memory.read_balancers.lock().insert(service.uid.clone(), read);
        }
    })
    .and_early(|request, shot| {
        let mut read = shot.memory.read_balancers.lock();
        if !matches!(request, Request::GetLoadBalancer(_)) {
            // Its own changes it knows of.
            read.clear();
        }
        let known = request.service().and_then(|service| read.get(&service.uid));
        known.filter(|(at, _)| is_young(*at, shot)).map_or(Turn::GoOn, |(_, answer)| {
            Turn::answer(Answer::GetLoadBalancer(answer.clone()))
        })
    }),
];

fn is_young(at: prost_types::Timestamp, shot: &Shot<'_>) -> bool {
    let age = shot.mock.now().as_second().saturating_sub(at.seconds);
    u64::try_from(age).is_ok_and(|age| age < KEPT.as_secs())
}

/// The first name of the node with this key.
fn name_of(key: &str, shot: &Shot<'_>) -> Option<String> {
    let subject = shot.subjects.iter().find(|subject| subject.key == key);
    subject.and_then(|subject| subject.names.first()).cloned()
}

fn stale(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let mut first = shot.memory.first_answers.lock();
    reply.each(shot, |result: &mut InstanceResult| {
        let Some(name) = name_of(&result.key, shot) else { return };
        let old = |known: &InstanceResult| known.observed_at.is_some_and(|at| !is_young(at, shot));
        if shot.variant != "for-ever" && first.get(&name).is_some_and(old) {
            first.remove(&name);
        }
        let known = first.entry(name).or_insert_with(|| result.clone());
        *result = InstanceResult { key: std::mem::take(&mut result.key), ..known.clone() };
    });
}

/// Answers from the cache what it knows, as if it had looked.
fn without_asking(request: &mut Request, shot: &Shot<'_>) -> Turn {
    let Request::BatchGetInstances(request) = request else { return Turn::GoOn };
    if shot.variant != "disguised" {
        return Turn::GoOn;
    }
    let first = shot.memory.first_answers.lock();
    let known = request.queries.iter().map(|query| {
        let known = first.get(&name_of(&query.key, shot)?)?;
        known.observed_at.filter(|at| is_young(*at, shot))?;
        let observed_at = Some(timestamp(shot.mock.now()));
        Some(InstanceResult { key: query.key.clone(), observed_at, ..known.clone() })
    });
    let Some(results) = known.collect::<Option<Vec<_>>>() else { return Turn::GoOn };
    Turn::answer(Answer::BatchGetInstances(BatchGetInstancesResponse { results }))
}
