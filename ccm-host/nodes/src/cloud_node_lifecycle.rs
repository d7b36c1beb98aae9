//! Taints nodes whose instance is stopped, and deletes nodes whose instance is gone.
//!
//! In: nodes that are not ready, and what their provider reports about their instances. Out: the `shutdown` taint,
//! set and removed, what `--node-shutdown-policy` says of nodes that stay stopped, and the deletion of Nodes, past a
//! guard. [`crate::cloud_node`] writes the metadata of nodes whose instance exists.
//!
//! ```text
//! every period, when a node becomes NotReady, and when a provider's watch reports one; for each provider:
//! observe: check the nodes that are not ready ──► decide (pure) ──► act: taints
//!             │ some absent: check again, and Ready nodes with them
//!             ▼
//!          guard (pure) ──► Lease ──► ledger ──► act: deletions, or a condition naming the rule that blocked it
//! ```
//!
//! Each provider's nodes have their own loop, so that a provider that hangs delays only its own; and so have nodes that
//! several providers may own, since all of these are asked about them.

mod act;
mod decide;
mod explain;
mod guard;
mod metrics;
mod observe;
mod places;
mod rule;
mod shutdown;
#[cfg(test)]
mod tests;
mod witnesses;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{join_all, select_all},
};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::{
    sync::{
        Notify,
        broadcast::{Receiver, error::RecvError},
        watch,
    },
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use act::{DeletionLedger, Failures, HELD_BACK};
use ccm_base::label;
use ccm_cloud::{Family, Provider, ProviderStatus};
use ccm_kube::{
    Condition,
    cache::Change,
    events::Recorder,
    keep::{Keep, KeySet},
    node::{Node, Taint},
};
use ccm_reconcile::{Kept, Parts, Registration, Run, pace::NodePaces, taint, until_cancelled};
pub use decide::is_given_up;
use decide::is_ready;
use guard::{Guard, Rules};
use metrics::LifecycleMetrics;
use observe::SeenNodes;
use rule::Rule;
use shutdown::Stops;
use witnesses::{Denials, Leases};

/// The component that Events are recorded under.
const COMPONENT: &str = "cloud-node-lifecycle-controller";

/// The domain of nodes that several providers may own; no provider has such a name.
const OWNERLESS: &str = "_ownerless";

/// From the end of a pass to the start of an early one.
const DISTANCE: Duration = Duration::from_millis(500);

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    name: "cloud-node-lifecycle-controller",
    short_name: "cloud-node-lifecycle",
    alias: None,
    account: Some("node-controller"),
    by_default: true,
    admit: None,
    keep: |settings| {
        let annotations = KeySet::keys([decide::CONFIRM_DELETION]);
        Kept::of_managed_nodes(settings, &Keep { labels: KeySet::keys(label::ZONE), annotations })
    },
    served_by: |_| Some(|provider| provider.instances),
    start,
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Arc::new(Controller::new(parts, registry));
    controller.parts.views.explains(Arc::<Controller>::clone(&controller));
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

#[derive(Debug)]
struct Controller {
    parts: Parts,
    recorder: Recorder,
    metrics: LifecycleMetrics,
    /// The conclusion of the last pass over each domain's nodes, by its name; absent nodes are in the order of theirs.
    passes: Mutex<BTreeMap<String, ccm_state::Guard>>,
    domains: Vec<Domain>,
    /// Nodes that joined while this process watched, by uid, and when; as long as they may be younger than the grace.
    joined: Mutex<HashMap<String, Instant>>,
    /// The nodes that were there before are known.
    listed: AtomicBool,
    paces: NodePaces,
}

/// Nodes that are looked after together, in passes of their own: those of one provider, or those that several may own.
#[derive(Debug)]
struct Domain {
    name: String,
    /// The providers whose watches concern these nodes.
    providers: Vec<Arc<dyn Provider>>,
    /// Asks for a pass at once.
    wake: Notify,
}

/// The state kept for the nodes of a domain from pass to pass.
#[derive(Debug)]
struct DomainMemory<'a> {
    domain: &'a Domain,
    guard: Guard,
    denials: Denials,
    leases: Leases,
    /// `None` until it was read.
    ledger: Option<DeletionLedger>,
    failures: Failures,
    stops: Stops,
    rng: fastrand::Rng,
}

