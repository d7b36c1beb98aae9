//! What can be done to a call on purpose.
//!
//! In: `error,reason=RATE_LIMITED,retry-after=2s,method=EnsureLoadBalancer,times=3`, or the same as a JSON object. Out: a
//! [`Fault`] that is known to make sense. What it does to a call is in `effect`; breaches of the contract in `breach`.

mod effect;
mod kind;
mod registry;
mod text;

pub use crate::duration::Time;
pub(crate) use effect::{after, before};
pub use kind::{COMMON_KEYS, Fault, FaultKind, KINDS, KindInfo};
pub use registry::{FaultStatus, Faults};
pub use text::FaultError;
