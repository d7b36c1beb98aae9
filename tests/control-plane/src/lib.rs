//! A real etcd and kube-apiserver on loopback, for tests, the demo and the bench.
//!
//! In: [`Options`] (none are needed). Out: a [`ControlPlane`] that is ready: with RBAC, the namespaces `default` and
//! `kube-system`, an administrator's client, and kubeconfigs for anybody else ([`ControlPlane::kubeconfig_for`]).
//! It can be disturbed on purpose (apiserver killed, restarted, paused), and can report what a user requested.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let cp = control_plane::ControlPlane::start().await?;
//! cp.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await?;
//! let kubeconfig = cp.kubeconfig_for("jane", &["developers"])?;
//! # drop(kubeconfig); Ok(()) }
//! ```
//!
//! Nothing is left behind, not even if the process that uses it gets SIGKILL: a guardian process
//! on the other end of a pipe ends the servers and removes the directory. There is no kubelet,
//! scheduler or kube-controller-manager: no pod runs, no garbage is collected, and a deleted namespace stays.
//!
//! Callers decide what is installed into it (they apply the manifests of `deploy/`).

mod apply;
mod assets;
mod audit;
mod authority;
mod control_plane;
mod guardian;
mod kubeconfig;
mod options;
mod port;
mod process;
mod readiness;
mod root;
mod servers;

pub use assets::Assets;
pub use audit::AuditEvent;
pub use control_plane::ControlPlane;
pub use options::Options;
pub use port::free_port;
