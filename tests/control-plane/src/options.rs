//! The options of a control plane.

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

use anyhow::Result;

use crate::ControlPlane;

/// Loaded machines start several at once; alone, one takes about two seconds.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// How to start a control plane. The defaults suit most uses.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) apiserver_flags: Vec<String>,
    pub(crate) apiserver_env: Vec<(String, String)>,
    pub(crate) audit_users: Vec<String>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) machines: Option<Ipv4Addr>,
    pub(crate) ready_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            apiserver_flags: Vec::new(),
            apiserver_env: Vec::new(),
            audit_users: Vec::new(),
            root: None,
            machines: None,
            ready_within: READY_WITHIN,
        }
    }
}

impl Options {
    /// Adds a flag for the apiserver, such as `--event-ttl=1m`; it overrides ours.
    #[must_use]
    pub fn apiserver_flag(mut self, flag: impl Into<String>) -> Self {
        self.apiserver_flags.push(flag.into());
        self
    }

    /// Sets an environment variable of the apiserver, such as `GOMEMLIMIT`. It inherits none of ours.
    #[must_use]
    pub fn apiserver_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.apiserver_env.push((name.into(), value.into()));
        self
    }

    /// Records every request of the user with this exact name for [`ControlPlane::audit_events`]. May be repeated.
    #[must_use]
    pub fn audit_user(mut self, user: impl Into<String>) -> Self {
        self.audit_users.push(user.into());
        self
    }

    /// The directory in which the control plane creates its own, instead of `/dev/shm` or the temporary directory.
    /// Short: the path of a socket inside must stay under about 100 bytes.
    #[must_use]
    pub fn root(mut self, dir: impl Into<PathBuf>) -> Self {
        self.root = Some(dir.into());
        self
    }

    /// Serves kubelets and their pods, at this address of ours: with Node authorization, the admission of service
    /// accounts, and the Service `kubernetes`. The apiserver reaches the pods of webhooks without a proxy.
    #[must_use]
    pub fn machines(mut self, address: Ipv4Addr) -> Self {
        self.machines = Some(address);
        self
    }

    /// How long a start may take before it fails (120 s); building the servers does not count.
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    /// Starts it; returns when it is ready.
    ///
    /// # Errors
    /// The servers cannot be found or built, or do not become ready; the message includes the end of their logs.
    pub async fn start(self) -> Result<ControlPlane> {
        ControlPlane::start_with(self).await
    }
}
