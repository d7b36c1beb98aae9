//! Batched updates of balancer backends; each request carries each set of backends once.

mod plan;

use std::{collections::HashMap, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use self::plan::{Planned, plan};
use super::{
    CloudError, ErrorReason, LoadBalancerState, SyncState, UpdateLoadBalancer, Updated, balancers,
    batch::{Batched, Landing},
    check::{self, Findings},
    limit::Permit,
    link::Link,
    matching::matched,
    method::{self, Method},
    parts::{Answers, Calls, Errand, Offenders},
    session::Session,
    sets, status,
};

/// Identifies an update: another desired state of the same Service is another update.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UpdateKey {
    uid: String,
    revision: u64,
    digest: String,
}

impl UpdateKey {
    pub(super) fn of(wanted: &UpdateLoadBalancer) -> Self {
        Self {
            uid: wanted.service.uid.clone(),
            revision: wanted.revision,
            digest: wanted.desired_digest.clone(),
        }
    }
}

/// Updates balancers in batches.
#[derive(Debug)]
pub(super) struct BalancerUpdates {
    link: Arc<Link>,
    offenders: Offenders,
}

impl BalancerUpdates {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, offenders: Offenders::unpaced() }
    }
}

type Item = (UpdateKey, UpdateLoadBalancer);
type Answer = Result<Updated, CloudError>;

impl Batched for BalancerUpdates {
    type Lane = ();
    type Key = UpdateKey;
    type Question = UpdateLoadBalancer;
    type Answer = Answer;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        self.link.present().map_or(defaults::MAX_BATCH as usize, |session| session.most_balancers())
    }

    /// An equal update under way is the same call.
    fn serves(&self, (): &(), (): &(), _age: Duration) -> bool {
        true
    }

    fn same(&self, _: &UpdateLoadBalancer, _: &UpdateLoadBalancer) -> bool {
        true
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.link.permit(&method::BATCH_UPDATE_LOAD_BALANCERS).await
    }

    async fn call(
        &self,
        (): &(),
        items: Vec<Item>,
        turn: Result<Permit, CloudError>,
        landing: &Landing<'_, Self>,
    ) {
        let ready =
            turn.and_then(|permit| Ok((permit, self.link.session(&method::BATCH_UPDATE_LOAD_BALANCERS)?)));
        match ready {
            Ok((permit, session)) => {
                let Planned { chunks, too_large } =
                    plan(items, &session.wants, session.message_bytes, session.most_balancers());
                landing.land(too_large.into_iter().map(|(key, error)| (key, Err(error))));
                let land = |answers| landing.land(answers);
                Errand { calls: self, session: &session, offenders: &self.offenders, land }
                    .run(permit, chunks)
                    .await;
            }
            Err(error) => landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone())))),
        }
    }

    fn lost(&self, why: &'static str) -> Answer {
        Err(status::defect(method::BATCH_UPDATE_LOAD_BALANCERS.name, why))
    }
}

impl Calls for BalancerUpdates {
    type Key = UpdateKey;
    type Question = UpdateLoadBalancer;
    type Done = Updated;

    fn link(&self) -> &Link {
        &self.link
    }

    fn method(&self) -> &'static Method {
        &method::BATCH_UPDATE_LOAD_BALANCERS
    }

    fn subject(key: &UpdateKey) -> String {
        key.uid.clone()
    }

    async fn send(&self, session: &Session, items: &[Item]) -> Result<Answers<Self>, CloudError> {
        update(&self.link, session, items).await
    }

    fn fewer(session: &Session, refused: usize) {
        session.fewer_balancers(refused);
    }

    /// A balancer that carries the desired digest is done.
    async fn done_already(&self, items: &[Item]) -> Answers<Self> {
        let Ok(list) = balancers::list(&self.link).await else { return HashMap::new() };
        let holds: HashMap<_, _> = list
            .load_balancers
            .iter()
            .filter(|one| one.state == LoadBalancerState::Active && one.sync_state != SyncState::Drifted)
            .filter_map(|one| Some((one.service_uid.as_str(), one.applied_digest.as_deref()?)))
            .collect();
        let is_done = |key: &UpdateKey| holds.get(key.uid.as_str()) == Some(&key.digest.as_str());
        let done = items.iter().map(|(key, _)| key).filter(|key| is_done(key));
        done.map(|key| (key.clone(), Ok(Updated { in_progress: None, events: Vec::new() }))).collect()
    }
}

