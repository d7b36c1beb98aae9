//! The vectors of node.md 4.10.

mod properties;

use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;

fn net(text: &str) -> IpNet {
    cidr::parse(text).unwrap()
}

fn set(cluster: &str, node_mask: u8) -> CidrSet {
    let metrics = IpamMetrics::register(&mut Registry::default());
    CidrSet::new(&NodeRange { cluster: net(cluster), node_mask }, &metrics)
}

fn node(name: &str) -> BlockOwner {
    BlockOwner::Node(name.into())
}

impl CidrSet {
    fn allocate(&mut self, owner: &BlockOwner) -> Option<String> {
        let free = self.free()?;
        Some(self.take(free, owner).1.to_string())
    }

    fn occupy_net(&mut self, text: &str, owner: &BlockOwner) -> u128 {
        let blocks = self.grid.blocks(&net(text)).unwrap();
        self.occupy(blocks, owner)
    }

    fn release_net(&mut self, text: &str, owner: &BlockOwner) -> u128 {
        let blocks = self.grid.blocks(&net(text)).unwrap();
        self.release(blocks, owner)
    }
}

/// CIDR-1.
#[test]
fn one_block_is_exhausted_at_once_and_comes_back() {
    for cluster in ["127.123.234.0/30", "beef:1234::/30"] {
        let mut set = set(cluster, 30);
        let a = node("a");
        let first = set.allocate(&a);
        assert_eq!(first, Some(net(cluster).to_string()));
        assert_eq!(set.allocate(&a), None);
        assert_eq!(set.release_net(cluster, &a), 1);
        assert_eq!(set.allocate(&a), first);
        assert_eq!(set.allocate(&a), None);
    }
}

/// CIDR-2, CIDR-3.
#[test]
fn blocks_go_in_order_round_and_round() {
    for (cluster, upper, mask, middle) in [
        ("127.123.0.0/16", "127.123.128.0/17", 24, "127.123.128.0/24"),
        ("beef:1200::/16", "beef:8000::/17", 24, "beef:8000::/24"),
    ] {
        let mut set = set(cluster, mask);
        let a = node("a");
        let all = |set: &mut CidrSet| -> Vec<_> { std::iter::from_fn(|| set.allocate(&a)).collect() };
        let first = all(&mut set);
        assert_eq!(first.len(), 256);
        assert_eq!(set.release_net(cluster, &a), 256);
        assert_eq!(all(&mut set), first, "{cluster}");
        set.release_net(cluster, &a);
        assert_eq!(set.occupy_net(upper, &a), 128);
        assert_eq!(set.occupy_net(middle, &a), 0);
        assert_eq!(all(&mut set), first[..128], "{cluster}");
    }
}

/// CIDR-4.
#[test]
fn occupying_and_releasing_again_changes_nothing() {
    let mut set = set("10.42.0.0/16", 24);
    let a = node("a");
    let steps: [(&str, bool, u128); 7] = [
        ("10.42.5.0/24", true, 1),
        ("10.42.9.0/24", true, 2),
        ("10.42.8.0/22", true, 5),
        ("10.42.9.0/24", true, 5),
        ("10.42.9.0/24", false, 4),
        ("10.42.9.0/24", false, 4),
        ("10.42.4.0/22", false, 3),
    ];
    for (network, occupy, want) in steps {
        if occupy {
            set.occupy_net(network, &a)
        } else {
            set.release_net(network, &a)
        };
        assert_eq!(set.occupied, want, "{network} {occupy}");
    }
    assert_eq!(std::iter::from_fn(|| set.allocate(&a)).count(), 253);
}

/// CIDR-5, CIDR-7; upstream refuses CIDR-6, but a set of 2^17 costs as little as any other here (NW-31).
#[test]
fn any_split_of_a_cluster_cidr_works() {
    let rows = [
        ("127.0.0.0/8", 32, ["127.0.0.0/32", "127.0.0.1/32"]),
        ("2001:beef:1234:369b::/60", 64, ["2001:beef:1234:3690::/64", "2001:beef:1234:3691::/64"]),
        ("beef:1234::/32", 49, ["beef:1234::/49", "beef:1234:0:8000::/49"]),
        ("0.0.0.0/0", 32, ["0.0.0.0/32", "0.0.0.1/32"]),
        ("::/0", 128, ["::/128", "::1/128"]),
    ];
    for (cluster, mask, want) in rows {
        let mut set = set(cluster, mask);
        let a = node("a");
        let got = [set.allocate(&a).unwrap(), set.allocate(&a).unwrap()];
        assert_eq!(got, want, "{cluster}");
        assert_eq!(set.runs.len(), 2, "only what is occupied takes memory");
    }
}

