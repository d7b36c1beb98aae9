//! What the host shows to people, put together from its parts.
//!
//! In: the parts, what each controller says of itself once it runs, and in shadow mode what is held back. Out: the
//! documents behind `/state` and `/shadow`.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_state::{
    API_VERSION, Explanation, Host, HostState, Leadership as Leads, NodeState, NodeSummary, Resync,
    ServiceState, Standing,
    inventory::Inventory,
    shadow::{Row, ShadowReport, Standing as Held, Verdict},
};
use jiff::Timestamp;
use tokio::time::sleep;

use crate::manager::{
    COMMIT, VERSION,
    health::{Checks, Probe},
    process::{Process, STARTUP},
    serving::pages::Source,
};
use ccm_base::clock;
use ccm_cloud::{
    CloudError, Family, NodeOwner, Provider as _, ProviderStatus, Providers, Question, RemoteProvider,
};
use ccm_kube::{
    Node, ObjectKey,
    election::{Leadership, Leading},
    shadow::Shadow,
};
use ccm_reconcile::{Parts, explain::explanation, settings::EXCLUDE_LABEL};

const HOST: &str = "ccm-host";

/// How often what is held back is compared, at least.
const OFTEN: Duration = Duration::from_secs(10);

/// An object of which nothing certain is known: kind, namespace, name, why.
type Blocked = (&'static str, String, String, String);

#[derive(Debug)]
struct State {
    checks: Checks,
    controllers: Vec<String>,
    started: Timestamp,
    leadership: Leadership,
    parts: Parts,
    remotes: Vec<Arc<RemoteProvider>>,
    shadow: Option<Shadow>,
}

/// Lets people see the state from now on.
pub(super) fn open(
    process: &Process,
    parts: Parts,
    leadership: Leadership,
    remotes: Vec<Arc<RemoteProvider>>,
    shadow: Option<Shadow>,
) {
    process.state.open(Arc::new(State {
        checks: process.checks.clone(),
        controllers: process.settings.enabled.iter().map(|one| one.name.to_owned()).collect(),
        started: clock::now(),
        leadership,
        parts,
        remotes,
        shadow,
    }));
}

impl State {
    fn leads(&self) -> Leads {
        match self.leadership.clone().heard() {
            Leading::Always => Leads::Always,
            Leading::No => Leads::Standby,
            Leading::Shadow => Leads::Shadow,
            Leading::Until { .. } => Leads::Leader,
        }
    }

    /// The failing checks of readiness.
    fn not_ready(&self) -> Vec<String> {
        let failing = self.checks.ask_all(Probe::Ready).into_iter().filter_map(|(name, result)| {
            let why = result.err()?;
            Some(format!("{name}: {why}"))
        });
        failing.collect()
    }

    /// Worst first.
    fn explain(&self, node: &Node, leads: Leads) -> Vec<Explanation> {
        let parts = &self.parts;
        let is_standby = leads == Leads::Standby;
        let general = general(node, &parts.providers, is_standby, parts.settings.manages(node));
        let mut all: Vec<_> = general.into_iter().collect();
        if !is_standby {
            all.extend(parts.views.all(|one| one.explain(node)));
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.standing));
        all
    }

    fn summary(&self, node: &Node, explanations: &[Explanation]) -> NodeSummary {
        let worst = explanations.first();
        let standing = worst.map_or(Standing::Settled, |worst| worst.standing);
        NodeSummary {
            name: node.name.clone(),
            provider: self.parts.providers.for_node(node).provider().map(|owner| owner.name().to_owned()),
            ready: node.condition("Ready").is_some_and(|ready| ready.status == "True"),
            standing,
            why: worst
                .filter(|_| standing != Standing::Settled)
                .map(|worst| worst.why.clone())
                .unwrap_or_default(),
        }
    }

    fn nodes(&self, leads: Leads) -> Vec<NodeSummary> {
        let mut nodes: Vec<_> = self
            .parts
            .nodes
            .list()
            .iter()
            .map(|node| self.summary(node, &self.explain(node, leads)))
            .collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }
}

