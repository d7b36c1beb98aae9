//! Faults that calls can meet.
//!
//! In: `error,reason=RATE_LIMITED,retry-after=2s,method=EnsureLoadBalancer,times=3`, or the same as a JSON object. Out: a
//! valid [`Fault`]. `effect` applies it to a call; `breach` has the breaches of the contract.

mod effect;
mod kind;
mod registry;
mod text;

pub use crate::duration::Time;
pub(crate) use effect::{after, before};
pub use kind::{COMMON_KEYS, Fault, FaultKind, KINDS, KindInfo};
pub use registry::{FaultStatus, Faults};
pub use text::FaultError;
