//! A slow check of all balancers of a provider: at the start instead of an Ensure for each Service, then periodically
//! to find those that drifted, vanished, or are no longer wanted. And what waits for a provider resumes once it is back or
//! thaws.
//!
//! In: the provider's list and status. Out: rows that know what is applied, keys in the queue where something differs, and
//! reports of balancers without a Service. An incomplete list proves nothing about what it lacks (but for orphans, if its
//! provider can never list the rest), and a list that failed is an incomplete one without balancers. An orphan is listed as
//! this cluster's by both uids, and neither the cache nor a live read of the API finds a Service of that uid; one that
//! carries only a former controller's name is never one.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::{
    Controller, RunKey,
    fate::is_among,
    observe::{Listing, serves_balancers},
    row::{Goal, Orphan, Row, RowKey},
    service::{is_load_balancer, is_of_interest},
};
use ccm_base::metric::{gauge, of_provider};
use ccm_cloud::{
    CloudError, ContestedClass, ErrorReason, Family, LoadBalancer, LoadBalancerState, Ownership, Provider,
    ServiceOwner, SyncState,
};
use ccm_kube::{
    patch::WriteError,
    service::{Ingress, ObjectKey, Service},
};
use ccm_reconcile::{askable, follow_status, listed, measured, resync};

/// Pauses between attempts at the first list. After the last one, the Services are ensured without it.
const FIRST_LIST: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// The pause after a list that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// Maximum concurrent live reads of Services.
const READS_AT_ONCE: usize = 16;

impl Controller {
    /// Sweeps at the start and after each period, for as long as it is polled.
    pub(super) async fn sweep_for_ever(&self, provider: &Arc<dyn Provider>) {
        let provider = provider.as_ref();
        let mut first = FIRST_LIST.into_iter();
        let mut healed = Instant::now();
        loop {
            askable(provider).await;
            let ended = if serves_balancers(provider) {
                self.tell_contested_classes(provider);
                self.sets.recall(self, provider).await;
                self.sweep(provider).await
            } else {
                Ok(Listing::Refused)
            };
            self.rows.listed(provider.name());
            let is_first = !self.listed.lock().contains_key(provider.name());
            let listing = match &ended {
                Ok(listing) => *listing,
                Err(error) => {
                    tracing::warn!(provider = provider.name(), %error, "the load balancers could not be listed");
                    if error.is(ErrorReason::MethodNotSupported) { Listing::Refused } else { Listing::Failed }
                }
            };
            let early = first.next().filter(|_| is_first && listing == Listing::Failed);
            if let Some(pause) = early {
                sleep(pause).await;
                continue;
            }
            let before = {
                let mut listed = self.listed.lock();
                let before = listed.get(provider.name()).copied();
                // What one list settled, a later failure does not bring back.
                if !before.is_some_and(|before| before.settles_more_than(listing)) {
                    listed.insert(provider.name().to_owned(), listing);
                }
                before
            };
            let settles_more = before.is_none_or(|before| listing.settles_more_than(before));
            let period = resync(self.shell.parts.settings.services.load_balancer_resync_period);
            if settles_more {
                self.look_at_all(None);
            } else if ended.is_err()
                && healed.elapsed() >= self.shell.parts.settings.services.load_balancer_resync_period
            {
                self.learn_nothing(provider);
                healed = Instant::now();
            }
            if ended.is_ok() {
                healed = Instant::now();
            }
            sleep(if listing == Listing::Failed { period.min(AGAIN) } else { period }).await;
        }
    }

    /// Logged by whichever of two providers introduces itself later.
    fn tell_contested_classes(&self, provider: &dyn Provider) {
        if self.listed.lock().contains_key(provider.name()) {
            return;
        }
        for ContestedClass { class, owner, others } in self.shell.parts.providers.contested_classes(provider)
        {
            tracing::warn!(
                class,
                owner,
                ?others,
                "several providers serve this load balancer class: the first on the command line gets its Services"
            );
        }
    }

