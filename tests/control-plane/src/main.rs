//! A control plane for manual use: starts one, prints how to reach it, and stays until Ctrl-C.
//! `control-plane build` only ensures that etcd and kube-apiserver are built.
#![allow(clippy::print_stdout, reason = "prints for people")]

use std::env;

use anyhow::{Result, bail};
use control_plane::{Assets, ControlPlane};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        None => stay_until_interrupted().await,
        Some("build") => build(),
        Some(other) => bail!("{other:?} is not understood: say nothing to start a control plane, or `build`"),
    }
}

async fn stay_until_interrupted() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    // Before anything is printed, since whoever reads it may interrupt at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    println!(
        "export KUBECONFIG={}\n# logs: {}; Ctrl-C ends it",
        control_plane.admin_kubeconfig().display(),
        control_plane.dir().display()
    );
    interrupt.recv().await;
    Ok(())
}

fn build() -> Result<()> {
    let Assets { etcd, apiserver } = Assets::find()?;
    println!("{}\n{}", etcd.display(), apiserver.display());
    Ok(())
}
