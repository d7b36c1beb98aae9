//! What each controller declares about itself at start-up; the host's `controllers` lists them.
//!
//! In: the settings, and what all controllers share. Out: its names, what the caches must keep for it, when a provider
//! serves it, and the future that runs it. The host's `assembly` decides when.

use std::fmt;

use axum::Router;
use prometheus_client::registry::Registry;

use crate::{Parts, Reconciler, Run, Settings};
use ccm_cloud::ProviderInfo;
use ccm_kube::Keep;

/// One controller.
pub struct Registration {
    /// The canonical name, in flags, logs and health checks.
    pub name: &'static str,
    /// Label `name` of `running_managed_controllers`, and an alias in `--controllers`.
    pub short_name: &'static str,
    /// A further name that `--controllers` accepts; upstream knows it only as an identity.
    pub alias: Option<&'static str>,
    /// The ServiceAccount in `kube-system` that it writes as with `--use-service-account-credentials`; `None`
    /// if it writes nothing.
    pub account: Option<&'static str>,
    /// Whether `*` in `--controllers` enables it.
    pub by_default: bool,
    /// What the caches must keep for it.
    pub keep: fn(&Settings) -> Kept,
    /// Tells whether a provider serves it; `None` if these settings need no provider.
    pub served_by: fn(&Settings) -> Option<Serves>,
    /// Makes the routes of its webhook, which every replica serves if `--webhooks` says so; `None` if it has none.
    pub admit: Option<fn(&Parts, &mut Registry) -> Router>,
    /// Makes the controller; `None` if these settings turn it off, which it logs.
    pub start: fn(Parts, &mut Registry) -> Option<Run>,
}

/// Whether a provider serves the controller.
pub type Serves = fn(&ProviderInfo) -> bool;

/// What a controller reads: labels and annotations, and further kinds.
#[derive(Debug, Default)]
pub struct Kept {
    pub nodes: Keep,
    /// `None` if it reads no Services.
    pub services: Option<Keep>,
    /// Whether it reads the requests of kubelets for serving certificates.
    pub certificate_requests: bool,
    /// Whether it reads PersistentVolumes.
    pub volumes: bool,
}

impl Kept {
    /// Of a controller that reads only the nodes that this host manages, and this of them.
    pub fn of_managed_nodes(settings: &Settings, nodes: &Keep) -> Self {
        Self { nodes: nodes.union(&settings.keep_of_managed_nodes()), ..Self::default() }
    }
}

impl Registration {
    /// The registration of this controller, to be completed with what differs. It runs only if it is named, writes under a
    /// ServiceAccount of its own name, and needs no provider.
    pub const fn of<C: Reconciler>(
        short_name: &'static str,
        start: fn(Parts, &mut Registry) -> Option<Run>,
    ) -> Self {
        Self {
            name: C::NAME,
            short_name,
            alias: None,
            account: Some(C::NAME),
            by_default: false,
            keep: |_| Kept::default(),
            served_by: |_| None,
            admit: None,
            start,
        }
    }

    /// Whether `--controllers` knows it under this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.short_name == name || self.alias == Some(name)
    }
}

impl PartialEq for Registration {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Registration {}

impl fmt::Debug for Registration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}
