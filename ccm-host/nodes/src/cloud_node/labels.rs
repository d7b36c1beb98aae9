//! Computes the labels of a node.
//!
//! In: the node as seen, the instance. Out: what to set and remove, and the resulting record of owned labels.
//! [`ccm_cloud`] filters out labels that a provider may not set. A label is only changed or removed again while it
//! still has the value that we recorded: anyone who wrote another has taken it over.
//!
//! | Label | At initialisation | Later |
//! |---|---|---|
//! | instance type, zone, region | the cloud's value, whatever was there | follows the cloud while it has our value |
//! | a provider's own | the cloud's value, unless the node has one | likewise |
//! | one of a provider's own that it no longer has | – | removed if it has our value |
//! | the beta name of type, zone, region | as the GA name | as the GA name, which leads; a GA name that is missing is filled from it |

use std::{borrow::Cow, collections::BTreeMap};

use ccm_base::label::{REGION, ZONE};
use ccm_cloud::{Instance, is_reserved_label};
use ccm_kube::{keep::KeySet, node::Node, patch::NodeChange};

/// The annotation of the record of owned labels.
pub(super) const OWNED_LABELS: &str = "cloudprovider.ccm/owned-labels";

const INSTANCE_TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];

/// By the GA name, and by the beta name.
const WELL_KNOWN: [[&str; 2]; 3] = [INSTANCE_TYPE, ZONE, REGION];

/// The label keys that the cache must keep.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    WELL_KNOWN.into_iter().flatten()
}

/// A node, and how much of its labels is visible.
#[derive(Debug)]
pub(super) struct VisibleLabels<'a> {
    /// Includes labels of ours that the cache does not keep, as we wrote them. If another writer has changed one since, the
    /// write based on it fails, and the next decision is made on a live read.
    pub(super) node: Cow<'a, Node>,
    kept: &'a KeySet,
    /// All labels are visible.
    live: bool,
}

impl<'a> VisibleLabels<'a> {
    /// A node from the cache.
    pub(super) fn cached(node: &'a Node, kept: &'a KeySet) -> Self {
        let mut node = Cow::Borrowed(node);
        let owned = OwnedLabels::of(&node).unwrap_or_default();
        if owned.unseen(kept).next().is_some() {
            node.to_mut().labels = node.labels.iter().chain(owned.unseen(kept)).collect();
        }
        Self { node, kept, live: false }
    }

    /// A node read live with all its labels; `kept` is what the cache keeps.
    pub(super) fn live(node: &'a Node, kept: &'a KeySet) -> Self {
        Self { node: Cow::Borrowed(node), kept, live: true }
    }
}

/// The change at initialisation.
pub(super) fn initialise(seen: &VisibleLabels<'_>, instance: &Instance, change: &mut NodeChange) {
    let mut labels = LabelChange::of(seen, OwnedLabels::of(&seen.node).unwrap_or_default(), false);
    for ([ga, _], value) in well_known_of(instance) {
        labels.set(ga, value);
    }
    labels.finish(instance, change);
}

/// The change at a refresh. A node without a record was initialised by another controller: labels that have the
/// cloud's value are adopted.
pub(super) fn refresh(seen: &VisibleLabels<'_>, instance: &Instance, change: &mut NodeChange) {
    let record = OwnedLabels::of(&seen.node);
    let adopt = record.is_none();
    let mut labels = LabelChange::of(seen, record.unwrap_or_default(), adopt);
    for ([ga, beta], value) in well_known_of(instance) {
        if labels.get(ga).is_none()
            && let Some(beta) = labels.get(beta).map(str::to_owned)
        {
            labels.labels.insert(ga.to_owned(), Some(beta));
        }
        labels.propose(ga, value);
    }
    labels.finish(instance, change);
}

/// The change that makes both names of the well-known labels agree. Needs no answer from the cloud.
pub(super) fn mirror(node: &Node, change: &mut NodeChange) {
    for [ga, beta] in WELL_KNOWN {
        let now = |key: &str| change.labels.get(key).map_or(node.labels.get(key), Option::as_deref);
        let (from, to) = match (now(ga), now(beta)) {
            (Some(leads), beta_value) if beta_value != Some(leads) => (leads.to_owned(), beta),
            (None, Some(only)) => (only.to_owned(), ga),
            _ => continue,
        };
        change.labels.insert(to.to_owned(), Some(from));
    }
}

