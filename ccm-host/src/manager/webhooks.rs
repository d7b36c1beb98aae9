//! Admission webhooks: one HTTPS port for all of them, whose certificate is made, rotated and announced here.
//!
//! In: the routes of the enabled webhooks, and the hosts by which a MutatingWebhookConfiguration calls them. Out: answers
//! to the apiserver from every replica, leader or not; a Secret with the certificate that all replicas share; its
//! authority in the configuration. What is admitted is decided in [`crate::controllers`].
//!
//! ```text
//! leader ── upkeep ── rotation (pure) ──► Secret ──► every replica: server ──► TLS ──► routes
//!                          └────────────► caBundle of the configuration ──► apiserver
//! ```
//!
//! Nothing here may keep the cluster from working: the configuration tells the apiserver to go on without an answer.

mod certificate;
mod rotation;
mod server;
pub mod settings;
#[cfg(test)]
mod tests;
mod upkeep;

pub use server::{Server, WebhookMetrics};
pub use settings::Settings;
pub use upkeep::Upkeep;
