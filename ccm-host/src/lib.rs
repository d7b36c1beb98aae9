//! The provider-neutral cloud controller manager: the process around the controllers.
//!
//! * [`controllers`] lists the controllers.
//! * [`manager`] is the process: flags, logs, serving, start order, shutdown.
//! * [`assembly`] puts everything together.
//!
//! Below stand, each a crate: `nodes`, `services` and `volumes` with the controllers, `reconcile` with what they share,
//! `cloud` and `kube` towards the providers and the apiserver, and `base`.

pub mod assembly;
pub mod controllers;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
#[cfg(test)]
mod hostile;
pub mod manager;
