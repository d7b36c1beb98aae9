//! The connection to one provider for its whole life: lost, re-established, never given up.
//!
//! ```text
//!           ┌────────────────── lost, or silent ──────────────────┐
//!           ▼                                                     │
//! backoff ─► connect ─► handshake ─► session ─► monitor ──────────┤
//!           (socket,    (who, what,  (calls)    (health, status)  │
//!            peer, TLS)  capabilities)          watch ────────────┘
//! ```
//!
//! In: a configuration. Out: the current [`Session`], the status that controllers see, and calls whose outcomes update
//! that status and the limits.

mod connect;
mod handshake;
mod lead;
pub(super) mod negotiate;
pub(super) mod run;
pub(super) mod session;
mod standing;
mod watch;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cloudprovider_proto::v1alpha1::{self as pb, ErrorReason};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Notify, broadcast, watch as channel},
    time::Instant,
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::{
    session::Session,
    standing::{SEVERAL, Standing},
};
use super::{
    CloudError, Family, ProviderConfig, ProviderInfo, ProviderStatus,
    call::{
        limit::{Limiter, Permit},
        rpc,
    },
    method::{self, Class, Method, Rpc},
    metrics::ProviderMetrics,
};
use crate::findings::rule;
use ccm_kube::election::Fencing;
use negotiate::Served;

/// Keys of changed instances buffered for a slow reader; a sweep finds those that are dropped.
const CHANGES: usize = 4096;
/// The pause when the cloud throttles without a retry delay.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// The digests that balancers have completely applied, by the uid of their Service.
pub(super) type Digests = Arc<HashMap<String, String>>;

/// When the last list of balancers began, and what it showed: batches that are late at the same time share one.
pub(super) type LateList = tokio::sync::Mutex<Option<(Instant, Digests)>>;

/// What the provider may believe of this process.
#[derive(Debug)]
struct Led {
    fencing: Fencing,
    end: Instant,
    believer: TaskTrackerToken,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) config: ProviderConfig,
    pub(super) metrics: ProviderMetrics,
    pub(super) limiter: Limiter,
    /// By family, in the order of [`Family::ALL`].
    status: [channel::Sender<ProviderStatus>; Family::ALL.len()],
    pub(super) changes: broadcast::Sender<String>,
    pub(super) sweeps: channel::Sender<u64>,
    session: RwLock<Option<Arc<Session>>>,
    /// What the provider said last, kept while it is disconnected.
    known: RwLock<Introduced>,
    standing: Mutex<Standing>,
    /// The leadership that the provider currently attributes to this process.
    led: Mutex<Option<Led>>,
    look_now: Notify,
    pub(super) late_list: LateList,
}

#[derive(Debug, Default)]
struct Introduced {
    info: Option<Arc<ProviderInfo>>,
    wants: Arc<pb::Wants>,
    served: Served,
    capabilities: Option<pb::GetCapabilitiesResponse>,
}

impl Introduced {
    fn report(&self) -> Option<ccm_state::ProviderInfo> {
        let info = self.info.as_deref()?;
        let capabilities = self.capabilities.iter().flat_map(pb::GetCapabilitiesResponse::capabilities);
        let capability = |one: pb::Capability| one.as_str_name().replacen("CAPABILITY_", "", 1);
        Some(ccm_state::ProviderInfo {
            name: info.name.clone(),
            version: info.vendor_version.clone(),
            provider_id_prefixes: info.provider_id_prefixes.clone(),
            contract: self
                .served
                .versions
                .iter()
                .map(|(name, version)| format!("{version}.{name}"))
                .collect(),
            capabilities: capabilities.map(capability).collect(),
            load_balancer_classes: info.load_balancer_classes.clone(),
        })
    }
}

