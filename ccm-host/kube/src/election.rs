//! Leader election: which replica leads, and until when.
//!
//! In: a Lease, for which all replicas compete as upstream's do. Out: [`Leadership`], which informs the parts of the
//! process whether they may change anything:
//!
//! ```text
//! Lease ── lock ──► Leading ─┬─► assembly: controllers start when it leads
//!   (decide: pure)           ├─► kube::Writer: no write after the end, also of a process that was paused
//!                            └─► cloud::connection: `Lead` to each provider, with what is left
//! ```
//!
//! The leader stops `--leader-elect-renew-deadline` after its last renewal, before anybody else may take the Lease; the
//! process then ends and restarts as a standby. A leader that is asked to stop releases the Lease once the providers
//! have acknowledged it, so all work done in its name has ended. If one has not, the Lease is left to expire: until then
//! that provider may work for this process. A leader that no provider has answered for minutes says so in the
//! Lease, and gives it to a standby that one answers. A standby checks the Lease every
//! `--leader-elect-retry-period`, and when a watch reports that its holder released it.

mod lock;

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use anyhow::{Result, bail};
use clap::ArgAction;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use ccm_base::{
    flag::{self, Mistakes, Wrong, duration::text},
    metric::{Declare, MetricLabels},
};
use lock::Renewal;
pub use lock::{Fitness, Health, Lock, Tell};

/// Time for the providers to hear that this process no longer leads.
pub const LAST_WORD: Duration = Duration::from_secs(1);

/// How long no provider must have answered a leader before it seeks a successor: longer than one takes to restart.
const UNFIT: Duration = Duration::from_secs(120);

/// The Lease goes to a replica that a provider answers. This process ends: what it knows is a leader's.
#[derive(Debug, thiserror::Error)]
#[error("no provider has answered this replica for {UNFIT:?}, and one answers {0}, which leads from now on")]
struct HandsOver(String);

/// The flags of leader election: on or off, and its timing.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Leader election")]
#[group(skip)]
pub struct ElectionSettings {
    /// Elect a leader among replicas. Without it, run a single replica, and never two during a rollout.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, value_parser = flag::switch)]
    pub leader_elect: bool,

    /// Time without renewal after which another replica takes the Lease, in whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = whole_seconds)]
    pub leader_elect_lease_duration: Duration,

    /// Time without renewal after which the leader stops all work and exits. Must be shorter than the lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::period)]
    pub leader_elect_renew_deadline: Duration,

    /// Time between two attempts to acquire or renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = flag::period)]
    pub leader_elect_retry_period: Duration,

    /// Kind of the lock; only leases is supported.
    #[arg(long, value_name = "STRING", default_value = "leases", value_parser = leases)]
    pub leader_elect_resource_lock: String,

    /// Name of the Lease.
    #[arg(long, value_name = "STRING", default_value = "cloud-controller-manager", value_parser = filled)]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease.
    #[arg(long, value_name = "STRING", default_value = "kube-system", value_parser = filled)]
    pub leader_elect_resource_namespace: String,
}

impl ElectionSettings {
    /// Checks the flags against each other.
    pub fn check(&self, mistakes: &mut Mistakes) {
        const LEASE: &str = "leader-elect-lease-duration";
        const RENEW: &str = "leader-elect-renew-deadline";
        const RETRY: &str = "leader-elect-retry-period";
        let (lease, renew) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        let retry = self.leader_elect_retry_period;
        if renew >= lease && mistakes.spare(&[LEASE, RENEW]) {
            let problem = format!("is not below the lease duration of {lease:?}");
            mistakes.refuse(RENEW, text(renew), problem, "else two replicas could lead at a time");
        }
        if renew <= retry.mul_f64(1.2) && mistakes.spare(&[RENEW, RETRY]) {
            let problem = format!("leaves no time for a second try within the renew deadline of {renew:?}");
            mistakes.refuse(RETRY, text(retry), problem, "give less than five sixths of it");
        }
    }
}

fn whole_seconds(text: &str) -> Result<Duration, Wrong> {
    let period = flag::period(text)?;
    match period.subsec_nanos() {
        0 => Ok(period),
        _ => Err(Wrong::new("is not a whole number of seconds", "a Lease counts in seconds")),
    }
}

fn leases(text: &str) -> Result<String, Wrong> {
    match text {
        "leases" => Ok(text.to_owned()),
        _ => Err(Wrong::new("is not a supported lock", "give leases")),
    }
}

fn filled(text: &str) -> Result<String, Wrong> {
    match text {
        "" => Err(Wrong::new("is empty", "leave the flag out for the default")),
        _ => Ok(text.to_owned()),
    }
}

