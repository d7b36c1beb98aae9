//! Updates of the backends of balancers, as batches in which each set of backends stands once.

mod plan;

use std::{collections::HashMap, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use self::plan::{Planned, plan};
use super::{
    CloudError, ErrorReason, UpdateLoadBalancer, Updated,
    batch::Batched,
    check::{self, Findings},
    halves::Halves,
    limit::Permit,
    link::Link,
    matching::matched,
    method,
    session::Session,
    status,
};

/// Whom an update is about, and which one: another wish for the same Service is another update.
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

/// How the host updates balancers.
#[derive(Debug)]
pub(super) struct BalancerUpdates(pub(super) Arc<Link>);

type Item = (UpdateKey, UpdateLoadBalancer);
type Answer = Result<Updated, CloudError>;

impl Batched for BalancerUpdates {
    type Lane = ();
    type Key = UpdateKey;
    type Question = UpdateLoadBalancer;
    type Answer = Answer;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        self.0.present().map_or(defaults::MAX_BATCH as usize, |session| session.most_balancers())
    }

    /// An equal update under way is the same call.
    fn serves(&self, (): &(), (): &(), _age: Duration) -> bool {
        true
    }

    fn same(&self, _: &UpdateLoadBalancer, _: &UpdateLoadBalancer) -> bool {
        true
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.0.permit(&method::BATCH_UPDATE_LOAD_BALANCERS).await
    }

    async fn call(
        &self,
        (): &(),
        items: Vec<Item>,
        turn: Result<Permit, CloudError>,
    ) -> HashMap<UpdateKey, Answer> {
        let ready =
            turn.and_then(|permit| Ok((permit, self.0.session(&method::BATCH_UPDATE_LOAD_BALANCERS)?)));
        match ready {
            Ok((_permit, session)) => update_all(&self.0, &session, items).await,
            Err(error) => items.into_iter().map(|(key, _)| (key, Err(error.clone()))).collect(),
        }
    }

    fn lost(&self) -> Answer {
        let message = "the provider's answer does not hold this service once";
        Err(status::defect(method::BATCH_UPDATE_LOAD_BALANCERS.name, message))
    }
}

async fn update_all(link: &Link, session: &Session, items: Vec<Item>) -> HashMap<UpdateKey, Answer> {
    let mut answers = HashMap::with_capacity(items.len());
    let Planned { chunks, too_large } =
        plan(items, &session.wants, session.message_bytes, session.most_balancers());
    answers.extend(too_large.into_iter().map(|(key, error)| (key, Err(error))));
    let mut halves = Halves::of(chunks);
    while let Some((depth, batch)) = halves.next() {
        match update(link, session, &batch).await {
            Ok(some) => answers.extend(some),
            Err(error) => {
                if error.is(ErrorReason::BatchTooLarge) {
                    session.fewer_balancers(batch.len());
                }
                if let Some(failed) = halves.split(depth, batch, &error) {
                    answers.extend(failed.into_iter().map(|(key, _)| (key, Err(error.clone()))));
                }
            }
        }
    }
    answers
}

async fn update(
    link: &Link,
    session: &Session,
    items: &[Item],
) -> Result<HashMap<UpdateKey, Answer>, CloudError> {
    let message = pb::BatchUpdateLoadBalancersRequest {
        cluster: Some(link.config.cluster.message()),
        fencing: Some(link.fencing()),
        ..plan::message(items, &session.wants)
    };
    let mut client = session.load_balancers();
    let response = link
        .call(session, &method::BATCH_UPDATE_LOAD_BALANCERS, Some(items.len()), message, async |request| {
            client.batch_update_load_balancers(request).await
        })
        .await?;
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
    Ok(answers)
}

fn outcome(result: pb::LoadBalancerUpdateResult, findings: &mut Findings) -> Answer {
    let method = method::BATCH_UPDATE_LOAD_BALANCERS.name;
    let outcome = findings.known(result.outcome);
    let events = check::events(result.events, findings);
    if let Some(error) = result.error {
        return Err(status::item_error(method, error));
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
