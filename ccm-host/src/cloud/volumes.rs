//! Batched reads of the labels of volumes.

use cloudprovider_proto::v1alpha1 as pb;

use super::{
    CloudError, VolumeAnswer, VolumeQuery, VolumeState,
    batch::{Answer, BatchRpc, Call, Item, ItemKey},
    check::{self, Findings},
    link::Link,
    method::{self, Method},
};

/// BatchGetVolumeLabels.
#[derive(Debug)]
pub(super) struct VolumeReads;

impl BatchRpc for VolumeReads {
    type Lane = ();
    type Question = VolumeQuery;
    type Result = pb::VolumeResult;
    type Done = VolumeAnswer;

    const METHOD: &'static Method = &method::BATCH_GET_VOLUME_LABELS;
    const PACED: bool = true;

    /// A recreated volume is another one.
    fn key(query: &VolumeQuery) -> ItemKey {
        ItemKey::new(format!("{} {}", query.name, query.uid))
    }

    fn same(_: &Link, a: &VolumeQuery, b: &VolumeQuery) -> bool {
        a == b
    }

    /// Names may stand twice in a batch: as one is admitted, another of its name is being deleted.
    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        (0..items.len()).map(|number| number.to_string()).collect()
    }

    async fn send(
        call: &Call<'_, Self>,
        keys: &[String],
        items: &[Item<Self>],
    ) -> Result<Vec<(String, pb::VolumeResult)>, CloudError> {
        let queries = keys.iter().zip(items).map(|(key, (_, query))| pb::VolumeQuery {
            key: key.clone(),
            name: query.name.clone(),
            uid: query.uid.clone(),
            plugin: query.plugin.to_owned(),
            volume_id: query.volume_id.clone(),
            labels: query.labels.clone().into_iter().collect(),
        });
        let cluster = Some(call.link.cluster());
        let message = pb::BatchGetVolumeLabelsRequest { cluster, queries: queries.collect() };
        let answer = call.link.call(call.session, Some(items.len()), message).await?;
        Ok(answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.key), one)).collect())
    }

    fn read(
        _: &Call<'_, Self>,
        _: &VolumeQuery,
        result: pb::VolumeResult,
        findings: &mut Findings,
    ) -> Answer<Self> {
        Ok(check::volume(result, Self::METHOD.name, findings))
    }

    /// A volume that is not there, or another cloud's, is no failure of the cloud.
    fn failure(answer: &Answer<Self>) -> Option<&CloudError> {
        match answer {
            Ok(answer) if answer.state == VolumeState::Unknown => answer.error.as_ref(),
            Ok(_) => None,
            Err(error) => Some(error),
        }
    }
}
