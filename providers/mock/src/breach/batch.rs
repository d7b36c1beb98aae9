//! Breaches in the keys of a batch.

use prost_reflect::Value;

use crate::{
    contract::Method,
    effect::{Effect, effect},
    scene::{Reply, Shot},
};

pub(super) const BREACHES: &[Effect] =
    &[effect("batch-keys", "a key is missing, duplicate, or was never requested; `reordered` is legal")
        .to(Method::BATCHES)
        .ways(&["missing", "doubled", "unknown", "empty", "reordered"])
        .late(|_, reply, shot| {
            let _none_is_meant = spoil(reply, shot);
        })];

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
        _ => drop(results.remove(at)),
    }
    Some(())
}