#[async_trait]
impl Source for State {
    fn state(&self) -> HostState {
        let leads = self.leads();
        let views = &self.parts.views;
        HostState {
            api_version: API_VERSION.to_owned(),
            kind: "HostState".to_owned(),
            time: clock::now(),
            host: Host {
                version: VERSION.to_owned(),
                commit: COMMIT.to_owned(),
                started: self.started,
                not_ready: self.not_ready(),
                leadership: leads,
                controllers: self.controllers.clone(),
            },
            providers: self.remotes.iter().map(|provider| provider.report()).collect(),
            nodes: self.nodes(leads),
            guard: views.all(|one| one.guard()),
            services: views.all(|one| one.services()),
            routes: views.all(|one| one.routes()),
            reports: views.all(|one| one.reports()),
            queues: self.parts.metrics.queue.samples(),
        }
    }

    fn node(&self, name: &str) -> Option<NodeState> {
        let node = self.parts.nodes.get(name)?;
        let explanations = self.explain(&node, self.leads());
        Some(NodeState {
            api_version: API_VERSION.to_owned(),
            kind: "NodeState".to_owned(),
            time: clock::now(),
            summary: self.summary(&node, &explanations),
            uid: node.uid.clone(),
            provider_id: node.provider_id.clone(),
            explanations,
        })
    }

    fn starting(&self) -> Option<String> {
        self.checks.ask(Probe::Ready, STARTUP)?.err()
    }

    fn service(&self, namespace: &str, name: &str) -> Option<ServiceState> {
        self.parts.views.all(|one| one.service(&ObjectKey::new(namespace, name))).pop()
    }

    fn resync(&self) -> Result<Resync, String> {
        match self.leads() {
            Leads::Leader | Leads::Always => {}
            Leads::Standby => {
                return Err("this replica does not lead: ask the holder of the Lease".to_owned());
            }
            Leads::Shadow => return Err("this host runs in shadow mode: it changes nothing".to_owned()),
        }
        if let Some(why) = self.starting() {
            return Err(format!("no load balancer is known yet: {why}"));
        }
        let balancers = self.parts.views.resync();
        tracing::info!(balancers, "a resync was requested: everything is ensured again");
        Ok(Resync { api_version: API_VERSION.to_owned(), kind: "Resync".to_owned(), balancers })
    }

    fn shadow(&self) -> Option<ShadowReport> {
        let shadow = self.shadow.as_ref()?;
        let is_blocked = |standing| standing == Standing::Blocked;
        let nodes = self.nodes(self.leads()).into_iter().filter(|node| is_blocked(node.standing));
        let nodes = nodes.map(|node| ("Node", String::new(), node.name, node.why));
        let services = self
            .parts
            .views
            .all(|one| one.services())
            .into_iter()
            .filter(|service| is_blocked(service.standing));
        let services = services.map(|service| ("Service", service.namespace, service.name, service.why));
        let blocked: Vec<_> = nodes.chain(services).collect();
        Some(report(shadow, &self.parts, self.started, self.not_ready(), &blocked))
    }

    fn providers(&self) -> Vec<String> {
        self.parts.providers.all().iter().map(|provider| provider.name().to_owned()).collect()
    }

    async fn inventory(&self, provider: &str, question: &Question) -> Option<Result<Inventory, CloudError>> {
        let provider = self.remotes.iter().find(|one| one.name() == provider)?;
        Some(provider.inventory(question).await)
    }
}

