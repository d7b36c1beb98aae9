//! Checks of everything in `deploy/`.
//!
//! In: the chart and values. Out: its manifests as the real [`Helm`] renders them, the [`rights`] that they grant, and
//! the files [`made`] from it; and an [`operator`] who installs it on a cluster of machines. The tests are in `tests/deploy`, `tests/machines.rs` and
//! `tests/kubernetes_e2e.rs`.

mod helm;
pub mod made;
pub mod operator;
pub mod rights;
mod values;

use std::path::{Path, PathBuf};

pub use helm::{Helm, Kustomize, objects};

/// `deploy/` of this checkout.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}
