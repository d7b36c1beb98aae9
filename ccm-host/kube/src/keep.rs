//! Labels and annotations: which of them the caches keep, and in which form.
//!
//! The keys that controllers read are fixed; the keys that a provider wants are known only after its handshake. So a
//! [`Keep`] is a union that grows; unwanted keys never stay in memory. What is kept is a sorted slice with shared
//! keys, [`Pairs`]: a cluster has thousands of nodes but only some dozens of label keys, so the cache that fills the map
//! interns keys. [`Pairs::total`] still counts all that the object has.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
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

/// Whether a key is one that a pattern of a provider means; see [`KeySet::patterns`].
pub fn is_meant(pattern: &str, key: &str) -> bool {
    prefix_of(pattern).map_or(pattern == key, |prefix| has_prefix(key, prefix))
}

fn prefix_of(pattern: &str) -> Option<&str> {
    pattern.strip_suffix('*').or_else(|| pattern.ends_with('/').then_some(pattern))
}

fn has_prefix(key: &str, prefix: &str) -> bool {
    key.starts_with(prefix) && (!prefix.is_empty() || key != LAST_APPLIED)
}

/// A set of keys, by name and by prefix; the empty prefix is that of all keys but [`LAST_APPLIED`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl KeySet {
    /// Every key, except the annotation in which `kubectl apply` copies the whole object.
    pub fn all() -> Self {
        Self::patterns(&["*"])
    }

    pub fn keys<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> Self {
        Self { keys: keys.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Keys as a provider writes them: one ending in `/` or `*` is a prefix, and `*` alone is [`KeySet::all`].
    pub fn patterns(patterns: &[impl AsRef<str>]) -> Self {
        let mut set = Self::default();
        for pattern in patterns.iter().map(AsRef::as_ref) {
            match prefix_of(pattern) {
                Some(prefix) => set.prefixes.insert(prefix.to_owned()),
                None => set.keys.insert(pattern.to_owned()),
            };
        }
        set
    }

    /// Everything that is in either of the two.
    pub fn union(&self, other: &Self) -> Self {
        Self { keys: &self.keys | &other.keys, prefixes: &self.prefixes | &other.prefixes }
    }

    fn len(&self) -> usize {
        self.keys.len() + self.prefixes.len()
    }

    fn covers(&self, other: &Self) -> bool {
        other.keys.is_subset(&self.keys) && other.prefixes.is_subset(&self.prefixes)
    }

    /// Whether the key is in the set.
    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains(key) || self.prefixes.iter().any(|prefix| has_prefix(key, prefix))
    }

    /// Picks the kept pairs and shares their keys.
    pub(super) fn pick(&self, pairs: BTreeMap<String, String>, interner: &Interner) -> Pairs {
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
        let set = KeySet::keys(["a"]).union(&KeySet::patterns(&["x.io/"]));
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
        let rows = [
            ("a", "a", true),
            ("a", "ab", false),
            ("a/", "a/b", true),
            ("a/", "a", false),
            ("a*", "ab", true),
            ("*", "anything", true),
            ("*", LAST_APPLIED, false),
            ("a**", "a*b", true),
            ("a**", "ab", false),
            (LAST_APPLIED, LAST_APPLIED, true),
            ("", "a", false),
        ];
        for (pattern, key, want) in rows {
            assert_eq!(KeySet::patterns(&[pattern]).contains(key), want, "{pattern:?} {key:?}");
            assert_eq!(is_meant(pattern, key), want, "{pattern:?} {key:?}");
        }
        assert!(KeySet::patterns(&["*", LAST_APPLIED]).contains(LAST_APPLIED));
    }

    #[test]
    fn picking_keeps_the_wanted_and_counts_the_rest() {
        let pairs = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let picked = KeySet::keys(["b"]).pick(pairs, &Interner::default());
        assert_eq!(picked.iter().collect::<Vec<_>>(), [("b", "2")]);
        assert_eq!(picked.total(), 2);
    }
}