    /// Lists once, and acts on the list.
    pub(super) async fn sweep(&self, provider: &dyn Provider) -> Result<Listing, CloudError> {
        self.depart_if_outdated().await;
        let since = self.rows.turn();
        let call = provider.list_load_balancers();
        let list = measured(&self.metrics.operations, provider, "list", call, listed).await?;
        for (location, error) in &list.unreachable {
            tracing::warn!(provider = provider.name(), location, %error, "could not list load balancers");
        }
        let by_uid: HashMap<&str, &LoadBalancer> =
            list.items.iter().map(|balancer| (balancer.service_uid.as_str(), balancer)).collect();
        for service in self.shell.parts.services.list() {
            let listed = by_uid.get(service.uid.as_str()).copied();
            // One that neither wants a balancer nor has our finalizer, and has a balancer, leaked it.
            let may_leak = listed.is_some_and(is_ours);
            if (may_leak || is_of_interest(&service))
                && self.teach(provider, &service, listed, list.complete, since)
            {
                self.shell.queue.add(RunKey::Service(service.key.clone()));
            }
        }
        let is_unsupported = |(_, error): &(String, CloudError)| error.is(ErrorReason::UnsupportedFeature);
        let listing = match list.complete {
            true => Listing::Complete,
            // It says that it can never list the rest.
            false if !list.unreachable.is_empty() && list.unreachable.iter().all(is_unsupported) => {
                Listing::Refused
            }
            false => Listing::Incomplete,
        };
        self.look_for_orphans(provider, &list.items, listing, since).await;
        Ok(listing)
    }

    /// What a list that failed still heals: what was refused, and what was lost at the Service.
    fn learn_nothing(&self, provider: &dyn Provider) {
        let since = self.rows.turn();
        for service in self.shell.parts.services.list().iter().filter(|service| is_of_interest(service)) {
            if self.teach(provider, service, None, false, since) {
                self.shell.queue.add(RunKey::Service(service.key.clone()));
            }
        }
    }

    /// Records in the row of a Service what the list says. Returns whether to look at the Service.
    fn teach(
        &self,
        provider: &dyn Provider,
        service: &Arc<Service>,
        listed: Option<&LoadBalancer>,
        complete: bool,
        since: u64,
    ) -> bool {
        self.recall(service);
        let at = RowKey::new(&service.uid, provider.name());
        let is_here = listed.is_some_and(is_ours);
        if !is_here && self.rows.get(&at).is_none() {
            // Whoever owns it looks at it anyway if it has none.
            let is_owner = self.shell.parts.providers.for_service(service).is(provider);
            return is_owner && self.is_unsettled(service, None);
        }
        let learn = |row: &mut Row| {
            let was_seen = row.last.replace(Arc::clone(service)).is_some();
            row.orphan = None;
            let news = learn(row, service, listed, complete);
            row.reconsider() || news || !was_seen
        };
        match self.rows.learn(&at, &service.key, since, is_absence(listed, complete), learn) {
            None => false,
            Some(news) => news || self.is_unsettled(service, self.rows.get(&at)),
        }
    }

    /// Whether anything is not as wanted, even while it waits: nothing is stuck for longer than a period.
    fn is_unsettled(&self, service: &Service, row: Option<Arc<Row>>) -> bool {
        if !self.shell.reports.of(&RunKey::Service(service.key.clone())).is_empty() {
            return true;
        }
        // One that wants no balancer, and is of interest all the same, is still to be freed.
        let (Some(row), true) = (row, is_load_balancer(service)) else { return true };
        let Some(provider) = self.shell.parts.providers.by_name(&row.at.provider) else { return true };
        let wanted = || provider.desired_digest(service, &self.backends.of(provider.as_ref()));
        let is_published = row.status.of(service).is_published(service, self.record_of(&row).as_ref());
        !row.is_elsewhere()
            && (!is_published || row.applied().is_none_or(|applied| applied.digest != wanted()))
    }

