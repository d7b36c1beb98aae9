//! Sends each set of backends once per process, and from then on names it by its digest.
//!
//! In: a message without its sets, and the sets. Out: the answer. A provider that does not know a digest after all (it
//! forgot the set, or another host displaced it) gets the same message again with all nodes.

use std::collections::{HashSet, VecDeque};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use parking_lot::Mutex;
use prost::{Message, bytes::Bytes};

use super::{
    BackendSet, CloudError, ErrorReason, link::Link, method::Method, session::Session, spliced::Spliced,
};

/// The sets that one process has.
#[derive(Debug)]
pub(super) struct SentSets {
    by_digest: bool,
    /// Digests in the order in which their sets arrived.
    arrived: Mutex<VecDeque<String>>,
}

impl SentSets {
    /// Empty. Without the capability, sets are never named by digest.
    pub(super) fn new(by_digest: bool) -> Self {
        Self { by_digest, arrived: Mutex::default() }
    }

    /// The digests among these whose sets need not be sent.
    fn known(&self, sets: &[&BackendSet]) -> HashSet<String> {
        let arrived = self.arrived.lock();
        sets.iter().map(|set| set.digest.clone()).filter(|digest| arrived.contains(digest)).collect()
    }

    fn arrive(&self, sets: &[&BackendSet], named: &HashSet<String>) {
        if !self.by_digest {
            return;
        }
        let mut arrived = self.arrived.lock();
        for set in sets.iter().filter(|set| !named.contains(&set.digest)) {
            arrived.retain(|digest| *digest != set.digest);
            arrived.push_back(set.digest.clone());
        }
        while arrived.len() > defaults::KNOWN_BACKEND_SETS {
            arrived.pop_front();
        }
    }

    fn lose(&self, digests: &HashSet<String>) {
        self.arrived.lock().retain(|digest| !digests.contains(digest));
    }
}

/// Makes a call about these sets, which belong in the message field with this number.
pub(super) async fn call<M, A>(
    link: &Link,
    session: &Session,
    method: &'static Method,
    items: Option<usize>,
    (tag, sets): (u32, &[&BackendSet]),
    message: impl Fn() -> M,
) -> Result<A, CloudError>
where
    M: Message + 'static,
    A: Message + Default + 'static,
{
    let mut named = session.sets.known(sets);
    loop {
        let entries = sets.iter().map(|set| entry(set, &named)).collect();
        let message = Spliced { message: message(), tag, entries };
        let answer = link
            .call(session, method, items, message, |request| session.send_balancers(method, request))
            .await;
        match &answer {
            Err(error) if error.is(ErrorReason::UnknownBackendSet) => {
                session.sets.lose(&named);
                if !named.is_empty() {
                    named = HashSet::new();
                    link.once_more(method).await;
                    continue;
                }
            }
            // Whatever the outcome, the provider read the request.
            Ok(_) | Err(CloudError { reason: Some(_), .. }) => session.sets.arrive(sets, &named),
            Err(_) => {}
        }
        return answer;
    }
}

/// The set as sent: in full, or by digest only.
fn entry(set: &BackendSet, named: &HashSet<String>) -> Bytes {
    if !named.contains(&set.digest) {
        return set.encoded.clone();
    }
    let set = pb::BackendSet { digest: set.digest.clone(), nodes_omitted: true, ..Default::default() };
    set.encode_to_vec().into()
}
