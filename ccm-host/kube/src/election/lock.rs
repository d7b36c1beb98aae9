//! The Lease on the apiserver. Each write carries the version that it is based on: of two replicas, one gets a
//! conflict.

use std::{future::pending, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{ElectionMetrics, ElectionSettings, Fencing};
use crate::client::is_absent;
use ccm_base::{clock, outage::Outage};

/// Asked often: whether a provider answers this replica.
pub type Fitness = Box<dyn Fn() -> bool + Send + Sync>;

/// Records an Event on the Lease of this uid.
pub type Tell = Box<dyn Fn(&str, String) + Send + Sync>;

/// How a renewal ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Held,
    /// Another replica holds the Lease, or none does.
    Lost,
    /// This replica holds it and seeks a successor, which this one offers to be.
    Wanted(String),
}

/// The annotation of a holder that no provider answers; its value is the holder.
const SEEKS: &str = "cloudprovider.ccm/seeks-successor";
/// The annotation of a replica that is ready to follow such a holder; its value is the replica.
const OFFERS: &str = "cloudprovider.ccm/successor";

/// One replica's view of the Lease.
pub struct Lock {
    api: Api<Lease>,
    settings: ElectionSettings,
    me: String,
    /// Whether this replica could do a leader's work: a provider answers it.
    is_fit: Fitness,
    tell: Tell,
    /// The Lease as last seen, and since when it has been unchanged.
    seen: Mutex<Option<(Lease, Instant)>>,
    pub(super) health: Health,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lock").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Lock {
    /// `me` must be unique among the replicas.
    pub fn new(client: Client, settings: ElectionSettings, me: String, is_fit: Fitness, tell: Tell) -> Self {
        Self {
            api: Api::namespaced(client, &settings.leader_elect_resource_namespace),
            settings,
            me,
            is_fit,
            tell,
            seen: Mutex::default(),
            health: Health::default(),
        }
    }

