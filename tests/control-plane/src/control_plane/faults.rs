//! Faults of a control plane on demand: its apiserver dies, comes back, hangs; its etcd is restored from a backup.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::ControlPlane;
use crate::{
    process,
    servers::{APISERVER, ETCD, Server},
};

const LOOK_AGAIN: Duration = Duration::from_millis(1);
const STOPS_WITHIN: Duration = Duration::from_secs(30);
const NOT_RUNNING: &str = "the apiserver is not running";

impl ControlPlane {
    /// Kills the apiserver (SIGKILL). When this returns, its connections are closed and its port refuses new ones.
    ///
    /// # Errors
    /// It is not running.
    pub fn stop_apiserver(&self) -> Result<()> {
        let mut servers = self.servers.lock();
        ensure!(servers.apiserver.is_some(), NOT_RUNNING);
        servers.guardian.kill(APISERVER)?;
        servers.apiserver = None;
        Ok(())
    }

    /// Starts the apiserver again, on the same port with the same data; returns when it is ready.
    ///
    /// # Errors
    /// It is running, or does not become ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        self.start_apiserver_with(&[]).await
    }

    /// Like [`start_apiserver`](Self::start_apiserver), with more flags for this run only, such as
    /// `--feature-gates=WatchList=false`; they override all others.
    ///
    /// # Errors
    /// As [`start_apiserver`](Self::start_apiserver).
    pub async fn start_apiserver_with(&self, flags: &[&str]) -> Result<()> {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        self.start_apiserver_within(&self.apiserver.clone().args(&flags), self.ready_within).await
    }

    /// Freezes the apiserver (SIGSTOP): connections are accepted and stay open, nothing is answered.
    ///
    /// # Errors
    /// It is not running.
    pub fn pause_apiserver(&self) -> Result<()> {
        let pid = self.signal_apiserver(Signal::STOP)?;
        let deadline = Instant::now() + STOPS_WITHIN;
        while !process::is_stopped(pid) {
            ensure!(Instant::now() < deadline, "the apiserver goes on after SIGSTOP");
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Lets a paused apiserver continue.
    ///
    /// # Errors
    /// It is not running.
    pub fn resume_apiserver(&self) -> Result<()> {
        self.signal_apiserver(Signal::CONT).map(drop)
    }

    /// Does the work, and then takes the cluster back to before it, as whoever restores a backup of etcd does: under
    /// the same addresses, with what was then, and with versions that go on from there.
    ///
    /// # Errors
    /// The apiserver is stopped, etcd's files cannot be copied, or the work failed.
    pub async fn undone(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let (data, backup) = (self.layout.etcd_data(), self.layout.dir().join("etcd-backup"));
        self.stop_both()?;
        copy(&data, &backup)?;
        self.start_again().await?;
        let done = work.await;
        self.stop_both()?;
        fs::remove_dir_all(&data)?;
        fs::rename(&backup, &data)?;
        self.start_again().await?;
        done
    }

    fn stop_both(&self) -> Result<()> {
        self.stop_apiserver()?;
        self.servers.lock().guardian.kill(ETCD)?;
        // It is what shows that the next one listens.
        Ok(fs::remove_file(self.layout.etcd_socket())?)
    }

    /// The apiserver's process id, for measurements; none while it is stopped.
    pub fn apiserver_pid(&self) -> Option<u32> {
        self.servers.lock().apiserver.map(number)
    }

    /// etcd's process id, for measurements.
    pub fn etcd_pid(&self) -> u32 {
        number(self.servers.lock().etcd)
    }

    pub(super) fn run_apiserver(&self, apiserver: &Server) -> Result<Pid> {
        let mut servers = self.servers.lock();
        ensure!(servers.apiserver.is_none(), "the apiserver is running already");
        let pid = servers.guardian.run(self.layout.dir(), apiserver)?;
        servers.apiserver = Some(pid);
        Ok(pid)
    }

    fn signal_apiserver(&self, signal: Signal) -> Result<Pid> {
        let pid = self.servers.lock().apiserver.context(NOT_RUNNING)?;
        kill_process(pid, signal).with_context(|| format!("cannot signal the apiserver, process {pid:?}"))?;
        Ok(pid)
    }
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy(&from, &to)? } else { fs::copy(&from, &to).map(drop)? }
    }
    Ok(())
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
