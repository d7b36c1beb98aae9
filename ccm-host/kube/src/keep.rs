//! Labels and annotations: which of them the caches keep, and in which form.
//!
//! The keys that controllers read are fixed; the keys that a provider wants are known only after its handshake. So a
//! [`Keep`] is a union that grows; unwanted keys never stay in memory. What is kept is a sorted slice with shared
//! keys, [`Pairs`]: a cluster has thousands of nodes but only some dozens of label keys, so the cache that fills the map
//! interns keys. [`Pairs::total`] still counts all that the object has.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;

/// The copy of the whole object that `kubectl apply` leaves behind: kept only if wanted by name.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The labels and annotations to keep of one kind of object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    pub labels: KeySet,
    pub annotations: KeySet,
}

impl Keep {
    /// Everything that either of the two keeps.
    pub fn union(&self, other: &Self) -> Self {
        Self {
            labels: self.labels.union(&other.labels),
            annotations: self.annotations.union(&other.annotations),
        }
    }

    /// The number of keys and prefixes.
    pub(crate) fn len(&self) -> usize {
        self.labels.len() + self.annotations.len()
    }

    /// Whether this already keeps everything that `other` does.
    pub fn covers(&self, other: &Self) -> bool {
        self.labels.covers(&other.labels) && self.annotations.covers(&other.annotations)
    }
}

/// A set of keys: all, or some by name and by prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    all: bool,
    keys: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl KeySet {
    /// Every key, except the annotation in which `kubectl apply` copies the whole object.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub fn keys<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> Self {
        Self { keys: keys.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Every key that starts with one of the prefixes.
    pub fn prefixes<S: Into<String>>(prefixes: impl IntoIterator<Item = S>) -> Self {
        let prefixes = prefixes.into_iter().map(Into::into).filter(|prefix: &String| !prefix.is_empty());
        Self { prefixes: prefixes.collect(), ..Self::default() }
    }

    /// Keys as a provider writes them: one ending in `/` or `*` is a prefix, and `*` alone is [`KeySet::all`].
    pub fn patterns(patterns: &[String]) -> Self {
        let all = Self { all: patterns.iter().any(|pattern| pattern == "*"), ..Self::default() };
        let (prefixes, keys): (Vec<&String>, Vec<&String>) =
            patterns.iter().partition(|key| key.ends_with('/') || key.ends_with('*'));
        let prefixes = Self::prefixes(prefixes.into_iter().map(|key| key.strip_suffix('*').unwrap_or(key)));
        all.union(&Self::keys(keys)).union(&prefixes)
    }

    /// Everything that is in either of the two.
    pub fn union(&self, other: &Self) -> Self {
        Self {
            all: self.all || other.all,
            keys: &self.keys | &other.keys,
            prefixes: &self.prefixes | &other.prefixes,
        }
    }

    fn len(&self) -> usize {
        self.keys.len() + self.prefixes.len()
    }

    fn covers(&self, other: &Self) -> bool {
        (self.all || !other.all)
            && other.keys.is_subset(&self.keys)
            && other.prefixes.is_subset(&self.prefixes)
    }

    /// Whether the key is in the set.
    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
            || (self.all && key != LAST_APPLIED)
            || self.prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }

    /// Picks the kept pairs and shares their keys.
    pub(super) fn pick(&self, pairs: Vec<(String, String)>, interner: &Interner) -> Pairs {
        let total = pairs.len();
        let kept = pairs
            .into_iter()
            .filter(|(key, _)| self.contains(key))
            .map(|(key, value)| -> (Arc<str>, Box<str>) { (interner.intern(&key), value.into()) })
            .collect();
        Pairs::new(kept, total)
    }
}

/// A read-only string map, small in memory.
///
/// Equality covers the kept pairs only: a change of a key that is not kept is not a change.
#[derive(Clone, Default)]
pub struct Pairs {
    kept: Box<[(Arc<str>, Box<str>)]>,
    total: u32,
}

impl Pairs {
    /// Builds the map from pairs already selected; `total` counts all pairs of the object.
    fn new(mut kept: Vec<(Arc<str>, Box<str>)>, total: usize) -> Self {
        kept.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        kept.dedup_by(|later, earlier| later.0 == earlier.0);
        let total = total.max(kept.len());
        Self { kept: kept.into_boxed_slice(), total: u32::try_from(total).unwrap_or(u32::MAX) }
    }

