//! What a controller says about a node to people who ask.
//!
//! Each controller implements [`Explain`] over the state that it has anyway; nothing is computed unless somebody asks.

use std::{
    fmt::{self, Debug},
    sync::{Arc, OnceLock},
};

use ccm_state::{Explanation, Guard, RouteTable, Service, Standing};
use parking_lot::RwLock;

use crate::kube::Node;

/// A controller that can say why a node is as it is.
pub trait Explain: Debug + Send + Sync {
    /// Why this controller waits, or that it is done; `None` if the node does not concern it.
    fn explain(&self, node: &Node) -> Option<Explanation>;
}

/// A list that one controller has.
type List<T> = OnceLock<Box<dyn Fn() -> Vec<T> + Send + Sync>>;

/// What the controllers say of themselves, from when they are made.
#[derive(Default)]
pub struct Views {
    explain: RwLock<Vec<Arc<dyn Explain>>>,
    guard: List<Guard>,
    services: List<Service>,
    routes: List<RouteTable>,
}

impl Views {
    /// This controller is asked about nodes.
    pub fn explains(&self, controller: Arc<dyn Explain>) {
        self.explain.write().push(controller);
    }

    /// There is one controller of each kind, so the first one counts here and below.
    pub fn guards(&self, list: impl Fn() -> Vec<Guard> + Send + Sync + 'static) {
        let _ = self.guard.set(Box::new(list));
    }

    pub fn has_services(&self, list: impl Fn() -> Vec<Service> + Send + Sync + 'static) {
        let _ = self.services.set(Box::new(list));
    }

    pub fn has_routes(&self, list: impl Fn() -> Vec<RouteTable> + Send + Sync + 'static) {
        let _ = self.routes.set(Box::new(list));
    }

    /// What all controllers say about a node.
    #[must_use]
    pub fn of_node(&self, node: &Node) -> Vec<Explanation> {
        self.explain.read().iter().filter_map(|controller| controller.explain(node)).collect()
    }

    #[must_use]
    pub fn guard(&self) -> Vec<Guard> {
        all(&self.guard)
    }

    #[must_use]
    pub fn services(&self) -> Vec<Service> {
        all(&self.services)
    }

    #[must_use]
    pub fn routes(&self) -> Vec<RouteTable> {
        all(&self.routes)
    }
}

fn all<T>(list: &List<T>) -> Vec<T> {
    list.get().map_or_else(Vec::new, |list| list())
}

impl Debug for Views {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Views").field("explain", &self.explain).finish_non_exhaustive()
    }
}

/// An explanation without times and retries.
#[must_use]
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