/// Distinguishes the current leader from former ones. The default is correct while leader election is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fencing {
    /// Uid of the Lease that this process holds.
    pub scope: String,
    /// `leaseTransitions` plus one; 0 without election.
    pub epoch: u64,
}

/// Whether this process leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leading {
    /// Leader election is off: this process always leads.
    Always,
    /// Shadow mode: this process decides as a leader does, and may change nothing, ever.
    Shadow,
    /// Another replica leads, or none.
    No,
    /// This process leads.
    Until {
        /// Distinguishes it from former leaders.
        fencing: Fencing,
        /// When leadership ends unless the Lease is renewed.
        end: Instant,
    },
}

/// Follows whether this process leads. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership {
    leading: watch::Receiver<Leading>,
    believers: TaskTracker,
}

impl Leadership {
    /// For a process without leader election.
    pub fn always() -> Self {
        Self::of(&watch::Sender::new(Leading::Always))
    }

    /// For a process in shadow mode.
    pub fn shadow() -> Self {
        Self::of(&watch::Sender::new(Leading::Shadow))
    }

    /// For a process that does not lead yet, with the sender that announces changes.
    pub fn standby() -> (watch::Sender<Leading>, Self) {
        let sender = watch::Sender::new(Leading::No);
        let leadership = Self::of(&sender);
        (sender, leadership)
    }

    fn of(sender: &watch::Sender<Leading>) -> Self {
        Self { leading: sender.subscribe(), believers: TaskTracker::new() }
    }

