//! Calls about balancers: one balancer, the list of all, and batched updates of their backends.

use std::{collections::HashSet, sync::Arc};

use tokio::time::Instant;

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::{
    Accepted, BackendSet, CloudError, DeleteLoadBalancer, EnsureLoadBalancer, Ensured, ErrorReason, Listed,
    LoadBalancer, UpdateLoadBalancer,
    call::{
        batch::{Answer, Answers, BatchRpc, Call, Item, ItemKey, Planned},
        list, sets,
    },
    check,
    connection::{Digests, Link, session::Session},
    method,
    sent_sets::Spliced,
    wanted,
};
use crate::findings::Findings;
use ccm_kube::ObjectKey;

/// `EnsureLoadBalancerRequest.backends`.
const BACKENDS: u32 = 4;

pub(super) async fn get(link: &Link, key: &ObjectKey, uid: &str) -> Result<LoadBalancer, CloudError> {
    let service = Some(wanted::service_ref(key, uid));
    let answer = link.ask(pb::GetLoadBalancerRequest { cluster: Some(link.cluster()), service }).await?;
    Ok(link.metrics.checked(|findings| check::balancer(answer.load_balancer, key, uid, findings)))
}

pub(super) async fn ensure(link: &Link, given: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
    let method = &method::ENSURE_LOAD_BALANCER;
    let (_permit, session) = link.ready(method).await?;
    let wants = &session.wants;
    session.is_told(&given.backends.wants, method)?;
    let message = || pb::EnsureLoadBalancerRequest {
        cluster: Some(link.cluster()),
        fencing: Some(link.fencing()),
        service: Some(wanted::service(&given.service, &wants.service.clone().unwrap_or_default())),
        backends: None,
        desired_digest: given.desired_digest.clone(),
        revision: given.revision,
        adoption: adoption(given.adopt).into(),
    };
    // Size check against the whole set: a provider that forgot the set gets all of it.
    let whole = Spliced { message: message(), tag: BACKENDS, entry: given.backends.encoded.clone() };
    let bytes = whole.encoded_len();
    if bytes > session.message_bytes {
        let nodes = given.backends.nodes.len();
        let most = session.message_bytes;
        return Err(CloudError::too_large(
            method.name,
            format!("{nodes} nodes take {bytes} bytes, the provider accepts {most}: a set cannot be split"),
        ));
    }
    let response = sets::call(link, &session, None, (BACKENDS, &given.backends), message).await?;
    let of = &given.service;
    Ok(link.metrics.checked(|findings| check::ensured(response, &of.key, &of.uid, wants, findings)))
}

pub(super) async fn delete(link: &Link, given: DeleteLoadBalancer) -> Result<Accepted, CloudError> {
    let method = &method::DELETE_LOAD_BALANCER;
    let wants = link.wants();
    let (_permit, session) = link.ready(method).await?;
    session.is_told(&wants, method)?;
    let fields = session.wants.service.clone().unwrap_or_default();
    let message = pb::DeleteLoadBalancerRequest {
        cluster: Some(link.cluster()),
        fencing: Some(link.fencing()),
        service: Some(wanted::service_ref(&given.key, &given.uid)),
        last_known: given.last_known.as_deref().map(|service| wanted::service(service, &fields)),
        adoption: adoption(given.adopt).into(),
        revision: given.revision,
    };
    let response = link.call(&session, None, message).await?;
    Ok(link.metrics.checked(|findings| Accepted {
        in_progress: response.in_progress.map(|given| check::in_progress(given, findings)),
        effects: check::on_service(response.events, response.service, &session.wants, findings),
        ingress: Vec::new(),
    }))
}

pub(super) async fn list(link: &Link) -> Result<Listed<LoadBalancer>, CloudError> {
    let read = |_: &Session, given, findings: &mut Findings| {
        check::listed(given, findings).map(|balancer| (balancer.service_uid.clone(), balancer))
    };
    list::walk(link, pb::ListLoadBalancersRequest::default(), |given| !check::has_no_service(given), read)
        .await
}

