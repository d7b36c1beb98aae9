//! Batched updates of balancer backends; each request carries each set of backends once.

mod plan;

use std::collections::HashMap;

use cloudprovider_proto::v1alpha1 as pb;

use super::{
    CloudError, ErrorReason, UpdateLoadBalancer, Updated,
    call::{
        batch::{Answer, Answers, BatchRpc, Call, Item, ItemKey, Planned},
        method::{self, Method},
        sets,
    },
    check::{self, Findings},
    connection::{Link, session::Session},
    load_balancers, status,
};

#[derive(Debug)]
pub(super) struct Updates;

impl BatchRpc for Updates {
    type Lane = ();
    type Question = UpdateLoadBalancer;
    type Result = pb::LoadBalancerUpdateResult;
    type Done = Updated;

    const METHOD: &'static Method = &method::BATCH_UPDATE_LOAD_BALANCERS;

    /// Another desired state of the same Service is another update.
    fn key(wanted: &UpdateLoadBalancer) -> ItemKey {
        let version = format!("{} {}", wanted.revision, wanted.desired_digest);
        ItemKey { subject: wanted.service.uid.clone(), version }
    }

    fn same(_: &Link, _: &UpdateLoadBalancer, _: &UpdateLoadBalancer) -> bool {
        true
    }

    fn plan(session: &Session, items: Vec<Item<Self>>) -> Planned<Self> {
        plan::plan(items, &session.wants, session.message_bytes, session.most_items(Self::METHOD))
    }

    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        items.iter().map(|(_, wanted)| wanted.service.uid.clone()).collect()
    }

    async fn send(
        call: &Call<'_, Self>,
        _: &[String],
        items: &[Item<Self>],
    ) -> Result<Vec<(String, pb::LoadBalancerUpdateResult)>, CloudError> {
        let Call { link, session, .. } = call;
        let (sets, updates) = plan::message(items, &session.wants);
        let message = || pb::BatchUpdateLoadBalancersRequest {
            cluster: Some(link.cluster()),
            fencing: Some(link.fencing()),
            backend_sets: Vec::new(),
            items: updates.clone(),
        };
        let sets = (plan::BACKEND_SETS, &sets[..]);
        let answer = sets::call(link, session, Some(items.len()), sets, message).await?;
        Ok(answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.service_uid), one)).collect())
    }

    fn read(
        _: &Call<'_, Self>,
        _: &UpdateLoadBalancer,
        result: pb::LoadBalancerUpdateResult,
        findings: &mut Findings,
    ) -> Answer<Self> {
        outcome(result, findings)
    }

    /// A balancer that carries the desired digest is done.
    async fn done_already(link: &Link, items: &[Item<Self>]) -> Answers<Self> {
        let Ok(list) = load_balancers::list(link).await else { return HashMap::new() };
        let found: HashMap<_, _> = list.items.iter().map(|one| (one.service_uid.as_str(), one)).collect();
        let is_done = |wanted: &UpdateLoadBalancer| {
            found.get(wanted.service.uid.as_str()).is_some_and(|one| one.has_applied(&wanted.desired_digest))
        };
        let done = items.iter().filter(|(_, wanted)| is_done(wanted));
        done.map(|(key, _)| (key.clone(), Ok(Updated { in_progress: None, events: Vec::new() }))).collect()
    }
}

fn outcome(result: pb::LoadBalancerUpdateResult, findings: &mut Findings) -> Answer<Updates> {
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
            Err(status::defect(method, "the provider did not update, and gave no reason"))
        }
        pb::UpdateOutcome::Unspecified => Err(status::local(
            method,
            ErrorReason::NeedsEnsure,
            "the provider did not report the outcome of the update",
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
