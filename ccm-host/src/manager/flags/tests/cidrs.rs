//! Tables of node.md 3.1 and 3.2.

use super::*;
use ccm_reconcile::settings::cidrs::Allocation;

const CLUSTER: &str = "cluster-cidr";
const SERVICE: &str = "service-cluster-ip-range";
const V4: &str = "10.244.0.0/16";
const V6: &str = "fd00:10:244::/56";
const BOTH: &str = "10.244.0.0/16,fd00:10:244::/56";
const SWAPPED: &str = "fd00:10:244::/56,10.244.0.0/16";

type Flags<'a> = &'a [(&'a str, &'a str)];

/// The settings and warnings of these flags, or the mistakes.
fn resolved(flags: Flags<'_>) -> Result<(CidrSettings, Vec<String>), Vec<String>> {
    let words = flags.iter().map(|(name, value)| format!("--{name}={value}"));
    match parse(["--provider=mock=/run/mock.sock".to_owned()].into_iter().chain(words)) {
        Ok(Request::Run(settings)) => Ok((settings.controllers.cidrs, settings.warnings)),
        Ok(other) => panic!("{flags:?} gave {other:?}"),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

fn allocating<'a>(flags: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("allocate-node-cidrs", "true"), ("controllers", "nodeipam")], flags].concat()
}

/// `cluster>mask` of each range, in order.
fn ranges(flags: Flags<'_>) -> Result<Vec<String>, Vec<String>> {
    let (settings, _) = resolved(&allocating(flags))?;
    match settings.allocation {
        Some(Allocation::Ranges { ranges, .. }) => {
            Ok(ranges.iter().map(|range| format!("{}>{}", range.cluster, range.node_mask)).collect())
        }
        other => panic!("{flags:?} gave {other:?}"),
    }
}

/// The mask table of node.md 3.1.
#[test]
fn each_cluster_cidr_gets_the_mask_of_its_family() {
    let rows: [(Flags<'_>, &[&str]); 12] = [
        (&[("cluster-cidr", V4)], &["10.244.0.0/16>24"]),
        (&[("cluster-cidr", V6)], &["fd00:10:244::/56>64"]),
        (&[("cluster-cidr", BOTH)], &["10.244.0.0/16>24", "fd00:10:244::/56>64"]),
        (&[("cluster-cidr", SWAPPED)], &["fd00:10:244::/56>64", "10.244.0.0/16>24"]),
        (&[("cluster-cidr", V4), ("node-cidr-mask-size", "26")], &["10.244.0.0/16>26"]),
        (&[("cluster-cidr", V6), ("node-cidr-mask-size", "72")], &["fd00:10:244::/56>72"]),
        (&[("cluster-cidr", V4), ("node-cidr-mask-size-ipv4", "25")], &["10.244.0.0/16>25"]),
        (&[("cluster-cidr", V6), ("node-cidr-mask-size-ipv6", "60")], &["fd00:10:244::/56>60"]),
        (
            &[("cluster-cidr", BOTH), ("node-cidr-mask-size-ipv4", "20"), ("node-cidr-mask-size-ipv6", "72")],
            &["10.244.0.0/16>20", "fd00:10:244::/56>72"],
        ),
        (
            &[("cluster-cidr", SWAPPED), ("node-cidr-mask-size-ipv6", "60")],
            &["fd00:10:244::/56>60", "10.244.0.0/16>24"],
        ),
        (&[("cluster-cidr", "10.0.0.0/24"), ("node-cidr-mask-size", "0")], &["10.0.0.0/24>24"]),
        (&[("cluster-cidr", "0.0.0.0/0"), ("node-cidr-mask-size", "32")], &["0.0.0.0/0>32"]),
    ];
    for (flags, want) in rows {
        assert_eq!(ranges(flags).unwrap(), want, "{flags:?}");
    }
}

/// IPAM-20, IPAM-22, and the errors of node.md 3.1 and 3.2.
#[test]
fn what_cannot_be_divided_is_refused_with_its_remedy() {
    let rows: [(Flags<'_>, &str); 14] = [
        (
            &[],
            "--cluster-cidr=: there is nothing to divide with --allocate-node-cidrs=true: give the networks of the \
             pods, or --cidr-allocator-type=CloudAllocator if the cloud allocates them",
        ),
        (
            &[("cluster-cidr", "10.0.0.0/26")],
            "--node-cidr-mask-size-ipv4=24: is a part larger than the cluster CIDR 10.0.0.0/26: give 26 to 32",
        ),
        (
            &[("cluster-cidr", "10.0.0.0/16,fd00::/64"), ("node-cidr-mask-size-ipv6", "48")],
            "--node-cidr-mask-size-ipv6=48: is a part larger than the cluster CIDR fd00::/64: give 64 to 128",
        ),
        (
            &[("cluster-cidr", V4), ("node-cidr-mask-size", "33")],
            "--node-cidr-mask-size=33: is longer than an address of IPv4: give 16 to 32",
        ),
        (
            &[("cluster-cidr", BOTH), ("node-cidr-mask-size", "24")],
            "--node-cidr-mask-size=24: cannot say which of the two families it is for: give \
             --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 only",
        ),
        (
            &[("cluster-cidr", V4), ("node-cidr-mask-size", "24"), ("node-cidr-mask-size-ipv4", "24")],
            "--node-cidr-mask-size=24: is given beside a size for one family: give --node-cidr-mask-size-ipv4 and \
             --node-cidr-mask-size-ipv6 only",
        ),
        (
            &[("cluster-cidr", V4), ("node-cidr-mask-size-ipv6", "64")],
            "--node-cidr-mask-size-ipv6=64: the cluster CIDR 10.244.0.0/16 is of IPv4: leave it out, or give a \
             cluster CIDR of each family",
        ),
        (
            &[("cluster-cidr", V6), ("node-cidr-mask-size-ipv4", "24")],
            "--node-cidr-mask-size-ipv4=24: the cluster CIDR fd00:10:244::/56 is of IPv6: leave it out, or give a \
             cluster CIDR of each family",
        ),
        (
            &[("cluster-cidr", V4), ("node-cidr-mask-size-ipv4", "33")],
            "--node-cidr-mask-size-ipv4=33: is not a prefix length: give 1 to 32, or 0 for the default",
        ),
        (
            &[("cluster-cidr", V4), ("node-cidr-mask-size", "-1")],
            "--node-cidr-mask-size=-1: is not a prefix length: give 1 to 128, or 0 for the default",
        ),
        (
            &[("cluster-cidr", V6), ("node-cidr-mask-size-ipv6", "129")],
            "--node-cidr-mask-size-ipv6=129: is not a prefix length: give 1 to 128, or 0 for the default",
        ),
        (
            &[("cluster-cidr", V4), ("service-cluster-ip-range", "10.0.0.0/8")],
            "--service-cluster-ip-range=10.0.0.0/8: 10.0.0.0/8 leaves nothing of the cluster CIDR 10.244.0.0/16 for \
             nodes: give Services and pods networks of their own",
        ),
        (
            &[("cluster-cidr", "10.0.0.0/24"), ("service-cluster-ip-range", "10.0.0.128/25")],
            "--service-cluster-ip-range=10.0.0.128/25: 10.0.0.128/25 leaves nothing of the cluster CIDR 10.0.0.0/24 \
             for nodes: give Services and pods networks of their own",
        ),
        (
            &[("cluster-cidr", BOTH), ("service-cluster-ip-range", "fd00:10:244::/48,10.96.0.0/12")],
            "--service-cluster-ip-range=fd00:10:244::/48,10.96.0.0/12: fd00:10:244::/48 leaves nothing of the \
             cluster CIDR fd00:10:244::/56 for nodes: give Services and pods networks of their own",
        ),
    ];
    for (flags, message) in rows {
        assert_eq!(ranges(flags), Err(vec![message.to_owned()]), "{flags:?}");
    }
}

/// NW-32, SW-43: a malformed list of networks is refused, whether or not anything is allocated.
#[test]
fn a_list_of_networks_is_refused_as_a_whole() {
    const REMEDY: &str = "write it like 10.244.0.0/16, or 10.244.0.0/16,fd00:10:244::/56 for both families";
    const ONE_EACH: &str = "give one network, or one of each family";
    let rows = [
        ("10.0.0.0", format!("\"10.0.0.0\" is not a network: {REMEDY}")),
        ("10.0.0.0/33", format!("\"10.0.0.0/33\" is not a network: {REMEDY}")),
        ("pods", format!("\"pods\" is not a network: {REMEDY}")),
        ("10.0.0.0/16,", format!("\"\" is not a network: {REMEDY}")),
        ("10.0.0.0/16 fd00::/56", format!("\"10.0.0.0/16 fd00::/56\" is not a network: {REMEDY}")),
        ("10.0.0.0/16,10.1.0.0/16", format!("10.0.0.0/16 and 10.1.0.0/16 are both of IPv4: {ONE_EACH}")),
        ("10.0.0.0/8,10.1.0.0/16", format!("10.0.0.0/8 and 10.1.0.0/16 are both of IPv4: {ONE_EACH}")),
        ("10.0.0.0/16,fd00::/56,fd01::/56", format!("fd00::/56 and fd01::/56 are both of IPv6: {ONE_EACH}")),
    ];
    for flag in [CLUSTER, SERVICE] {
        for (value, message) in &rows {
            let message = format!("--{flag}={value}: {message}");
            assert_eq!(resolved(&[(flag, value)]).map(drop), Err(vec![message.clone()]));
            let beside = [(flag, *value), if flag == CLUSTER { (SERVICE, "") } else { (CLUSTER, V4) }];
            assert_eq!(resolved(&allocating(&beside)).map(drop), Err(vec![message]));
        }
    }
}

#[test]
fn a_list_is_read_leniently() {
    let rows: [(&str, &[&str], &[&str]); 5] = [
        ("", &[], &[]),
        ("  ", &[], &[]),
        (" 10.244.0.0/16 ,\tfd00:10:244::/56 ", &[V4, V6], &[]),
        ("010.244.000.0/16", &[V4], &[]),
        (
            "10.244.3.7/16",
            &[V4],
            &["--cluster-cidr=10.244.3.7/16: 10.244.3.7/16 has host bits, 10.244.0.0/16 is used"],
        ),
    ];
    for (value, want, words) in rows {
        let (settings, warnings) = resolved(&[(CLUSTER, value)]).unwrap();
        assert_eq!(settings.cluster.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{value:?}");
        assert_eq!(warnings, words, "{value:?}");
    }
}

#[test]
fn services_within_the_cluster_cidr_are_reserved_and_told() {
    let flags = [(CLUSTER, V4), (SERVICE, "10.244.255.0/24,fd00::/112")];
    let (settings, warnings) = resolved(&allocating(&flags)).unwrap();
    let Some(Allocation::Ranges { reserved, .. }) = settings.allocation else { panic!("{settings:?}") };
    assert_eq!(
        reserved.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.244.255.0/24", "fd00::/112"]
    );
    assert_eq!(
        warnings,
        ["--service-cluster-ip-range=10.244.255.0/24,fd00::/112: 10.244.255.0/24 lies in the cluster CIDR \
          10.244.0.0/16; what belongs to Services is never given to a node"]
    );
    assert_eq!(resolved(&flags).unwrap().1, [""; 0], "nothing is given, so nothing is kept back");
}

/// A manifest that allocates nothing starts, whatever its masks; node.md 3.1 and 3.3.
#[test]
fn who_gives_pod_cidrs_is_said_by_two_flags() {
    let contradicting = [(CLUSTER, BOTH), ("node-cidr-mask-size", "24"), (SERVICE, "10.0.0.0/8")];
    let (settings, _) = resolved(&contradicting).unwrap();
    assert_eq!(settings.allocation, None);
    assert_eq!(settings.cluster.len(), 2);
    let cloud = ("cidr-allocator-type", "CloudAllocator");
    assert_eq!(resolved(&[cloud]).unwrap().0.allocation, None);
    assert_eq!(resolved(&allocating(&[cloud])).unwrap().0.allocation, Some(Allocation::Cloud));
    let rows = [
        ("IPAMFromCluster", "was removed from Kubernetes: give RangeAllocator"),
        ("IPAMFromCloud", "was removed from Kubernetes: give CloudAllocator"),
        ("rangeallocator", "is unknown: give RangeAllocator or CloudAllocator"),
        ("", "is unknown: give RangeAllocator or CloudAllocator"),
    ];
    for (name, message) in rows {
        let message = format!("--cidr-allocator-type={name}: {message}");
        assert_eq!(resolved(&[("cidr-allocator-type", name)]).map(drop), Err(vec![message]));
    }
}