fn adoption(adopt: bool) -> pb::Adoption {
    if adopt { pb::Adoption::AdoptByLegacyName } else { pb::Adoption::Refuse }
}

/// What the cloud shows to be applied, as of a list that began then or later. Empty if the list failed.
async fn applied_since(link: &Link, since: Instant) -> Digests {
    let mut last = link.late_list.lock().await;
    if let Some((_, digests)) = last.as_ref().filter(|(began, _)| *began >= since) {
        return Arc::clone(digests);
    }
    let began = Instant::now();
    let listed = list(link).await.map(|list| list.items).unwrap_or_default();
    let applied = |one: LoadBalancer| Some((one.service_uid.clone(), one.whole_digest()?.to_owned()));
    let digests: Digests = Arc::new(listed.into_iter().filter_map(applied).collect());
    *last = Some((began, Arc::clone(&digests)));
    digests
}

/// BatchUpdateLoadBalancers: new backends, the same ones for all items of a call.
#[derive(Debug)]
pub(super) struct Updates;

impl BatchRpc for Updates {
    type Lane = ();
    type Question = UpdateLoadBalancer;
    type Request = pb::BatchUpdateLoadBalancersRequest;
    type Result = pb::LoadBalancerUpdateResult;
    type Done = Accepted;

    /// Another desired state of the same Service is another update.
    fn key(wanted: &UpdateLoadBalancer) -> ItemKey {
        let version = format!("{} {}", wanted.revision, wanted.desired_digest);
        ItemKey { subject: wanted.service.uid.clone(), version }
    }

    fn wants(wanted: &UpdateLoadBalancer) -> Option<&pb::Wants> {
        Some(&wanted.backends.wants)
    }

    fn whose(item: &Item<Self>) -> &str {
        &item.1.service.key.namespace
    }

    fn same(_: &Link, _: &UpdateLoadBalancer, _: &UpdateLoadBalancer) -> bool {
        true
    }

    fn plan(session: &Session, items: Vec<Item<Self>>) -> Planned<Self> {
        plan(items, &session.wants, session.message_bytes, session.most_items(Self::METHOD))
    }

    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        items.iter().map(|(_, wanted)| wanted.service.uid.clone()).collect()
    }

    fn set(items: &[Item<Self>]) -> Option<(u32, &BackendSet)> {
        items.first().map(|(_, wanted)| (UPDATED_BACKENDS, &*wanted.backends))
    }

    fn request(call: &Call<'_, Self>, _: &[String], items: &[Item<Self>]) -> Self::Request {
        pb::BatchUpdateLoadBalancersRequest {
            cluster: Some(call.link.cluster()),
            fencing: Some(call.link.fencing()),
            backends: None,
            items: items.iter().map(|(_, wanted)| update(wanted, &call.session.wants)).collect(),
        }
    }

    fn results(answer: pb::BatchUpdateLoadBalancersResponse) -> Vec<(String, pb::LoadBalancerUpdateResult)> {
        answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.service_uid), one)).collect()
    }

    fn read(
        call: &Call<'_, Self>,
        _: &UpdateLoadBalancer,
        result: pb::LoadBalancerUpdateResult,
        findings: &mut Findings,
    ) -> Answer<Self> {
        outcome(result, &call.session.wants, findings)
    }

    /// A balancer that carries the desired digest is done.
    async fn done_already(link: &Link, items: &[Item<Self>], since: Instant) -> Answers<Self> {
        let applied = applied_since(link, since).await;
        let is_done = |wanted: &UpdateLoadBalancer| {
            !wanted.had_it_before
                && applied.get(&wanted.service.uid).is_some_and(|digest| *digest == wanted.desired_digest)
        };
        let done = items.iter().filter(|(_, wanted)| is_done(wanted));
        done.map(|(key, _)| (key.clone(), Ok(Accepted::default()))).collect()
    }
}

