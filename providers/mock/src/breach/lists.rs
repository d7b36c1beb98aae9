//! Breaches by pages and what is on them.

use cloudprovider_sdk::{
    ProviderError,
    proto::{LoadBalancer, LoadBalancerState, Ownership, ServiceRef},
};

use super::{Breach, early, late};
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
    early("page-size", "a page holds more than was asked for", LISTS, whole_pages),
    early("page-token-validity", "each page token has expired at once", LISTS, expire),
    late("page-walk-ends", "behind the last page comes the first one again", LISTS, endless)
        .and_early(begin_again),
    late("list-unreachable", "half of a list is left out without a word", WITH_PARTS, silent),
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

fn whole_pages(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    if let Some((size, _)) = page_of(request) {
        *size = 0;
    }
    Turn::GoOn
}

fn expire(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    match page_of(request) {
        Some((_, token)) if !token.is_empty() => Turn::fail(&ProviderError::page_token_expired()),
        _ => Turn::GoOn,
    }
}

fn begin_again(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    if let Some((_, token)) = page_of(request).filter(|(_, token)| *token == ROUND) {
        token.clear();
    }
    Turn::GoOn
}

fn endless(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
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
}

fn silent(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    match &mut reply.outcome {
        Ok(Answer::ListInstances(list)) => {
            list.instances.truncate(list.instances.len() / 2);
            list.unreachable.clear();
        }
        Ok(Answer::ListLoadBalancers(list)) => {
            list.load_balancers.truncate(list.load_balancers.len() / 2);
            list.unreachable.clear();
        }
        Ok(Answer::ListRoutes(list)) => {
            list.routes.truncate(list.routes.len() / 2);
            list.unreachable.clear();
        }
        _ => {}
    }
}

/// Other clusters' balancers as if they were ours; one is made up when there are none.
fn others(request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    let Ok(Answer::ListLoadBalancers(list)) = &mut reply.outcome else { return };
    let mut foreign: Vec<LoadBalancer> = shot.world.cloud.read(shot.world.now(), |state| {
        let foreign = state.balancers().filter(|balancer| balancer.cluster_uid != request.cluster_uid());
        foreign.map(balancer_message).collect()
    });
    if foreign.is_empty() {
        foreign.push(made_up());
    }
    for balancer in &mut foreign {
        balancer.ownership = Ownership::ByUid.into();
    }
    list.load_balancers.extend(foreign);
}

fn made_up() -> LoadBalancer {
    let service = ServiceRef {
        namespace: "elsewhere".to_owned(),
        name: "foreign".to_owned(),
        uid: "00000000-0000-4000-8000-00000000f0e1".to_owned(),
    };
    LoadBalancer {
        service: Some(service),
        id: "lb-foreign".to_owned(),
        name: "foreign".to_owned(),
        state: LoadBalancerState::Active.into(),
        ..LoadBalancer::default()
    }
}
