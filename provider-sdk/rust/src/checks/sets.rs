//! Backend sets received with their nodes, so that later requests may refer to them by digest alone. A method
//! always receives complete sets.

use std::collections::VecDeque;

use parking_lot::Mutex;
use prost::Message as _;

use crate::proto::BackendSet;
use crate::{ProviderError, Result};

/// The number of sets kept. Beyond it, the least recently used ones are forgotten, as after a restart.
const MOST: usize = 16;
/// The memory limit in messages of the largest size: the last four sets, which the contract requires, always
/// fit.
const MESSAGES: usize = 4;

/// Keyed by (cluster uid, digest).
#[derive(Debug)]
pub(crate) struct BackendSets {
    most_bytes: usize,
    kept: Mutex<Kept>,
}

/// Ordered by last use, the most recent one last.
#[derive(Debug, Default)]
struct Kept {
    sets: VecDeque<Known>,
    bytes: usize,
}

#[derive(Debug)]
struct Known {
    cluster: String,
    set: BackendSet,
    bytes: usize,
}

impl BackendSets {
    pub(crate) fn new(max_message_bytes: usize) -> Self {
        Self { most_bytes: max_message_bytes.saturating_mul(MESSAGES), kept: Mutex::default() }
    }

    /// Keeps the set of a request if it came with its nodes, and fills it in otherwise.
    pub(crate) fn complete(&self, cluster: &str, set: &mut BackendSet) -> Result<()> {
        let mut kept = self.kept.lock();
        let known = kept.take(cluster, &set.digest);
        match known.filter(|_| set.nodes_omitted) {
            Some(known) => {
                set.clone_from(&known.set);
                kept.put(known);
            }
            None if set.nodes_omitted => return Err(ProviderError::unknown_backend_set(&set.digest)),
            None if set.digest.is_empty() => {}
            None => {
                let bytes = set.encoded_len();
                kept.put(Known { cluster: cluster.to_owned(), set: set.clone(), bytes });
            }
        }
        kept.shrink(self.most_bytes);
        Ok(())
    }
}

impl Kept {
    fn take(&mut self, cluster: &str, digest: &str) -> Option<Known> {
        let at = self.sets.iter().position(|one| one.cluster == cluster && one.set.digest == digest)?;
        let known = self.sets.remove(at)?;
        self.bytes -= known.bytes;
        Some(known)
    }

    fn put(&mut self, known: Known) {
        self.bytes += known.bytes;
        self.sets.push_back(known);
    }

    fn shrink(&mut self, most_bytes: usize) {
        while self.sets.len() > MOST || self.bytes > most_bytes {
            let Some(oldest) = self.sets.pop_front() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{ErrorReason, NodeRef};

    fn whole(digest: &str, nodes: usize) -> BackendSet {
        let nodes = (0..nodes).map(|at| NodeRef { name: format!("{digest}-{at}"), ..Default::default() });
        BackendSet { digest: digest.to_owned(), nodes: nodes.collect(), nodes_omitted: false }
    }

    fn named(digest: &str) -> BackendSet {
        BackendSet { digest: digest.to_owned(), nodes_omitted: true, ..Default::default() }
    }

    /// The complete set, or the unknown digest.
    fn seen(sets: &BackendSets, cluster: &str, set: BackendSet) -> Result<BackendSet, String> {
        let mut set = set;
        sets.complete(cluster, &mut set).map(|()| set).map_err(|error| {
            assert_eq!(error.reason(), ErrorReason::UnknownBackendSet);
            error.metadata()["digest"].clone()
        })
    }

    /// [R:set-by-digest] [R:set-per-cluster]
    #[test]
    fn a_set_that_came_is_known_by_its_digest_in_its_cluster() {
        let sets = BackendSets::new(1 << 20);
        assert_eq!(seen(&sets, "one", named("a")), Err("a".to_owned()));
        assert_eq!(seen(&sets, "one", whole("a", 3)), Ok(whole("a", 3)));
        assert_eq!(seen(&sets, "one", named("a")), Ok(whole("a", 3)));
        assert_eq!(seen(&sets, "two", named("a")), Err("a".to_owned()));
        assert_eq!(seen(&sets, "two", whole("a", 1)), Ok(whole("a", 1)));
        assert_eq!(seen(&sets, "one", named("a")), Ok(whole("a", 3)));
        // The newer set wins: nothing here shows which of the two the digest belongs to.
        assert_eq!(seen(&sets, "one", whole("a", 2)), Ok(whole("a", 2)));
        assert_eq!(seen(&sets, "one", named("a")), Ok(whole("a", 2)));
    }

    #[test]
    fn memory_is_bounded_and_the_last_four_stay() {
        let sets = BackendSets::new(1000);
        for digest in ["a", "b", "c", "d", "e", "f"] {
            seen(&sets, "one", whole(digest, 150)).unwrap();
        }
        let bytes = sets.kept.lock().bytes;
        assert!(bytes <= 4000, "{bytes}");
        for at in 0..100 {
            seen(&sets, "one", whole(&at.to_string(), 1)).unwrap();
            seen(&sets, "one", named("0")).unwrap();
        }
        assert_eq!(sets.kept.lock().sets.len(), MOST);
        for digest in ["0", "99", "98", "97"] {
            seen(&sets, "one", named(digest)).unwrap();
        }
    }
}