    /// Held while a provider takes this process for its leader: unless it is dropped within [`LAST_WORD`] of the end, the
    /// Lease is not released but runs out.
    pub fn believer(&self) -> TaskTrackerToken {
        self.believers.token()
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_believed(&self) -> bool {
        !self.believers.is_empty()
    }

    /// The current state; [`Self::changed`] then waits for later changes only.
    pub fn heard(&mut self) -> Leading {
        self.leading.borrow_and_update().clone()
    }

    /// Distinguishes this leader from former ones; the default while it does not lead, or always does.
    pub fn fencing(&self) -> Fencing {
        match &*self.leading.borrow() {
            Leading::Until { fencing, .. } => fencing.clone(),
            Leading::Always | Leading::Shadow | Leading::No => Fencing::default(),
        }
    }

    /// Whether this process may change anything now.
    pub fn holds(&self) -> bool {
        match &*self.leading.borrow() {
            Leading::Always => true,
            Leading::Shadow | Leading::No => false,
            Leading::Until { end, .. } => Instant::now() < *end,
        }
    }

    /// Whether this process waits until it leads.
    pub fn stands_by(&self) -> bool {
        !self.holds() && *self.leading.borrow() != Leading::Shadow
    }

    /// Waits for the next change; for ever once the sender is gone.
    pub async fn changed(&mut self) {
        if self.leading.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process leads, or is to decide as if it did.
    pub async fn elected(&self) {
        let leads = |leading: &Leading| *leading != Leading::No;
        if self.leading.clone().wait_for(leads).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when this process no longer leads: from then on nothing may be written. At once if it slept past the
    /// end.
    pub async fn lost(&self) {
        let mut changes = self.leading.clone();
        loop {
            // `None`: no end in sight.
            let end = match &*changes.borrow_and_update() {
                Leading::Always => None,
                Leading::Shadow | Leading::No => return,
                Leading::Until { end, .. } => Some(*end),
            };
            let over = async {
                match end {
                    None => std::future::pending().await,
                    Some(end) => passed(end).await,
                }
            };
            tokio::select! {
                biased;
                Ok(()) = changes.changed() => {}
                () = over => return,
            }
        }
    }
}

/// Waits until then. Each poll looks at the clock: after a pause of the process, other tasks may run, and with them a
/// write that this must stop, before the runtime looks at its timers.
async fn passed(end: Instant) {
    let mut timer = pin!(sleep_until(end));
    poll_fn(|context| match Instant::now() < end {
        true => timer.as_mut().poll(context),
        false => Poll::Ready(()),
    })
    .await;
}

/// Competes for the Lease, leads until `stop`, and then releases the Lease.
///
/// # Errors
/// Leadership was lost: the process must end, since another replica may already lead.
pub async fn run(
    lock: Lock,
    settings: ElectionSettings,
    metrics: ElectionMetrics,
    (leading, leadership): (watch::Sender<Leading>, Leadership),
    stop: CancellationToken,
) -> Result<()> {
    metrics.leads(&settings.leader_elect_resource_name, false);
    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        lost = compete(&lock, &settings, &metrics, &leading) => lost,
    };
    if matches!(leading.send_replace(Leading::No), Leading::Until { .. }) {
        lock.tell("stopped leading");
    }
    metrics.leads(&settings.leader_elect_resource_name, false);
    if ended.as_ref().err().is_none_or(anyhow::Error::is::<HandsOver>) {
        leadership.believers.close();
        match timeout(LAST_WORD, leadership.believers.wait()).await {
            Ok(()) => lock.release().await,
            Err(_unheard) => tracing::warn!(
                lease = lock.name(),
                "a provider did not acknowledge that this process is stopping, and may still work for it: the Lease is \
                 left to expire"
            ),
        }
    }
    ended
}

/// Returns only with an error.
async fn compete(
    lock: &Lock,
    settings: &ElectionSettings,
    metrics: &ElectionMetrics,
    leading: &watch::Sender<Leading>,
) -> Result<()> {
    let mut watch = lock.watch();
    let mut told = None;
    let (fencing, mut asked) = loop {
        let answer = lock.acquire().await;
        lock.health.saw(&answer);
        match answer {
            Ok(Some(held)) => break held,
            Ok(None) => {
                let holder = lock.holder();
                if holder != told {
                    tracing::info!(
                        lease = lock.name(),
                        holder = holder.as_deref().unwrap_or_default(),
                        "somebody else leads"
                    );
                }
                told = holder;
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the Lease cannot be taken yet"),
        }
        // Replicas that start together must not stay in step.
        let pause = settings.leader_elect_retry_period.mul_f64(1.0 + fastrand::f64() * 0.2);
        tokio::select! {
            () = sleep(lock.runs_out_in().map_or(pause, |left| left.min(pause))) => {}
            () = watch.freed() => {}
        }
    };
    drop(watch);
    tracing::info!(lease = lock.name(), epoch = fencing.epoch, "leads");
    lock.tell("became leader");
    metrics.leads(&settings.leader_elect_resource_name, true);
    let (mut unfit_since, mut seeks) = (None, false);
    loop {
        let end = asked + settings.leader_elect_renew_deadline;
        leading.send_replace(Leading::Until { fencing: fencing.clone(), end });
        // Where the apiserver is slow, the next renewal is due already.
        sleep_until(asked + settings.leader_elect_retry_period).await;
        unfit_since = if lock.is_fit() { None } else { unfit_since.or(Some(Instant::now())) };
        let sought = seeks;
        seeks = unfit_since.is_some_and(|since| since.elapsed() >= UNFIT);
        if seeks && !sought {
            tracing::warn!(
                lease = lock.name(),
                "no provider has answered for {UNFIT:?}: hands over as soon as one answers another replica"
            );
        }
        asked = renewed(lock, settings, metrics, end, seeks).await?;
    }
}

/// Renews the Lease, retrying as needed, until leadership ends. Returns when the renewal was asked for.
async fn renewed(
    lock: &Lock,
    settings: &ElectionSettings,
    metrics: &ElectionMetrics,
    end: Instant,
    seeks: bool,
) -> Result<Instant> {
    loop {
        let asked = Instant::now();
        let answer = timeout_at(end, lock.renew(metrics, seeks)).await;
        if let Ok(answer) = &answer {
            lock.health.saw(answer);
        }
        match answer {
            // An answer that comes after the end is too late: what is to be written was given up.
            Ok(Ok(Renewal::Held)) if Instant::now() < end => {
                return Ok(asked);
            }
            Ok(Ok(Renewal::Held)) => {}
            Ok(Ok(Renewal::Wanted(successor))) => return Err(HandsOver(successor).into()),
            Ok(Ok(Renewal::Lost)) => {
                bail!("leadership was lost: the Lease {} is another replica's, or deleted", lock.name())
            }
            Ok(Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), "the Lease cannot be renewed yet");
                sleep(settings.leader_elect_retry_period.min(end.saturating_duration_since(Instant::now())))
                    .await;
            }
            Err(_late) => {}
        }
        if Instant::now() >= end {
            bail!(
                "leadership was lost: the Lease {} could not be renewed within {:?}",
                lock.name(),
                settings.leader_elect_renew_deadline
            );
        }
    }
}

fn of_lease(name: &str) -> MetricLabels<1, String> {
    [("name", name.to_owned())]
}

/// Metrics of leader election, under upstream's names.
#[derive(Debug, Clone)]
pub struct ElectionMetrics {
    master: Family<MetricLabels<1, String>, Gauge>,
    slow: Family<MetricLabels<1, String>, Counter>,
}

impl ElectionMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            master: registry
                .metric("leader_election_master_status", "1 while this replica is the leader, by Lease"),
            slow: registry
                .metric("leader_election_slowpath", "Renewals that had to read the Lease first, by Lease"),
        }
    }

    fn leads(&self, lease: &str, leads: bool) {
        self.master.get_or_create(&of_lease(lease)).set(leads.into());
    }

    fn renewed_slowly(&self, lease: &str) {
        self.slow.get_or_create(&of_lease(lease)).inc();
    }
}

#[cfg(test)]
mod tests;
