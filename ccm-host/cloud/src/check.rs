//! Checks a provider's answers before anybody acts on them.
//!
//! In: messages as received. Out: plain values that hold only valid data, and the [`crate::findings`] about the rest. An
//! unknown enum number is read as zero, the safe branch.

mod balancer;
mod effects;
pub(super) mod instance;
pub(super) mod label;
mod route;

pub(super) use balancer::{balancer, ensured, has_no_service, ingress, listed};
pub(super) use effects::{in_progress, on_service};
pub(super) use instance::{Asked, answer};
pub(super) use route::{ensured_route, route};

/// Maximum labels, or addresses, of an instance: more than any node has, far fewer than an object can hold.
const MOST: usize = 256;
