//! Addresses for balancers, taken from networks that are reserved for documentation and tests.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use cloudprovider_sdk::{ProviderError, Result, proto::IpFamily};

/// Whether it is internal, the first address, and how many: TEST-NET-1, -2, -3, then the network for benchmarks.
const POOLS: [(bool, IpAddr, u32); 7] = [
    (false, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 254),
    (false, IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 254),
    (false, IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 254),
    (false, IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), (1 << 17) - 2),
    (true, IpAddr::V4(Ipv4Addr::new(172, 31, 0, 1)), (1 << 16) - 2),
    (false, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 1 << 20),
    (true, IpAddr::V6(Ipv6Addr::new(0xfd00, 0xdb8, 0, 0, 0, 0, 0, 1)), 1 << 20),
];

/// Takes the lowest free address.
///
/// # Errors
///
/// No address is left.
pub(super) fn take(taken: &mut BTreeSet<IpAddr>, family: IpFamily, internal: bool) -> Result<IpAddr> {
    let free = pool(family, internal).find(|address| !taken.contains(address));
    let address = free.ok_or_else(|| ProviderError::capacity_unavailable("addresses"))?;
    taken.insert(address);
    Ok(address)
}

/// Takes exactly this address.
///
/// # Errors
///
/// It is not in the pools, or is taken.
pub(super) fn take_this(taken: &mut BTreeSet<IpAddr>, text: &str, internal: bool) -> Result<IpAddr> {
    let refuse = |why: &str| {
        ProviderError::invalid_configuration("spec.loadBalancerIP", &format!("address {text:?} {why}"))
    };
    let address: IpAddr = text.parse().map_err(|_| refuse("is no IP"))?;
    let family = if address.is_ipv4() { IpFamily::Ipv4 } else { IpFamily::Ipv6 };
    if !pool(family, internal).any(|candidate| candidate == address) {
        return Err(refuse("is not in this cloud's pools"));
    }
    if !taken.insert(address) {
        return Err(refuse("is taken"));
    }
    Ok(address)
}

/// Whether balancers may get this address.
pub(crate) fn is_for_balancers(address: IpAddr) -> bool {
    POOLS.iter().any(|(_, first, count)| match (first, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            address.to_bits().checked_sub(first.to_bits()).is_some_and(|nth| nth < *count)
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            address.to_bits().checked_sub(first.to_bits()).is_some_and(|nth| nth < u128::from(*count))
        }
        _ => false,
    })
}

fn pool(family: IpFamily, internal: bool) -> impl Iterator<Item = IpAddr> {
    let is_v6 = family == IpFamily::Ipv6;
    let fits =
        move |(within, first, _): &(bool, IpAddr, u32)| *within == internal && first.is_ipv6() == is_v6;
    let address = |first: IpAddr, nth: u32| match first {
        IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() + nth)),
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() + u128::from(nth))),
    };
    let all = move |(_, first, count)| (0..count).map(move |nth| address(first, nth));
    POOLS.into_iter().filter(fits).flat_map(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_taken_and_pools_follow_each_other() {
        let mut taken = BTreeSet::new();
        let mut next = |family, internal| take(&mut taken, family, internal).unwrap().to_string();
        assert_eq!(next(IpFamily::Ipv4, false), "192.0.2.1");
        assert_eq!(next(IpFamily::Ipv4, true), "172.31.0.1");
        assert_eq!(next(IpFamily::Ipv6, false), "2001:db8::1");
        assert_eq!(next(IpFamily::Ipv6, true), "fd00:db8::1");
        for _ in 0..253 {
            next(IpFamily::Ipv4, false);
        }
        assert_eq!(next(IpFamily::Ipv4, false), "198.51.100.1");
    }

    #[test]
    fn the_pools_hold_their_first_and_their_last_address() {
        for (address, held) in [
            ("192.0.2.0", false),
            ("192.0.2.1", true),
            ("192.0.2.254", true),
            ("192.0.2.255", false),
            ("2001:db8::1", true),
            ("2001:db8::10:1", false),
            ("::ffff:192.0.2.1", false),
        ] {
            assert_eq!(is_for_balancers(address.parse().unwrap()), held, "{address}");
        }
    }

    #[test]
    fn an_address_asked_for_is_given_once() {
        let mut taken = BTreeSet::new();
        let mut ask =
            |text: &str| take_this(&mut taken, text, false).map_err(|error| error.message().to_owned());
        assert_eq!(ask("192.0.2.9"), Ok("192.0.2.9".parse().unwrap()));
        assert_eq!(ask("192.0.2.9"), Err("spec.loadBalancerIP: address \"192.0.2.9\" is taken".into()));
        assert_eq!(
            ask("8.8.8.8"),
            Err("spec.loadBalancerIP: address \"8.8.8.8\" is not in this cloud's pools".into())
        );
        assert_eq!(ask("x"), Err("spec.loadBalancerIP: address \"x\" is no IP".into()));
    }
}
