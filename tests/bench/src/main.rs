//! What the host costs: N nodes initialised, a node joining M Services, nothing happening, and routes to all nodes, on a real
//! control plane, against a mock cloud with 20 ms latency. All figures come from one run; rates are given as shares of what the apiserver itself can do.
#![allow(clippy::print_stdout, reason = "figures are for people")]

mod apiserver;
mod init;
mod join;
mod raw;
mod realistic;
mod routes;
mod steady;
mod usage;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use test_cluster::{Options, Profile};

/// Measures the host. Figures of shared machines are noisy: compare shares, not seconds.
#[derive(Debug, Parser)]
struct Arguments {
    /// Nodes that wait to be initialised.
    #[arg(long, default_value_t = 2000)]
    nodes: usize,
    /// Services of type LoadBalancer that a node joins.
    #[arg(long, default_value_t = 100)]
    services: usize,
    /// Period of the sweeps over nodes and balancers while nothing happens; 5m and 30m in production.
    #[arg(long, default_value = "5s")]
    period: String,
    /// Latency of every provider call.
    #[arg(long, default_value = "20ms")]
    latency: String,
    /// Exit non-zero when a count is higher than it may be. Shares, seconds and bytes are only printed.
    #[arg(long)]
    check: bool,
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
    let options = Options { profile: Profile::Release, ..Options::default() }
        .provider_flag(format!("--latency={}", arguments.latency));
    let mut cluster = options.unrecorded().start_without_host().await?;
    println!("preparing {} nodes of about 8 KB", arguments.nodes);
    realistic::register(&cluster, arguments.nodes).await?;
    let raw = raw::measure(&cluster, arguments.nodes).await?;
    println!("\nraw apiserver, 32 PATCHes in flight, one Node watch open");
    println!("  rate                     {raw:>10.0} PATCH/s");

    let init = init::measure(&mut cluster, arguments.nodes).await?;
    init.print(arguments.nodes, raw);
    let join = join::measure(&mut cluster, arguments.services).await?;
    join.print(arguments.services);
    let steady = steady::measure(&mut cluster, arguments).await?;
    steady.print();
    let routes = routes::measure(&mut cluster, arguments.nodes).await?;
    routes.print(arguments.nodes);
    if arguments.check {
        init.check(arguments.nodes)?;
        join.check()?;
        steady.check()?;
        routes.check(arguments.nodes)?;
        println!("\nall counts are within their limits");
    }
    let status = cluster.host()?.terminate().await?;
    ensure!(status.success(), "ccm-host ended with {status} after SIGTERM");
    Ok(())
}
