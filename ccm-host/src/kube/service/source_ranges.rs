//! The clients that a balancer should let in.
//!
//! In: the spec's list, or else the annotation that stands in for it. Out: canonical networks, or why one is invalid.
//! What to do with a Service that has an invalid range is decided in [`crate::controllers`].

use ipnet::IpNet;

use super::Service;
use crate::cidr;

/// Read if the spec has no ranges.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// An invalid range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {range:?} is not a network such as 10.0.0.0/24")]
pub struct SourceRangesError {
    /// The field or annotation.
    pub place: &'static str,
    pub range: String,
}

/// The ranges, deduplicated and in order of address; an empty list lets everybody in.
pub fn source_ranges(service: &Service) -> Result<Vec<IpNet>, SourceRangesError> {
    match service.spec.load_balancer_source_ranges.as_deref() {
        Some(listed) if !listed.is_empty() => {
            parse("spec.loadBalancerSourceRanges", listed.iter().map(String::as_str))
        }
        _ => match service.annotations.get(SOURCE_RANGES).map(str::trim) {
            Some(listed) if !listed.is_empty() => parse(SOURCE_RANGES, listed.split(',')),
            _ => Ok(Vec::new()),
        },
    }
}

fn parse<'a>(
    place: &'static str,
    listed: impl Iterator<Item = &'a str>,
) -> Result<Vec<IpNet>, SourceRangesError> {
    let bad = |range: &str| SourceRangesError { place, range: range.to_owned() };
    let network = |text: &str| cidr::parse(text.trim()).map(|network| network.trunc());
    let mut ranges =
        listed.map(|text| network(text).ok_or_else(|| bad(text))).collect::<Result<Vec<_>, _>>()?;
    ranges.sort_unstable();
    ranges.dedup();
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::service;

    fn annotated(text: &str) -> Service {
        service("web").load_balancer().with_annotation(SOURCE_RANGES, text)
    }

    fn listed(text: &str) -> Service {
        let mut service = service("web").load_balancer();
        service.spec.load_balancer_source_ranges = Some(text.split(',').map(str::to_owned).collect());
        service
    }

    fn words(service: &Service) -> Option<Vec<String>> {
        source_ranges(service).ok().map(|ranges| ranges.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ranges_come_from_spec_and_annotation_alike() {
        let rows: [(&str, &str, Option<&[&str]>); 15] = [
            ("HLP-1", "10.0.0.1/33", None),
            ("HLP-2", "foo.bar", None),
            ("HLP-3", "10.0.0.1/32,*", None),
            ("HLP-4", "10.0.0.1/32,", None),
            ("HLP-5", "10.0.0.1/32, ", None),
            ("HLP-6", "10.0.0.1", None),
            ("HLP-7", "192.168.0.1/32", Some(&["192.168.0.1/32"])),
            ("HLP-8", "192.168.0.1/32,192.168.0.1/32", Some(&["192.168.0.1/32"])),
            ("HLP-9", "192.168.0.2/32,192.168.0.1/32", Some(&["192.168.0.1/32", "192.168.0.2/32"])),
            ("HLP-10", "  192.168.0.1/32 ,\t192.168.0.2/32\n", Some(&["192.168.0.1/32", "192.168.0.2/32"])),
            ("1.19", "10.1.2.3/8", Some(&["10.0.0.0/8"])),
            ("1.19", "010.0.1.0/24,0.0.0.0/0", Some(&["0.0.0.0/0", "10.0.1.0/24"])),
            ("1.19", "::ffff:10.0.1.0/120,fd00::1/8", Some(&["10.0.1.0/24", "fd00::/8"])),
            ("sign", "10.0.0.0/+8", None),
            ("gap", "10..0.0/8", None),
        ];
        for (id, text, want) in rows {
            let want = want.map(|want| want.iter().map(|&range| range.to_owned()).collect::<Vec<_>>());
            assert_eq!(words(&annotated(text)), want, "{id}: annotation {text:?}");
            assert_eq!(words(&listed(text)), want, "{id}: spec {text:?}");
        }
    }

    /// The contract says "none: no restriction" where upstream's helper says `0.0.0.0/0`.
    #[test]
    fn no_range_means_everybody() {
        let mut empty = service("web").load_balancer();
        empty.spec.load_balancer_source_ranges = Some(Vec::new());
        let rows = [
            ("HLP-11", service("web").load_balancer()),
            ("HLP-12", annotated("")),
            ("HLP-12", annotated(" \t")),
            ("empty list", empty),
        ];
        for (id, service) in rows {
            assert_eq!(words(&service), Some(Vec::new()), "{id}");
        }
    }

    /// HLP-14..16: the whole of IPv4 has one spelling to compare with.
    #[test]
    fn everybody_is_one_range_however_it_is_written() {
        let rows = [
            ("HLP-14", "10.0.0.1/32", false),
            ("HLP-14", "10.0.0.1/32,10.0.0.2/32", false),
            ("HLP-14", "10.0.0.1/32,10.0.0.1/32", false),
            ("HLP-15", "0.0.0.0/0", true),
            ("HLP-15", "192.168.0.0/0", true),
            ("HLP-15", "192.168.0.1/32,0.0.0.0/0", true),
            ("HLP-16", "::/0", false),
        ];
        for (id, text, want) in rows {
            let found = words(&listed(text)).unwrap().contains(&"0.0.0.0/0".to_owned());
            assert_eq!(found, want, "{id}: {text}");
        }
    }

    /// HLP-13.
    #[test]
    fn the_spec_hides_the_annotation() {
        let service = listed("10.0.0.0/8").with_annotation(SOURCE_RANGES, "foo");
        assert_eq!(words(&service), Some(vec!["10.0.0.0/8".to_owned()]));
    }

    #[test]
    fn an_error_names_place_and_range() {
        let error = source_ranges(&annotated("10.0.0.0/8,x")).unwrap_err();
        assert_eq!(error.to_string(), format!("{SOURCE_RANGES}: \"x\" is not a network such as 10.0.0.0/24"));
    }
}