    /// Counts and reports what no Service wants.
    async fn look_for_orphans(
        &self,
        provider: &dyn Provider,
        items: &[LoadBalancer],
        listing: Listing,
        since: u64,
    ) {
        let known: HashSet<String> =
            self.shell.parts.services.list().iter().map(|service| service.uid.clone()).collect();
        // A balancer that this process made or knew is removed as its row says.
        let is_unknown = |balancer: &&LoadBalancer| {
            let row = self.rows.get(&RowKey::new(&balancer.service_uid, provider.name()));
            is_suspect(balancer, &known) && row.is_none_or(|row| row.last.is_none())
        };
        let suspects: Vec<_> = items.iter().filter(is_unknown).collect();
        let listed: HashSet<&str> = items.iter().map(|one| one.service_uid.as_str()).collect();
        let mut stays = HashSet::new();
        for some in suspects.chunks(READS_AT_ONCE) {
            let alone = join_all(some.iter().map(|balancer| self.has_no_service(balancer))).await;
            for (balancer, alone) in some.iter().zip(alone).filter(|(_, alone)| *alone != Some(false)) {
                stays.insert(balancer.service_uid.as_str());
                if alone == Some(true) {
                    self.found_orphan(provider, balancer, since);
                }
            }
        }
        // The next list may have what a part of one lacks.
        let is_whole = listing != Listing::Incomplete;
        let mut orphans = 0;
        for row in self.rows.all() {
            if *row.at.provider != *provider.name() || row.last.is_some() {
                continue;
            }
            let is_over = !stays.contains(&*row.at.uid) && (is_whole || listed.contains(&*row.at.uid));
            if is_over && !row.busy {
                self.rows.remove(&row.at);
                // What was reported of it is over.
                self.shell.queue.add(RunKey::Balancer(row.at.clone()));
            } else {
                orphans += usize::from(row.orphan.is_some());
            }
        }
        self.metrics.orphans.get_or_create(&of_provider(provider.name(), [])).set(gauge(orphans));
    }

    fn found_orphan(&self, provider: &dyn Provider, balancer: &LoadBalancer, since: u64) {
        let at = RowKey::new(&balancer.service_uid, provider.name());
        let sightings = self.rows.learn(&at, &balancer.key, since, false, |row| {
            let before = row.orphan.as_ref().map_or(0, |orphan| orphan.sightings);
            row.is_listed(balancer.applied_digest.as_ref());
            row.orphan = Some(Orphan { id: balancer.id.clone(), sightings: before + 1 });
            before + 1
        });
        let remove = self.shell.parts.settings.services.delete_orphaned_load_balancers;
        if sightings == Some(1) {
            tracing::warn!(
                provider = provider.name(),
                service = %balancer.key,
                uid = balancer.service_uid,
                id = balancer.id,
                name = balancer.name,
                remove,
                "a load balancer of this cluster has no Service"
            );
            self.record_orphaned(balancer, remove);
        }
        self.shell.queue.add(RunKey::Balancer(at));
    }

    /// Whether the API itself has no Service of that uid; `None` while that is unknown.
    async fn has_no_service(&self, balancer: &LoadBalancer) -> Option<bool> {
        match self.live(&balancer.key).await {
            Ok(live) => Some(live.is_none_or(|live| live.uid != balancer.service_uid)),
            Err(WriteError::NotLeading) => None,
            Err(error) => {
                tracing::warn!(service = %balancer.key, %error, "not known whether it still exists");
                None
            }
        }
    }

    /// Requeues everything whenever the provider is back or thawed, for as long as it is polled.
    pub(super) async fn follow_status(&self, provider: &Arc<dyn Provider>) {
        let epoch = || provider.info().map(|info| info.epoch.clone());
        let mut known = epoch();
        follow_status(provider.as_ref(), Family::LoadBalancers, |before, now| {
            let is_new = known != epoch();
            known = epoch();
            if before.is_away() || is_new {
                self.release(provider.name(), is_new);
            }
            // Even if it is as before: a Service may have met a freeze that ended before this was polled.
            if !now.is_away() {
                self.look_at_all(Some(provider.name()));
            }
        })
        .await;
    }

    /// Clears the backoff of what failed for the first time when the provider went away. What fails repeatedly keeps its
    /// backoff: it may be the reason why the provider goes away. A new process is asked again about what its former version
    /// refused.
    fn release(&self, provider: &str, is_new: bool) {
        self.rows.for_each(|row| {
            if *row.at.provider != *provider {
                return;
            }
            row.tried.retain(|goal, attempt| {
                let key = match goal {
                    Goal::Wanted => RunKey::Service(row.key.clone()),
                    Goal::Gone => RunKey::Balancer(row.at.clone()),
                    Goal::Upkeep => return true,
                };
                attempt.until.is_none() || self.shell.queue.retries(&key) != 1
            });
            if is_new {
                row.reconsider();
            }
        });
    }