impl Link {
    pub(super) fn new(config: ProviderConfig, metrics: ProviderMetrics) -> Self {
        let status = ProviderStatus::Disconnected("not connected yet".to_owned());
        metrics.status(&status);
        Self {
            config,
            metrics,
            limiter: Limiter::new(),
            status: Family::ALL.map(|_| channel::Sender::new(status.clone())),
            changes: broadcast::Sender::new(CHANGES),
            sweeps: channel::Sender::new(0),
            session: RwLock::default(),
            known: RwLock::default(),
            standing: Mutex::default(),
            led: Mutex::default(),
            look_now: Notify::new(),
            late_list: LateList::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.config.settings.name
    }

    /// Whether it can be called, and trusted with the destructive work of this family.
    pub(super) fn status(&self, of: Family) -> channel::Receiver<ProviderStatus> {
        self.status[of as usize].subscribe()
    }

    /// The status of the family that fares worst.
    fn worst(&self) -> ProviderStatus {
        let bad = self.status.iter().map(|status| status.borrow().clone());
        bad.into_iter().find(|status| *status != ProviderStatus::Serving).unwrap_or(ProviderStatus::Serving)
    }

    pub(super) fn info(&self) -> Option<Arc<ProviderInfo>> {
        self.known.read().info.clone()
    }

    /// The wanted fields from the last handshake.
    pub(super) fn wants(&self) -> Arc<pb::Wants> {
        Arc::clone(&self.known.read().wants)
    }

    /// The cluster that every call is about.
    pub(super) fn cluster(&self) -> pb::ClusterRef {
        self.config.cluster.clone()
    }

    /// The fencing that mutations carry.
    pub(super) fn fencing(&self) -> pb::Fencing {
        stated(self.config.leadership.fencing())
    }

    /// The current session, or an error saying why there is none.
    pub(super) fn session(&self, method: &Method) -> Result<Arc<Session>, CloudError> {
        self.session.read().clone().ok_or_else(|| {
            let why = match self.worst() {
                ProviderStatus::Disconnected(why) | ProviderStatus::Frozen(why) => why,
                ProviderStatus::Serving => "the connection was just lost".to_owned(),
            };
            CloudError::unavailable(method.name, why)
        })
    }

    /// The current session, if there is one.
    pub(super) fn present(&self) -> Option<Arc<Session>> {
        self.session.read().clone()
    }

    /// Waits for permission to make one call.
    pub(super) async fn permit(&self, method: &Method) -> Result<Permit, CloudError> {
        self.limiter.permit(method).await.map_err(|left| CloudError {
            retry_after: Some(left),
            ..CloudError::local(
                method.name,
                ErrorReason::RateLimited,
                "calls are paused because the cloud throttles",
            )
        })
    }

    /// Waits for permission to make one call, and returns the session for it.
    pub(super) async fn ready(&self, method: &Method) -> Result<(Permit, Arc<Session>), CloudError> {
        let permit = self.permit(method).await?;
        Ok((permit, self.session(method)?))
    }

    /// Makes one call of its own when it may.
    pub(super) async fn ask<Q: Rpc>(&self, message: Q) -> Result<Q::Answer, CloudError> {
        let (_permit, session) = self.ready(Q::METHOD).await?;
        self.call(&session, None, message).await
    }

    /// Makes a call and learns from its outcome. `items` is the size of a batch.
    pub(super) async fn call<Q: Rpc>(
        &self,
        session: &Session,
        items: Option<usize>,
        message: Q,
    ) -> Result<Q::Answer, CloudError> {
        let method = Q::METHOD;
        if !session.serves(method) {
            let message = "the provider does not serve this RPC";
            return Err(CloudError::local(method.name, ErrorReason::MethodNotSupported, message));
        }
        if method.class == Class::Mutation {
            let stale =
                |message: &str| Err(CloudError::local(method.name, ErrorReason::StaleLeader, message));
            if !self.config.leadership.holds() {
                return stale("this host does not lead");
            }
            if self.standing.lock().stale_leader {
                return stale("the provider considers this host a former leader");
            }
        }
        let deadline = method::deadline(method, &session.deadlines);
        let whose = rpc::whose(&message).map(str::to_owned);
        let (client, bytes) = (session.client(), session.message_bytes);
        let lost = &session.lost;
        let answer = rpc::unary(&self.metrics, client, bytes, lost, deadline, items, method, message).await;
        match &answer {
            // A batch is judged by its items.
            Ok(_) if items.is_some() => {}
            Err(error) if items.is_some() && error.is(ErrorReason::CloudApiUnavailable) => {}
            Ok(_) => self.learn(method, whose.as_deref(), None),
            Err(error) => {
                if error.is(ErrorReason::MethodNotSupported) {
                    self.refused(session, method);
                }
                self.learn(method, whose.as_deref(), Some(error));
            }
        }
        answer
    }

    /// Learns from the items of a batch, each with whose it is: one success shows that the cloud is reachable; if all
    /// failed, each of theirs counts.
    pub(super) fn answered<'a>(
        &self,
        method: &'static Method,
        items: impl Iterator<Item = (&'a str, Option<&'a CloudError>)> + Clone,
    ) {
        if items.clone().any(|(_, error)| error.is_none()) {
            return self.learn(method, None, None);
        }
        let by_whom: BTreeMap<_, _> = items.collect();
        let mut told: HashMap<_, usize> = HashMap::new();
        for (whose, error) in by_whom {
            // More of one reason say no more.
            let times = told.entry(error.and_then(|error| error.reason)).or_default();
            *times += 1;
            if *times <= SEVERAL {
                self.learn(method, Some(whose), error);
            }
        }
    }

