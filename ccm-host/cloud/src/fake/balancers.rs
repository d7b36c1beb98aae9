//! The balancers of the fake, and the work on them that goes on.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::Ipv4Addr,
    time::Duration,
};

use tokio::time::Instant;

use super::{FakeProvider, answers, method};
use crate::{
    CloudError, ErrorReason, InProgress, Listed, LoadBalancer, LoadBalancerState, Ownership, SyncState,
};
use ccm_kube::{Ingress, ObjectKey};

#[derive(Debug, Default)]
pub(super) struct Balancers {
    /// The network of their addresses.
    net: u32,
    /// By the uid of their Service, as all of these.
    there: BTreeMap<String, LoadBalancer>,
    /// Names of the nodes behind them.
    behind: BTreeMap<String, Vec<String>>,
    addresses: HashMap<String, Ipv4Addr>,
    /// How many were made so far.
    made: HashMap<String, u32>,
    /// Numbers them across all uids.
    distinct: bool,
    /// Those that lists and reads lack.
    hidden: HashSet<String>,
    /// What goes on, and ends by itself.
    work: HashMap<String, Work>,
    /// When the last call about each ends: they are carried out one after the other.
    busy_until: HashMap<String, Instant>,
    /// The highest accepted.
    revisions: HashMap<String, u64>,
    early_addresses: bool,
    without_addresses: bool,
}

#[derive(Debug)]
struct Work {
    until: Instant,
    goal: Goal,
    /// The answer to whoever asks for the same meanwhile.
    answer: InProgress,
}

#[derive(Debug, Clone, PartialEq)]
enum Goal {
    /// It is as this digest says, with these nodes.
    Ensured(String, Vec<String>),
    /// It has these nodes.
    Updated(String, Vec<String>),
    Deleted,
}

/// A call that leaves its work unfinished, and how long that takes.
type Unfinished = Option<(InProgress, Duration)>;

impl FakeProvider {
    /// Adds a balancer, by the uid of its Service.
    pub fn set_balancer(&self, balancer: LoadBalancer) {
        self.state.lock().balancers.now().there.insert(balancer.service_uid.clone(), balancer);
    }

    /// Removes a balancer behind the host's back.
    pub fn remove_balancer(&self, uid: &str) {
        self.state.lock().balancers.now().there.remove(uid);
    }

    /// Lists and reads lack this balancer, though it is there.
    pub fn hide_balancer(&self, uid: &str, hidden: bool) {
        let hide = &mut self.state.lock().balancers.hidden;
        if hidden {
            hide.insert(uid.to_owned())
        } else {
            hide.remove(uid)
        };
    }

    /// The balancers, by the uid of their Service.
    pub fn balancers(&self) -> BTreeMap<String, LoadBalancer> {
        self.state.lock().balancers.now().there.clone()
    }

    /// The nodes behind the balancer of this Service uid.
    pub fn backends_of(&self, uid: &str) -> Vec<String> {
        self.state.lock().balancers.now().behind.get(uid).cloned().unwrap_or_default()
    }

    /// Whether a call about this balancer has not ended yet.
    pub fn is_busy(&self, uid: &str) -> bool {
        self.state.lock().balancers.busy_until.get(uid).is_some_and(|until| *until > Instant::now())
    }

    /// No two balancers have one address. Otherwise, the first of each uid is reachable at the same one.
    pub fn distinct_addresses(&self) {
        self.state.lock().balancers.distinct = true;
    }

    /// Answers about work in progress have the address.
    pub fn early_addresses(&self) {
        self.state.lock().balancers.early_addresses = true;
    }

    /// Balancers have no addresses of their own, as where an agent on the nodes gives Services theirs.
    pub fn without_addresses(&self) {
        self.state.lock().balancers.without_addresses = true;
    }

    pub(super) fn list(&self) -> Listed<LoadBalancer> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        Listed {
            items: state.balancers.now().shown().cloned().collect(),
            complete: state.list_complete,
            unreachable: state.unreachable.clone(),
            rejected: Vec::new(),
        }
    }

    pub(super) fn read(&self, key: &ObjectKey, uid: &str) -> LoadBalancer {
        let mut state = self.state.lock();
        let known = state.balancers.now().shown().find(|one| one.service_uid == uid).cloned();
        known.unwrap_or_else(|| absent(key.clone(), uid))
    }
}

impl Balancers {
    /// Each provider has its own network; that of the first is one for documentation.
    pub(super) fn of(provider: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        provider.hash(&mut hasher);
        let [a, b, ..] = hasher.finish().to_be_bytes();
        let first = if provider == "cloud" { [192, 0, 2, 0] } else { [10, a, b, 0] };
        Self { net: u32::from_be_bytes(first), ..Self::default() }
    }

