//! Breaches by pages and what is on them.

use cloudprovider_sdk::{
    ProviderError,
    proto::{ListLoadBalancersResponse, LoadBalancer, LoadBalancerState, Ownership, ServiceRef},
};

use super::{Breach, asked, early, late};
use crate::{
    provider::balancer_message,
    wire::{Answer, Method, Reply, Request, Shot, Turn},
};

const LISTS: &[Method] =
    &[Method::ListInstances, Method::ListLoadBalancers, Method::ListRoutes, Method::ListClusters];
const WITH_PARTS: &[Method] = &[Method::ListInstances, Method::ListLoadBalancers, Method::ListRoutes];

/// The token behind the last page: it leads back to the first.
const ROUND: &str = "round-and-round";

pub(super) const BREACHES: &[Breach] = &[
    asked("page-size", "a page holds more than was asked for", LISTS, |request, _| {
        page_of(request).into_iter().for_each(|(size, _)| *size = 0);
    }),
    early("page-token-validity", "each page token has expired at once", LISTS, |request, _| {
        match page_of(request) {
            Some((_, token)) if !token.is_empty() => Turn::fail(ProviderError::page_token_expired()),
            _ => Turn::GoOn,
        }
    }),
    late("page-walk-ends", "behind the last page comes the first one again", LISTS, |_, reply, _| {
        let next = match &mut reply.outcome {
            Ok(Answer::ListInstances(list)) => &mut list.next_page_token,
            Ok(Answer::ListLoadBalancers(list)) => &mut list.next_page_token,
            Ok(Answer::ListRoutes(list)) => &mut list.next_page_token,
            Ok(Answer::ListClusters(list)) => &mut list.next_page_token,
            _ => return,
        };
        if next.is_empty() {
            ROUND.clone_into(next);
        }
    })
    .and_asked(|request, _| {
        if let Some((_, token)) = page_of(request).filter(|(_, token)| *token == ROUND) {
            token.clear();
        }
    }),
    late("list-unreachable", "half of a list is left out without a word", WITH_PARTS, |_, reply, _| {
        reply.halve().into_iter().for_each(Vec::clear);
    }),
    late("list-own-only", "balancers of other clusters are listed", &[Method::ListLoadBalancers], others),
];

/// Size and token of the page that is asked for.
fn page_of(request: &mut Request) -> Option<(&mut i32, &mut String)> {
    match request {
        Request::ListInstances(list) => Some((&mut list.page_size, &mut list.page_token)),
        Request::ListLoadBalancers(list) => Some((&mut list.page_size, &mut list.page_token)),
        Request::ListRoutes(list) => Some((&mut list.page_size, &mut list.page_token)),
        Request::ListClusters(list) => Some((&mut list.page_size, &mut list.page_token)),
        _ => None,
    }
}

/// Other clusters' balancers as if they were ours; one is made up when there are none.
fn others(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let mut foreign: Vec<LoadBalancer> = shot.mock.look(|state| {
        let foreign = state.balancers().filter(|balancer| balancer.cluster_uid != request.cluster_uid());
        foreign.map(balancer_message).collect()
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
    reply.edit(|list: &mut ListLoadBalancersResponse| list.load_balancers.extend(foreign));
}
