//! What the value of a flag may be, and what is said of one that may not.
//!
//! In: the text of one value. Out: what it means, or what is wrong with it and what to do instead. Each part of the host
//! reads its own settings with these; [`crate::manager::flags`] puts them all on one command line.

pub mod duration;
mod mistake;
mod value;

pub use mistake::{FlagError, Mistakes, Wrong};
pub use value::{at_least, duration, listed, named, period, switch, workers};
