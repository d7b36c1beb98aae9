//! Breaches by the keys of a batch.

use cloudprovider_sdk::proto::{
    InstanceResult, LoadBalancerUpdateResult, RouteDeletion, RouteResult, VolumeResult,
};

use super::{Breach, late};
use crate::wire::{Answer, Item, Method, Shot};

pub(super) const BREACHES: &[Breach] = &[late(
    "batch-keys",
    "a key is missing, doubled, or was never asked for; `reordered` is legal",
    Method::BATCHES,
    |_, reply, shot| {
        if let Ok(answer) = &mut reply.outcome {
            spoil::<InstanceResult>(answer, shot);
            spoil::<LoadBalancerUpdateResult>(answer, shot);
            spoil::<RouteResult>(answer, shot);
            spoil::<RouteDeletion>(answer, shot);
            spoil::<VolumeResult>(answer, shot);
        }
    },
)
.ways(&["missing", "doubled", "unknown", "empty", "reordered"])];

fn spoil<T: Item>(answer: &mut Answer, shot: &Shot<'_>) {
    let Some(results) = T::all(answer) else { return };
    let Some(at) = results.iter_mut().position(|result| shot.hits(result.key())) else { return };
    match shot.variant {
        "doubled" => results.push(results[at].clone()),
        "unknown" => {
            let mut stranger = results[at].clone();
            "a-key-that-nobody-asked-for".clone_into(stranger.key());
            results.push(stranger);
        }
        "empty" => results.clear(),
        "reordered" => results.reverse(),
        _ => drop(results.remove(at)),
    }
}