fn outcome(
    result: pb::LoadBalancerUpdateResult,
    wants: &pb::Wants,
    findings: &mut Findings,
) -> Answer<Updates> {
    let method = Updates::METHOD.name;
    let outcome = findings.known(result.outcome);
    let effects = check::on_service(result.events, result.service, wants, findings);
    let ingress = check::ingress(result.ingress, findings);
    if let Some(error) = result.error {
        return Err(CloudError::of_item(method, error, findings));
    }
    let in_progress = result.in_progress.map(|given| check::in_progress(given, findings));
    match outcome {
        pb::UpdateOutcome::Updated => Ok(Accepted { in_progress: None, effects, ingress }),
        pb::UpdateOutcome::NotUpdated | pb::UpdateOutcome::Unspecified if in_progress.is_some() => {
            Ok(Accepted { in_progress, effects, ingress })
        }
        pb::UpdateOutcome::NotUpdated => {
            Err(CloudError::defect(method, "the provider did not update, and gave no reason"))
        }
        pb::UpdateOutcome::Unspecified => Err(CloudError::local(
            method,
            ErrorReason::NeedsEnsure,
            "the provider did not report the outcome of the update",
        )),
    }
}

/// Room for the cluster, the fencing, and everything else that precedes the items.
const RESERVE: usize = 8 << 10;
/// `BatchUpdateLoadBalancersRequest.backends`.
const UPDATED_BACKENDS: u32 = 3;
/// Tag and length of an item or a set.
const PER_ENTRY: usize = 16;

/// Plans which updates share a call: those that get the same set, as many as fit by count and bytes, no Service twice. A set
/// is never split.
fn plan(
    items: Vec<Item<Updates>>,
    wants: &pb::Wants,
    most_bytes: usize,
    most_items: usize,
) -> Planned<Updates> {
    let budget = most_bytes.saturating_sub(RESERVE);
    let mut planned = Planned { chunks: Vec::new(), refused: Vec::new() };
    let mut open: Vec<Chunk> = Vec::new();
    for item in items {
        let set = item.1.backends.encoded.len() + PER_ENTRY;
        let own = update(&item.1, wants).encoded_len() + PER_ENTRY;
        if set + own > budget {
            planned.refused.push((item.0.clone(), too_large(&item, set + own, budget)));
            continue;
        }
        match open.iter_mut().find(|chunk| chunk.takes(&item, own, budget, most_items)) {
            Some(chunk) => chunk.add(item, own),
            None => {
                let mut chunk = Chunk { bytes: set, ..Chunk::default() };
                chunk.add(item, own);
                open.push(chunk);
            }
        }
    }
    planned.chunks = open.into_iter().map(|chunk| chunk.items).collect();
    planned
}

#[derive(Default)]
struct Chunk {
    items: Vec<Item<Updates>>,
    uids: HashSet<String>,
    bytes: usize,
}

impl Chunk {
    fn takes(&self, (key, wanted): &Item<Updates>, own: usize, budget: usize, most: usize) -> bool {
        let has_its_set =
            self.items.first().is_none_or(|(_, one)| one.backends.digest == wanted.backends.digest);
        has_its_set
            && self.items.len() < most
            && self.bytes + own <= budget
            && !self.uids.contains(&key.subject)
    }

    fn add(&mut self, item: Item<Updates>, own: usize) {
        self.bytes += own;
        self.uids.insert(item.0.subject.clone());
        self.items.push(item);
    }
}

fn update(wanted: &UpdateLoadBalancer, wants: &pb::Wants) -> pb::LoadBalancerUpdate {
    pb::LoadBalancerUpdate {
        service: Some(wanted::service(&wanted.service, &wants.service.clone().unwrap_or_default())),
        desired_digest: wanted.desired_digest.clone(),
        revision: wanted.revision,
    }
}