/// What keeps every controller from the node.
fn general(node: &Node, providers: &Providers, is_standby: bool, in_scope: bool) -> Option<Explanation> {
    let say =
        |standing, reason, why: String, next: &str| Some(explanation(HOST, standing, reason, why, next));
    if is_standby {
        return say(
            Standing::Waiting,
            "Standby",
            "this replica does not lead, so it changes nothing and knows less than the leader".to_owned(),
            "ask the leader: the holder of the Lease; this replica takes over when that ends",
        );
    }
    if node.is_deleting() {
        let why = "the node is being deleted: its deletion was requested, and finalizers hold it".to_owned();
        return say(Standing::LeftAlone, "Deleting", why, "the host leaves it alone");
    }
    if !in_scope {
        let why =
            format!("the label {EXCLUDE_LABEL}=true excludes the node, or --node-selector does not match it");
        return say(Standing::LeftAlone, "Excluded", why, "the host leaves it alone until its labels change");
    }
    match providers.for_node(node) {
        NodeOwner::Nobody => {
            let why = match &node.provider_id {
                Some(id) => format!("the provider ID {id:?} has the prefix of no provider of this host"),
                None => "no provider of this host serves instances".to_owned(),
            };
            say(Standing::LeftAlone, "NoProvider", why, "the host leaves it alone until a provider claims it")
        }
        NodeOwner::Undecided => match providers.contest(node) {
            Some(contest) => say(
                Standing::Blocked,
                "ProviderIDContested",
                contest.to_string(),
                "the host leaves the node alone until the command line names one of them",
            ),
            None => say(
                Standing::Blocked,
                "ProviderNotIntroduced",
                format!(
                    "the owner of this node is unknown until every provider has answered; still waiting for: {}",
                    unknown(providers)
                ),
                "the host connects again by itself, at least every 10 seconds",
            ),
        },
        NodeOwner::Provider(owner) => match owner.status(Family::Instances).borrow().told_of(owner.name()) {
            ProviderStatus::Disconnected(why) => say(
                Standing::Blocked,
                "ProviderDisconnected",
                why,
                "the host connects again by itself, at least every 10 seconds; until then nothing is changed for this \
                 node, and it is not deleted",
            ),
            ProviderStatus::Frozen(why) => say(
                Standing::Waiting,
                "ProviderFrozen",
                why,
                "the host keeps creating and updating, but deletes nothing until the provider recovers",
            ),
            ProviderStatus::Serving => None,
        },
        NodeOwner::Candidates(_) => None,
    }
}

