//! Checks answers about instances.

use std::{collections::HashSet, net::IpAddr, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use ipnet::IpNet;
use jiff::Timestamp;

use super::{MOST, effects, label};
use crate::findings::{Findings, rule, shown};
use crate::{
    AddressType, CloudError, Freshness, Instance, InstanceAddress, InstanceAnswer, InstanceState,
    Maintenance, method,
};
use ccm_base::{cidr, clock};

const METHOD: &str = method::BATCH_GET_INSTANCES.name;
const LONGEST_ID: usize = 1 << 10;
/// Clocks differ: an observation may appear this much older than the request, or later than its answer.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The request that an answer is checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The provider ID prefixes that the provider advertised.
    pub(crate) prefixes: &'a [String],
    /// The prefixes of the node's annotations that the provider owns.
    pub(crate) annotation_prefixes: &'a [String],
    /// Maximum age of the answer.
    pub(crate) freshness: Freshness,
    /// When the request was made.
    pub(crate) at: Timestamp,
}

/// The answer to one query.
pub(crate) fn answer(
    given: pb::InstanceResult,
    asked: &Asked<'_>,
    findings: &mut Findings,
) -> InstanceAnswer {
    let state = findings.known(given.state);
    let observed_at = given.observed_at.and_then(timestamp).map(|at| no_later_than_now(at, findings));
    let authoritative = given.authoritative && is_evidence(observed_at, asked, findings);
    let mut error = given.error.map(|error| CloudError::of_item(METHOD, error, findings));
    let instance = match given.instance.map(|given| instance(given, asked, findings)) {
        Some(Ok(instance)) => Some(instance),
        Some(Err(sentence)) => {
            error = Some(CloudError::defect(METHOD, sentence));
            None
        }
        None => {
            if has_instance(state) && error.is_none() {
                findings.count(rule::INSTANCE_REQUIRED);
                error = Some(CloudError::defect(
                    METHOD,
                    "the provider reports that it exists, but does not describe it".to_owned(),
                ));
            }
            None
        }
    };
    let events = effects::events(given.events, findings);
    let mut answer = InstanceAnswer { state, authoritative, observed_at, instance, error, events };
    match &mut answer.instance {
        Some(instance) => instance.rejected.append(&mut findings.rejected),
        None => findings.rejected.clear(),
    }
    answer
}

/// A date in the future, by more than clocks differ, counts as now: later ones could never confirm it.
fn no_later_than_now(observed_at: Timestamp, findings: &mut Findings) -> Timestamp {
    let now = clock::now();
    if observed_at.duration_since(now) <= skew() {
        return observed_at;
    }
    findings.count(rule::OBSERVED_AT);
    now
}

fn skew() -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(CLOCK_SKEW).unwrap_or_default()
}

/// An authoritative answer must say when it was observed, and a read-through answer must not predate its request.
fn is_evidence(observed_at: Option<Timestamp>, asked: &Asked<'_>, findings: &mut Findings) -> bool {
    let Some(observed_at) = observed_at else {
        findings.count(rule::OBSERVED_AT);
        return false;
    };
    let too_old = asked.freshness == Freshness::ReadThrough && asked.at.duration_since(observed_at) > skew();
    if too_old {
        findings.count(rule::READ_THROUGH);
    }
    !too_old
}

