//! One mutation at a time for each natural key.
//!
//! A caller that lost its connection repeats its request while the first one still runs: the two must not
//! interleave in the cloud. In: a mutation. Out: the identical running one to join, or the keys that it now
//! holds.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tonic::Status;

use crate::checks::{Mutation, Subject};
use crate::provider::Lifecycle;
use crate::{ProviderError, Result};

/// The response of a mutation, for every caller that waits for it.
pub(super) type Joined<A> = Shared<BoxFuture<'static, Result<A, Status>>>;

/// The running mutations.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lanes(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    last: u64,
    /// Keyed by a serial number.
    mutations: HashMap<u64, One>,
    busy: HashSet<Subject>,
}

/// One mutation, of any RPC.
#[derive(Debug)]
struct One {
    request: Box<dyn Any + Send>,
    /// Its [`Joined`].
    joined: Box<dyn Any + Send>,
}

impl Running {
    fn equal<Q: Mutation>(&self, request: &Q) -> Option<&Joined<Q::Answer>> {
        let mut equal = self.mutations.values().filter(|one| one.request.downcast_ref() == Some(request));
        equal.find_map(|one| one.joined.downcast_ref())
    }
}

/// The keys that one mutation holds.
pub(super) struct Claim<'a> {
    busy: &'a HashSet<Subject>,
    mine: Vec<Subject>,
}

impl Claim<'_> {
    /// Takes a key, unless another mutation runs on it.
    pub(super) fn take(&mut self, subject: Subject) -> Result<()> {
        if self.busy.contains(&subject) {
            return Err(ProviderError::concurrent_operation(&subject.name));
        }
        self.mine.push(subject);
        Ok(())
    }
}

impl Lanes {
    /// Joins the identical running mutation of the same leader, or runs the work of `begin` as its own task;
    /// its keys stay busy until it ends.
    pub(super) fn run<Q: Mutation>(
        &self,
        mut request: Q,
        lifecycle: &Lifecycle,
        begin: impl FnOnce(Q, &mut Claim<'_>) -> Result<BoxFuture<'static, Result<Q::Answer, Status>>>,
    ) -> Result<Joined<Q::Answer>> {
        let mut running = self.0.lock();
        let same = request.same();
        if let Some(joined) = running.equal(&same) {
            return Ok(joined.clone());
        }
        let mut claim = Claim { busy: &running.busy, mine: Vec::new() };
        let work = begin(request, &mut claim)?;
        let mine = claim.mine;
        running.busy.extend(mine.iter().cloned());
        running.last += 1;
        let number = running.last;
        let end = End { lanes: self.clone(), number, mine };
        let task = lifecycle.mutations.spawn(async move {
            let _however_it_ends = end;
            work.await
        });
        let joined = async move {
            task.await.unwrap_or_else(|_| Err(ProviderError::internal("the method ended early").to_status()))
        };
        let joined = joined.boxed().shared();
        running.mutations.insert(number, One { request: Box::new(same), joined: Box::new(joined.clone()) });
        Ok(joined)
    }
}

struct End {
    lanes: Lanes,
    number: u64,
    mine: Vec<Subject>,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut running = self.lanes.0.lock();
        running.mutations.remove(&self.number);
        for subject in &self.mine {
            running.busy.remove(subject);
        }
    }
}
