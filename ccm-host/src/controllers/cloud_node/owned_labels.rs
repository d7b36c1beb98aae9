//! The record of labels that a provider owns, kept in an annotation of the node.
//!
//! In: the annotation. Out: for each label, the value that we wrote. A label is only changed or removed again while
//! it still has that value: anyone who wrote another has taken it over. [`super::labels`] decides what to write.
//!
//! The text is `key=value` for each label that we wrote and `!key` for each that belongs to a user, sorted and
//! separated by commas. The latter matters only for labels that the cache does not keep: without it every refresh
//! would try again.

use std::{collections::BTreeMap, fmt};

use crate::kube::{keep::KeySet, node::Node};

/// The annotation of the record.
pub(crate) const ANNOTATION: &str = "cloudprovider.ccm/owned-labels";

/// The owner of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// Ours, with the value that we wrote.
    Provider(String),
    /// A user's.
    User,
}

/// The record of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnedLabels(BTreeMap<String, Owner>);

impl OwnedLabels {
    /// Parses the record; `None` if the node never had one. Malformed entries are ignored.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let entries = node.annotations.get(ANNOTATION)?.split(',').filter_map(|entry| {
            if let Some(key) = entry.strip_prefix('!') {
                return Some((key.to_owned(), Owner::User));
            }
            let (key, value) = entry.split_once('=')?;
            Some((key.to_owned(), Owner::Provider(value.to_owned())))
        });
        Some(Self(entries.filter(|(key, _)| !key.is_empty()).collect()))
    }

    /// The value that we wrote, if the label is ours.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        match self.0.get(key)? {
            Owner::Provider(value) => Some(value),
            Owner::User => None,
        }
    }

    /// Whether the label was found to be a user's.
    pub(super) fn is_users(&self, key: &str) -> bool {
        self.0.get(key) == Some(&Owner::User)
    }

    /// Records the label as ours, with this value.
    pub(super) fn claim(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), Owner::Provider(value.to_owned()));
    }

    /// Records the label as a user's.
    pub(super) fn concede(&mut self, key: &str) {
        self.0.insert(key.to_owned(), Owner::User);
    }

    /// Drops the label from the record.
    pub(super) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// The labels of ours that the cache does not keep, as we wrote them.
    pub(super) fn unseen<'a>(&'a self, kept: &'a KeySet) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(|(key, owner)| match owner {
            Owner::Provider(value) if !kept.contains(key) => Some((key.as_str(), value.as_str())),
            _ => None,
        })
    }

    /// The annotation's value; `None` if there is nothing to record.
    pub(super) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.to_string())
    }
}

impl fmt::Display for OwnedLabels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, owner)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match owner {
                Owner::Provider(value) => write!(out, "{comma}{key}={value}")?,
                Owner::User => write!(out, "{comma}!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::node;

    fn record(text: &str) -> OwnedLabels {
        OwnedLabels::of(&node("n").with_annotation(ANNOTATION, text)).unwrap()
    }

    #[test]
    fn reads_what_it_writes() {
        let mut owned = OwnedLabels::default();
        owned.claim("topology.kubernetes.io/zone", "a");
        owned.claim("example.com/empty", "");
        owned.concede("example.com/pool");
        let text = owned.text().unwrap();
        assert_eq!(text, "example.com/empty=,!example.com/pool,topology.kubernetes.io/zone=a");
        assert_eq!(record(&text), owned);
        assert_eq!(owned.value("example.com/empty"), Some(""));
        assert!(owned.is_users("example.com/pool") && !owned.is_users("topology.kubernetes.io/zone"));
        owned.forget("example.com/empty");
        owned.forget("example.com/pool");
        owned.forget("topology.kubernetes.io/zone");
        assert_eq!(owned.text(), None);
        assert_eq!(OwnedLabels::of(&node("n")), None);
    }

    #[test]
    fn what_makes_no_sense_owns_nothing() {
        for text in ["", ",", "x", "=v", "!", "{\"a\":\"b\"}"] {
            assert_eq!(record(text), OwnedLabels::default(), "{text:?}");
        }
        assert_eq!(record("x,a=1").value("a"), Some("1"));
    }

    #[test]
    fn knows_what_the_cache_does_not() {
        let owned = record("a=1,b=2,!c");
        assert_eq!(owned.unseen(&KeySet::keys(["a"])).collect::<Vec<_>>(), [("b", "2")]);
    }
}