fn well_known_of(instance: &Instance) -> impl Iterator<Item = ([&'static str; 2], &str)> {
    let Instance { instance_type, zone, region, .. } = instance;
    [(INSTANCE_TYPE, instance_type), (ZONE, zone), (REGION, region)]
        .into_iter()
        .filter_map(|(label, value)| Some((label, value.as_deref()?)))
}

/// The labels while the change is being computed.
struct LabelChange<'a> {
    seen: &'a VisibleLabels<'a>,
    owned: OwnedLabels,
    adopt: bool,
    /// As in [`NodeChange`].
    labels: BTreeMap<String, Option<String>>,
}

impl<'a> LabelChange<'a> {
    fn of(seen: &'a VisibleLabels<'a>, owned: OwnedLabels, adopt: bool) -> Self {
        Self { seen, owned, adopt, labels: BTreeMap::new() }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map_or(self.seen.node.labels.get(key), Option::as_deref)
    }

    fn set(&mut self, key: &str, value: &str) {
        self.owned.claim(key, value);
        self.labels.insert(key.to_owned(), Some(value.to_owned()));
    }

    /// Sets the label unless it belongs to a user.
    fn propose(&mut self, key: &str, value: &str) {
        let present = self.get(key);
        let ours = present.is_some() && present == self.owned.value(key);
        match present {
            Some(present) if !(ours || self.adopt && present == value) => self.leave(key),
            None if !self.seen.live && self.owned.is_users(key) => {}
            _ => self.set(key, value),
        }
    }

    fn leave(&mut self, key: &str) {
        if self.seen.kept.contains(key) {
            self.owned.forget(key);
        } else {
            self.owned.concede(key);
        }
    }

    fn remove(&mut self, key: &str) {
        let ours = self.owned.value(key);
        if ours.is_some() && self.get(key) == ours {
            self.labels.insert(key.to_owned(), None);
        }
        self.owned.forget(key);
    }

    fn finish(mut self, instance: &Instance, change: &mut NodeChange) {
        for (key, value) in &instance.labels {
            self.propose(key, value);
        }
        // Whoever runs a worker may write its node's record, but not remove its reserved labels.
        let is_gone = |key: &&String| !is_reserved_label(key) && !instance.labels.contains_key(*key);
        let gone: Vec<String> = self.owned.0.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
        let node = &self.seen.node;
        self.labels.retain(|key, value| node.labels.get(key) != value.as_deref());
        change.labels.append(&mut self.labels);
        mirror(node, change);
        let record = self.owned.text();
        if record.as_deref() != node.annotations.get(OWNED_LABELS) {
            change.annotations.insert(OWNED_LABELS.to_owned(), record);
        }
    }
}

/// The record of one node: the labels that we wrote, with the value, and those that belong to a user, without.
///
/// The text is `key=value` for each label that we wrote and `!key` for each that belongs to a user, sorted and
/// separated by commas. The latter matters only for labels that the cache does not keep: without it every refresh
/// would try again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OwnedLabels(BTreeMap<String, Option<String>>);

impl OwnedLabels {
    /// Parses the record; `None` if the node never had one. Malformed entries are ignored.
    fn of(node: &Node) -> Option<Self> {
        let entries = node.annotations.get(OWNED_LABELS)?.split(',').filter_map(|entry| {
            if let Some(key) = entry.strip_prefix('!') {
                return Some((key.to_owned(), None));
            }
            let (key, value) = entry.split_once('=')?;
            Some((key.to_owned(), Some(value.to_owned())))
        });
        Some(Self(entries.filter(|(key, _)| !key.is_empty()).collect()))
    }

    /// The value that we wrote, if the label is ours.
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_deref()
    }

    /// Whether the label was found to be a user's.
    fn is_users(&self, key: &str) -> bool {
        self.0.get(key) == Some(&None)
    }

    /// Records the label as ours, with this value.
    fn claim(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), Some(value.to_owned()));
    }

    /// Records the label as a user's.
    fn concede(&mut self, key: &str) {
        self.0.insert(key.to_owned(), None);
    }

    /// Drops the label from the record.
    fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// The labels of ours that the cache does not keep, as we wrote them.
    fn unseen<'a>(&'a self, kept: &'a KeySet) -> impl Iterator<Item = (&'a str, &'a str)> {
        let ours = self.0.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_deref()?)));
        ours.filter(|(key, _)| !kept.contains(key))
    }

    /// The annotation's value; `None` if there is nothing to record.
    fn text(&self) -> Option<String> {
        let entry = |(key, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("!{key}"),
        };
        let entries: Vec<_> = self.0.iter().map(entry).collect();
        (!entries.is_empty()).then(|| entries.join(","))
    }
}

#[cfg(test)]
mod tests;
