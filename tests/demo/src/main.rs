//! The main job, live in a terminal: a real control plane, the host, and a mock cloud.
//!
//! `cargo demo` runs the story and stays up; `cargo demo -- --once` exits by itself, with code 0 only if everything
//! has happened. `--tour` continues with features that are off by default; `--cluster` shows the host in a pod.

mod machines;
mod screen;
mod story;
mod table;
mod tour;
mod view;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use screen::Screen;
use test_cluster::{Cluster, Neighbour, Options};
use tokio::time::Instant;

/// Short intervals, so that the story is short: an operator would keep the defaults.
const HOST_FLAGS: [&str; 3] =
    ["--node-monitor-period=1s", "--node-deletion-grace=1s", "--node-deletion-confirmations=2"];

/// Runs a control plane, ccm-host and a mock cloud, and shows nodes and a Service being reconciled.
#[derive(Debug, Parser)]
struct Arguments {
    /// Exit at the end; the exit code says whether everything happened.
    #[arg(long)]
    once: bool,
    /// Continue with more of what the host can do: several clouds, stopped instances, volumes, kubelet certificates,
    /// SSH keys, queries with ccmctl.
    #[arg(long, conflicts_with = "cluster")]
    tour: bool,
    /// On real kubelets instead, with pods and traffic through a balancer. Needs Linux, root and some packages.
    #[arg(long)]
    cluster: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut screen = Screen::new();
    let result = if arguments.cluster {
        machines::show(arguments.once, &mut screen)
    } else {
        in_a_runtime(&arguments, &mut screen)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.say(&format!("It did not happen: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn in_a_runtime(arguments: &Arguments, screen: &mut Screen) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(arguments, screen))
}

async fn run(arguments: &Arguments, screen: &mut Screen) -> Result<()> {
    let begun = Instant::now();
    screen.say("Starting etcd, kube-apiserver, provider-mock and ccm-host.");
    let mut options = Options::default();
    for flag in HOST_FLAGS {
        options = options.host_flag(flag);
    }
    let (mut cluster, edge) = if arguments.tour {
        let (cluster, edge) = tour::prepare(options).await?;
        (cluster, Some(edge))
    } else {
        (options.start().await?, None)
    };
    introduce(&mut cluster, screen, begun)?;
    let told = tokio::select! {
        told = tell(&mut cluster, edge.as_ref(), screen) => told.map(|()| true),
        _ = tokio::signal::ctrl_c() => Ok(false),
    }?;
    if !told || arguments.once {
        screen.say(if told { "Everything was seen to happen." } else { "Stopped." });
        return end(cluster).await;
    }
    invite(&mut cluster, screen)?;
    stay(&mut cluster, screen).await?;
    end(cluster).await
}

async fn tell(cluster: &mut Cluster, edge: Option<&Neighbour>, screen: &mut Screen) -> Result<()> {
    story::tell(cluster, screen).await?;
    match edge {
        Some(edge) => tour::guide(cluster, edge, screen).await,
        None => Ok(()),
    }
}

fn introduce(cluster: &mut Cluster, screen: &mut Screen, begun: Instant) -> Result<()> {
    screen.note(&format!(
        "ready after {:.1} s: apiserver {}",
        begun.elapsed().as_secs_f32(),
        cluster.control_plane.url()
    ));
    screen.note(&format!(
        "provider-mock is process {}, on {}",
        cluster.provider()?.id(),
        cluster.socket().display()
    ));
    screen.note(&format!("ccm-host is process {}, with {}", cluster.host()?.id(), HOST_FLAGS.join(" ")));
    Ok(())
}

fn invite(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    let admin = cluster.cloud()?.door().address().to_string();
    screen.say("It stays up until Ctrl-C. Try next:");
    screen.note(&format!("export KUBECONFIG={}", cluster.control_plane.admin_kubeconfig().display()));
    screen.note("kubectl get nodes -L topology.kubernetes.io/zone");
    screen.note("kubectl create service loadbalancer shop --tcp=80:8080 && kubectl get service shop --watch");
    screen.note("kubectl get events -A --sort-by=.lastTimestamp");
    screen.note(&format!("cargo run -q --bin provider-mock -- admin --address {admin} get instances"));
    screen.note(&format!("cargo run -q --bin provider-mock -- admin --address {admin} get calls summary"));
    screen.note(&format!("kill -9 {}   # the host; it is started again", cluster.host()?.id()));
    screen.note(&format!("logs: {}", cluster.folder().display()));
    Ok(())
}

async fn stay(cluster: &mut Cluster, screen: &mut Screen) -> Result<()> {
    let ctrl_c = tokio::signal::ctrl_c();
    tokio::pin!(ctrl_c);
    loop {
        tokio::select! {
            _ = &mut ctrl_c => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        story::revive(cluster, screen).await?;
        let view = view::View::look(cluster).await?;
        screen.draw(view.lines());
    }
}

async fn end(mut cluster: Cluster) -> Result<()> {
    let status = cluster.host()?.terminate().await?;
    anyhow::ensure!(status.success(), "ccm-host ended with {status} after SIGTERM\n{:?}", cluster.parts());
    Ok(())
}
