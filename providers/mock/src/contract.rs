//! The contract on the wire: its RPCs, their messages, and the subjects of requests.

mod message;
pub(crate) mod method;
mod subject;

pub(crate) use message::{Message, text};
pub(crate) use method::Method;
pub(crate) use subject::Subject;
