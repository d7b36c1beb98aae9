//! Nothing is left behind: after a drop, a failed start, or SIGKILL of a whole process group.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use control_plane::{ControlPlane, Options};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// The processes whose command line contains the directory.
fn processes_of(dir: &Path) -> Vec<(Pid, String)> {
    let dir = dir.to_string_lossy().into_owned();
    let pids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw)
        .filter_map(|pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&dir).then_some((pid, line))
        })
        .collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The program, in its own process group, once its control plane is ready.
fn program() -> Result<(std::process::Child, PathBuf)> {
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_control-plane")).process_group(0).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    output.read_line(&mut line)?;
    // Kept open: it may print more.
    child.stdout = Some(output.into_inner());
    let kubeconfig = line.trim_end().strip_prefix("export KUBECONFIG=").context(line.clone())?;
    Ok((child, Path::new(kubeconfig).parent().context("no folder")?.to_owned()))
}

fn assert_gone(dir: &Path) {
    wait_until("no process names the folder", || processes_of(dir).is_empty());
    wait_until("the folder is removed", || !dir.exists());
}

#[test]
fn sigkill_of_its_user_ends_both_servers_even_a_paused_one() -> Result<()> {
    let (mut child, dir) = program()?;
    let servers = processes_of(&dir);
    let apiserver =
        servers.iter().find(|(_, line)| line.contains("--etcd-servers")).context("no apiserver")?;
    assert!(servers.iter().any(|(_, line)| line.contains("--data-dir")), "no etcd: {servers:?}");

    kill_process(apiserver.0, Signal::STOP)?;
    let group = Pid::from_child(&child);
    kill_process_group(group, Signal::KILL)?;
    child.wait()?;
    assert_gone(&dir);
    Ok(())
}

#[test]
fn an_interrupt_from_the_terminal_ends_everything_in_order() -> Result<()> {
    let (mut child, dir) = program()?;
    kill_process_group(Pid::from_child(&child), Signal::INT)?;
    assert!(child.wait()?.success());
    // It dropped its control plane before it exited.
    assert!(!dir.exists());
    assert_gone(&dir);
    Ok(())
}

#[test]
fn the_guardian_outlives_signals_meant_for_others() -> Result<()> {
    let (mut child, dir) = program()?;
    let guardian = processes_of(&dir).into_iter().find(|(_, line)| line.contains("control-plane-guardian"));
    let (guardian, _) = guardian.context("no guardian")?;
    for signal in [Signal::INT, Signal::HUP, Signal::TERM, Signal::QUIT] {
        kill_process_group(guardian, signal)?;
    }
    child.kill()?;
    child.wait()?;
    assert_gone(&dir);
    Ok(())
}

#[tokio::test]
async fn when_drop_returns_all_is_gone() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let dir = cp.dir().to_owned();
    assert!(!processes_of(&dir).is_empty());
    let before = Instant::now();
    drop(cp);
    assert!(!dir.exists());
    assert!(processes_of(&dir).is_empty());
    assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_start_that_fails_shows_the_log_and_leaves_nothing() -> Result<()> {
    let root = TempDir::new()?;
    let error =
        Options::default().root(root.path()).apiserver_flag("--no-such-flag").start().await.unwrap_err();
    assert!(error.to_string().contains("unknown flag: --no-such-flag"), "{error:#}");
    assert_eq!(fs::read_dir(root.path())?.count(), 0);
    assert!(processes_of(root.path()).is_empty());
    Ok(())
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let error = Options::default().root("/proc/1/nowhere").start().await.unwrap_err();
    assert!(error.to_string().contains("cannot make /proc/1/nowhere/control-plane-"), "{error:#}");
}
