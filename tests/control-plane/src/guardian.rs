//! The small process that ensures that nothing is left behind.
//!
//! A shell script (`guardian.sh`) creates the directory, starts the servers as its own children and blocks on a pipe
//! from us. When we end, even by SIGKILL, the pipe closes: it kills the servers at once and removes the directory. It
//! runs in its own process group, so that a Ctrl-C in the terminal reaches us and not it.
//!
//! Calls block for as long as the shell needs to answer: milliseconds.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::Pid;

use crate::servers::Server;

const SCRIPT: &str = include_str!("guardian.sh");

/// Owns the directory and the servers in it.
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Child,
    /// Only taken on drop: closing it orders the end of everything.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Guardian {
    /// Creates `dir`, which must not exist yet, and guards it from then on.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "control-plane-guardian"])
            .arg(dir)
            .process_group(0)
            // No ETCD_* variable, proxy or GOGC of the caller may affect the servers.
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run /bin/sh for the guardian")?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().context("the guardian has no standard output")?;
        let mut guardian = Self { child, orders, answers: BufReader::new(answers) };
        match guardian.answer()?.as_str() {
            "ready" => Ok(guardian),
            refusal => bail!("cannot make {}: {refusal}", dir.display()),
        }
    }

    /// Starts `server` in `dir`.
    pub(crate) fn run(&mut self, dir: &Path, server: &Server) -> Result<Pid> {
        let script = dir.join(format!("{}.run", server.name));
        fs::write(&script, server.script()).with_context(|| format!("cannot write {}", script.display()))?;
        let answer = self.order("run", server.name)?;
        answer
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| anyhow!("the guardian answered {answer:?} where a process id was expected"))
    }

    /// Kills a running server, and returns when it is gone.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        self.order("kill", name).map(drop)
    }

    fn order(&mut self, verb: &str, name: &str) -> Result<String> {
        let orders = self.orders.as_mut().context("the guardian was dismissed")?;
        writeln!(orders, "{verb} {name}")
            .with_context(|| format!("cannot tell the guardian to {verb} {name}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).context("the guardian does not answer")?;
        ensure!(length > 0, "the guardian has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Returns once the servers are dead and the directory is removed.
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "the guardian of a control plane could not be waited for");
        }
    }
}
