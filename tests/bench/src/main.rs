//! What the host costs on a real control plane: N nodes initialised, M Services created at once, a node that joins and
//! leaves them, labels that nobody asked for, nothing at all, and routes to all nodes.
//!
//! With `--clouds`, only what one hanging cloud costs another; with `--handovers`, only how long nobody serves.
//!
//! Rates are given as shares of what the apiserver itself can do and, with `--peer`, as ratios to upstream's controller
//! manager over the same Go provider, in the same run.
#![allow(clippy::print_stdout, reason = "figures are for people")]

mod apiserver;
mod balancers;
mod clouds;
mod handover;
mod init;
mod raw;
mod realistic;
mod report;
mod routes;
mod steady;
mod subject;
mod usage;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use report::{Phase, Report};
use subject::{Kind, Subject};

/// Measures the host. Figures from shared machines are noisy: compare shares and ratios, not seconds.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of nodes to initialise.
    #[arg(long, default_value_t = 2000)]
    nodes: usize,
    /// Number of Services of type LoadBalancer that a node joins.
    #[arg(long, default_value_t = 100)]
    services: usize,
    /// Period of the sweeps over nodes and balancers while nothing happens; 5m and 30m in production.
    #[arg(long, default_value = "5s")]
    period: String,
    /// Latency of every call of the provider, or of the cloud behind the bridge.
    #[arg(long, default_value = "20ms")]
    latency: String,
    /// Exit non-zero if a count exceeds its limit. Shares, seconds and bytes are only printed.
    #[arg(long)]
    check: bool,
    /// Use the host as tests build it: good enough for counts, and nothing is compiled that `cargo test` has not
    /// compiled.
    #[arg(long)]
    dev: bool,
    /// Also measure the host over the Go bridge.
    #[arg(long)]
    bridge: bool,
    /// Also measure upstream's controller manager, and compare the host over the Go bridge with it. Needs Go, and some
    /// minutes for the first build.
    #[arg(long)]
    peer: bool,
    /// Measure only what one of two clouds costs the other while it hangs for a minute.
    #[arg(long)]
    clouds: bool,
    /// Measure only how long nobody serves when the leader ends; with --peer upstream's, too.
    #[arg(long, conflicts_with = "clouds")]
    handovers: bool,
    /// A flag for the host. May be repeated.
    #[arg(long = "host-flag", allow_hyphen_values = true)]
    host_flags: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(&arguments)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    if arguments.clouds {
        Report::default().add(clouds::measure(arguments).await?);
        return Ok(());
    }
    if arguments.handovers {
        return handovers(arguments).await;
    }
    let mock = measure(Kind::Mock, arguments).await?;
    if arguments.check {
        mock.check()?;
        println!("\nall counts are within their limits");
    }
    if !arguments.bridge && !arguments.peer {
        return Ok(());
    }
    let bridge = measure(Kind::Bridge, arguments).await?;
    if arguments.peer {
        bridge.compare(&measure(Kind::Upstream, arguments).await?);
    }
    Ok(())
}

async fn handovers(arguments: &Arguments) -> Result<()> {
    let mut host = Report::default();
    host.add(handover::measure(&Subject::start(Kind::Mock, arguments).await?).await?);
    if arguments.peer {
        let mut upstream = Report::default();
        upstream.add(handover::measure(&Subject::start(Kind::Upstream, arguments).await?).await?);
        host.compare(&upstream);
    }
    Ok(())
}

/// All phases of this subject.
async fn measure(kind: Kind, arguments: &Arguments) -> Result<Report> {
    let (nodes, services) = (arguments.nodes, arguments.services);
    let what = match kind {
        Kind::Mock => "the host over the mock",
        Kind::Bridge => "the host over the Go bridge",
        Kind::Upstream => "upstream's controller manager",
    };
    println!("\n# {what}: preparing {nodes} nodes of about 8 KB");
    let mut subject = Subject::start(kind, arguments).await?;
    realistic::register(&subject, nodes).await?;
    let raw = raw::measure(&subject.cluster, nodes).await?;
    let ours = raw::initialisation(&subject.cluster, (nodes / 2).max(1)).await?;
    let mut report = Report::default();
    let mut yardstick = Phase::new("raw apiserver, 32 writes in flight");
    yardstick.value("PATCH/s, a merge of one annotation", raw, 0);
    yardstick.value("PATCH/s, the two writes of an initialisation", ours, 0);
    report.add(yardstick);

    report.add(init::measure(&mut subject, nodes, [raw, ours]).await?);
    report.add(balancers::made_at_once(&mut subject, services).await?);
    let [first, second] = balancers::NEWCOMERS;
    report.add(balancers::joined(&subject, first, services).await?);
    report.add(balancers::terminated(&subject, first).await?);
    if kind == Kind::Mock {
        balancers::joined(&subject, second, services).await?;
        report.add(balancers::terminated_unwatched(&subject, second).await?);
    }
    report.add(balancers::labelled(&mut subject, nodes).await?);
    if kind == Kind::Mock {
        report.add(steady::measure(&mut subject, arguments).await?);
        report.add(routes::measure(&mut subject, nodes).await?);
        let status = subject.cluster.host()?.terminate().await?;
        ensure!(status.success(), "ccm-host ended with {status} after SIGTERM");
    }
    Ok(report)
}
