//! Many forced handovers under load: however a reign ends, every change of cluster or cloud lies within one.
//!
//! The apiserver's audit log (each replica has its own source address) and the mock's journal (each mutation carries
//! its leader's epoch) show who wrote what, and when. `HANDOVERS=50 cargo test --test e2e handovers -- --nocapture`
//! runs more handovers than the suite does and prints how long each took; with `LEASES=default`, under the default
//! flags.
#![expect(clippy::print_stdout, reason = "says how long handovers take, to whoever asks with --nocapture")]

use std::{
    env,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use control_plane::AuditEvent;
use e2e::{node, nothing_was_forbidden, service, service_gone};
use k8s_openapi::{
    api::core::v1::Service,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use provider_mock::cloud::NewInstances;
use serde_json::json;
use test_cluster::{
    Cluster, Process, Way,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// Longer than any handover takes, even under the default flags.
const LIMIT: Duration = Duration::from_secs(60);

/// The mock's mutating calls.
const MUTATIONS: [&str; 5] = [
    "EnsureLoadBalancer",
    "BatchUpdateLoadBalancers",
    "DeleteLoadBalancer",
    "BatchEnsureRoutes",
    "BatchDeleteRoutes",
];

/// How a reign ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Term,
    Kill,
    Pause,
    Cut,
}

/// One competing process.
struct Replica {
    process: Process,
    way: Way,
}

impl Replica {
    async fn start(cluster: &Cluster, number: u16) -> Result<Self> {
        let way = Way::open(cluster, number).await?;
        let process = cluster.start_replica(&format!("replica-{number}"), &[way.host_flag()])?;
        Ok(Self { process, way })
    }

    fn leads(&self) -> bool {
        self.process.output().lines().any(|line| line.contains(": leads lease="))
    }

    async fn end(&mut self, how: End) -> Result<()> {
        match how {
            End::Term => {
                let status = self.process.terminate().await?;
                ensure!(status.success(), "{status} after SIGTERM:\n{}", self.process.tail());
            }
            End::Kill => self.process.kill()?,
            End::Pause => self.process.pause()?,
            End::Cut => self.way.cut(),
        }
        Ok(())
    }

    /// Once another one leads: a paused host resumes, and one that lost the Lease has exited or exits.
    async fn is_over(&mut self, how: End) -> Result<()> {
        if matches!(how, End::Term | End::Kill) {
            return Ok(());
        }
        if matches!(how, End::Pause) {
            self.process.resume()?;
        }
        let status = self.process.ended(LIMIT).await?;
        let printed = self.process.tail();
        ensure!(!status.success() && printed.contains("leadership was lost"), "{status}:\n{printed}");
        Ok(())
    }
}

/// What users and kubelets do in one round. This leader or the next completes it.
async fn load(cluster: &Cluster, round: usize) -> Result<()> {
    let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
    for name in nodes_of(round) {
        cluster.cloud()?.create_instance(&name, "zone-a").await?;
        register(&cluster.client, as_registered(&name)).await?;
        set_ready(&cluster.client, &name, "True").await?;
    }
    for name in services_of(round) {
        create(&cluster.client, load_balancer(&name)).await?;
    }
    let Some(before) = round.checked_sub(1) else { return Ok(()) };
    let [gone, changed] = services_of(before);
    services.delete(&gone, &DeleteParams::default()).await?;
    let ports = json!({ "spec": { "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }] } });
    services.patch(&changed, &PatchParams::default(), &Patch::Merge(ports)).await?;
    Ok(())
}

fn nodes_of(round: usize) -> [String; 2] {
    ["a", "b"].map(|which| format!("node-{round}{which}"))
}

fn services_of(round: usize) -> [String; 2] {
    ["a", "b"].map(|which| format!("web-{round}{which}"))
}

/// Everything that [`load`] requires is done.
async fn is_done(cluster: &Cluster, round: usize) -> Result<()> {
    for name in nodes_of(round) {
        node(cluster, &name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    for name in services_of(round) {
        service(cluster, &name, "an address", |service| !ingress(service).is_empty()).await?;
    }
    let Some(before) = round.checked_sub(1) else { return Ok(()) };
    let [gone, changed] = services_of(before);
    service_gone(cluster, &gone).await?;
    wait::until(&format!("the new port of {changed}"), async || {
        let balancers = cluster.cloud()?.balancers().await?;
        let balancer = balancers.iter().find(|balancer| balancer.service_name == changed);
        Ok(balancer.is_some_and(|balancer| balancer.ports[0].port == 8080).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn handovers_of_every_kind_lose_nothing_and_do_nothing_twice() -> Result<()> {
    let rounds = env::var("HANDOVERS").map_or(Ok(8), |rounds| rounds.parse()).context("HANDOVERS")?;
    let options = quick().host_flag("--leader-elect");
    let options = match env::var("LEASES").as_deref() {
        Ok("default") => options,
        // A busy machine holds up a leader for a second or two.
        _ => options
            .host_flag("--leader-elect-lease-duration=8s")
            .host_flag("--leader-elect-renew-deadline=6s")
            .host_flag("--leader-elect-retry-period=500ms"),
    };
    let cluster = options.start_without_host().await?;
    // So that work is in progress whenever a reign ends.
    cluster.cloud()?.fault("latency,time=300ms,method=EnsureLoadBalancer").await?;
    cluster.cloud()?.fault("latency,time=200ms,method=BatchGetInstances").await?;

    let mut leader = Replica::start(&cluster, 1).await?;
    wait::until("the first leader", async || Ok(leader.leads().then_some(()))).await?;
    for round in 0..rounds {
        let number = u16::try_from(round + 2)?;
        let next = Replica::start(&cluster, number).await?;
        next.process.stands_by().await?;
        let how = [End::Term, End::Kill, End::Pause, End::Cut][round % 4];
        load(&cluster, round).await?;
        let begun = Instant::now();
        leader.end(how).await?;
        wait::until_within(LIMIT, "the next leader", async || Ok(next.leads().then_some(())))
            .await
            .with_context(|| format!("round {round}, {how:?}:\n{}", next.process.tail()))?;
        println!("{how:?}: the next one led after {:?}", begun.elapsed());
        is_done(&cluster, round).await.with_context(|| format!("round {round}, {how:?}"))?;
        println!("{how:?}: all was done after {:?}", begun.elapsed());
        leader.is_over(how).await.with_context(|| format!("round {round}, {how:?}"))?;
        leader = next;
    }
    let status = leader.process.terminate().await?;
    ensure!(status.success(), "{status} after SIGTERM");

    nothing_is_left_over(&cluster, rounds).await?;
    nothing_was_forbidden(&cluster)?;
    let events = cluster.control_plane.audit_events()?;
    let reigns = reigns(&events)?;
    ensure!(reigns.len() == rounds + 1, "{} leaders in {rounds} handovers", reigns.len());
    writes_lie_within(&reigns, &events)?;
    mutations_lie_within(&cluster, &reigns).await
}

/// Each round leaves one Service, and its second one for the next round to delete. Each had one balancer, created once.
async fn nothing_is_left_over(cluster: &Cluster, rounds: usize) -> Result<()> {
    let mut left: Vec<_> =
        cluster.cloud()?.balancers().await?.into_iter().map(|balancer| balancer.service_name).collect();
    left.sort();
    let mut wanted: Vec<_> = (0..rounds).map(|round| services_of(round)[1].clone()).collect();
    wanted.push(services_of(rounds - 1)[0].clone());
    wanted.sort();
    ensure!(left == wanted, "balancers of {left:?}, not of {wanted:?}");
    // The cloud numbers machines and balancers together: two of each per round, and this machine.
    let last = cluster.cloud()?.door().create_instances(&NewInstances::default()).await?;
    let id = &last.first().context("a machine")?.id;
    let made = id.trim_start_matches("i-").parse::<usize>().with_context(|| format!("the id {id}"))?;
    ensure!(made == 4 * rounds + 1, "{made} ids were given in {rounds} rounds: something was made twice");
    Ok(())
}

/// A leader, and the time of its reign.
struct Reign {
    source: String,
    time: Range<Timestamp>,
}

/// From the Lease writes that the apiserver accepted: a reign begins with the first one from its address.
fn reigns(events: &[AuditEvent]) -> Result<Vec<Reign>> {
    let mut reigns: Vec<Reign> = Vec::new();
    for event in events.iter().filter(|event| event.resource == "leases" && is_write(event)) {
        if reigns.last().is_some_and(|reign| reign.source == event.source) {
            continue;
        }
        ensure!(
            reigns.iter().all(|reign| reign.source != event.source),
            "{} led twice, or wrote the Lease when another one had it",
            event.source
        );
        let begin: Timestamp = event.received.parse()?;
        if let Some(last) = reigns.last_mut() {
            last.time.end = event.answered.parse()?;
        }
        reigns.push(Reign { source: event.source.clone(), time: begin..Timestamp::MAX });
    }
    Ok(reigns)
}

/// A request that changed something; access reviews do not.
fn is_write(event: &AuditEvent) -> bool {
    let changes = ["create", "update", "patch", "delete"].contains(&event.verb.as_str());
    changes && event.code < 300 && !event.resource.ends_with("reviews")
}

/// Events report what was done, even after the reign.
fn writes_lie_within(reigns: &[Reign], events: &[AuditEvent]) -> Result<()> {
    let mut writes = 0;
    for event in events
        .iter()
        .filter(|event| is_write(event) && !["events", "leases"].contains(&event.resource.as_str()))
    {
        let of = reigns.iter().find(|reign| reign.source == event.source);
        let Some(reign) = of else { bail!("{event:?} comes from somebody who never led") };
        let (received, answered) =
            (event.received.parse::<Timestamp>()?, event.answered.parse::<Timestamp>()?);
        let within = reign.time.start <= received && answered <= reign.time.end;
        ensure!(within, "{event:?} lies outside of {:?}", reign.time);
        writes += 1;
    }
    println!("{writes} writes within {} reigns", reigns.len());
    Ok(())
}

/// Apiserver and mock use the same clock.
async fn mutations_lie_within(cluster: &Cluster, reigns: &[Reign]) -> Result<()> {
    let calls = cluster.cloud()?.all_calls().await?;
    ensure!(calls.first().is_some_and(|call| call.sequence == 1), "the journal is not complete");
    let mut mutations = 0;
    for call in calls.iter().filter(|call| MUTATIONS.contains(&call.method.as_str()) && call.code == "OK") {
        let index = usize::try_from(call.epoch)?.checked_sub(1);
        let Some(reign) = index.and_then(|index| reigns.get(index)) else { bail!("{call:?} has no leader") };
        let took = SignedDuration::from_millis(call.took_ms.unwrap_or_default().try_into()?);
        let within = reign.time.start <= call.at && call.at + took <= reign.time.end;
        ensure!(within, "{call:?} lies outside of {:?}", reign.time);
        mutations += 1;
    }
    println!("{mutations} mutations within {} reigns", reigns.len());
    Ok(())
}
