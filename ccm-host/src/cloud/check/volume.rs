//! Checks answers about volumes.

use cloudprovider_proto::v1alpha1 as pb;

use super::{Findings, label};
use crate::cloud::{VolumeAnswer, VolumeState, status};

/// The answer to one query.
pub(in crate::cloud) fn volume(
    given: pb::VolumeResult,
    method: &'static str,
    findings: &mut Findings,
) -> VolumeAnswer {
    let state = match findings.known(given.state) {
        pb::VolumeState::Unspecified => VolumeState::Unknown,
        pb::VolumeState::Present => VolumeState::Present,
        pb::VolumeState::Absent => VolumeState::Absent,
        pb::VolumeState::NotOwned => VolumeState::NotOwned,
    };
    let error = given.error.map(|error| status::item_error(method, error, findings));
    let labels = label::of_volume(given.labels, findings);
    VolumeAnswer { state, labels, error, rejected: std::mem::take(&mut findings.rejected) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{ErrorReason, check::rule};

    #[test]
    fn only_topology_may_be_written_in_kubernetes_own_namespaces() {
        let pairs = [
            ("topology.kubernetes.io/zone", "a__b"),
            ("failure-domain.beta.kubernetes.io/region", "r"),
            ("example.com/tier", "fast"),
            ("pv.kubernetes.io/x", "y"),
            ("topology.kubernetes.io/rack", "7"),
            ("no key", "x"),
            ("v", "no value"),
        ];
        let labels = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let given = pb::VolumeResult { labels, state: pb::VolumeState::Present.into(), ..Default::default() };
        let mut findings = Findings::default();
        let answer = volume(given, "M", &mut findings);
        assert_eq!(
            answer.labels.keys().map(String::as_str).collect::<Vec<_>>(),
            ["example.com/tier", "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/zone"]
        );
        findings.rules.sort_unstable();
        let broken = [rule::LABEL_RESERVED, rule::LABEL_RESERVED, rule::LABEL_VALID, rule::LABEL_VALID];
        assert_eq!((findings.rules.as_slice(), answer.rejected.len()), (broken.as_slice(), 4));
    }

    #[test]
    fn a_state_of_a_newer_contract_is_not_known() {
        let error = pb::ItemError { reason: 9999, message: "m".to_owned(), ..Default::default() };
        let given = pb::VolumeResult { state: 77, error: Some(error), ..Default::default() };
        let answer = volume(given, "M", &mut Findings::default());
        assert_eq!(answer.state, VolumeState::Unknown);
        assert!(answer.error.unwrap().is(ErrorReason::InternalError));
    }
}