    /// Whether the Lease can be read and written.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    pub fn name(&self) -> String {
        format!(
            "{}/{}",
            self.settings.leader_elect_resource_namespace, self.settings.leader_elect_resource_name
        )
    }

    /// Watches for the release of the Lease.
    pub(super) fn watch(&self) -> Watch<'_> {
        Watch { lock: self, events: None, forbidden: false }
    }

    /// Whether the Lease in a watch event is free, by the rules of [`Lock::acquire`].
    fn is_free(&self, lease: &Lease) -> bool {
        let unchanged = self.see(Some(lease));
        matches!(self.decide(Some(lease), unchanged), LeaseStep::Create | LeaseStep::Take)
    }

    /// Tells what became of this replica, in upstream's words.
    pub(super) fn tell(&self, what: &str) {
        let uid = self.seen.lock().as_ref().and_then(|(lease, _)| lease.metadata.uid.clone());
        (self.tell)(&uid.unwrap_or_default(), format!("{} {what}", self.me));
    }

    /// The holder of the Lease as last seen.
    pub(super) fn holder(&self) -> Option<String> {
        self.seen.lock().as_ref().map(|(lease, _)| holder(lease).to_owned())
    }

    /// Whether this replica can do a leader's work.
    pub(super) fn is_fit(&self) -> bool {
        (self.is_fit)()
    }

    /// Time until the Lease may be taken unless it is renewed. `None` if it may be taken now, or there is none.
    pub(super) fn runs_out_in(&self) -> Option<Duration> {
        let seen = self.seen.lock();
        let (lease, since) = seen.as_ref()?;
        // Strictly longer than its duration.
        let after = runs_out_after(lease.spec.as_ref()?) + Duration::from_millis(1);
        after.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Takes the Lease if it is free. `Some` means that this replica holds it, from when it asked for that.
    pub(super) async fn acquire(&self) -> Result<Option<(Fencing, Instant)>> {
        let lease = self.read().await?;
        let unchanged = self.see(lease.as_ref());
        let wanted = match self.decide(lease.as_ref(), unchanged) {
            LeaseStep::Wait => return Ok(None),
            LeaseStep::Offer => {
                tracing::info!(
                    lease = self.name(),
                    "no provider answers the leader, one answers here: offers to lead"
                );
                self.write(self.offered(lease.unwrap_or_default())).await?;
                return Ok(None);
            }
            LeaseStep::Create => self.held(Lease::default(), 0),
            LeaseStep::Take => {
                let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
                let transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
                self.held(lease.unwrap_or_default(), transitions.saturating_add(1))
            }
            LeaseStep::Renew => self.renewed(lease.unwrap_or_default(), false),
        };
        let asked = Instant::now();
        let fencing = |lease| Fencing { epoch: epoch(&lease), scope: lease.metadata.uid.unwrap_or_default() };
        Ok(self.write(wanted).await?.map(|lease| (fencing(lease), asked)))
    }

    /// Renews the Lease, and says in it whether this replica seeks a successor.
    pub(super) async fn renew(&self, metrics: &ElectionMetrics, seeks: bool) -> Result<Renewal> {
        // Based on the last write: that saves a read, and a conflict shows that another replica wrote since.
        let seen = self.seen.lock().clone();
        if let Some((lease, _)) = seen
            && self.write(self.renewed(lease, seeks)).await?.is_some()
        {
            return Ok(Renewal::Held);
        }
        metrics.renewed_slowly(&self.settings.leader_elect_resource_name);
        let lease = self.read().await?.unwrap_or_default();
        if holder(&lease) != self.me {
            return Ok(Renewal::Lost);
        }
        if seeks && let Some(successor) = annotation(&lease, OFFERS).filter(|_| is_sought(&lease)) {
            let successor = successor.to_owned();
            self.see(Some(&lease));
            return Ok(Renewal::Wanted(successor));
        }
        match self.write(self.renewed(lease, seeks)).await? {
            Some(_) => Ok(Renewal::Held),
            // Whoever wrote, another look tells whose it is now.
            None => {
                bail!("the Lease {} was written at the same time by somebody else, or deleted", self.name())
            }
        }
    }

    /// Releases the Lease if this replica holds it, so that the next leader need not wait. Upstream's replicas
    /// understand an empty holder, too.
    pub(super) async fn release(&self) {
        match timeout(self.settings.leader_elect_retry_period, self.give_back()).await {
            Ok(Ok(true)) => tracing::info!(lease = self.name(), "gave the Lease back"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(error = format!("{error:#}"), "the Lease was not given back"),
            Err(_) => tracing::warn!(lease = self.name(), "the Lease was not given back in time"),
        }
    }

    /// False if another replica holds it. What was under way at the end may have been written, unheard: it is read first.
    async fn give_back(&self) -> Result<bool> {
        while let Some(mut lease) = self.read().await? {
            let Some(spec) =
                lease.spec.as_mut().filter(|spec| spec.holder_identity.as_deref() == Some(&self.me))
            else {
                return Ok(false);
            };
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            if self.write(lease).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn read(&self) -> Result<Option<Lease>> {
        match self.api.get(&self.settings.leader_elect_resource_name).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if is_absent(&status) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("the Lease {} cannot be read", self.name())),
        }
    }

    /// `None` means that another replica wrote first, or that the Lease was deleted, as operators do to force a new leader.
    async fn write(&self, lease: Lease) -> Result<Option<Lease>> {
        let (name, params) = (&self.settings.leader_elect_resource_name, PostParams::default());
        let is_new = lease.metadata.resource_version.is_none();
        let written = match is_new {
            true => self.api.create(&params, &lease).await,
            false => self.api.replace(name, &params, &lease).await,
        };
        match written {
            Ok(lease) => {
                *self.seen.lock() = Some((lease.clone(), Instant::now()));
                Ok(Some(lease))
            }
            // Where a new one is not found, its namespace is not there.
            Err(kube::Error::Api(status)) if status.code == 409 || is_absent(&status) && !is_new => Ok(None),
            Err(error) => Err(error).with_context(|| format!("the Lease {} cannot be written", self.name())),
        }
    }

    /// Records the Lease as seen; returns how long nobody has renewed it. Whoever writes to its metadata does not.
    fn see(&self, lease: Option<&Lease>) -> Duration {
        let mut seen = self.seen.lock();
        let since = match (&*seen, lease) {
            (Some((before, since)), Some(now)) if before.spec == now.spec => *since,
            _ => Instant::now(),
        };
        *seen = lease.map(|now| (now.clone(), since));
        since.elapsed()
    }

    fn held(&self, mut lease: Lease, transitions: i32) -> Lease {
        lease.metadata.name = Some(self.settings.leader_elect_resource_name.clone());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.me.clone());
        spec.lease_transitions = Some(transitions);
        spec.acquire_time = Some(MicroTime(clock::now()));
        self.renewed(lease, false)
    }

    /// An offer counts only if it came after the search: one that begins, or ends, takes offers away.
    fn renewed(&self, mut lease: Lease, seeks: bool) -> Lease {
        if !seeks || !is_sought(&lease) {
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.remove(OFFERS);
            annotations.remove(SEEKS);
            if seeks {
                annotations.insert(SEEKS.to_owned(), self.me.clone());
            }
        }
        let seconds = self.settings.leader_elect_lease_duration.as_secs().try_into().unwrap_or(i32::MAX);
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.lease_duration_seconds = Some(seconds);
        spec.renew_time = Some(MicroTime(clock::now()));
        lease
    }

    fn offered(&self, mut lease: Lease) -> Lease {
        lease.metadata.annotations.get_or_insert_default().insert(OFFERS.to_owned(), self.me.clone());
        lease
    }

    fn decide(&self, lease: Option<&Lease>, unchanged: Duration) -> LeaseStep {
        decide(lease, &self.me, unchanged, &self.is_fit)
    }
}

