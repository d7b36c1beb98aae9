//! Breaches by what is known of sets of backends.

use cloudprovider_sdk::{
    ProviderError,
    proto::{BackendSet, Capability},
};

use super::{Breach, early, late};
use crate::wire::{Answer, Method, Reply, Request, Shot, Turn};

const WITH_SETS: &[Method] = &[Method::EnsureLoadBalancer, Method::BatchUpdateLoadBalancers];
const ADVERTISED_TOO: &[Method] =
    &[Method::GetCapabilities, Method::EnsureLoadBalancer, Method::BatchUpdateLoadBalancers];

pub(super) const BREACHES: &[Breach] = &[
    early(
        "set-by-digest",
        "no set is known again, or only the last one, or a digest stands for no nodes",
        WITH_SETS,
        forget,
    )
    .ways(&["at-once", "all-but-one", "empty"]),
    early("set-unknown", "a digest that is not known stands for no nodes", WITH_SETS, empty),
    early("set-per-cluster", "a digest stands for the set of whichever cluster", WITH_SETS, share),
    late(
        "set-needs-capability",
        "nothing is said of sets by digest, and a digest stands for no nodes",
        ADVERTISED_TOO,
        not_advertised,
    )
    .and_early(empty),
];

fn sets(request: &mut Request) -> &mut [BackendSet] {
    match request {
        Request::EnsureLoadBalancer(request) => request.backends.as_mut_slice(),
        Request::BatchUpdateLoadBalancers(request) => &mut request.backend_sets,
        _ => &mut [],
    }
}

/// What is left out is filled in from all that ever came, by digest alone.
fn fill_in(request: &mut Request, shot: &Shot<'_>) {
    let mut came = shot.world.memory.sets.lock();
    for set in sets(request) {
        if !set.nodes_omitted {
            came.push((set.digest.clone(), set.nodes.clone()));
        } else if let Some((_, nodes)) = came.iter().rfind(|(digest, _)| *digest == set.digest) {
            (set.nodes, set.nodes_omitted) = (nodes.clone(), false);
        }
    }
}

fn forget(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if shot.variant == "empty" {
        return empty(request, shot);
    }
    let last = (shot.variant == "all-but-one").then(|| shot.world.memory.sets.lock().pop()).flatten();
    *shot.world.memory.sets.lock() = Vec::from_iter(last);
    fill_in(request, shot);
    let unknown: Vec<_> =
        sets(request).iter().filter(|set| set.nodes_omitted).map(|set| set.digest.clone()).collect();
    if unknown.is_empty() { Turn::GoOn } else { Turn::fail(&ProviderError::unknown_backend_set(&unknown)) }
}

fn empty(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    sets(request).iter_mut().for_each(|set| set.nodes_omitted = false);
    Turn::GoOn
}

fn share(request: &mut Request, shot: &Shot<'_>) -> Turn {
    fill_in(request, shot);
    Turn::GoOn
}

fn not_advertised(_request: &Request, reply: &mut Reply, _shot: &Shot<'_>) {
    if let Ok(Answer::GetCapabilities(answer)) = &mut reply.outcome {
        answer.capabilities.retain(|one| *one != i32::from(Capability::BackendSetsByDigest));
    }
}
