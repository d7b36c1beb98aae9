//! The key of the work queue.

use std::fmt;

/// A node with all its routes, or a route that leads to none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::controllers) enum Subject {
    /// By name, whether it exists or not.
    Node(String),
    /// A route that cannot be traced to a node.
    Stray {
        /// The provider that listed it.
        provider: String,
        id: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(out, "node {name}"),
            Self::Stray { provider, id } => write!(out, "route {id} of {provider}"),
        }
    }
}