/// The nodes of one pass.
#[derive(Debug, Default)]
struct Flock {
    all: Vec<Arc<Node>>,
    not_ready: Vec<Arc<Node>>,
    /// Ready nodes with a provider ID that are to stay: the answers can be checked against them.
    ready: Vec<Arc<Node>>,
    /// Ready nodes with the taints to write.
    taints: Vec<(Arc<Node>, Vec<Taint>)>,
    /// Those that may own one of the nodes.
    providers: Vec<Arc<dyn Provider>>,
}

/// The name of the domain of a node with these owners.
fn domain(owners: &[Arc<dyn Provider>]) -> Option<&str> {
    match owners {
        [] => None,
        [only] => Some(only.name()),
        _ => Some(OWNERLESS),
    }
}

impl Flock {
    fn of(parts: &Parts, wanted: &Domain) -> Self {
        let mut flock = Self::default();
        if let [only] = wanted.providers.as_slice() {
            // It is to be well even without nodes: it may not have said yet which are its own.
            flock.providers.push(Arc::clone(only));
        }
        let mut ready = Vec::new();
        for node in parts.nodes.list().into_iter().filter(|node| parts.is_ours(node)) {
            let owners = parts.providers.for_node(&node).possible();
            let is_ready = is_ready(&node);
            if domain(&owners) == Some(&wanted.name) {
                let unknown = owners.iter().filter(|owner| !flock.asks(owner)).cloned().collect::<Vec<_>>();
                flock.providers.extend(unknown);
                if is_ready {
                    let taints = taint::without_stop(&node.taints);
                    flock.taints.extend(taints.map(|taints| (Arc::clone(&node), taints)));
                } else {
                    flock.not_ready.push(Arc::clone(&node));
                }
                flock.all.push(Arc::clone(&node));
            }
            if is_ready && node.provider_id.is_some() && !is_given_up(&node) {
                ready.extend(owners.into_iter().next().map(|owner| (owner, node)));
            }
        }
        ready.retain(|(owner, _)| flock.asks(owner));
        flock.ready = ready.into_iter().map(|(_, node)| node).collect();
        flock
    }

    fn asks(&self, provider: &Arc<dyn Provider>) -> bool {
        self.providers.iter().any(|one| one.name() == provider.name())
    }
}

impl Controller {
    fn new(parts: Parts, registry: &mut Registry) -> Self {
        let all = parts.providers.all();
        let domain = |name: &str, providers| Domain { name: name.to_owned(), providers, wake: Notify::new() };
        let mut domains: Vec<_> = all.iter().map(|one| domain(one.name(), vec![Arc::clone(one)])).collect();
        domains.extend((all.len() > 1).then(|| domain(OWNERLESS, all.to_vec())));
        Self {
            recorder: parts.events.recorder(COMPONENT),
            metrics: LifecycleMetrics::register(registry),
            passes: Mutex::default(),
            domains,
            joined: Mutex::default(),
            listed: AtomicBool::new(false),
            paces: NodePaces::default(),
            parts,
        }
    }

