//! What all controllers share.
//!
//! * [`run()`] runs a [`Reconciler`]: a controller that works a queue.
//! * [`Retry`] maps a provider's error to its retry.
//! * [`ToldOnce`] remembers what was already reported about an object.
//! * [`pass_on`] records the Events that a provider attached to its answer.
//! * [`askable`], [`follow_status`] and [`resync`] pace the loops that follow a provider.

mod follow;
mod retry;
mod run;
mod told;

pub use follow::{askable, at_each_sweep, follow_status, resync};
pub use retry::{Retry, SLOW_RETRY, passes_by_itself};
pub use run::{Reconciler, Run, follow, run, until_cancelled};
pub use told::{ToldOnce, pass_on};
