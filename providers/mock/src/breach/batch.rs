//! Breaches by the keys of a batch.

use super::{Breach, late};
use crate::wire::{Answer, Method, Reply, Request, Shot};

const BATCHES: &[Method] = &[
    Method::BatchGetInstances,
    Method::BatchUpdateLoadBalancers,
    Method::BatchEnsureRoutes,
    Method::BatchDeleteRoutes,
    Method::BatchGetVolumeLabels,
];

pub(super) const BREACHES: &[Breach] = &[late(
    "batch-keys",
    "a key is missing, doubled, or was never asked for; `reordered` is legal",
    BATCHES,
    keys,
)
.ways(&["missing", "doubled", "unknown", "empty", "reordered"])];

const UNKNOWN: &str = "a-key-that-nobody-asked-for";

fn keys(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    match &mut reply.outcome {
        Ok(Answer::BatchGetInstances(answer)) => {
            spoil(&mut answer.results, shot, |result| &mut result.key);
        }
        Ok(Answer::BatchUpdateLoadBalancers(answer)) => {
            spoil(&mut answer.results, shot, |result| &mut result.service_uid);
        }
        Ok(Answer::BatchEnsureRoutes(answer)) => spoil(&mut answer.results, shot, |result| &mut result.key),
        Ok(Answer::BatchDeleteRoutes(answer)) => spoil(&mut answer.results, shot, |result| &mut result.key),
        Ok(Answer::BatchGetVolumeLabels(answer)) => {
            spoil(&mut answer.results, shot, |result| &mut result.key);
        }
        _ => {}
    }
}

fn spoil<T: Clone>(results: &mut Vec<T>, shot: &Shot<'_>, key: impl Fn(&mut T) -> &mut String) {
    let Some(at) = results.iter_mut().position(|result| shot.hits(key(result))) else { return };
    match shot.variant {
        "doubled" => results.push(results[at].clone()),
        "unknown" => {
            let mut stranger = results[at].clone();
            UNKNOWN.clone_into(key(&mut stranger));
            results.push(stranger);
        }
        "empty" => results.clear(),
        "reordered" => results.reverse(),
        _ => {
            results.remove(at);
        }
    }
}
