//! One cluster CIDR with its metrics.
//!
//! In: blocks taken and returned. Out: the results of [`CidrSet`], counted under upstream's names.

use ipnet::IpNet;

use super::settings::NodeRange;
use super::{
    cidr_set::{Blocks, CidrSet, Free, Grid, OutOfRange, Owner},
    metrics::{IpamMetrics, SetSeries},
};

#[derive(Debug)]
pub(super) struct Pool {
    set: CidrSet,
    series: SetSeries,
}

impl Pool {
    pub(super) fn new(range: &NodeRange, metrics: &IpamMetrics) -> Self {
        let grid = Grid::new(range.cluster, range.node_mask);
        Self { set: CidrSet::new(grid), series: metrics.of_set(grid.cluster(), grid.capacity()) }
    }

    pub(super) fn cluster(&self) -> &IpNet {
        self.set.grid().cluster()
    }

    pub(super) fn blocks(&self, network: &IpNet) -> Result<Blocks, OutOfRange> {
        self.set.grid().blocks(network)
    }

    pub(super) fn others(&self, blocks: Blocks, owner: &Owner) -> Vec<&Owner> {
        self.set.others(blocks, owner)
    }

    pub(super) fn free(&self) -> Option<Free> {
        self.set.free()
    }

    #[cfg(test)]
    pub(super) fn usage(&self) -> f64 {
        self.set.usage()
    }

    /// Assigns a free block.
    pub(super) fn take(&mut self, free: Free, owner: &Owner) -> (Blocks, IpNet) {
        let blocks = Blocks::one(free.block);
        self.set.take(free.block, owner);
        self.series.allocated(1, self.set.usage());
        self.series.tried(free.skipped);
        (blocks, self.set.network(free.block))
    }

    pub(super) fn occupy(&mut self, blocks: Blocks, owner: &Owner) {
        let fresh = self.set.occupy(blocks, owner);
        self.series.allocated(fresh, self.set.usage());
    }

    pub(super) fn release(&mut self, blocks: Blocks, owner: &Owner) -> u128 {
        let freed = self.set.release(blocks, owner);
        self.series.released(freed, self.set.usage());
        freed
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;
    use crate::cidr;

    struct Scene {
        registry: Registry,
        pools: Vec<Pool>,
    }

    fn scene(clusters: &[(&str, u8)]) -> Scene {
        let mut registry = Registry::default();
        let metrics = IpamMetrics::register(&mut registry);
        let range = |(text, node_mask): &(&str, u8)| NodeRange {
            cluster: cidr::parse(text).unwrap(),
            node_mask: *node_mask,
        };
        Scene {
            pools: clusters.iter().map(|cluster| Pool::new(&range(cluster), &metrics)).collect(),
            registry,
        }
    }

    fn owner() -> Owner {
        Owner::Node("a".into())
    }

    impl Scene {
        fn allocate(&mut self, pool: usize) {
            let free = self.pools[pool].free().unwrap();
            self.pools[pool].take(free, &owner());
        }

        fn blocks(&self, pool: usize, network: &str) -> Blocks {
            self.pools[pool].blocks(&cidr::parse(network).unwrap()).unwrap()
        }

        fn assert_has(&self, lines: &[&str]) {
            let mut text = String::new();
            encode(&mut text, &self.registry).unwrap();
            for line in lines {
                let line = format!("node_ipam_controller_{line}");
                assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
            }
        }
    }

    /// CIDR-9.
    #[test]
    fn what_is_given_and_returned_is_counted() {
        let mut scene = scene(&[("10.0.0.0/16", 24)]);
        scene.assert_has(&[
            r#"cirdset_max_cidrs{clusterCIDR="10.0.0.0/16"} 256.0"#,
            r#"cidrset_max_cidrs{clusterCIDR="10.0.0.0/16"} 256.0"#,
        ]);
        for number in 1..=256 {
            scene.allocate(0);
            let usage = f64::from(number) / 256.0;
            scene.assert_has(&[
                &format!(r#"cidrset_usage_cidrs{{clusterCIDR="10.0.0.0/16"}} {usage:?}"#),
                &format!(r#"cidrset_cidrs_allocations_total{{clusterCIDR="10.0.0.0/16"}} {number}"#),
            ]);
        }
        let all = scene.blocks(0, "10.0.0.0/16");
        scene.pools[0].release(all, &owner());
        scene.assert_has(&[
            r#"cidrset_usage_cidrs{clusterCIDR="10.0.0.0/16"} 0.0"#,
            r#"cidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/16"} 256"#,
        ]);
        scene.pools[0].occupy(all, &owner());
        scene.assert_has(&[
            r#"cidrset_usage_cidrs{clusterCIDR="10.0.0.0/16"} 1.0"#,
            r#"cidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/16"} 512"#,
            r#"cidrset_allocation_tries_per_request_sum{clusterCIDR="10.0.0.0/16"} 0.0"#,
            r#"cidrset_allocation_tries_per_request_count{clusterCIDR="10.0.0.0/16"} 256"#,
        ]);
    }

    /// CIDR-10.
    #[test]
    fn blocks_that_are_passed_over_are_tries() {
        let mut scene = scene(&[("10.0.0.0/16", 24)]);
        let lower = scene.blocks(0, "10.0.0.0/17");
        scene.pools[0].occupy(lower, &owner());
        scene.allocate(0);
        scene.assert_has(&[
            r#"cidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/16"} 129"#,
            r#"cidrset_usage_cidrs{clusterCIDR="10.0.0.0/16"} 0.50390625"#,
            r#"cidrset_allocation_tries_per_request_sum{clusterCIDR="10.0.0.0/16"} 128.0"#,
            r#"cidrset_allocation_tries_per_request_bucket{le="125.0",clusterCIDR="10.0.0.0/16"} 0"#,
            r#"cidrset_allocation_tries_per_request_bucket{le="625.0",clusterCIDR="10.0.0.0/16"} 1"#,
        ]);
    }

    /// CIDR-11.
    #[test]
    fn families_are_counted_apart() {
        let mut scene = scene(&[("10.0.0.0/16", 24), ("2001:db8::/48", 64)]);
        scene.allocate(0);
        scene.allocate(1);
        scene.allocate(1);
        scene.assert_has(&[
            r#"cidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/16"} 1"#,
            r#"cidrset_cidrs_allocations_total{clusterCIDR="2001:db8::/48"} 2"#,
            r#"cirdset_max_cidrs{clusterCIDR="2001:db8::/48"} 65536.0"#,
        ]);
    }
}
