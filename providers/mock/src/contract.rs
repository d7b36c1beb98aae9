//! The contract as the wire has it: its RPCs, their messages, and what a request is about.

mod message;
mod method;
mod subject;

pub(crate) use message::{Message, Named, text};
pub use method::Method;
pub(crate) use subject::{Head, Subject};