/// A standby's watch of the Lease, so that it notices at once when the leader releases it.
///
/// The watch only shortens the wait for the next check, which happens anyway: without permission to watch, a standby
/// takes over a little later.
pub(super) struct Watch<'a> {
    lock: &'a Lock,
    events: Option<BoxStream<'a, kube::Result<WatchEvent<Lease>>>>,
    forbidden: bool,
}

impl Watch<'_> {
    /// Returns when the Lease is free. A further call continues where this one stopped; without a watch, each call
    /// opens one, once.
    pub(super) async fn freed(&mut self) {
        if self.events.is_none() {
            let name = &self.lock.settings.leader_elect_resource_name;
            let only = WatchParams::default().fields(&format!("metadata.name={name}"));
            // From the current state, which comes as the first event.
            match self.lock.api.watch(&only, "0").await {
                Ok(events) => self.events = Some(events.boxed()),
                Err(error) => self.cannot(error),
            }
        }
        while let Some(events) = &mut self.events {
            match events.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))
                    if self.lock.is_free(&lease) =>
                {
                    return;
                }
                Some(Ok(WatchEvent::Deleted(_))) => return,
                Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => self.events = None,
            }
        }
        pending::<()>().await;
    }

    fn cannot(&mut self, error: kube::Error) {
        let forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
        let error = anyhow::Error::from(error);
        if forbidden && !self.forbidden {
            tracing::warn!(
                error = format!("{error:#}"),
                "the Lease may not be watched, so a handover takes up to --leader-elect-retry-period: apply deploy/rbac.yaml"
            );
        }
        self.forbidden |= forbidden;
        tracing::debug!(error = format!("{error:#}"), "the Lease cannot be watched");
    }
}

/// Whether the Lease can be read and written, for `/readyz`. Cheap to clone; all clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Outage>>);

impl Health {
    pub(super) fn saw<T>(&self, answer: &Result<T>) {
        let mut outage = self.0.lock();
        match answer {
            Ok(_) => drop(outage.ended()),
            Err(error) => drop(outage.failed(format!("{error:#}"))),
        }
    }

