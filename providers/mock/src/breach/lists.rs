//! Breaches in the keys of batches, and in lists and their pages.

use std::collections::BTreeMap;

use cloudprovider_sdk::proto::*;
use prost_reflect::Value;

use crate::{
    contract::{Message, Method, method},
    effect::{Effect, Reply, Shot, effect},
};

const LISTS: &[&Method] =
    &[&method::LIST_INSTANCES, &method::LIST_LOAD_BALANCERS, &method::LIST_ROUTES, &method::LIST_CLUSTERS];
const WITH_PARTS: &[&Method] = &[&method::LIST_INSTANCES, &method::LIST_LOAD_BALANCERS, &method::LIST_ROUTES];

/// The token of the last page, which leads back to the first.
const ROUND: &str = "round-and-round";

/// The fields of the requested page's token, and of the next page's.
const TOKEN: &str = "page_token";
const NEXT: &str = "next_page_token";

pub(super) const BREACHES: &[Effect] = &[
    effect(
        "batch-keys",
        "a key is missing (of several nodes of one instance, too), duplicate, was never requested, or has another's \
        answer or addresses, or routes beyond the second are said to be deleted; `reordered` is legal",
    )
    .to(method::BATCHES)
    .ways(&[
        "missing",
        "doubled",
        "unknown",
        "empty",
        "exchanged",
        "first-fifty",
        "by-instance",
        "addresses",
        "first-two",
        "reordered",
    ])
    .asked(|request, shot| {
        if shot.variant == "first-two" {
            request.each(|batch: &mut BatchDeleteRoutesRequest| batch.items.truncate(2));
        }
    })
    .late(|_, reply, shot| {
        if let "by-instance" | "addresses" | "first-two" = shot.variant {
            reply.each(shot, |answer: &mut BatchGetInstancesResponse| mix(answer, shot.variant));
            reply.each(shot, |answer: &mut BatchDeleteRoutesResponse| {
                let rest = shot.subjects.iter().skip(answer.results.len()).map(|subject| subject.key.clone());
                let done = |key| RouteDeletion { key, ..RouteDeletion::default() };
                answer.results.extend(rest.map(done));
            });
        } else {
            let _none_is_meant = spoil(reply, shot);
        }
    }),
    effect("page-size", "a page has more entries than were requested").to(LISTS).asked(|request, _| {
        request.set("page_size", Value::I32(0));
    }),
    effect("page-token-refused", "a page token that leads nowhere is answered with an empty page")
        .to(LISTS)
        .late(|request, reply, shot| {
            if reply.outcome.is_err() && !request.text(TOKEN).is_empty() {
                reply.outcome = shot.blank();
            }
        }),
    effect(
        "page-walk-ends",
        "the last page leads back to the first, or the last entry of a page is left out",
    )
    .to(LISTS)
    .ways(&["round", "loses"])
    .late(|_, reply, shot| {
        if shot.variant == "loses" {
            let goes_on = reply.outcome.as_ref().is_ok_and(|list| !list.text(NEXT).is_empty());
            let several = |entries: &&mut Vec<Value>| goes_on && entries.len() > 1;
            reply.entries().filter(several).and_then(Vec::pop);
            return;
        }
        let last = |list: &&mut Message| list.text(NEXT).is_empty();
        if let Some(list) = reply.outcome.as_mut().ok().filter(last) {
            list.set(NEXT, Value::String(ROUND.to_owned()));
        }
    })
    .asked(|request, _| {
        if request.text(TOKEN) == ROUND {
            request.set(TOKEN, Value::String(String::new()));
        }
    }),
    effect("list-unreachable", "half of a list is silently left out").to(WITH_PARTS).late(|_, reply, _| {
        halve(reply);
        let list = reply.outcome.as_mut().ok();
        list.and_then(|list| list.list("unreachable")).into_iter().for_each(Vec::clear);
    }),
    effect("list-own-only", "balancers of other clusters are listed")
        .to(&[&method::LIST_LOAD_BALANCERS])
        .late(others),
];

