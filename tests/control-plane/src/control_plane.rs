//! One running control plane: started, used, disturbed on purpose, removed when dropped.

mod faults;
mod start;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use kube::{Client, api::DynamicObject};
use parking_lot::Mutex;
use rustix::process::Pid;

use crate::{
    apply, audit,
    audit::AuditEvent,
    authority::Authority,
    guardian::Guardian,
    kubeconfig,
    kubeconfig::Identity,
    options::Options,
    servers::{Layout, Server},
};

/// A real etcd and kube-apiserver. Dropping it ends both at once and removes their files.
///
/// Methods take `&self`: tests of one binary can share it through a `static`. A [`Client`] belongs to the runtime that
/// created it, so each test creates its own.
#[derive(Debug)]
pub struct ControlPlane {
    layout: Layout,
    url: String,
    authority: Authority,
    admin: Identity,
    etcd: Server,
    apiserver: Server,
    servers: Mutex<Servers>,
    kubeconfigs: AtomicUsize,
    audited: bool,
    ready_within: Duration,
}

#[derive(Debug)]
struct Servers {
    guardian: Guardian,
    etcd: Pid,
    /// None while it is stopped.
    apiserver: Option<Pid>,
}

impl ControlPlane {
    /// Starts one with the default options; returns when it is ready, after about two seconds.
    ///
    /// # Errors
    /// See [`Options::start`].
    pub async fn start() -> Result<Self> {
        Options::default().start().await
    }

    /// `https://ADDRESS:PORT`; the same after [`start_apiserver`](Self::start_apiserver).
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The directory of all files, logs included (`apiserver.log`, `etcd.log`). Removed with the control plane.
    pub fn dir(&self) -> &Path {
        self.layout.dir()
    }

    /// The certificate that signed the apiserver's.
    pub fn ca_pem(&self) -> String {
        self.authority.pem()
    }

    /// A kubeconfig of a member of `system:masters`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.layout.admin_kubeconfig()
    }

    /// A client of a member of `system:masters`; neither RBAC nor priority and fairness limits it.
    ///
    /// # Errors
    /// None is expected of a control plane that has started. Panics outside a tokio runtime.
    pub fn admin_client(&self) -> Result<Client> {
        self.client(&self.admin)
    }

    /// A kubeconfig of any user, such as `system:serviceaccount:kube-system:cloud-controller-manager` with the groups
    /// `system:serviceaccounts` and `system:serviceaccounts:kube-system`. It holds a client certificate. The apiserver
    /// adds `system:authenticated` by itself. Each call creates a new file, readable only by its owner.
    ///
    /// # Errors
    /// There are more than two groups, or the file cannot be written.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let number = self.kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let name = user.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        let path = self.layout.file(&format!("{name}-{number}.kubeconfig"));
        let identity = self.identity(user, groups)?;
        kubeconfig::write_private(&path, &kubeconfig::text(&self.url, &self.authority, &identity))?;
        Ok(path)
    }

    /// A client of any user, as [`kubeconfig_for`](Self::kubeconfig_for).
    ///
    /// # Errors
    /// There are more than two groups. Panics outside a tokio runtime.
    pub fn client_for(&self, user: &str, groups: &[&str]) -> Result<Client> {
        self.client(&self.identity(user, groups)?)
    }

    /// Applies manifests (one or more YAML documents, in their order) as the administrator, by server-side apply.
    /// Namespaced objects without a namespace go to `default`. Returns them as the apiserver has stored them.
    ///
    /// # Errors
    /// The text is not a manifest, or the apiserver refuses one of them: those before it are then applied.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply::apply_yaml(&self.admin_client()?, yaml).await
    }

    /// Every request so far of the users named with [`Options::audit_user`], across restarts. A response can reach its
    /// client a moment before it is recorded: wait until the numbers no longer change.
    ///
    /// # Errors
    /// No user is audited, or the log cannot be read.
    pub fn audit_events(&self) -> Result<Vec<AuditEvent>> {
        ensure!(self.audited, "no user is audited: name one with Options::audit_user");
        audit::read(&self.layout.audit_log())
    }

    /// The requests of one audited user so far, by verb and resource (`("patch", "nodes/status")`).
    ///
    /// # Errors
    /// As [`audit_events`](Self::audit_events).
    pub fn audit_counts(&self, user: &str) -> Result<BTreeMap<(String, String), u64>> {
        Ok(audit::count(&self.audit_events()?, user))
    }

    fn identity(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        Ok(Identity::Certificate(self.authority.client(user, groups)?))
    }

    fn client(&self, identity: &Identity) -> Result<Client> {
        Ok(Client::try_from(kubeconfig::client_config(&self.url, &self.authority, identity)?)?)
    }
}
