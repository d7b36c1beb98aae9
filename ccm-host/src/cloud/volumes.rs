//! Batched reads of the labels of volumes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use super::{
    CloudError, VolumeAnswer, VolumeQuery, VolumeState,
    batch::{Batched, Landing},
    check::{self, Findings},
    limit::Permit,
    link::Link,
    matching::matched,
    method::{self, Method},
    parts::{Answers, Calls, Errand, Offenders},
    session::Session,
    status,
};

/// Identifies the volume of a read; a recreated one is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct VolumeKey {
    name: String,
    uid: String,
}

impl VolumeKey {
    pub(super) fn of(query: &VolumeQuery) -> Self {
        Self { name: query.name.clone(), uid: query.uid.clone() }
    }
}

/// Reads labels of volumes in batches.
#[derive(Debug)]
pub(super) struct VolumeReads {
    link: Arc<Link>,
    offenders: Offenders,
}

impl VolumeReads {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, offenders: Offenders::paced() }
    }
}

type Item = (VolumeKey, VolumeQuery);
type Answer = Result<VolumeAnswer, CloudError>;

impl Batched for VolumeReads {
    type Lane = ();
    type Key = VolumeKey;
    type Question = VolumeQuery;
    type Answer = Answer;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        self.link.present().map_or(defaults::MAX_BATCH as usize, |session| session.most_volumes())
    }

    fn serves(&self, (): &(), (): &(), _: Duration) -> bool {
        true
    }

    fn same(&self, a: &VolumeQuery, b: &VolumeQuery) -> bool {
        a == b
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.link.permit(&method::BATCH_GET_VOLUME_LABELS).await
    }

    async fn call(
        &self,
        (): &(),
        items: Vec<Item>,
        turn: Result<Permit, CloudError>,
        landing: &Landing<'_, Self>,
    ) {
        let ready =
            turn.and_then(|permit| Ok((permit, self.link.session(&method::BATCH_GET_VOLUME_LABELS)?)));
        match ready {
            Ok((permit, session)) => {
                let calls = Reads(&self.link);
                let land = |answers| landing.land(answers);
                let errand = Errand { calls: &calls, session: &session, offenders: &self.offenders, land };
                errand.run(permit, vec![items]).await;
            }
            Err(error) => landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone())))),
        }
    }

    fn lost(&self, why: &'static str) -> Answer {
        Err(status::defect(method::BATCH_GET_VOLUME_LABELS.name, why))
    }
}

struct Reads<'a>(&'a Link);

impl Calls for Reads<'_> {
    type Key = VolumeKey;
    type Question = VolumeQuery;
    type Done = VolumeAnswer;

    fn link(&self) -> &Link {
        self.0
    }

    fn method(&self) -> &'static Method {
        &method::BATCH_GET_VOLUME_LABELS
    }

    fn subject(key: &VolumeKey) -> String {
        format!("{} {}", key.name, key.uid)
    }

    async fn send(&self, session: &Session, items: &[Item]) -> Result<Answers<Self>, CloudError> {
        let (link, method) = (self.0, self.method());
        // Names may stand twice in a batch: as one is admitted, another of its name is being deleted.
        let keys: Vec<_> = (0..items.len()).map(|number| number.to_string()).collect();
        let queries = keys.iter().zip(items).map(|(key, (_, query))| wire(key, query)).collect();
        let message =
            pb::BatchGetVolumeLabelsRequest { cluster: Some(link.config.cluster.message()), queries };
        let mut client = session.volumes();
        let response = link
            .call(session, method, Some(items.len()), message, async |request| {
                client.batch_get_volume_labels(request).await
            })
            .await?;
        let given = response.results.into_iter();
        let given = given.map(|mut result| (std::mem::take(&mut result.key), result)).collect();
        let mut matched = matched(&keys, given);
        link.metrics.wrong_keys(matched.wrong);
        if matched.reordered {
            link.metrics.reordered();
        }
        let answers: HashMap<_, _> = keys
            .iter()
            .zip(items)
            .filter_map(|(key, (volume, _))| {
                let mut findings = Findings::default();
                let answer = check::volume(matched.answers.remove(key)?, method.name, &mut findings);
                link.metrics.findings(&findings);
                Some((volume.clone(), Ok(answer)))
            })
            .collect();
        // A volume that is not there, or another cloud's, is no failure of the cloud.
        let errors = answers.values().map(|answer: &Answer| match answer {
            Ok(answer) if answer.state == VolumeState::Unknown => answer.error.as_ref(),
            Ok(_) => None,
            Err(error) => Some(error),
        });
        link.answered(method, errors);
        Ok(answers)
    }

    fn fewer(session: &Session, refused: usize) {
        session.fewer_volumes(refused);
    }
}

fn wire(key: &str, query: &VolumeQuery) -> pb::VolumeQuery {
    pb::VolumeQuery {
        key: key.to_owned(),
        name: query.name.clone(),
        uid: query.uid.clone(),
        plugin: query.plugin.to_owned(),
        volume_id: query.volume_id.clone(),
        labels: query.labels.clone().into_iter().collect(),
    }
}