/// Node.md 3.4: upstream's index overflows here.
#[test]
fn the_whole_address_space_can_be_occupied() {
    for (cluster, mask, last) in [
        ("0.0.0.0/0", 32, "255.255.255.255/32"),
        ("::/0", 128, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
    ] {
        let mut set = set(cluster, mask);
        let (a, b) = (node("a"), node("b"));
        assert_eq!(set.occupy_net(last, &a), 1, "{cluster}");
        set.occupy_net(cluster, &b);
        assert_eq!(set.allocate(&a), None, "{cluster}");
        set.release_net(cluster, &b);
        assert_eq!(set.others(set.grid.blocks(&net(last)).unwrap(), &b), [&a]);
        assert!(set.free().is_some());
    }
}

/// CIDR-8.
#[test]
fn capacity_is_what_fits() {
    for (cluster, mask, want) in [
        ("10.0.0.0/16", 24, 256.0),
        ("2001:db8::/48", 64, 65536.0),
        ("10.0.0.0/24", 24, 1.0),
        ("0.0.0.0/0", 32, 4_294_967_296.0),
    ] {
        assert_eq!(Grid::new(net(cluster), mask).capacity(), want, "{cluster}");
    }
}

/// CIDR-20..34.
#[test]
fn a_number_becomes_its_block() {
    let rows = [
        ("127.123.3.0/16", 24, 0, "127.123.0.0/24"),
        ("127.123.0.0/16", 24, 15, "127.123.15.0/24"),
        ("192.168.5.219/28", 32, 5, "192.168.5.213/32"),
        ("2001:db8:1234:3::/48", 64, 0, "2001:db8:1234::/64"),
        ("2001:db8:1234::/48", 64, 15, "2001:db8:1234:f::/64"),
        ("2001:db8:85a3::8a2e:370:7334/50", 63, 6425, "2001:db8:85a3:3232::/63"),
        ("2001:db8::/32", 48, 0, "2001:db8::/48"),
        ("2001:db8::/32", 48, 15, "2001:db8:f::/48"),
        ("2001:db8::/32", 48, 6425, "2001:db8:1919::/48"),
        ("2001:db8:1234:ff00::/56", 72, 0, "2001:db8:1234:ff00::/72"),
        ("2001:db8:1234:ff00::/56", 72, 15, "2001:db8:1234:ff00:f00::/72"),
        ("2001:db8:1234:ff00::/56", 72, 6425, "2001:db8:1234:ff19:1900::/72"),
        ("2001:db8:1234:0:1234::/80", 96, 0, "2001:db8:1234:0:1234::/96"),
        ("2001:db8:1234:0:1234::/80", 96, 15, "2001:db8:1234:0:1234:f::/96"),
        ("2001:db8:1234:ff00::370:7334/80", 96, 6425, "2001:db8:1234:ff00:0:1919::/96"),
    ];
    for (cluster, mask, block, want) in rows {
        let grid = Grid::new(net(cluster), mask);
        assert_eq!(grid.block(block), net(want), "{cluster} {block}");
        assert_eq!(grid.index(net(want).addr()), Some(block), "{want}");
    }
}

/// CIDR-40..53.
#[test]
fn an_address_has_the_number_of_its_block() {
    let rows = [
        ("127.0.0.0/8", 16, "127.0.0.0", Some(0)),
        ("127.0.0.0/8", 16, "127.123.0.0", Some(123)),
        ("127.0.0.0/8", 16, "127.168.0.0", Some(168)),
        ("127.0.0.0/8", 16, "127.224.0.0", Some(224)),
        ("be00::/8", 16, "be00::", Some(0)),
        ("be00::/8", 16, "beef::", Some(0xef)),
        ("be00::/8", 16, "be68::", Some(0x68)),
        ("be00::/8", 16, "be24::", Some(0x24)),
        ("192.168.0.0/16", 24, "192.168.12.0", Some(12)),
        ("192.168.0.0/16", 24, "192.168.151.0", Some(151)),
        ("beef::/16", 24, "beef:1200::", Some(0x12)),
        ("beef::/16", 24, "beef:9700::", Some(0x97)),
        ("192.168.0.0/16", 24, "127.168.224.0", None),
        ("beef::/16", 24, "2001:db00::", None),
        ("beef::/16", 24, "10.0.0.1", None),
    ];
    for (cluster, mask, address, want) in rows {
        assert_eq!(Grid::new(net(cluster), mask).index(address.parse().unwrap()), want, "{address}");
    }
}

/// CIDR-60..73.
#[test]
fn a_network_covers_its_blocks() {
    let rows = [
        ("127.0.0.0/8", 16, "127.0.0.0/8", 0, 255),
        ("127.0.0.0/8", 16, "127.0.0.0/2", 0, 255),
        ("127.0.0.0/8", 16, "127.0.0.0/16", 0, 0),
        ("127.0.0.0/8", 32, "127.0.0.0/16", 0, 65535),
        ("127.0.0.0/7", 16, "127.0.0.0/15", 256, 257),
        ("127.0.0.0/7", 15, "127.0.0.0/15", 128, 128),
        ("127.0.0.0/7", 18, "127.0.0.0/15", 1024, 1031),
        ("2001:beef:1200::/40", 48, "2001:beef:1200::/40", 0, 255),
        ("2001:beef:1200::/40", 48, "2001:beef:1234::/34", 0, 255),
        ("2001:beef:1200::/40", 48, "2001:beef:1200::/48", 0, 0),
        ("2001:beef:1200::/48", 64, "2001:beef:1200::/48", 0, 65535),
        ("2001:beef:7f00::/39", 48, "2001:beef:7f00::/47", 256, 257),
        ("2001:beef:7f00::/39", 47, "2001:beef:7f00::/47", 128, 128),
        ("2001:beef:7f00::/39", 50, "2001:beef:7f00::/47", 1024, 1031),
        ("10.0.0.0/16", 24, "10.0.7.128/25", 7, 7),
    ];
    for (cluster, mask, network, first, last) in rows {
        let got = Grid::new(net(cluster), mask).blocks(&net(network));
        assert_eq!(got, Some(Blocks { first, last }), "{network} in {cluster}");
    }
}

/// IPAM-25, NW-28.
#[test]
fn a_shared_block_is_free_when_the_last_owner_is_gone() {
    let mut set = set("10.0.0.0/16", 24);
    let (a, b) = (node("a"), node("b"));
    set.occupy_net("10.0.0.0/24", &a);
    set.occupy_net("10.0.0.0/22", &b);
    set.occupy_net("10.0.1.0/24", &BlockOwner::Services);
    let wide = set.grid.blocks(&net("10.0.0.0/22")).unwrap();
    assert_eq!(set.others(wide, &b), [&BlockOwner::Services, &a]);
    assert_eq!(set.others(Blocks::one(3), &a), [&b]);
    assert_eq!(set.release_net("10.0.0.0/22", &b), 2);
    assert_eq!(set.release_net("10.0.0.0/22", &b), 0);
    assert_eq!(set.allocate(&b).as_deref(), Some("10.0.2.0/24"));
    assert_eq!(set.release_net("10.0.0.0/16", &a), 1);
    assert_eq!(set.occupied, 2);
}

struct Scene {
    registry: Registry,
    sets: Vec<CidrSet>,
}

fn scene(clusters: &[(&str, u8)]) -> Scene {
    let mut registry = Registry::default();
    let metrics = IpamMetrics::register(&mut registry);
    let range = |(text, node_mask): &(&str, u8)| NodeRange { cluster: net(text), node_mask: *node_mask };
    Scene { sets: clusters.iter().map(|cluster| CidrSet::new(&range(cluster), &metrics)).collect(), registry }
}

impl Scene {
    fn allocate(&mut self, set: usize) {
        let free = self.sets[set].free().unwrap();
        self.sets[set].take(free, &node("a"));
    }

    fn blocks(&self, set: usize, network: &str) -> Blocks {
        self.sets[set].grid.blocks(&net(network)).unwrap()
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
    scene.sets[0].release(all, &node("a"));
    scene.assert_has(&[
        r#"cidrset_usage_cidrs{clusterCIDR="10.0.0.0/16"} 0.0"#,
        r#"cidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/16"} 256"#,
    ]);
    scene.sets[0].occupy(all, &node("a"));
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
    scene.sets[0].occupy(lower, &node("a"));
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