async fn update(
    link: &Link,
    session: &Session,
    items: &[Item],
) -> Result<HashMap<UpdateKey, Answer>, CloudError> {
    let method = &method::BATCH_UPDATE_LOAD_BALANCERS;
    let (sets, updates) = plan::message(items, &session.wants);
    let message = || pb::BatchUpdateLoadBalancersRequest {
        cluster: Some(link.config.cluster.message()),
        fencing: Some(link.fencing()),
        backend_sets: Vec::new(),
        items: updates.clone(),
    };
    let sets = (plan::BACKEND_SETS, &sets[..]);
    let response: pb::BatchUpdateLoadBalancersResponse =
        sets::call(link, session, method, Some(items.len()), sets, message).await?;
    let keys: Vec<String> = items.iter().map(|(key, _)| key.uid.clone()).collect();
    let given = response
        .results
        .into_iter()
        .map(|mut result| (std::mem::take(&mut result.service_uid), result))
        .collect();
    let mut matched = matched(&keys, given);
    link.metrics.wrong_keys(matched.wrong);
    if matched.reordered {
        link.metrics.reordered();
    }
    let mut answers = HashMap::with_capacity(items.len());
    for (key, _) in items {
        if let Some(result) = matched.answers.remove(&key.uid) {
            let mut findings = Findings::default();
            answers.insert(key.clone(), outcome(result, &mut findings));
            link.metrics.findings(&findings);
        }
    }
    link.answered(&method::BATCH_UPDATE_LOAD_BALANCERS, answers.values().map(|answer| answer.as_ref().err()));
    Ok(answers)
}

fn outcome(result: pb::LoadBalancerUpdateResult, findings: &mut Findings) -> Answer {
    let method = method::BATCH_UPDATE_LOAD_BALANCERS.name;
    let outcome = findings.known(result.outcome);
    let events = check::events(result.events, findings);
    if let Some(error) = result.error {
        return Err(status::item_error(method, error, findings));
    }
    let in_progress = result.in_progress.map(|given| check::in_progress(given, findings));
    match outcome {
        pb::UpdateOutcome::Updated => Ok(Updated { in_progress: None, events }),
        pb::UpdateOutcome::NotUpdated | pb::UpdateOutcome::Unspecified if in_progress.is_some() => {
            Ok(Updated { in_progress, events })
        }
        pb::UpdateOutcome::NotUpdated => {
            Err(status::defect(method, "the provider did not update, and does not say why"))
        }
        pb::UpdateOutcome::Unspecified => Err(status::local(
            method,
            ErrorReason::NeedsEnsure,
            "the provider does not say what became of the update",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_take_the_safe_branch() {
        let progress = || Some(pb::InProgress::default());
        let error =
            || Some(pb::ItemError { reason: ErrorReason::StaleRevision.into(), ..Default::default() });
        let rows = [
            ("updated", 1, None, None, Ok(false)),
            ("in progress", 2, progress(), None, Ok(true)),
            ("error", 2, None, error(), Err(ErrorReason::StaleRevision)),
            ("error wins", 1, None, error(), Err(ErrorReason::StaleRevision)),
            ("no reason", 2, None, None, Err(ErrorReason::InternalError)),
            ("unspecified", 0, None, None, Err(ErrorReason::NeedsEnsure)),
            ("unknown number", 77, None, None, Err(ErrorReason::NeedsEnsure)),
        ];
        for (name, number, in_progress, error, want) in rows {
            let result =
                pb::LoadBalancerUpdateResult { outcome: number, in_progress, error, ..Default::default() };
            let seen = outcome(result, &mut Findings::default());
            let seen =
                seen.map(|updated| updated.in_progress.is_some()).map_err(|error| error.reason.unwrap());
            assert_eq!(seen, want, "{name}");
        }
    }
}
