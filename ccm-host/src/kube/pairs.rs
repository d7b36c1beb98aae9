//! Labels and annotations in a compact form: a sorted slice with shared keys.
//!
//! A cluster has thousands of nodes but only some dozens of label keys, so the cache that fills the map interns keys.
//! It holds only what [`super::keep::Keep`] wants; [`Pairs::total`] still tells how many the object really has.

use std::{collections::HashSet, fmt, sync::Arc};

use parking_lot::Mutex;

/// A read-only string map, small in memory.
///
/// Equality covers the kept pairs only: a change of a key that nobody reads is not a change.
#[derive(Clone, Default)]
pub struct Pairs {
    kept: Box<[(Arc<str>, Box<str>)]>,
    total: u32,
}

impl Pairs {
    /// Builds the map from pairs already selected; `total` counts all pairs of the object.
    pub(super) fn new(mut kept: Vec<(Arc<str>, Box<str>)>, total: usize) -> Self {
        kept.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        kept.dedup_by(|later, earlier| later.0 == earlier.0);
        let total = total.max(kept.len());
        Self { kept: kept.into_boxed_slice(), total: u32::try_from(total).unwrap_or(u32::MAX) }
    }

    /// The value of a key, if the key is kept and present.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.kept.binary_search_by(|(kept, _)| (**kept).cmp(key)).ok()?;
        self.kept.get(at).map(|(_, value)| &**value)
    }

    /// Whether the key is kept and present.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The kept pairs, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The number of kept pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept. The object may still have other pairs: see [`Pairs::total`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The number of pairs at the apiserver, kept or not.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total as usize
    }
}

impl PartialEq for Pairs {
    fn eq(&self, other: &Self) -> bool {
        self.kept == other.kept
    }
}

impl Eq for Pairs {}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Arc<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let kept: Vec<_> = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let total = kept.len();
        Self::new(kept, total)
    }
}

/// Shares one copy of each key.
#[derive(Debug, Default)]
pub struct Interner(Mutex<HashSet<Arc<str>>>);

impl Interner {
    /// The one shared copy of `key`.
    pub(super) fn intern(&self, key: &str) -> Arc<str> {
        let mut known = self.0.lock();
        if let Some(shared) = known.get(key) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = key.into();
        known.insert(Arc::clone(&shared));
        shared
    }

    /// Forgets keys that no object uses any more, so that changing keys do not pile up.
    pub(super) fn prune(&self) {
        self.0.lock().retain(|key| Arc::strong_count(key) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_key_and_iterate_sorted() {
        let pairs: Pairs = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!((pairs.get("a"), pairs.get("b"), pairs.get("c")), (Some("1"), Some("2"), None));
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    }

    #[test]
    fn equality_ignores_pairs_that_are_not_kept() {
        let kept = || vec![(Arc::from("a"), Box::from("1"))];
        assert_eq!(Pairs::new(kept(), 1), Pairs::new(kept(), 7));
        assert_eq!(Pairs::new(kept(), 7).total(), 7);
    }

    #[test]
    fn interned_keys_are_shared_until_nobody_uses_them() {
        let interner = Interner::default();
        let first = interner.intern("zone");
        assert!(Arc::ptr_eq(&first, &interner.intern("zone")));
        interner.prune();
        assert!(Arc::ptr_eq(&first, &interner.intern("zone")), "a key in use survives");
        drop(first);
        interner.prune();
        assert!(interner.0.lock().is_empty());
    }
}
