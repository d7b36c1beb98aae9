//! Values of flags, and the errors about invalid ones.
//!
//! In: the text of one value. Out: its meaning, or what is wrong and what to do instead. Each part of the host parses
//! its own settings with these; [`crate::manager::flags`] combines them into one command line.

pub mod duration;
mod mistake;
mod value;

pub use mistake::{FlagError, Mistakes, Wrong};
pub use value::{at_least, duration, listed, named, period, secret, switch, workers};
