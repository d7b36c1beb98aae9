//! What the host costs with many nodes: the shipped binary in its own process, between this process's apiserver
//! and cloud, over loopback and in real time.
//!
//! In: cluster sizes. Out: a table of memory, processor time and calls to the provider per node: for a start next to a
//! cluster of new nodes, for a label that changes on all of them, for one node that joins, and for tenants who rename
//! all labels and annotations again and again, after which the host must not have grown.

mod cluster;
mod process;
mod serve;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use self::{
    cluster::{Calls, Cluster},
    process::Process,
};

/// Services per node, in the proportion of 5,000 to 65,000.
const SERVICES: f64 = 5_000.0 / 65_000.0;
/// The maximum number of nodes behind balancers: clouds accept no more targets, so people exclude the others by a
/// label.
const TARGETS: u32 = 500;
/// The limit of a phase.
const PATIENCE: Duration = Duration::from_secs(400);

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Cluster sizes, in nodes.
    #[arg(long, value_delimiter = ',', default_value = "500,2000,8000,20000,65000")]
    nodes: Vec<u32>,
    /// Services; by default in the proportion of 5,000 to 65,000 nodes.
    #[arg(long)]
    services: Option<u32>,
    /// How often all labels and annotations get other names.
    #[arg(long, default_value_t = 20)]
    renames: u32,
    /// Fail if the host ever takes more memory than this.
    #[arg(long)]
    limit_mib: Option<f64>,
    /// The host's binary; by default the one next to this program.
    #[arg(long)]
    host: Option<PathBuf>,
    /// More flags for the host.
    #[arg(long, allow_hyphen_values = true)]
    flag: Vec<String>,
}

/// Measures and prints row by row.
///
/// # Errors
/// The host cannot be started, or does not finish its work.
pub async fn measure(arguments: &Arguments, mut tell: impl FnMut(&str)) -> Result<()> {
    let host = match &arguments.host {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("ccm-host"),
    };
    ensure!(
        host.exists(),
        "{} is not there; build it with `cargo build --release -p ccm-host`",
        host.display()
    );
    tell(HEAD);
    for nodes in &arguments.nodes {
        let row = size(*nodes, &host, arguments).await.with_context(|| format!("{nodes} nodes"))?;
        tell(&row.to_string());
        let limit = arguments.limit_mib.unwrap_or(f64::INFINITY);
        ensure!(row.renamed.peak <= limit, "the host took {:.0} MiB, more than {limit}", row.renamed.peak);
        row.renamed.does_not_grow()?;
    }
    Ok(())
}

const HEAD: &str = "\
| nodes | Services | start, s | CPU ms/node | RPCs/node | items/node | memory, MiB | KiB/node | label: CPU ms/node | calls | join: CPU ms | of it µs/node | calls | renamed: MiB, most and in the end | CPU µs/object |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// One phase.
#[derive(Debug)]
struct Phase {
    took: Duration,
    cpu: f64,
    calls: Calls,
}

#[derive(Debug)]
struct Row {
    nodes: u32,
    services: u32,
    /// Resident memory when idle.
    empty: f64,
    /// Maximum resident memory.
    peak: f64,
    start: Phase,
    label: Phase,
    join: Phase,
    renamed: Renamed,
}

/// What the host took while tenants renamed everything.
#[derive(Debug)]
struct Renamed {
    /// Resident memory after each fourth of the rounds.
    fourths: Vec<f64>,
    peak: f64,
    /// Processor seconds for one object and round.
    cpu: f64,
}

impl Renamed {
    /// The second half of the rounds costs nothing that the first had not: what is gone is forgotten.
    fn does_not_grow(&self) -> Result<()> {
        let [_, half, .., last] = self.fourths.as_slice() else { return Ok(()) };
        ensure!(*last <= half * 1.1 + 4.0, "the host grows with each renaming: {:.0?} MiB", self.fourths);
        Ok(())
    }
}

async fn size(nodes: u32, host: &Path, arguments: &Arguments) -> Result<Row> {
    let flags = &arguments.flag;
    let services = arguments.services.unwrap_or((f64::from(nodes) * SERVICES).round() as u32);
    let empty = {
        let cluster = Cluster::new().await?;
        let host = Process::start(host, &cluster, flags)?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        host.peak_mib()?
    };
    let cluster = Cluster::new().await?;
    cluster.add_nodes(0..nodes, TARGETS)?;
    cluster.add_services(services)?;
    let process = Process::start(host, &cluster, flags)?;
    let start = phase(&cluster, &process, || cluster.is_served()).await.context("the start")?;
    cluster.label_all()?;
    let label = phase(&cluster, &process, || true).await.context("a label on all nodes")?;
    cluster.add_nodes(nodes..nodes + 1, u32::MAX)?;
    let join = phase(&cluster, &process, || cluster.is_served() && cluster.is_behind_all(nodes)).await;
    let join = join.context("a node that joins")?;
    let peak = process.peak_mib()?;
    let renamed =
        rename(&cluster, &process, arguments.renames, nodes + services).await.context("the renaming")?;
    Ok(Row { nodes, services, empty, peak, start, label, join, renamed })
}

async fn rename(cluster: &Cluster, host: &Process, rounds: u32, objects: u32) -> Result<Renamed> {
    let cpu = host.cpu_at_begin();
    let mut fourths = Vec::new();
    for round in 1..=rounds {
        cluster.rename_all(round)?;
        if round % rounds.div_ceil(4) == 0 || round == rounds {
            host.idle(PATIENCE).await?;
            fourths.push(host.resident_mib()?);
        }
    }
    ensure!(host.is_running()?, "the host ended");
    let cpu = host.take_cpu(cpu)? / f64::from(rounds.max(1)) / f64::from(objects);
    Ok(Renamed { fourths, peak: host.peak_mib()?, cpu })
}

/// Measures until the phase is done and the host is idle.
async fn phase(cluster: &Cluster, host: &Process, is_done: impl Fn() -> bool) -> Result<Phase> {
    let (begun, calls, cpu) = (Instant::now(), cluster.calls(), host.cpu_at_begin());
    while !is_done() {
        ensure!(begun.elapsed() < PATIENCE, "not done after {PATIENCE:?}: {}", cluster.left());
        ensure!(host.is_running()?, "the host ended");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = begun.elapsed();
    host.idle(PATIENCE).await?;
    Ok(Phase { took, cpu: host.take_cpu(cpu)?, calls: cluster.calls().since(calls) })
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, services, empty, peak, start, label, join, renamed } = self;
        let each = |value: f64| value / f64::from(*nodes);
        write!(
            out,
            "| {nodes} | {services} | {:.1} | {:.3} | {:.3} | {:.2} | {peak:.0} | {:.2} | {:.3} | {} | {:.0} | {:.1} | {} | {:.0}, {:.0} | {:.0} |",
            start.took.as_secs_f64(),
            each(start.cpu * 1e3),
            each(start.calls.calls as f64),
            each(start.calls.items as f64),
            each((peak - empty) * 1024.0),
            each(label.cpu * 1e3),
            label.calls.calls,
            join.cpu * 1e3,
            each(join.cpu * 1e6),
            join.calls.calls,
            renamed.peak,
            renamed.fourths.last().unwrap_or(peak),
            renamed.cpu * 1e6,
        )
    }
}