    /// As they are now: work that is over has had its effect.
    pub(super) fn now(&mut self) -> &mut Self {
        let now = Instant::now();
        let is_over = |work: &Work| work.until <= now;
        let over: Vec<_> = self.work.extract_if(|_, work| is_over(work)).collect();
        for (uid, work) in over {
            self.reach(&uid, work.goal);
        }
        self
    }

    fn shown(&self) -> impl Iterator<Item = &LoadBalancer> {
        self.there.values().filter(|one| !self.hidden.contains(&one.service_uid))
    }

    /// When a call that arrives now ends; an outdated one is refused.
    pub(super) fn accept(
        &mut self,
        method: &'static str,
        uid: &str,
        revision: u64,
        latency: Duration,
    ) -> Result<Instant, CloudError> {
        let highest = self.revisions.entry(uid.to_owned()).or_default();
        if revision < *highest && revision != 0 {
            return Err(answers::error(method, Some(ErrorReason::StaleRevision)));
        }
        *highest = revision.max(*highest);
        let now = Instant::now();
        let free = self.busy_until.get(uid).map_or(now, |until| now.max(*until));
        self.busy_until.insert(uid.to_owned(), free + latency);
        Ok(free + latency)
    }

    pub(super) fn ensure(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        digest: String,
        nodes: Vec<String>,
        unfinished: Unfinished,
    ) -> (LoadBalancer, Option<InProgress>) {
        use LoadBalancerState as S;
        let goes = self.work.get(uid).is_some_and(|work| work.goal == Goal::Deleted);
        let is_there = |one: &LoadBalancer| !matches!(one.state, S::Absent | S::Deleting);
        let lives = !goes && self.there.get(uid).is_some_and(is_there);
        if !lives {
            let ours = LoadBalancer {
                id: format!("lb-{uid}"),
                name: format!("lb-{}", key.name),
                state: S::Pending,
                ownership: Ownership::ByUid,
                ..absent(key.clone(), uid)
            };
            self.there.insert(uid.to_owned(), ours);
            self.addresses.remove(uid);
        }
        if !self.addresses.contains_key(uid) {
            let counted = if self.distinct { "" } else { uid };
            let number = self.made.entry(counted.to_owned()).or_default();
            *number += 1;
            self.addresses.insert(uid.to_owned(), Ipv4Addr::from(self.net + *number));
        }
        let in_progress = self.go_on(uid, Goal::Ensured(digest, nodes), unfinished);
        let mut answer = self.there[uid].clone();
        if in_progress.is_some() {
            answer.state = S::Pending;
            answer.applied_digest = None;
            answer.sync_state = SyncState::Unspecified;
            answer.ingress = if self.early_addresses { self.address(uid) } else { Vec::new() };
        }
        (answer, in_progress)
    }

    pub(super) fn update(
        &mut self,
        uid: &str,
        digest: String,
        nodes: Vec<String>,
        unfinished: Unfinished,
    ) -> Result<Option<InProgress>, CloudError> {
        let serves = |one: &LoadBalancer| one.state == LoadBalancerState::Active;
        let refused = |reason| Err(answers::error(method::UPDATE, Some(reason)));
        match self.work.get(uid).map(|work| &work.goal) {
            Some(Goal::Ensured(..)) => refused(ErrorReason::ConcurrentOperation),
            _ if !self.there.get(uid).is_some_and(serves) => refused(ErrorReason::NeedsEnsure),
            _ => Ok(self.go_on(uid, Goal::Updated(digest, nodes), unfinished)),
        }
    }

    pub(super) fn delete(&mut self, uid: &str, unfinished: Unfinished) -> Option<InProgress> {
        // Until the work is over, the cloud shows it as it was.
        self.go_on(uid, Goal::Deleted, unfinished)
    }

    /// Reaches the goal now, or goes on: with what is asked for again as well as with what is left unfinished.
    fn go_on(&mut self, uid: &str, goal: Goal, unfinished: Unfinished) -> Option<InProgress> {
        if let Some((answer, takes)) = unfinished {
            let work = Work { until: Instant::now() + takes, goal, answer: answer.clone() };
            self.work.insert(uid.to_owned(), work);
            return Some(answer);
        }
        match self.work.remove(uid).filter(|work| work.goal == goal) {
            Some(work) => {
                let answer = work.answer.clone();
                self.work.insert(uid.to_owned(), work);
                Some(answer)
            }
            None => {
                self.reach(uid, goal);
                None
            }
        }
    }

    /// Does nothing to a balancer that somebody removed meanwhile.
    fn reach(&mut self, uid: &str, goal: Goal) {
        let address = self.address(uid);
        let Some(balancer) = self.there.get_mut(uid) else { return };
        match goal {
            Goal::Ensured(digest, nodes) => {
                balancer.state = LoadBalancerState::Active;
                balancer.ownership = Ownership::ByUid;
                balancer.sync_state = SyncState::InSync;
                balancer.applied_digest = Some(digest);
                if balancer.ingress.is_empty() {
                    balancer.ingress = address;
                }
                self.behind.insert(uid.to_owned(), nodes);
            }
            Goal::Updated(digest, nodes) => {
                balancer.applied_digest = Some(digest);
                self.behind.insert(uid.to_owned(), nodes);
            }
            Goal::Deleted => {
                self.there.remove(uid);
                self.behind.remove(uid);
            }
        }
    }