/// Corrupts the keys of the results, if the fault targets one of them.
fn spoil(reply: &mut Reply, shot: &Shot<'_>) -> Option<()> {
    let results = reply.outcome.as_mut().ok()?.list("results")?;
    let meant = |result: &Value| result.as_message().is_some_and(|result| shot.means(result));
    let at = results.iter().position(meant)?;
    match shot.variant {
        "doubled" => results.push(results[at].clone()),
        "unknown" => {
            let mut stranger = results[at].clone();
            let key = Value::String("a-key-that-nobody-asked-for".to_owned());
            // Every result has its key first.
            stranger.as_message_mut()?.try_set_field_by_number(1, key).ok()?;
            results.push(stranger);
        }
        "empty" => results.clear(),
        "reordered" => results.reverse(),
        "exchanged" => exchange(results)?,
        "first-fifty" => results.iter_mut().skip(50).for_each(blank),
        _ => drop(results.remove(at)),
    }
    Some(())
}

/// Of the nodes of one instance only the last is answered, or each instance has another's addresses.
fn mix(answer: &mut BatchGetInstancesResponse, variant: &str) {
    let described = answer.results.iter_mut().filter_map(|result| result.instance.as_mut());
    if variant == "addresses" {
        let described: Vec<_> = described.collect();
        let mut addresses: Vec<_> = described.iter().map(|one| one.addresses.clone()).collect();
        let by = usize::from(addresses.len() > 1);
        addresses.rotate_left(by);
        described.into_iter().zip(addresses).for_each(|(one, others)| one.addresses = others);
    } else if variant == "by-instance" {
        let last: BTreeMap<_, usize> =
            described.enumerate().map(|(at, one)| (one.provider_id.clone(), at)).collect();
        let mut at = 0..;
        answer.results.retain(|result| {
            let Some(one) = &result.instance else { return true };
            last.get(&one.provider_id).copied() == at.next()
        });
    }
}

/// Gives the keys of the results in the opposite order.
fn exchange(results: &mut [Value]) -> Option<()> {
    let key = |result: &Value| Some(result.as_message()?.get_field_by_number(1)?.into_owned());
    let keys = results.iter().map(key).collect::<Option<Vec<_>>>()?;
    for (result, key) in results.iter_mut().zip(keys.into_iter().rev()) {
        result.as_message_mut()?.try_set_field_by_number(1, key).ok()?;
    }
    Some(())
}

/// Leaves nothing but the key.
fn blank(result: &mut Value) {
    if let Some(result) = result.as_message_mut() {
        let numbers: Vec<_> =
            result.fields().map(|(field, _)| field.number()).filter(|number| *number > 1).collect();
        numbers.into_iter().for_each(|number| result.clear_field_by_number(number));
    }
}

/// Drops half of a list.
pub(crate) fn halve(reply: &mut Reply) {
    reply.entries().into_iter().for_each(|all| all.truncate(all.len() / 2));
}

/// Adds other clusters' balancers as if they were this cluster's; invents one if there are none.
fn others(request: &Message, reply: &mut Reply, shot: &Shot<'_>) {
    let cluster_uid = request.cluster_uid();
    let mut foreign: Vec<_> = shot.look(|state| {
        let foreign = state.balancers().filter(|balancer| balancer.cluster_uid != cluster_uid);
        foreign.map(LoadBalancer::from).collect()
    });
    if foreign.is_empty() {
        foreign.push(LoadBalancer {
            service: Some(ServiceRef {
                namespace: "elsewhere".to_owned(),
                name: "foreign".to_owned(),
                uid: "00000000-0000-4000-8000-00000000f0e1".to_owned(),
            }),
            id: "lb-foreign".to_owned(),
            name: "foreign".to_owned(),
            state: LoadBalancerState::Active.into(),
            ..LoadBalancer::default()
        });
    }
    foreign.iter_mut().for_each(|balancer| balancer.set_ownership(Ownership::ByUid));
    reply.each(shot, |list: &mut ListLoadBalancersResponse| list.load_balancers.append(&mut foreign));
}