    /// The value of a key, if the key is kept and present.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.kept.binary_search_by(|(kept, _)| (**kept).cmp(key)).ok()?;
        self.kept.get(at).map(|(_, value)| &**value)
    }

    /// Whether the key is kept and present.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The kept pairs, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether nothing is kept. The object may still have other pairs: see [`Pairs::total`].
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The number of pairs at the apiserver, kept or not.
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

/// Shares one copy of each key for as long as an object uses it.
///
/// Keys that no object uses any more are forgotten each time the set has doubled. So it holds at most twice as many keys
/// as the objects do, whatever tenants write, and a key costs the same on average.
#[derive(Debug, Default)]
pub struct Interner(Mutex<Interned>);

#[derive(Debug, Default)]
struct Interned {
    keys: HashSet<Arc<str>>,
    /// The number of keys at which unused ones are looked for.
    full: usize,
}

/// Fewer keys than this are not worth a search.
const FEW: usize = 256;

impl Interner {
    /// The one shared copy of `key`.
    pub(super) fn intern(&self, key: &str) -> Arc<str> {
        let mut interned = self.0.lock();
        if let Some(shared) = interned.keys.get(key) {
            return Arc::clone(shared);
        }
        if interned.keys.len() >= interned.full.max(FEW) {
            interned.keys.retain(|key| Arc::strong_count(key) > 1);
            interned.full = 2 * interned.keys.len();
            let room = interned.full.max(FEW);
            interned.keys.shrink_to(room);
        }
        let shared: Arc<str> = key.into();
        interned.keys.insert(Arc::clone(&shared));
        shared
    }

    /// The number of keys held.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().keys.len()
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
    fn interned_keys_follow_their_users() {
        let interner = Interner::default();
        let used = interner.intern("zone");
        for number in 0..10_000 {
            interner.intern(&number.to_string());
        }
        assert!(Arc::ptr_eq(&used, &interner.intern("zone")), "a key in use is shared");
        assert!(interner.len() <= FEW, "{} keys, of which one is in use", interner.len());

        let many: Vec<_> = (0..10_000).map(|number| interner.intern(&format!("used-{number}"))).collect();
        assert!(interner.len() >= many.len());
        drop(many);
        for number in 0..20_000 {
            interner.intern(&number.to_string());
        }
        assert!(interner.len() <= FEW, "{} keys, of which one is in use", interner.len());
    }

    #[test]
    fn a_set_is_keys_prefixes_or_all() {
        let set = KeySet::keys(["a"]).union(&KeySet::prefixes(["x.io/", ""]));
        let rows = [("a", true), ("ab", false), ("x.io/y", true), ("b", false), (LAST_APPLIED, false)];
        for (key, want) in rows {
            assert_eq!(set.contains(key), want, "{key}");
        }
        assert!(KeySet::all().contains("anything"));
        assert!(!KeySet::all().contains(LAST_APPLIED), "a copy of the whole object is not kept by chance");
        assert!(KeySet::all().union(&KeySet::keys([LAST_APPLIED])).contains(LAST_APPLIED));
    }

    #[test]
    fn a_pattern_is_a_key_or_a_prefix() {
        let set = KeySet::patterns(&["a.example/x", "b.example/", "c-*"].map(str::to_owned));
        let kept = ["a.example/x", "b.example/any", "c-1"].map(|key| set.contains(key));
        let not = ["a.example/xy", "c"].map(|key| set.contains(key));
        assert_eq!((kept, not), ([true; 3], [false; 2]));
        let all = KeySet::patterns(&["*"].map(str::to_owned));
        assert_eq!(all, KeySet::all());
        assert!(KeySet::patterns(&["*", LAST_APPLIED].map(str::to_owned)).contains(LAST_APPLIED));
    }

    #[test]
    fn picking_keeps_the_wanted_and_counts_the_rest() {
        let pairs = vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())];
        let picked = KeySet::keys(["b"]).pick(pairs, &Interner::default());
        assert_eq!(picked.iter().collect::<Vec<_>>(), [("b", "2")]);
        assert_eq!(picked.total(), 2);
    }
}