    /// Learns from how a call about one object, and whose, or about many, ended.
    fn learn(&self, method: &'static Method, whose: Option<&str>, error: Option<&CloudError>) {
        let now = Instant::now();
        if let Some(error) = error {
            match error.reason {
                Some(ErrorReason::RateLimited) => {
                    let grew = self.limiter.pause(
                        method.class,
                        &error.scope,
                        error.retry_after.unwrap_or(PAUSE),
                        now,
                    );
                    self.metrics.rate_limited(method.class, grew);
                }
                Some(ErrorReason::ProviderOverloaded) => self.limiter.overloaded(now),
                _ => {}
            }
        }
        if method.class == Class::Local || method::is_for_people(method) {
            return;
        }
        let look = self.standing.lock().called(method, whose, error, now);
        if look {
            self.look_now.notify_one();
        }
        self.publish_standing();
    }

    fn refused(&self, session: &Session, method: &'static Method) {
        if session.refuse(method) {
            tracing::warn!(
                provider = self.name(),
                method = method.name,
                "the provider does not serve this RPC, it is not called again"
            );
            if method.name == method::WATCH_INSTANCES.name {
                self.metrics.violation(rule::ADVERTISED_WORKS);
            }
        }
    }

    /// The provider's condition, for people.
    pub(super) fn report(&self) -> ccm_state::Provider {
        let (status, reason) = match self.worst() {
            ProviderStatus::Serving => (ccm_state::ProviderStatus::Serving, None),
            ProviderStatus::Frozen(why) => {
                let is_frozen =
                    |of: &Family| matches!(&*self.status[*of as usize].borrow(), ProviderStatus::Frozen(_));
                let frozen: Vec<_> = Family::ALL.into_iter().filter(is_frozen).map(Family::service).collect();
                let is_all = frozen.len() == Family::ALL.len();
                let only = if is_all { String::new() } else { format!(" (only {})", frozen.join(", ")) };
                (ccm_state::ProviderStatus::Frozen, Some(why + &only))
            }
            ProviderStatus::Disconnected(why) => (ccm_state::ProviderStatus::Disconnected, Some(why)),
        };
        let (calls, last_error) = self.metrics.log().told();
        ccm_state::Provider {
            name: self.name().to_owned(),
            status,
            reason,
            info: self.known.read().report(),
            last_error,
            calls,
        }
    }

    /// Asks for a sweep of all instances.
    fn request_sweep(&self) {
        self.sweeps.send_modify(|generation| *generation += 1);
    }

    /// Publishes the provider's condition, but only while it is connected.
    fn publish_standing(&self) {
        let session = self.session.read();
        if session.is_some() {
            let (standing, now) = (self.standing.lock(), Instant::now());
            self.publish_each(|family| standing.status(family, now));
        }
    }

    /// Publishes one status for all families.
    fn publish(&self, new: ProviderStatus) {
        self.publish_each(|_| new.clone());
    }

    /// Reports each change once, to controllers, metrics and the log.
    fn publish_each(&self, new: impl Fn(Family) -> ProviderStatus) {
        let provider = self.name();
        let changed = self.show(new);
        let [(_, first), rest @ ..] = changed.as_slice() else { return };
        if rest.len() + 1 == Family::ALL.len() && rest.iter().all(|(_, other)| other == first) {
            match first {
                ProviderStatus::Serving => tracing::info!(provider, "provider is serving"),
                ProviderStatus::Frozen(why) => tracing::warn!(provider, why, "destructive work is frozen"),
                ProviderStatus::Disconnected(why) => {
                    tracing::warn!(provider, why, "provider cannot be asked");
                }
            }
            return;
        }
        for (family, status) in &changed {
            let of = family.service();
            match status {
                ProviderStatus::Serving => tracing::info!(provider, of, "provider is serving"),
                ProviderStatus::Frozen(why) | ProviderStatus::Disconnected(why) => {
                    tracing::warn!(provider, of, why, "destructive work is frozen");
                }
            }
        }
    }

    /// Updates controllers and metrics; returns what changed.
    fn show(&self, new: impl Fn(Family) -> ProviderStatus) -> Vec<(Family, ProviderStatus)> {
        let changed: Vec<_> = Family::ALL
            .into_iter()
            .filter_map(|family| {
                let new = new(family);
                let is_news = self.status[family as usize].send_if_modified(|shown| {
                    let is_news = *shown != new;
                    shown.clone_from(&new);
                    is_news
                });
                is_news.then_some((family, new))
            })
            .collect();
        if !changed.is_empty() {
            self.metrics.status(&self.worst());
        }
        changed
    }
}

fn stated(Fencing { scope, epoch }: Fencing) -> pb::Fencing {
    pb::Fencing { scope, epoch }
}