/// The providers that never completed a handshake, and why.
fn unknown(providers: &Providers) -> String {
    let unknown = providers.all().iter().filter(|provider| provider.info().is_none());
    let told = unknown.map(|provider| match &*provider.status(Family::Instances).borrow() {
        ProviderStatus::Disconnected(why) => format!("provider {:?}: {why}", provider.name()),
        ProviderStatus::Frozen(_) | ProviderStatus::Serving => format!("provider {:?}", provider.name()),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Compares from now on.
pub(super) fn compare(process: &Process, shadow: Shadow, parts: Parts) {
    process.spawn_support("shadow", |stop| async move {
        let pause = (shadow.grace() / 4).min(OFTEN);
        while stop.run_until_cancelled(sleep(pause)).await.is_some() {
            shadow.review(&parts, clock::now());
        }
        Ok(())
    });
}

/// The report of a host that has compared since `started`. `not_ready`: the failing checks of readiness.
fn report(
    shadow: &Shadow,
    parts: &Parts,
    started: Timestamp,
    not_ready: Vec<String>,
    blocked: &[Blocked],
) -> ShadowReport {
    let (now, grace) = (clock::now(), shadow.grace());
    let (rows, agreed) = shadow.review(parts, now);
    let mut unknown = not_ready;
    let runs = Duration::try_from(now.duration_since(started)).unwrap_or_default();
    if runs < grace {
        unknown.push(format!("this host compares for {}s only: ask again after {grace:?}", runs.as_secs()));
    }
    let lacks_row = |(_, namespace, name, _): &&Blocked| {
        !rows.iter().any(|row| row.namespace == *namespace && row.name == *name)
    };
    unknown.extend(blocked.iter().filter(lacks_row).map(|(kind, namespace, name, why)| {
        let at = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        format!("{kind} {at}: {why}")
    }));
    unknown.extend(undecided(&rows, grace));
    ShadowReport {
        api_version: API_VERSION.to_owned(),
        kind: "ShadowReport".to_owned(),
        time: now,
        grace_seconds: grace.as_secs(),
        verdict: verdict(&rows, &unknown),
        unknown,
        rows,
        agreed,
    }
}

/// What the other controller manager may still do, in words.
fn undecided(rows: &[Row], grace: Duration) -> Option<String> {
    let pending = rows.iter().filter(|row| row.standing == Held::Pending).count();
    (pending > 0).then(|| format!("pending changes: {pending}; ask again after {grace:?}"))
}

fn verdict(rows: &[Row], unknown: &[String]) -> Verdict {
    match rows.iter().any(|row| row.standing == Held::Differs) {
        true => Verdict::WouldChange,
        false if unknown.is_empty() => Verdict::NothingWouldChange,
        false => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_cloud::fake::FakeProvider;
    use ccm_kube::fixtures::node;

    #[test]
    fn what_concerns_every_controller_is_said_once() {
        let scene = |change: fn(&FakeProvider, &FakeProvider)| {
            let (x, y) = (FakeProvider::new("x"), FakeProvider::new("y"));
            change(&x, &y);
            Providers::new(vec![x, y])
        };
        let down =
            || scene(|x, _| x.set_status(ProviderStatus::Disconnected("connection refused".to_owned())));
        let rows = [
            ("well", "x://1", scene(|_, _| {}), None),
            (
                "down",
                "x://1",
                down(),
                Some((Standing::Blocked, "ProviderDisconnected", "connection refused")),
            ),
            (
                "frozen",
                "x://1",
                scene(|x, _| x.freeze(Family::Instances, "health")),
                Some((Standing::Waiting, "ProviderFrozen", "health")),
            ),
            ("nobody's", "z://1", scene(|_, _| {}), Some((Standing::LeftAlone, "NoProvider", "\"z://1\""))),
            (
                "undecided",
                "z://1",
                scene(|_, y| y.forget_info()),
                Some((Standing::Blocked, "ProviderNotIntroduced", "provider \"y\"")),
            ),
            (
                "contested",
                "x://1",
                scene(|_, y| y.change_info(|info| info.provider_id_prefixes = vec!["x://".to_owned()])),
                Some((Standing::Blocked, "ProviderIDContested", "x and y")),
            ),
        ];
        let of = |id: &str| node("n").with_provider_id(id);
        for (name, id, providers, want) in rows {
            assert_said(name, general(&of(id), &providers, false, true), want);
        }
        let anybody = general(&node("n"), &scene(|_, _| {}), false, true);
        assert_said("without an ID", anybody, None);
        let excluded = Some((Standing::LeftAlone, "Excluded", EXCLUDE_LABEL));
        assert_said("excluded", general(&of("x://1"), &down(), false, false), excluded);
        let standby = Some((Standing::Waiting, "Standby", "does not lead"));
        assert_said("standby", general(&of("x://1"), &down(), true, true), standby);
    }

    fn assert_said(name: &str, said: Option<Explanation>, want: Option<(Standing, &str, &str)>) {
        let seen = said.as_ref().map(|said| (said.standing, said.reason.as_str()));
        assert_eq!(seen, want.map(|(standing, reason, _)| (standing, reason)), "{name}");
        assert!(want.is_none_or(|(.., word)| said.unwrap().why.contains(word)), "{name}");
    }

    #[test]
    fn a_difference_decides_and_a_pending_one_leaves_it_open() {
        let row = |standing| Row {
            controller: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            standing,
            what: String::new(),
            field: String::new(),
            now: serde_json::Value::Null,
            would: serde_json::Value::Null,
            since: Timestamp::UNIX_EPOCH,
        };
        for (standings, want) in [
            (vec![], Verdict::NothingWouldChange),
            (vec![Held::Once], Verdict::NothingWouldChange),
            (vec![Held::Once, Held::Pending], Verdict::Unknown),
            (vec![Held::Pending, Held::Differs], Verdict::WouldChange),
        ] {
            let rows: Vec<_> = standings.iter().copied().map(row).collect();
            let unknown: Vec<_> = undecided(&rows, Duration::from_secs(120)).into_iter().collect();
            assert_eq!(verdict(&rows, &unknown), want, "{standings:?}");
        }
    }
}