    /// Requeues every Service that may concern us; most runs will find nothing to do. If it is for a provider that is back,
    /// those of others go on waiting for their retries.
    pub(super) fn look_at_all(&self, back: Option<&str>) {
        let is_back = |name: &str| back.is_none_or(|back| back == name);
        let is_its = |service: &Service| match self.shell.parts.providers.for_service(service) {
            ServiceOwner::Provider(owner) => is_back(owner.name()),
            ServiceOwner::Undecided | ServiceOwner::Misnamed(_) => true,
            ServiceOwner::Nobody => back.is_none(),
        };
        let services = self.shell.parts.services.list();
        let of_interest = services.iter().filter(|service| is_of_interest(service));
        let mut keys: HashMap<ObjectKey, bool> =
            of_interest.map(|service| (service.key.clone(), is_its(service))).collect();
        for row in self.rows.all() {
            *keys.entry(row.key.clone()).or_default() |= is_back(&row.at.provider);
        }
        for (key, at_once) in keys {
            if at_once {
                self.shell.queue.add(RunKey::Service(key));
            } else {
                self.shell.queue.add_unless_delayed(RunKey::Service(key));
            }
        }
    }
}

/// Whether the balancer exists, and was made for a Service of this cluster.
pub(super) fn is_ours(balancer: &LoadBalancer) -> bool {
    use LoadBalancerState as S;
    matches!(balancer.state, S::Pending | S::Active | S::Deleting) && balancer.ownership == Ownership::ByUid
}

fn is_absence(listed: Option<&LoadBalancer>, complete: bool) -> bool {
    listed.map_or(complete, |balancer| balancer.state == LoadBalancerState::Absent)
}

/// Updates the row. Pure. Returns whether to look at the Service.
fn learn(row: &mut Row, service: &Service, listed: Option<&LoadBalancer>, complete: bool) -> bool {
    if is_absence(listed, complete) {
        return row.is_absent();
    }
    let Some(balancer) = listed else { return false };
    match (balancer.state, balancer.ownership) {
        // Unknown, or not ours: conclude nothing.
        (LoadBalancerState::Unspecified | LoadBalancerState::Absent | LoadBalancerState::NotOwned, _)
        | (_, Ownership::Unspecified) => false,
        (_, Ownership::ByLegacyName) => row.applied().is_some() && row.is_listed(None),
        (state, Ownership::ByUid) => {
            let whole = state == LoadBalancerState::Active && balancer.sync_state != SyncState::Drifted;
            match &balancer.applied_digest {
                digest if row.is_elsewhere() || state == LoadBalancerState::Deleting => {
                    row.is_listed(digest.as_ref())
                }
                Some(digest) if whole => {
                    let is_news = row.is_listed_as(digest);
                    if row.tried.contains_key(&Goal::Gone) {
                        // A removal that began leaves nothing whole, whatever the cloud still shows.
                        row.is_to_be_settled();
                    }
                    learn_addresses(row, service, balancer) || is_news
                }
                // Whoever keeps no digest may not know it; the record does.
                None if whole && row.is_present() => learn_addresses(row, service, balancer),
                digest => row.is_listed_in_doubt(digest.as_ref()),
            }
        }
    }
}

/// The balancer serves, with these addresses. Returns whether only an Ensure can tell which are right.
fn learn_addresses(row: &mut Row, service: &Service, balancer: &LoadBalancer) -> bool {
    let listed = balancer.ingress.clone();
    let is_first = row.status.ingress.is_none();
    // A balancer without addresses takes none from the Service: somebody else may give it some. Those of one that is
    // still being removed are dead.
    if listed.is_empty() || row.is_going() {
        return false;
    }
    if !shrinks(row.status.ingress.as_deref().unwrap_or(&service.ingress), &listed) {
        row.status.ingress = Some(listed);
        return false;
    }
    if is_first {
        row.is_to_be_settled();
    }
    is_first
}