    async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let passes = async {
            self.parts.nodes.synced().await;
            ccm_reconcile::follow(&self, &self.parts.nodes, Self::node_changed);
            self.listed.store(true, Ordering::Relaxed);
            join_all(self.domains.iter().map(|domain| self.look_after(domain))).await
        };
        until_cancelled(&cancel, passes).await;
    }

    /// Runs one pass after the other, forever.
    async fn look_after(&self, domain: &Domain) {
        let mut changes: Vec<_> = domain.providers.iter().map(|one| one.instance_changes()).collect();
        let settings = &self.parts.settings.lifecycle;
        let rules = |grace, confirmations| Rules {
            grace,
            confirmations,
            spacing: self.spacing(),
            max_share: settings.node_deletion_max_share.fraction(),
            window: settings.node_deletion_window,
        };
        let mut memory = DomainMemory {
            domain,
            guard: Guard::new(rules(settings.node_deletion_grace, settings.node_deletion_confirmations)),
            denials: Denials::default(),
            leases: Leases::default(),
            ledger: None,
            failures: Failures::default(),
            // The first answer has Ready nodes asked about.
            stops: Stops::new(Guard::new(rules(
                settings.node_shutdown_grace,
                settings.node_deletion_confirmations.max(2),
            ))),
            rng: fastrand::Rng::new(),
        };
        loop {
            let begun = Instant::now();
            Box::pin(self.pass(&mut memory)).await;
            self.metrics.passes.observe(begun.elapsed().as_secs_f64());
            self.due(domain, &mut changes).await;
        }
    }

    async fn pass(&self, memory: &mut DomainMemory<'_>) {
        let domain = memory.domain;
        let grace = self.parts.settings.lifecycle.node_deletion_grace;
        self.joined.lock().retain(|_, joined| joined.elapsed() < grace);
        let mut flock = Flock::of(&self.parts, domain);
        let mut health: Vec<_> =
            flock.providers.iter().map(|provider| provider.status(Family::Instances)).collect();
        let distrusted = self.distrusted(&flock.providers, &mut health);
        self.write_taints(std::mem::take(&mut flock.taints)).await;
        if let Some(why) = distrusted {
            // No rule holds anything back while the provider is not asked.
            self.metrics.passed(&domain.name, &memory.guard, 0, &HashMap::new());
            return self.distrust(memory, &why);
        }
        let Some(seen) = self.look(memory, &flock, &mut health).await else {
            let why = "the provider's health changed during the checks, or a Lease could not be read";
            return self.distrust(memory, why);
        };
        self.give_up(memory, flock.all.len(), &seen).await;
        memory.failures.only(&seen.absent);
        if !seen.absent.is_empty()
            && let Err(error) = self.recall(memory).await
        {
            self.none_deleted(domain, seen.absent_nodes(), &mut memory.failures, &error);
            return self.note_distrust(memory, &format!("{error:#}"));
        }
        self.conclude(memory, &flock, &seen).await;
    }

    /// Deletes what the guard allows, and shows what is held back.
    async fn conclude(&self, memory: &mut DomainMemory<'_>, flock: &Flock, seen: &SeenNodes) {
        let domain = memory.domain;
        let was_contradicted = memory.guard.is_contradicted();
        let (now, total) = (Instant::now(), flock.all.len());
        let mut ruling = memory.guard.rule(now, total, &seen.absent, &seen.control);
        report(&domain.name, was_contradicted, memory.guard.is_contradicted());
        let to_go = std::mem::take(&mut ruling.delete);
        ruling.held_back.extend(seen.nameless.iter().map(|node| (node.uid.clone(), Rule::Nameless)));
        let absent: HashSet<&str> =
            seen.absent_nodes().chain(&seen.nameless).map(|node| &*node.uid).collect();
        // An answer that says nothing frees nobody.
        let unknown = || seen.uncertain.iter().filter(|node| !absent.contains(&*node.uid));
        ruling.held_back.extend(unknown().filter_map(|node| Some((node.uid.clone(), held_by(node)?))));
        let doubted = !seen.control.unsettled.is_empty();
        let to_go = self.only_silent(memory, to_go, doubted, &mut ruling.held_back).await;
        let to_go = self.record(memory, to_go).await;
        self.delete_all(&flock.providers, to_go, memory).await;

        self.metrics.passed(&domain.name, &memory.guard, seen.absent.len(), &ruling.held_back);
        self.note_pass(memory, total, seen, &ruling.held_back);
        let held = |node: &Arc<Node>| {
            let rule = *ruling.held_back.get(&node.uid).filter(|rule| !rule.is_brief())?;
            Some((Arc::clone(node), rule))
        };
        let stays = |node: &Node| absent.contains(&*node.uid) || ruling.held_back.contains_key(&node.uid);
        let freed = flock.all.iter().filter(|node| is_held_back(node) && !stays(node));
        self.show_held_back(flock.all.iter().filter_map(held).collect()).await;
        self.show_freed(freed.cloned().collect()).await;
        let stopped = seen.stopped.iter().map(|evidence| evidence.node.uid.as_str());
        memory.leases.only(&absent.iter().copied().chain(stopped).chain(memory.denials.uids()).collect());
    }

    /// Why these providers are not asked about nodes that are not ready, if they are not; from now on `health` shows
    /// changes. The Node cache must keep everything that a provider wants to know: one that identifies instances by a
    /// label it has only just asked for may report that a node without it has none (N5).
    fn distrusted(
        &self,
        providers: &[Arc<dyn Provider>],
        health: &mut [watch::Receiver<ProviderStatus>],
    ) -> Option<String> {
        providers.iter().zip(health).find_map(|(provider, health)| {
            let name = provider.name();
            match health.borrow_and_update().told_of(name) {
                ProviderStatus::Disconnected(why) | ProviderStatus::Frozen(why) => Some(why),
                ProviderStatus::Serving => (!self.knows_enough_for(provider))
                    .then(|| format!("the node fields that provider {name:?} wants are not cached yet")),
            }
        })
    }

    fn knows_enough_for(&self, provider: &Arc<dyn Provider>) -> bool {
        provider.info().is_some_and(|info| self.parts.nodes.holds(&info.keep_of_nodes))
    }

    /// Wakes the domain of each node that becomes NotReady, and notes which nodes join from now on.
    fn node_changed(&self, change: &Change<Node>) {
        match change {
            Change::Added(node) if self.listed.load(Ordering::Relaxed) => {
                self.joined.lock().insert(node.uid.clone(), Instant::now());
            }
            // One that flips between the two is seen by the periodic pass.
            Change::Updated { old, new }
                if is_ready(old) && !is_ready(new) && self.paces.take(&new.name, Instant::now()) =>
            {
                let owners = self.parts.providers.for_node(new).possible();
                let its = self.domains.iter().filter(|one| domain(&owners) == Some(one.name.as_str()));
                its.for_each(|domain| domain.wake.notify_one());
            }
            Change::Deleted(node) => self.paces.forget(&node.name),
            Change::Added(_) | Change::Updated { .. } => {}
        }
    }

    /// Returns when the next pass over the domain's nodes is due. Concurrent reasons count as one; passes keep a
    /// distance, since each asks about all nodes that are not ready.
    async fn due(&self, domain: &Domain, changes: &mut [Receiver<String>]) {
        let (ended, period) = (Instant::now(), self.parts.settings.lifecycle.node_monitor_period);
        tokio::select! {
            () = sleep(period) => return,
            () = domain.wake.notified() => {}
            _ = select_all(changes.iter_mut().map(|one| Box::pin(self.told(domain, one)))) => {}
        }
        sleep_until(ended + DISTANCE.min(period)).await;
        // The pass about to begin checks all of them.
        changes.iter_mut().for_each(|one| while one.try_recv().is_ok() {});
    }

    /// Returns when the watch of a provider reports a node of the domain that is not ready.
    async fn told(&self, domain: &Domain, changes: &mut Receiver<String>) {
        loop {
            match changes.recv().await {
                Ok(key) if self.is_silent(domain, &key) => return,
                Ok(_) => {}
                // What may be anybody's waits for the period: each report would have all providers asked.
                Err(RecvError::Lagged(_)) if domain.name == OWNERLESS => {}
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Looks the node up by provider ID and by name.
    fn is_silent(&self, wanted: &Domain, key: &str) -> bool {
        let nodes = self.parts.nodes.by_index(key).into_iter().chain(self.parts.nodes.get(key));
        let its_own = wanted.name != OWNERLESS;
        nodes.into_iter().any(|node| {
            let owners = self.parts.providers.for_node(&node).possible();
            let its = domain(&owners) == Some(wanted.name.as_str());
            // What may be anybody's has all providers asked.
            let in_turn = || its_own || self.paces.take(OWNERLESS, Instant::now());
            its && self.parts.is_ours(&node) && !is_ready(&node) && in_turn()
        })
    }
}

/// Whether the deletion guard holds back the deletion of the node: its provider denies its instance.
pub fn is_held_back(node: &Node) -> bool {
    held_back(node).is_some()
}

/// The rule that its condition names.
fn held_by(node: &Node) -> Option<Rule> {
    let condition = held_back(node)?;
    Rule::ALL.into_iter().find(|rule| rule.reason() == condition.reason)
}

/// The condition that shows it, and by its reason the rule.
fn held_back(node: &Node) -> Option<&Condition> {
    node.condition(HELD_BACK).filter(|condition| condition.status == "True")
}

fn report(provider: &str, before: bool, now: bool) {
    match (before, now) {
        (false, true) => tracing::error!(
            provider,
            "the provider denies instances whose kubelets are alive: nodes of their zones, or all of its nodes, are kept \
             until it stops"
        ),
        (true, false) => tracing::info!(provider, "the provider does not contradict itself any more"),
        _ => {}
    }
}
