//! Decides which destinations are ours: those completely inside a cluster CIDR.
//!
//! Upstream also removes a wider route that only shares its first or last address with a cluster CIDR, such as the
//! aggregate of a whole private network: that would cut off others.

use ipnet::IpNet;

/// The cluster CIDRs.
#[derive(Debug, Clone)]
pub(super) struct ClusterCidrs(Vec<IpNet>);

impl ClusterCidrs {
    pub(super) fn new(networks: Vec<IpNet>) -> Self {
        Self(networks.into_iter().map(|network| network.trunc()).collect())
    }

    /// Whether routes to this destination are ours to make and to remove.
    pub(super) fn contain(&self, destination: &IpNet) -> bool {
        self.0.iter().any(|cluster| cluster.contains(destination))
    }

    pub(super) fn all(&self) -> &[IpNet] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cidr;

    /// RESP-1..17. Rows 13 and 14 differ from upstream on purpose; the text of row 16 is not a network.
    #[test]
    fn a_destination_is_ours_if_it_lies_inside_of_a_cluster_cidr() {
        let rows = [
            ("RESP-1", "10.244.0.0/16", "10.244.0.0/24", true),
            ("RESP-2", "10.244.0.0/16", "10.244.10.0/24", true),
            ("RESP-3", "10.244.0.0/16", "10.244.255.0/24", true),
            ("RESP-4", "10.244.0.0/14", "10.244.0.0/24", true),
            ("RESP-5", "10.244.0.0/14", "10.247.255.0/24", true),
            ("RESP-6", "a00:100::/10", "a00:100::/24", true),
            ("RESP-7", "10.244.0.0/16", "10.224.0.0/24", false),
            ("RESP-8", "10.244.0.0/16", "10.0.10.0/24", false),
            ("RESP-9", "10.244.0.0/16", "10.255.255.0/24", false),
            ("RESP-10", "10.244.0.0/14", "10.248.0.0/24", false),
            ("RESP-11", "10.244.0.0/14", "10.243.255.0/24", false),
            ("RESP-12", "a00:100::/10", "b00:100::/24", false),
            ("RESP-13 ours", "10.0.0.0/16", "10.0.0.0/8", false),
            ("RESP-13 ours", "10.0.0.0/16", "10.0.0.0/15", false),
            ("RESP-14 ours", "10.255.0.0/16", "10.0.0.0/8", false),
            ("RESP-15", "10.244.0.0/16", "10.0.0.0/8", false),
            ("RESP-15", "10.0.0.0/16", "0.0.0.0/0", false),
            ("RESP-16", "10.0.0.0/16", "junk", false),
            ("RESP-17", "10.0.0.0/16", "::ffff:10.0.1.0/120", true),
            ("RESP-17", "10.0.0.0/16", "010.0.1.0/24", true),
            ("RESP-17", "10.0.0.0/16", "10.0.1.5/24", true),
            ("the same network", "10.0.0.0/16", "10.0.0.0/16", true),
            ("another family", "::/0", "10.0.0.0/16", false),
        ];
        for (id, cluster, route, want) in rows {
            let cluster = ClusterCidrs::new(vec![cidr::parse(cluster).unwrap()]);
            let ours = cidr::parse(route).is_some_and(|network| cluster.contain(&network.trunc()));
            assert_eq!(ours, want, "{id}: {route}");
        }
    }

    #[test]
    fn either_family_counts() {
        let both = ["10.0.0.0/16", "fd00::/48"].map(|text| text.parse().unwrap()).to_vec();
        let cluster = ClusterCidrs::new(both);
        for route in ["10.0.1.0/24", "fd00::1:0:0:0:0/64"] {
            assert!(cluster.contain(&route.parse().unwrap()), "{route}");
        }
    }
}