    fn address(&self, uid: &str) -> Vec<Ingress> {
        let entry = |ip: &Ipv4Addr| Ingress {
            ip: ip.to_string(),
            ip_mode: Some("VIP".to_owned()),
            ..Ingress::default()
        };
        self.addresses.get(uid).filter(|_| !self.without_addresses).map(entry).into_iter().collect()
    }
}

fn absent(key: ObjectKey, uid: &str) -> LoadBalancer {
    LoadBalancer {
        key,
        service_uid: uid.to_owned(),
        id: String::new(),
        name: String::new(),
        state: LoadBalancerState::Absent,
        ingress: Vec::new(),
        applied_digest: None,
        sync_state: SyncState::Unspecified,
        ownership: Ownership::Unspecified,
        rejected: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::bytes::Bytes;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{BackendSet, DeleteLoadBalancer, EnsureLoadBalancer, Ensured, Provider as _};
    use ccm_kube::fixtures::service;

    const A_SECOND: Duration = Duration::from_secs(1);
    const UID: &str = "web-uid";

    fn ensure(revision: u64) -> EnsureLoadBalancer {
        let nothing = BackendSet {
            digest: String::new(),
            nodes: Vec::new(),
            encoded: Bytes::new(),
            wants: Arc::default(),
        };
        EnsureLoadBalancer {
            service: Arc::new(service("web")),
            backends: Arc::new(nothing),
            desired_digest: format!("digest-{revision}"),
            revision,
            adopt: false,
        }
    }

    async fn delete(fake: &FakeProvider, revision: u64) -> bool {
        let (key, uid) = (service("web").key, UID.to_owned());
        let wanted = DeleteLoadBalancer { key, uid, last_known: None, revision, adopt: false };
        fake.delete_load_balancer(wanted).await.unwrap().in_progress.is_none()
    }

    fn takes(seconds: u64) -> InProgress {
        let retry_after = Duration::from_secs(seconds);
        InProgress { retry_after, reason: String::new(), message: String::new() }
    }

    fn ip(ensured: &Ensured) -> Vec<String> {
        ensured.load_balancer.ingress.iter().map(|entry| entry.ip.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_balancer_that_is_made_anew_has_another_address() {
        let fake = FakeProvider::new("cloud");
        for (revision, want) in [(1, "192.0.2.1"), (3, "192.0.2.2")] {
            assert_eq!(ip(&fake.ensure_load_balancer(ensure(revision)).await.unwrap()), [want]);
            assert!(delete(&fake, revision + 1).await);
        }
        fake.in_progress_next(method::DELETE, takes(9));
        assert_eq!(ip(&fake.ensure_load_balancer(ensure(5)).await.unwrap()), ["192.0.2.3"]);
        assert!(!delete(&fake, 6).await);
        let half_gone = fake.ensure_load_balancer(ensure(7)).await.unwrap();
        assert_eq!(ip(&half_gone), ["192.0.2.4"], "what is being deleted never serves again");
    }

    #[tokio::test(start_paused = true)]
    async fn work_in_progress_shows_nothing_and_ends_by_itself() {
        let fake = FakeProvider::new("cloud");
        fake.takes_next(method::ENSURE, 20 * A_SECOND, takes(30));
        for _ in 0..2 {
            let begun = fake.ensure_load_balancer(ensure(1)).await.unwrap();
            assert!(begun.in_progress.is_some() && begun.load_balancer.ingress.is_empty(), "{begun:?}");
        }
        sleep(20 * A_SECOND).await;
        assert_eq!(fake.balancers()[UID].applied_digest.as_deref(), Some("digest-1"));
        assert!(fake.ensure_load_balancer(ensure(1)).await.unwrap().in_progress.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_begun_ends_whoever_gave_up() {
        let fake = FakeProvider::new("cloud");
        fake.set_latency(method::ENSURE, 5 * A_SECOND);
        fake.set_patience(method::ENSURE, 2 * A_SECOND);
        assert!(fake.ensure_load_balancer(ensure(1)).await.unwrap_err().is_silence());
        sleep(4 * A_SECOND).await;
        assert_eq!(fake.balancers()[UID].applied_digest.as_deref(), Some("digest-1"));
        assert!(timeout(A_SECOND, fake.ensure_load_balancer(ensure(2))).await.is_err());
        // The next call about the same balancer is carried out after it.
        assert!(delete(&fake, 3).await);
        assert!(fake.balancers().is_empty());
        let outdated = fake.ensure_load_balancer(ensure(2)).await.unwrap_err();
        assert!(outdated.is(ErrorReason::StaleRevision));
    }
}
