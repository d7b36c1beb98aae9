//! Batched reads of the labels of volumes.

use cloudprovider_proto::v1alpha1 as pb;

use super::{
    CloudError, VolumeAnswer, VolumeQuery, VolumeState,
    call::batch::{Answer, BatchRpc, Call, Item, ItemKey},
    check::label,
    connection::Link,
};
use crate::findings::Findings;

#[derive(Debug)]
pub(super) struct VolumeReads;

impl BatchRpc for VolumeReads {
    type Lane = ();
    type Question = VolumeQuery;
    type Request = pb::BatchGetVolumeLabelsRequest;
    type Result = pb::VolumeResult;
    type Done = VolumeAnswer;

    const PACED: bool = true;

    /// A recreated volume is another one. One that is being admitted has no uid yet, and may have only the prefix of its
    /// name: its disk tells it from others.
    fn key(query: &VolumeQuery) -> ItemKey {
        let VolumeQuery { name, uid, plugin, volume_id, .. } = query;
        ItemKey::new(format!("{name} {uid} {plugin} {volume_id}"))
    }

    fn same(_: &Link, a: &VolumeQuery, b: &VolumeQuery) -> bool {
        a == b
    }

    /// Not the names: a volume may be admitted while another of its name is being deleted.
    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        (0..items.len()).map(|number| number.to_string()).collect()
    }

    fn request(call: &Call<'_, Self>, keys: &[String], items: &[Item<Self>]) -> Self::Request {
        let queries = keys.iter().zip(items).map(|(key, (_, query))| pb::VolumeQuery {
            key: key.clone(),
            name: query.name.clone(),
            uid: query.uid.clone(),
            plugin: query.plugin.to_owned(),
            volume_id: query.volume_id.clone(),
            labels: query.labels.clone().into_iter().collect(),
        });
        let cluster = Some(call.link.cluster());
        pb::BatchGetVolumeLabelsRequest { cluster, queries: queries.collect() }
    }

    fn results(answer: pb::BatchGetVolumeLabelsResponse) -> Vec<(String, pb::VolumeResult)> {
        answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.key), one)).collect()
    }

    fn read(
        _: &Call<'_, Self>,
        _: &VolumeQuery,
        result: pb::VolumeResult,
        findings: &mut Findings,
    ) -> Answer<Self> {
        Ok(volume(result, findings))
    }

    /// An absent volume, or one of another cloud, is not a failure of this cloud.
    fn failure(answer: &Answer<Self>) -> Option<&CloudError> {
        match answer {
            Ok(answer) if answer.state == VolumeState::Unspecified => answer.error.as_ref(),
            Ok(_) => None,
            Err(error) => Some(error),
        }
    }
}

/// The answer to one query.
pub(super) fn volume(given: pb::VolumeResult, findings: &mut Findings) -> VolumeAnswer {
    let state = findings.known(given.state);
    let error = given.error.map(|error| CloudError::of_item(VolumeReads::METHOD.name, error, findings));
    let labels = label::of_volume(given.labels, findings);
    VolumeAnswer { state, labels, error, rejected: std::mem::take(&mut findings.rejected) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorReason;
    use crate::findings::rule;

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
        let answer = volume(given, &mut findings);
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
        let answer = volume(given, &mut Findings::default());
        assert_eq!(answer.state, VolumeState::Unspecified);
        assert!(answer.error.unwrap().is(ErrorReason::InternalError));
    }

    /// Two that are made with one `generateName` are admitted at the same time.
    #[test]
    fn each_disk_is_asked_about_by_itself() {
        let query = |volume_id: &str| VolumeQuery {
            name: "data-".to_owned(),
            uid: String::new(),
            plugin: "kubernetes.io/aws-ebs",
            volume_id: volume_id.to_owned(),
            labels: [].into(),
        };
        assert_ne!(VolumeReads::key(&query("vol-1")), VolumeReads::key(&query("vol-2")));
        assert_eq!(VolumeReads::key(&query("vol-1")), VolumeReads::key(&query("vol-1")));
    }
}