fn instance(given: pb::Instance, asked: &Asked<'_>, findings: &mut Findings) -> Result<Instance, String> {
    let id = given.provider_id;
    let known = asked.prefixes.iter().any(|prefix| !prefix.is_empty() && id.starts_with(prefix.as_str()));
    if !known || id.len() > LONGEST_ID {
        findings.count(rule::PROVIDER_ID_PREFIX);
        let id = shown(&id, 128);
        return Err(format!("provider ID {id:?} has none of the prefixes that the provider advertised"));
    }
    Ok(Instance {
        provider_id: id,
        name: shown(&given.name, LONGEST_ID),
        instance_type: label::field("instance type", given.instance_type, findings),
        addresses: addresses(given.addresses, findings),
        zone: label::field("zone", given.zone, findings),
        region: label::field("region", given.region, findings),
        pod_cidrs: pod_cidrs(given.pod_cidrs, findings),
        labels: label::labels(given.labels, findings),
        annotations: effects::annotations(given.annotations, asked.annotation_prefixes, findings),
        annotation_prefixes: asked.annotation_prefixes.to_vec(),
        maintenance: given.maintenance.map(|given| Maintenance {
            kind: findings.known(given.kind),
            from: given.from.and_then(timestamp),
            until: given.until.and_then(timestamp),
            message: shown(&given.message, defaults::MAX_MESSAGE_TEXT_BYTES),
        }),
        rejected: Vec::new(),
    })
}

/// Whether a cloud that says this has an instance.
pub fn has_instance(state: InstanceState) -> bool {
    use InstanceState as S;
    match state {
        S::Pending | S::Running | S::Stopped | S::Terminating | S::Exists => true,
        S::Unspecified | S::Absent | S::NotOwned => false,
    }
}

fn timestamp(given: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(given.seconds, given.nanos).ok()
}

const LONGEST: usize = 253;

