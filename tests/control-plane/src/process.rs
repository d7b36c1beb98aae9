//! The kernel's view of a server that is the guardian's child, and signals to it.

use std::{fs, path::Path};

use rustix::process::Pid;

/// Whether the process is running or stopped, rather than gone or a zombie. Without `/proc` it counts as running,
/// and only a deadline shows otherwise.
pub(crate) fn is_alive(pid: Pid) -> bool {
    match state(pid) {
        Some(state) => !matches!(state, 'Z' | 'X'),
        None => !Path::new("/proc/self/stat").exists(),
    }
}

/// Whether a SIGSTOP has taken effect.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    state(pid).is_none_or(|state| state == 'T')
}

/// The state letter in `/proc/PID/stat`, after the name, which may contain spaces and brackets.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
