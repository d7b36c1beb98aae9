//! What a controller says to people who ask, and what they may ask of it.
//!
//! Each controller implements [`Explain`] over the state that it has anyway; nothing is computed before it is requested.

use std::{
    fmt::{self, Debug},
    sync::Arc,
};

use ccm_state::{Explanation, Guard, Report, RouteTable, Service, ServiceState, Standing};
use parking_lot::RwLock;

use crate::Reports;
use ccm_kube::{Node, ObjectKey, queue::Key};

/// A controller that people may ask about what it knows.
pub trait Explain: Debug + Send + Sync {
    /// Why this controller waits with a node, or that it is done; nothing if the node does not concern it.
    fn explain(&self, _node: &Node) -> Vec<Explanation> {
        Vec::new()
    }

    /// The guard of each provider's nodes, if this controller deletes nodes.
    fn guard(&self) -> Vec<Guard> {
        Vec::new()
    }

    /// All that it reports.
    fn reports(&self) -> Vec<Report> {
        Vec::new()
    }

    /// The Services that it looks after.
    fn services(&self) -> Vec<Service> {
        Vec::new()
    }

    /// One of them.
    fn service(&self, _key: &ObjectKey) -> Option<ServiceState> {
        None
    }

    /// The routes of each provider that it knows.
    fn routes(&self) -> Vec<RouteTable> {
        Vec::new()
    }

    /// Believes nothing more of what it knows to be applied, and ensures it again; returns how many balancers that are.
    fn resync(&self) -> usize {
        0
    }
}

impl<K: Key> Explain for Reports<K> {
    fn explain(&self, node: &Node) -> Vec<Explanation> {
        self.about(&node.uid)
    }

    fn reports(&self) -> Vec<Report> {
        Self::all(self)
    }
}

/// What the controllers say of themselves, from when they are made.
#[derive(Default)]
pub struct Views(RwLock<Vec<Arc<dyn Explain>>>);

/// A controller holds this, which holds the controller.
impl Debug for Views {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Views").finish_non_exhaustive()
    }
}

impl Views {
    /// This controller is asked from now on.
    pub fn explains(&self, controller: Arc<dyn Explain>) {
        self.0.write().push(controller);
    }

    /// Lets all controllers ensure again what they have applied.
    pub fn resync(&self) -> usize {
        self.0.read().iter().map(|controller| controller.resync()).sum()
    }

    /// What all controllers say.
    pub fn all<T, L: IntoIterator<Item = T>>(&self, list: impl Fn(&dyn Explain) -> L) -> Vec<T> {
        self.0.read().iter().flat_map(|controller| list(controller.as_ref())).collect()
    }
}

/// An explanation without times and retries.
pub fn explanation(
    from: &str,
    standing: Standing,
    reason: impl Into<String>,
    why: impl Into<String>,
    next: impl Into<String>,
) -> Explanation {
    Explanation {
        from: from.to_owned(),
        standing,
        reason: reason.into(),
        why: why.into(),
        next: next.into(),
        retries: 0,
        last_attempt: None,
        next_attempt: None,
    }
}
