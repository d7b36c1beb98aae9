//! Decides which nodes this host manages at all, before any call to a provider.
//!
//! In: a node's labels. Out: yes or no. A node outside the scope is never asked about, written or deleted;
//! [`crate::cloud`] decides which provider owns a node inside it.

use crate::{
    kube::selector::LabelSelector,
    kube::{
        keep::{Keep, KeySet},
        node::Node,
    },
};

/// The label by which a person excludes a node; only the value `true` counts.
pub const EXCLUDE_LABEL: &str = "cloudprovider.ccm/exclude";

/// The nodes that this host manages.
#[derive(Debug, Clone, Default)]
pub struct NodeScope {
    selector: LabelSelector,
}

impl NodeScope {
    /// The nodes that the selector matches, except those excluded by label.
    #[must_use]
    pub fn new(selector: LabelSelector) -> Self {
        Self { selector }
    }

    /// Whether this host manages the node.
    #[must_use]
    pub fn contains(&self, node: &Node) -> bool {
        node.labels.get(EXCLUDE_LABEL) != Some("true") && self.selector.matches(|key| node.labels.get(key))
    }

    /// The labels that the Node cache must keep for this.
    #[must_use]
    pub fn keep(&self) -> Keep {
        let keys = self.selector.keys().chain([EXCLUDE_LABEL]);
        Keep { labels: KeySet::keys(keys), annotations: KeySet::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::node;

    #[test]
    fn a_node_is_ours_if_selected_and_not_excluded() {
        let in_a = || node("n").with_label("pool", "a");
        let rows = [
            ("no selector", "", in_a(), true),
            ("selected", "pool=a", in_a(), true),
            ("not selected", "pool=b", in_a(), false),
            ("opted out", "", in_a().with_label(EXCLUDE_LABEL, "true"), false),
            ("opted out though selected", "pool=a", in_a().with_label(EXCLUDE_LABEL, "true"), false),
            ("opt-out withdrawn", "", in_a().with_label(EXCLUDE_LABEL, "false"), true),
        ];
        for (name, selector, node, want) in rows {
            assert_eq!(NodeScope::new(selector.parse().unwrap()).contains(&node), want, "{name}");
        }
    }

    #[test]
    fn what_it_reads_is_kept() {
        let keep = NodeScope::new("pool=a,!legacy".parse().unwrap()).keep();
        for key in ["pool", "legacy", EXCLUDE_LABEL] {
            assert!(keep.labels.contains(key), "{key}");
        }
    }
}
