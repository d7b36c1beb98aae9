//! Decides which nodes this host manages at all, before any call to a provider, and which provider looks after each.
//!
//! In: a node. Out: yes or no, and the provider. A node outside the scope is never asked about, written or deleted;
//! [`ccm_cloud`] decides which provider owns a node inside it.

use std::sync::Arc;

use crate::{Parts, Settings};
use ccm_cloud::Provider;
use ccm_kube::{
    keep::{Keep, KeySet},
    node::Node,
};

/// The label by which a person excludes a node; only the value `true` counts.
pub const EXCLUDE_LABEL: &str = "cloudprovider.ccm/exclude";

impl Settings {
    /// Whether this host manages the node: the selector matches it, and no label excludes it.
    pub fn manages(&self, node: &Node) -> bool {
        node.labels.get(EXCLUDE_LABEL) != Some("true")
            && self.nodes.node_selector.matches(|key| node.labels.get(key))
    }

    /// The labels that the Node cache must keep for this.
    pub fn keep_of_managed_nodes(&self) -> Keep {
        let keys = self.nodes.node_selector.keys().chain([EXCLUDE_LABEL]);
        Keep { labels: KeySet::keys(keys), annotations: KeySet::default() }
    }
}

impl Parts {
    /// Whether this host manages the node, and its deletion has not been requested.
    pub fn is_ours(&self, node: &Node) -> bool {
        !node.is_deleting() && self.settings.manages(node)
    }

    /// The node's provider. A node with several candidates counts for the first.
    pub fn provider_of(&self, node: &Node) -> Option<Arc<dyn Provider>> {
        self.providers.for_node(node).possible().into_iter().next()
    }

    /// The provider of the node that has this name, if there is one.
    pub fn provider_of_named(&self, node: &str) -> Option<Arc<dyn Provider>> {
        self.provider_of(self.nodes.get(node).as_deref()?)
    }

    /// Our nodes of this provider.
    pub fn nodes_of(&self, provider: &Arc<dyn Provider>) -> Vec<Arc<Node>> {
        let is_its =
            |node: &Node| self.provider_of(node).is_some_and(|owner| owner.name() == provider.name());
        self.nodes.list().into_iter().filter(|node| self.is_ours(node) && is_its(node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage;
    use ccm_kube::fixtures::node;

    fn selecting(selector: &str) -> Settings {
        let mut settings = stage::settings();
        settings.nodes.node_selector = selector.parse().unwrap();
        settings
    }

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
            assert_eq!(selecting(selector).manages(&node), want, "{name}");
        }
    }

    #[test]
    fn what_it_reads_is_kept() {
        let keep = selecting("pool=a,!legacy").keep_of_managed_nodes();
        for key in ["pool", "legacy", EXCLUDE_LABEL] {
            assert!(keep.labels.contains(key), "{key}");
        }
    }
}
