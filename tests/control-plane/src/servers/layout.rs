//! The files in a control plane's directory.

use std::path::{Path, PathBuf};

/// Where each file is.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn etcd_data(&self) -> PathBuf {
        self.file("etcd")
    }

    /// etcd listens here, and on no port.
    pub(crate) fn etcd_socket(&self) -> PathBuf {
        self.file("etcd.sock")
    }

    pub(crate) fn etcd_peer_socket(&self) -> PathBuf {
        self.file("etcd-peer.sock")
    }

    pub(crate) fn ca_certificate(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// What kube-controller-manager signs kubelets' certificates with.
    pub(crate) fn ca_key(&self) -> PathBuf {
        self.file("ca.key")
    }

    pub(crate) fn serving_certificate(&self) -> PathBuf {
        self.file("serving.crt")
    }

    pub(crate) fn serving_key(&self) -> PathBuf {
        self.file("serving.key")
    }

    /// What the apiserver shows to kubelets.
    pub(crate) fn kubelet_client_certificate(&self) -> PathBuf {
        self.file("kubelet-client.crt")
    }

    pub(crate) fn kubelet_client_key(&self) -> PathBuf {
        self.file("kubelet-client.key")
    }

    pub(crate) fn service_account_key(&self) -> PathBuf {
        self.file("service-account.key")
    }

    pub(crate) fn service_account_public_key(&self) -> PathBuf {
        self.file("service-account.pub")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.file("tokens.csv")
    }

    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.file("audit-policy.json")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.file("audit.log")
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.file("admin.kubeconfig")
    }

    /// Standard output and error of a server, appended across restarts.
    pub(crate) fn log(&self, server: &str) -> PathBuf {
        self.file(&format!("{server}.log"))
    }
}
