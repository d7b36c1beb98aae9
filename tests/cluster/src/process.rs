//! A child process that never outlives us, with its output in a file.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A running host or provider. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    /// Kills the child when the pipe to it closes, which happens however this process ends.
    watchdog: Child,
}

const WATCHDOG: &str =
    r#"trap '' HUP INT QUIT TERM PIPE; while read -r _; do :; done; kill -9 "$1" 2>/dev/null"#;

impl Process {
    /// Starts `program` with its output appended to `log`.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        log: &Path,
    ) -> Result<Self> {
        let mut output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        writeln!(output, "# {} {}", program.display(), arguments.join(" "))?;
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A Ctrl-C in the terminal is for us; we end the child in the right order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(child.id().to_string())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run /bin/sh for the watchdog")?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), child, watchdog })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The largest resident size so far, in MiB.
    pub fn peak_mib(&self) -> Result<f64> {
        peak_mib(self.id())
    }

    /// All its output so far, over all its starts.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until this host stands by, because another one leads.
    pub async fn stands_by(&self) -> Result<()> {
        wait::until("a replica that stands by", async || {
            Ok(self.output().contains("standing by until it leads").then_some(()))
        })
        .await
        .with_context(|| self.tail())
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<()> {
        // The watchdog first: once the child is reaped, its process id may be reused.
        self.watchdog.kill()?;
        self.child.kill()?;
        self.child.wait()?;
        self.watchdog.wait()?;
        Ok(())
    }

    /// Sends SIGTERM, and waits until the process has exited.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended(Duration::from_secs(40)).await
    }

    /// Waits until the process has exited by itself.
    pub async fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.watchdog.kill()?;
                self.watchdog.wait()?;
                return Ok(status);
            }
            if tokio::time::Instant::now() >= deadline {
                bail!("{} still runs after {within:?}; it printed:\n{}", self.name, self.tail());
            }
            tokio::time::sleep(wait::STEP).await;
        }
    }

    /// Suspends it (SIGSTOP), so that it hangs.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// The last lines of its output.
    pub fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process id is positive")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        let _ = self.kill();
    }
}

/// The largest resident size of a process so far, in MiB.
pub fn peak_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib / 1024.0)
}
