//! What all controllers do alike, once.
//!
//! * [`Retry`] says when an error of a provider is tried again.
//! * [`ToldOnce`] remembers what people were told about an object.
//! * [`pass_on`] writes the Events that a provider wants.
//! * [`askable`], [`follow_status`] and [`resync`] pace the loops that follow a provider.

mod follow;
mod retry;
mod told;

pub use follow::{askable, follow_status, resync};
pub use retry::{Retry, SLOW_RETRY};
pub use told::{ToldOnce, pass_on};
