//! What is found faster: ids, by something that their things have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Weak,
};

use jiff::Timestamp;

use super::Backend;

/// Ids by what they are found by; several may have the same.
pub(super) type Index<K> = BTreeSet<(K, String)>;

/// Rebuilt after loading.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    pub(super) by_provider_id: Index<String>,
    pub(super) by_name: Index<String>,
    pub(super) by_uuid: Index<String>,
    /// Balancers by cluster and Service.
    pub(super) balancer_by_key: Index<(String, String)>,
    /// Balancers by name.
    pub(super) balancer_by_name: Index<String>,
    /// By the time at which something is due.
    pub(super) due: Index<Timestamp>,
    /// Sets of backends that balancers share, by digest: a thousand balancers over one set hold it once.
    pub(super) backend_sets: BTreeMap<String, Weak<Vec<Backend>>>,
}

/// The ids under a key, the lowest first, and so the oldest.
pub(super) fn ids<K: Ord + Clone>(index: &Index<K>, key: K) -> impl Iterator<Item = &String> {
    let from = (key.clone(), String::new());
    index.range(from..).take_while(move |(found, _)| *found == key).map(|(_, id)| id)
}

/// Puts an id under a key, or takes it away.
pub(super) fn set<K: Ord>(index: &mut Index<K>, key: K, id: &str, there: bool) {
    let entry = (key, id.to_owned());
    if there {
        index.insert(entry);
    } else {
        index.remove(&entry);
    }
}