fn too_large((_, wanted): &Item<Updates>, bytes: usize, budget: usize) -> CloudError {
    let message = format!(
        "the update of {} with {} nodes takes {bytes} bytes, the provider accepts {budget}: a set cannot be split",
        wanted.service.key,
        wanted.backends.nodes.len()
    );
    CloudError::too_large(Updates::METHOD.name, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::fixtures::{node, service};

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
            let seen = outcome(result, &pb::Wants::default(), &mut Findings::default());
            let seen =
                seen.map(|updated| updated.in_progress.is_some()).map_err(|error| error.reason.unwrap());
            assert_eq!(seen, want, "{name}");
        }
    }

    fn set(nodes: usize) -> Arc<BackendSet> {
        let nodes = (0..nodes).map(|i| Arc::new(node(&format!("node-{i}")))).collect();
        Arc::new(wanted::backend_set(nodes, Arc::default()))
    }

    fn item(name: &str, backends: &Arc<BackendSet>, revision: u64) -> Item<Updates> {
        let wanted = UpdateLoadBalancer {
            service: Arc::new(service(name).load_balancer()),
            backends: Arc::clone(backends),
            desired_digest: "d".to_owned(),
            revision,
            had_it_before: false,
        };
        (Updates::key(&wanted), wanted)
    }

    /// The message as the provider reads it.
    fn sent(items: &[Item<Updates>]) -> pb::BatchUpdateLoadBalancersRequest {
        let (_, set) = Updates::set(items).unwrap();
        let backends = Some(pb::BackendSet::decode(&set.encoded[..]).unwrap());
        let items = items.iter().map(|(_, wanted)| update(wanted, &pb::Wants::default())).collect();
        pb::BatchUpdateLoadBalancersRequest { backends, items, ..Default::default() }
    }

    fn shape(planned: &Planned<Updates>) -> Vec<usize> {
        planned.chunks.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_hundred_services_with_one_set_are_one_call_with_one_set() {
        let backends = set(50);
        let items = (0..100).map(|i| item(&format!("s{i}"), &backends, 1)).collect();
        let planned = plan(items, &pb::Wants::default(), 16 << 20, 500);
        assert_eq!(shape(&planned), [100]);
        let message = sent(&planned.chunks[0]);
        assert_eq!((message.backends.unwrap().digest, message.items.len()), (backends.digest.clone(), 100));
    }

    #[test]
    fn updates_with_another_set_are_another_call() {
        let (a, b) = (set(1), set(2));
        let items = vec![item("s1", &a, 1), item("s2", &b, 1), item("s3", &a, 1)];
        let planned = plan(items, &pb::Wants::default(), 16 << 20, 500);
        assert_eq!(shape(&planned), [2, 1]);
        for chunk in &planned.chunks {
            let digest = sent(chunk).backends.unwrap().digest;
            assert!(chunk.iter().all(|(_, wanted)| wanted.backends.digest == digest));
        }
    }

    #[test]
    fn batches_are_split_by_count_and_by_bytes_and_never_above() {
        let backends = set(3);
        let items = || (0..10).map(|i| item(&format!("s{i}"), &backends, 1)).collect();
        assert_eq!(shape(&plan(items(), &pb::Wants::default(), 16 << 20, 4)), [4, 4, 2]);

        let small = RESERVE + 400;
        let planned = plan(items(), &pb::Wants::default(), small, 500);
        assert!(planned.chunks.len() > 1 && planned.refused.is_empty());
        assert_eq!(shape(&planned).iter().sum::<usize>(), 10);
        for chunk in &planned.chunks {
            let bytes = sent(chunk).encoded_len();
            assert!(bytes <= small, "{bytes} bytes");
        }
    }

    #[test]
    fn what_fits_into_no_message_is_told_and_never_cut() {
        let (small, large) = (set(1), set(2000));
        let items = vec![item("small", &small, 1), item("large", &large, 1)];
        let planned = plan(items, &pb::Wants::default(), RESERVE + 10_000, 500);
        assert_eq!(shape(&planned), [1]);
        assert_eq!(planned.chunks[0][0].1.service.uid, "small-uid");
        let (key, error) = &planned.refused[0];
        assert_eq!(key.subject, "large-uid");
        assert!(error.is_too_large());
        assert!(error.message.contains("default/large with 2000 nodes"), "{}", error.message);
    }

    #[test]
    fn no_service_is_twice_in_a_call() {
        let backends = set(1);
        let items = vec![item("s", &backends, 1), item("s", &backends, 2)];
        assert_eq!(shape(&plan(items, &pb::Wants::default(), 16 << 20, 500)), [1, 1]);
    }
}