    /// # Errors
    /// Since when the Lease cannot be read or written, and why.
    pub fn check(&self) -> Result<(), String> {
        let lasting = self.0.lock().lasting();
        lasting.map_or(Ok(()), |outage| Err(format!("the Lease cannot be held {outage}")))
    }
}

/// A replica's next step on the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseStep {
    /// There is none: create it.
    Create,
    /// Its holder released it, or has not renewed it for too long.
    Take,
    /// This replica holds it.
    Renew,
    /// Its holder seeks a successor, which this replica can be.
    Offer,
    /// Another replica holds it.
    Wait,
}

/// `unchanged` is how long the Lease has not changed, by this replica's own clock: no other clock is trusted.
fn decide(lease: Option<&Lease>, me: &str, unchanged: Duration, is_fit: impl Fn() -> bool) -> LeaseStep {
    let Some((lease, spec)) = lease.and_then(|lease| Some((lease, lease.spec.as_ref()?))) else {
        return LeaseStep::Create;
    };
    match holder(lease) {
        // Released for a successor, who comes at once or not at all.
        "" if annotation(lease, OFFERS).is_some_and(|successor| successor != me)
            && unchanged <= runs_out_after(spec) =>
        {
            LeaseStep::Wait
        }
        "" => LeaseStep::Take,
        holder if holder == me => LeaseStep::Renew,
        _ if unchanged > runs_out_after(spec) => LeaseStep::Take,
        _ if is_sought(lease) && annotation(lease, OFFERS).is_none() && is_fit() => LeaseStep::Offer,
        _ => LeaseStep::Wait,
    }
}

/// The holder of a Lease; empty if there is none.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Whether the holder, not a former one, seeks a successor.
fn is_sought(lease: &Lease) -> bool {
    annotation(lease, SEEKS) == Some(holder(lease))
}

fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// How long a holder keeps the Lease without renewing it.
fn runs_out_after(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// The fencing epoch of a Lease: it grows with every change of holder.
fn epoch(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    u64::try_from(transitions).unwrap_or_default() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    fn with(mut lease: Lease, annotations: &[(&str, &str)]) -> Lease {
        let pairs = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        lease.metadata.annotations = Some(pairs.collect());
        lease
    }

    #[test]
    fn a_lease_is_taken_from_nobody_who_renews_it() {
        let seconds = Duration::from_secs;
        for (lease, unchanged, step) in [
            (None, 0, LeaseStep::Create),
            (Some(held_by("")), 0, LeaseStep::Take),
            (Some(held_by("me")), 0, LeaseStep::Renew),
            (Some(held_by("me")), 60, LeaseStep::Renew),
            (Some(held_by("other")), 15, LeaseStep::Wait),
            (Some(held_by("other")), 16, LeaseStep::Take),
        ] {
            assert_eq!(
                decide(lease.as_ref(), "me", seconds(unchanged), || true),
                step,
                "{lease:?} {unchanged}"
            );
        }
    }

    #[test]
    fn one_replica_that_a_provider_answers_offers_to_follow_a_holder_that_none_answers() {
        let sought = |by| with(held_by("other"), &[(SEEKS, by)]);
        for (lease, is_fit, step) in [
            (sought("other"), true, LeaseStep::Offer),
            (sought("other"), false, LeaseStep::Wait),
            (sought("a former one"), true, LeaseStep::Wait),
            (with(held_by("other"), &[(SEEKS, "other"), (OFFERS, "third")]), true, LeaseStep::Wait),
            (with(held_by("me"), &[(SEEKS, "me")]), true, LeaseStep::Renew),
            (with(held_by(""), &[(SEEKS, "other")]), true, LeaseStep::Take),
            (with(held_by(""), &[(SEEKS, "other"), (OFFERS, "me")]), true, LeaseStep::Take),
            (with(held_by(""), &[(SEEKS, "other"), (OFFERS, "third")]), true, LeaseStep::Wait),
        ] {
            assert_eq!(decide(Some(&lease), "me", Duration::ZERO, || is_fit), step, "{lease:?} {is_fit}");
        }
    }
}