/// Whether a list merely omits entries that are published. A list comes from the provider's memory, so only an Ensure
/// may remove entries.
fn shrinks(published: &[Ingress], listed: &[Ingress]) -> bool {
    listed.iter().all(|one| is_among(published, one)) && !published.iter().all(|one| is_among(listed, one))
}

/// Certainly this cluster's, existing or half deleted, and of no known Service.
fn is_suspect(balancer: &LoadBalancer, known: &HashSet<String>) -> bool {
    is_ours(balancer) && !known.contains(&balancer.service_uid) && can_be_asked_for(&balancer.key)
}

/// For a key that is not a valid name, the API would report the Service as absent.
fn can_be_asked_for(key: &ObjectKey) -> bool {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    is_name(&key.namespace) && is_name(&key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Known;
    use ccm_kube::fixtures::service;

    fn listed() -> LoadBalancer {
        LoadBalancer {
            key: ObjectKey::new("default", "web"),
            service_uid: "web-uid".to_owned(),
            id: String::new(),
            name: String::new(),
            state: LoadBalancerState::Active,
            ingress: Vec::new(),
            applied_digest: Some("d1".to_owned()),
            sync_state: SyncState::InSync,
            ownership: Ownership::ByUid,
            rejected: Vec::new(),
        }
    }

    fn row(applied: Option<&str>) -> Row {
        let mut row = Row::new(RowKey::new("web-uid", "cloud"), service("web").key, Known::Unsure);
        if let Some(digest) = applied {
            row.is_listed_as(digest);
        }
        row
    }

    /// What is known afterwards.
    fn word(row: &Row) -> &str {
        match &row.known {
            Known::Unsure => "unsure",
            Known::Absent => "absent",
            Known::Removed => "removed",
            Known::Asked { .. } => "asked",
            Known::Applied(applied) if applied.doubt.service => "doubted",
            Known::Applied(applied) => &applied.digest,
        }
    }

    #[test]
    fn a_list_is_believed_as_far_as_it_goes() {
        use LoadBalancerState as S;
        let with = |change: fn(&mut LoadBalancer)| {
            let mut balancer = listed();
            change(&mut balancer);
            Some(balancer)
        };
        let (fresh, same) = (|| row(None), || row(Some("d1")));
        let rows = [
            ("SW-18: first seen", fresh(), Some(listed()), true, (true, "d1")),
            ("as known", same(), Some(listed()), true, (false, "d1")),
            ("as known, list incomplete", same(), Some(listed()), false, (false, "d1")),
            ("other digest", row(Some("d0")), Some(listed()), true, (true, "d1")),
            ("drifted", same(), with(|one| one.sync_state = SyncState::Drifted), true, (true, "doubted")),
            (
                "drifted, digest not known",
                same(),
                with(|one| (one.sync_state, one.applied_digest) = (SyncState::Drifted, None)),
                true,
                (true, "doubted"),
            ),
            (
                "drift not known",
                same(),
                with(|one| one.sync_state = SyncState::Unspecified),
                true,
                (false, "d1"),
            ),
            ("digest not known", same(), with(|one| one.applied_digest = None), true, (false, "d1")),
            ("pending", fresh(), with(|one| one.state = S::Pending), true, (false, "doubted")),
            ("on its way out", same(), with(|one| one.state = S::Deleting), true, (true, "asked")),
            ("SW-17: said to be absent", same(), with(|one| one.state = S::Absent), true, (true, "absent")),
            ("SW-17: not in a complete list", same(), None, true, (true, "absent")),
            ("never made", fresh(), None, true, (false, "absent")),
            ("not in an incomplete list", same(), None, false, (false, "d1")),
            ("state not known", same(), with(|one| one.state = S::Unspecified), true, (false, "d1")),
            (
                "owner not known",
                fresh(),
                with(|one| one.ownership = Ownership::Unspecified),
                true,
                (false, "unsure"),
            ),
            (
                "a former controller's",
                fresh(),
                with(|one| one.ownership = Ownership::ByLegacyName),
                true,
                (false, "unsure"),
            ),
        ];
        for (id, mut row, listed, complete, want) in rows {
            let look = learn(&mut row, &service("web"), listed.as_ref(), complete);
            assert_eq!((look, word(&row)), want, "{id}");
        }
    }
}
