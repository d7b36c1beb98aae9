//! Routes, as plain values.

use cloudprovider_sdk::proto::NodeRef;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// It leads to its target.
    Active,
    /// Its target is gone.
    Blackhole,
}

/// Where a route leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteTarget {
    /// Name of the node.
    pub node: String,
    /// Provider ID of its machine.
    pub provider_id: String,
}

impl From<NodeRef> for RouteTarget {
    fn from(node: NodeRef) -> Self {
        Self { node: node.name, provider_id: node.provider_id }
    }
}

impl From<RouteTarget> for NodeRef {
    fn from(target: RouteTarget) -> Self {
        Self { name: target.node, provider_id: target.provider_id, ..Self::default() }
    }
}

/// A route. Whether it is a blackhole shows when it is looked at: a target may go at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The cloud's id, counted up.
    pub id: String,
    /// Uid of the cluster; empty: a former controller made it.
    pub cluster_uid: String,
    /// In canonical form.
    pub destination_cidr: IpNet,
    /// Absent: it leads to nothing known.
    pub target: Option<RouteTarget>,
}

impl Route {
    /// Whether a former controller made it.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.cluster_uid.is_empty()
    }

    /// Whether the cluster of this uid may see and change it.
    pub(super) fn is_of(&self, cluster_uid: &str) -> bool {
        self.is_legacy() || self.cluster_uid == cluster_uid
    }
}

/// A route made behind the provider's back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewRoute {
    /// Uid of the cluster; empty: as a former controller makes it.
    pub cluster_uid: String,
    /// A CIDR.
    pub destination_cidr: String,
    /// Where it leads to.
    pub target: Option<RouteTarget>,
}

/// A change behind the provider's back. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutePatch {
    /// Where it leads to.
    pub target: Option<RouteTarget>,
    /// It leads to nothing known.
    pub no_target: bool,
}

/// A CIDR as a network: host bits are cut off.
#[must_use]
pub fn canonical_cidr(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|net| net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidrs_are_compared_as_networks() {
        let text = |cidr: &str| canonical_cidr(cidr).map(|net| net.to_string());
        assert_eq!(text("10.0.1.7/24"), Some("10.0.1.0/24".into()), "R:route-canonical");
        assert_eq!(text("2001:DB8:0:0::1/64"), Some("2001:db8::/64".into()), "R:route-canonical");
        assert_eq!(text("10.0.1.0"), None);
        assert_eq!(text("x/24"), None);
    }
}
