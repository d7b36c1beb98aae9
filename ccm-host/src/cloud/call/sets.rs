//! Sends each set of backends once per process, and from then on names it by its digest.
//!
//! In: a message without its sets, and the sets. Out: the answer. A provider that does not know a digest after all (it
//! forgot the set, or another host displaced it) gets the same message again with all nodes.

use std::collections::{HashSet, VecDeque};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use parking_lot::Mutex;
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};

use super::rpc::{Method, Rpc};
use crate::cloud::{
    BackendSet, CloudError, ErrorReason,
    connection::{Link, session::Session},
};

/// Makes a call about these sets, which belong in the message field with the number `tag`. `items` is the size of a
/// batch.
pub(crate) async fn call<M: Rpc>(
    link: &Link,
    session: &Session,
    items: Option<usize>,
    (tag, sets): (u32, &[&BackendSet]),
    message: impl Fn() -> M,
) -> Result<M::Answer, CloudError> {
    let mut named = session.sets.known(sets);
    loop {
        let entries = sets.iter().map(|set| entry(set, &named)).collect();
        let answer = link.call(session, items, Spliced { message: message(), tag, entries }).await;
        match &answer {
            Err(error) if error.is(ErrorReason::UnknownBackendSet) => {
                session.sets.lose(&named);
                if !named.is_empty() {
                    named = HashSet::new();
                    link.limiter.once_more(M::METHOD).await;
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

/// The sets that one process has.
#[derive(Debug)]
pub(crate) struct SentSets {
    by_digest: bool,
    /// Digests in the order in which their sets arrived.
    arrived: Mutex<VecDeque<String>>,
}

impl SentSets {
    /// Empty. Without the capability, sets are never named by digest.
    pub(crate) fn new(by_digest: bool) -> Self {
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

/// A message, and encoded messages for one of its fields, placed after all other fields: what many calls share is
/// converted and encoded once.
#[derive(Debug, Clone)]
pub(crate) struct Spliced<M> {
    pub(crate) message: M,
    /// The number of that field.
    pub(crate) tag: u32,
    pub(crate) entries: Vec<Bytes>,
}

impl<M: Rpc> Rpc for Spliced<M> {
    type Answer = M::Answer;

    const METHOD: &'static Method = M::METHOD;

    fn object(&self) -> Option<&str> {
        self.message.object()
    }
}

impl<M: Message> Message for Spliced<M> {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.message.encode_raw(buf);
        for entry in &self.entries {
            encode_key(self.tag, WireType::LengthDelimited, buf);
            encode_varint(entry.len() as u64, buf);
            buf.put_slice(entry);
        }
    }

    fn encoded_len(&self) -> usize {
        let length = |entry: &Bytes| key_len(self.tag) + encoded_len_varint(entry.len() as u64) + entry.len();
        self.message.encoded_len() + self.entries.iter().map(length).sum::<usize>()
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.message.merge_field(tag, wire_type, buf, ctx)
    }

    fn clear(&mut self) {
        self.message.clear();
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_the_whole_message() {
        let set = |digest: &str, nodes: usize| pb::BackendSet {
            digest: digest.to_owned(),
            nodes: (0..nodes)
                .map(|number| pb::NodeRef { name: format!("n{number}"), ..Default::default() })
                .collect(),
            nodes_omitted: false,
        };
        let sets = [set("a", 3), set("b", 0), set("c", 300)];
        let whole = pb::BatchUpdateLoadBalancersRequest {
            backend_sets: sets.to_vec(),
            items: vec![pb::LoadBalancerUpdate { revision: 7, ..Default::default() }],
            ..Default::default()
        };
        let message = pb::BatchUpdateLoadBalancersRequest { backend_sets: Vec::new(), ..whole.clone() };
        let entries = sets.iter().map(|set| set.encode_to_vec().into()).collect();
        let spliced = Spliced { message, tag: 3, entries };
        let bytes = spliced.encode_to_vec();
        assert_eq!((bytes.len(), spliced.encoded_len()), (whole.encoded_len(), whole.encoded_len()));
        assert_eq!(pb::BatchUpdateLoadBalancersRequest::decode(&bytes[..]).unwrap(), whole);
    }
}
