//! Runs one hook: a command line for the shell, with variables in its environment.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::process::Command;

/// The exit code by which a hook says that something cannot be done here.
const CANNOT: i32 = 3;
/// The maximum number of characters shown of a command.
const SHOWN: usize = 300;
const PREFIX: &str = "CONFORMANCE_";

/// A hook's input, in variables whose names begin with `CONFORMANCE_`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable; the name is without its prefix.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(format!("{PREFIX}{name}"), value.into());
        self
    }

    /// The value of a variable; the name is without its prefix.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(&format!("{PREFIX}{name}")).map(String::as_str)
    }

    /// All variables, as the ledger stores them.
    pub fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }

    /// Variables from the ledger.
    pub fn from_map(map: BTreeMap<String, String>) -> Self {
        Self(map)
    }
}

/// Why a hook did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The scenario has no such hook.
    #[error("no hook {hook}")]
    Missing {
        /// The hook.
        hook: String,
    },
    /// It said that this cannot be done here.
    #[error("hook {hook} says that it cannot (exit code 3): {text}")]
    Cannot {
        /// The hook.
        hook: String,
        /// What it printed.
        text: String,
    },
    /// It failed.
    #[error("hook {hook} failed ({status}): {text}; its command: {command}")]
    Failed {
        /// The hook.
        hook: String,
        /// How it ended, with its exit code.
        status: String,
        /// Its output on stderr, or else on stdout.
        text: String,
        /// The command, on one line.
        command: String,
    },
    /// It took too long.
    #[error("hook {hook} did not end within {after:?} (hook-timeout); its command: {command}")]
    TooLong {
        /// The hook.
        hook: String,
        /// The command, on one line.
        command: String,
        /// The limit.
        after: Duration,
    },
    /// Its output is invalid.
    #[error("hook {hook} printed no JSON: {text}; its command: {command}")]
    NoJson {
        /// The hook.
        hook: String,
        /// The command, on one line.
        command: String,
        /// What it printed.
        text: String,
    },
}

/// The processes of a hook, which end if nobody waits for it any more: too long, or at the end of the run.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        // What has ended by itself needs no signal.
        let _gone = self.0.map(|group| kill_process_group(group, Signal::KILL));
    }
}

pub(super) async fn run(
    hook: &str,
    command: &str,
    variables: &Variables,
    after: Duration,
    prints: bool,
) -> Result<Value, HookError> {
    let name = || hook.to_owned();
    let said = || on_one_line(command);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-e", "-c", command]).envs(&variables.0).stdin(Stdio::null()).kill_on_drop(true);
    // A group of their own, so that what the shell has begun ends with it.
    shell.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let not_begun = |error: std::io::Error| HookError::Failed {
        hook: name(),
        status: "not begun".into(),
        text: error.to_string(),
        command: said(),
    };
    let begun = shell.spawn().map_err(not_begun)?;
    let mut group = Group(begun.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let Ok(ended) = tokio::time::timeout(after, begun.wait_with_output()).await else {
        return Err(HookError::TooLong { hook: name(), command: said(), after });
    };
    // What a hook that has ended, and whose output is closed, leaves behind may stay: a provider that it started, for example.
    group.0 = None;
    let output = ended.map_err(not_begun)?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let text = if complaint.is_empty() { printed } else { complaint };
        return Err(match output.status.code() {
            Some(CANNOT) => HookError::Cannot { hook: name(), text },
            _ => {
                let (status, command) = (output.status.to_string(), said());
                HookError::Failed { hook: name(), status, text, command }
            }
        });
    }
    // A hook that need not print anything may print anything.
    if printed.is_empty() || !prints {
        return Ok(Value::Null);
    }
    serde_json::from_str(&printed).map_err(|_| HookError::NoJson {
        hook: name(),
        command: said(),
        text: printed,
    })
}

fn on_one_line(command: &str) -> String {
    let words = command.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() > SHOWN { words.chars().take(SHOWN).chain(['…']).collect() } else { words }
}
