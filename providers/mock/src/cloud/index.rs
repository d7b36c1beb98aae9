//! Indexes: ids by properties of their objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Weak,
};

use jiff::Timestamp;

use super::Backend;

/// Ids by a property, which several objects may share.
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
    /// By the time at which their next change is due.
    pub(super) due: Index<Timestamp>,
    /// Backend sets that balancers share, by digest: a thousand balancers with the same set hold it once.
    pub(super) backend_sets: BTreeMap<String, Weak<Vec<Backend>>>,
}

/// The ids of a key, the oldest first.
pub(super) fn ids<K: Ord + Clone>(index: &Index<K>, key: K) -> impl Iterator<Item = &String> {
    let from = (key.clone(), String::new());
    index.range(from..).take_while(move |(found, _)| *found == key).map(|(_, id)| id)
}

/// Adds an id to a key, or removes it.
pub(super) fn set<K: Ord>(index: &mut Index<K>, key: K, id: &str, there: bool) {
    let entry = (key, id.to_owned());
    if there {
        index.insert(entry);
    } else {
        index.remove(&entry);
    }
}