/// The valid addresses, in order and without duplicates.
pub(super) fn addresses(given: Vec<pb::NodeAddress>, findings: &mut Findings) -> Vec<InstanceAddress> {
    let mut seen = HashSet::new();
    let mut kept = Vec::with_capacity(given.len().min(MOST));
    if given.len() > MOST {
        findings.reject(rule::ANSWER_BOUNDS, format!("there are more than {MOST} addresses"));
    }
    for pb::NodeAddress { r#type, address } in given.into_iter().take(MOST) {
        let number: pb::NodeAddressType = findings.known(r#type);
        let Some(kind) = AddressType::ALL.into_iter().find(|kind| *kind as i32 == number as i32) else {
            findings.reject(rule::ADDRESS_VALID, format!("address {address:?} has no type that is known"));
            continue;
        };
        if !is_valid(kind, &address) {
            findings.reject(rule::ADDRESS_VALID, format!("address {address:?} is no {}", kind.as_str()));
            continue;
        }
        let address = InstanceAddress { kind, address };
        if seen.insert(address.clone()) {
            kept.push(address);
        } else {
            findings.reject(
                rule::ADDRESS_UNIQUE,
                format!("address {} {} appears twice", kind.as_str(), address.address),
            );
        }
    }
    kept
}

/// The valid CIDRs in canonical form, at most one per family.
pub(super) fn pod_cidrs(given: Vec<String>, findings: &mut Findings) -> Vec<IpNet> {
    let mut kept: Vec<IpNet> = Vec::new();
    for text in given {
        let Some(net) = cidr::parse(&text) else {
            findings.reject(rule::POD_CIDR_VALID, format!("pod CIDR {text:?} is not a CIDR"));
            continue;
        };
        if kept.iter().any(|other| cidr::same_family(other, &net)) {
            findings.reject(rule::POD_CIDR_VALID, format!("pod CIDR {text} is the second of its family"));
            continue;
        }
        kept.push(net.trunc());
    }
    kept
}

/// Clouds use names that are not strictly DNS names, so names are only checked for length, whitespace and control
/// characters.
fn is_valid(kind: AddressType, address: &str) -> bool {
    match kind {
        AddressType::InternalIp | AddressType::ExternalIp => address.parse::<IpAddr>().is_ok(),
        AddressType::Hostname | AddressType::InternalDns | AddressType::ExternalDns => {
            !address.is_empty()
                && address.len() <= LONGEST
                && !address.chars().any(|char| char.is_whitespace() || char.is_control())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIXES: [&str; 2] = ["cloud://", ""];

    fn check(given: pb::InstanceResult, freshness: Freshness) -> (InstanceAnswer, Findings) {
        let prefixes = PREFIXES.map(str::to_owned);
        let at = Timestamp::from_second(1_000_000).unwrap();
        let asked = Asked { prefixes: &prefixes, annotation_prefixes: &[], freshness, at };
        let mut findings = Findings::default();
        (answer(given, &asked, &mut findings), findings)
    }

    fn absent(observed: Option<i64>) -> pb::InstanceResult {
        pb::InstanceResult {
            state: pb::InstanceState::Absent.into(),
            authoritative: true,
            observed_at: observed.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
            ..Default::default()
        }
    }

    fn running(provider_id: &str) -> pb::InstanceResult {
        pb::InstanceResult {
            state: pb::InstanceState::Running.into(),
            instance: Some(pb::Instance { provider_id: provider_id.to_owned(), ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn only_what_was_seen_after_the_question_is_evidence() {
        let fresh = Freshness::ReadThrough;
        let cached = Freshness::AtMost(Duration::from_secs(300));
        let rows = [
            (absent(Some(1_000_001)), fresh, true, None),
            (absent(Some(999_950)), fresh, true, None),
            (absent(Some(999_900)), fresh, false, Some(rule::READ_THROUGH)),
            (absent(Some(999_900)), cached, true, None),
            (absent(None), cached, false, Some(rule::OBSERVED_AT)),
            (absent(Some(Timestamp::now().as_second() + 50)), fresh, true, None),
            (absent(Some(Timestamp::now().as_second() + 300)), fresh, true, Some(rule::OBSERVED_AT)),
            (absent(Some(Timestamp::MAX.as_second())), cached, true, Some(rule::OBSERVED_AT)),
        ];
        for (given, freshness, want, broken) in rows {
            let (answer, findings) = check(given.clone(), freshness);
            assert_eq!(answer.authoritative, want, "{given:?} {freshness:?}");
            let latest = Timestamp::now() + CLOCK_SKEW;
            assert!(answer.observed_at.is_none_or(|at| at <= latest), "{given:?} {freshness:?}");
            assert_eq!(findings.rules.first().copied(), broken, "{given:?} {freshness:?}");
        }
    }

    /// NODE-21, NODE-44, and ours instead of NODE-12, NODE-20, NODE-41, NODE-42, NODE-45: a description without a
    /// provider ID is rejected, whatever ID the node has.
    #[test]
    fn a_foreign_provider_id_is_never_handed_on() {
        for id in ["other://1", "", &format!("cloud://{}", "x".repeat(1100))] {
            let (answer, findings) = check(running(id), Freshness::ReadThrough);
            assert_eq!(answer.instance, None, "{id}");
            assert!(answer.error.unwrap().is(crate::ErrorReason::InternalError));
            assert_eq!(findings.rules, [rule::PROVIDER_ID_PREFIX]);
        }
        let (answer, findings) = check(running("cloud://1"), Freshness::ReadThrough);
        assert_eq!(answer.instance.unwrap().provider_id, "cloud://1");
        assert_eq!(findings, Findings::default());
    }

    #[test]
    fn a_machine_that_is_there_is_described() {
        let (answer, findings) = check(
            pb::InstanceResult { state: pb::InstanceState::Running.into(), ..Default::default() },
            Freshness::ReadThrough,
        );
        assert_eq!(answer.state, InstanceState::Running);
        assert!(answer.error.is_some());
        assert_eq!(findings.rules, [rule::INSTANCE_REQUIRED]);
    }

    #[test]
    fn a_state_of_a_newer_contract_is_unknown() {
        let (answer, findings) =
            check(pb::InstanceResult { state: 99, ..Default::default() }, Freshness::ReadThrough);
        assert_eq!(answer.state, InstanceState::Unspecified);
        assert_eq!(findings.rules, [rule::UNKNOWN_ENUM]);
    }

    #[test]
    fn what_was_dropped_is_named_on_the_machine() {
        let mut given = running("cloud://1");
        if let Some(instance) = &mut given.instance {
            instance.zone = "no zone".to_owned();
            instance.labels.insert("kubernetes.io/x".to_owned(), "1".to_owned());
        }
        let (answer, findings) = check(given, Freshness::ReadThrough);
        let instance = answer.instance.unwrap();
        assert_eq!(instance.zone, None);
        assert_eq!(
            instance.rejected,
            ["zone \"no zone\" is not a label value", "label kubernetes.io/x lies in a reserved namespace"]
        );
        assert_eq!(findings.rules, [rule::LABEL_VALID, rule::LABEL_RESERVED]);
    }

    fn address(kind: pb::NodeAddressType, text: &str) -> pb::NodeAddress {
        pb::NodeAddress { r#type: kind.into(), address: text.to_owned() }
    }

    #[test]
    fn invalid_and_doubled_addresses_go_and_the_order_stays() {
        use pb::NodeAddressType as T;
        let given = vec![
            address(T::ExternalIp, "203.0.113.9"),
            address(T::InternalIp, "10.0.0.1"),
            address(T::InternalIp, "10.0.0"),
            address(T::InternalIp, "10.0.0.1"),
            address(T::ExternalIp, "10.0.0.1"),
            address(T::Hostname, "a b"),
            address(T::Unspecified, "x"),
            pb::NodeAddress { r#type: 99, address: "x".to_owned() },
            address(T::InternalIp, "2001:DB8::1"),
        ];
        let mut findings = Findings::default();
        let kept = addresses(given, &mut findings);
        let texts: Vec<_> = kept.iter().map(|a| (a.kind.as_str(), a.address.as_str())).collect();
        assert_eq!(
            texts,
            [
                ("ExternalIP", "203.0.113.9"),
                ("InternalIP", "10.0.0.1"),
                ("ExternalIP", "10.0.0.1"),
                ("InternalIP", "2001:DB8::1")
            ]
        );
        assert_eq!(
            findings.rules,
            [
                rule::ADDRESS_VALID,
                rule::ADDRESS_UNIQUE,
                rule::ADDRESS_VALID,
                rule::ADDRESS_VALID,
                rule::UNKNOWN_ENUM,
                rule::ADDRESS_VALID
            ]
        );
        assert_eq!(findings.rejected[0], "address \"10.0.0\" is no InternalIP");
    }

    /// ADDR-37 ours: providers need no helper that drops duplicates.
    #[test]
    fn each_pair_stands_once_where_it_stood_first() {
        let internal = |text| address(pb::NodeAddressType::InternalIp, text);
        let rows = [
            ("nothing", vec![], vec![]),
            ("two new", vec![internal("10.0.0.1"), internal("10.0.0.2")], vec!["10.0.0.1", "10.0.0.2"]),
            ("the same twice", vec![internal("10.0.0.1"), internal("10.0.0.1")], vec!["10.0.0.1"]),
            (
                "one known and one new",
                vec![internal("10.0.0.1"), internal("10.0.0.1"), internal("10.0.0.2")],
                vec!["10.0.0.1", "10.0.0.2"],
            ),
        ];
        for (id, given, want) in rows {
            let kept = addresses(given, &mut Findings::default());
            let texts: Vec<_> = kept.iter().map(|address| address.address.as_str()).collect();
            assert_eq!(texts, want, "ADDR-37 {id}");
        }
    }

    #[test]
    fn pod_cidrs_are_canonical_and_one_a_family() {
        let mut findings = Findings::default();
        let given = ["10.1.2.3/24", "10.9.0.0/24", "::ffff:10.9.1.0/120", "fd00::1/64", "x"];
        let given = given.map(str::to_owned).to_vec();
        let kept: Vec<_> = pod_cidrs(given, &mut findings).iter().map(ToString::to_string).collect();
        assert_eq!(kept, ["10.1.2.0/24", "fd00::/64"]);
        assert_eq!(findings.rules, [rule::POD_CIDR_VALID; 3], "what Kubernetes reads as IPv4 is IPv4");
    }
}
