//! What of a set of backends is sent: a message with its set, encoded once for many; and which sets a process has.

use std::{collections::VecDeque, time::Duration};

use cloudprovider_proto::defaults;
use parking_lot::Mutex;
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};
use tokio::time::{Instant, sleep_until};

use crate::{
    BackendSet,
    method::{Method, Rpc},
};

/// How long a call that brings a set may take until others refer to it. One that comes too early sends it after all.
const HEAD_START: Duration = Duration::from_millis(100);

/// The sets that one process has, or is about to have.
#[derive(Debug)]
pub(crate) struct SentSets {
    by_digest: bool,
    /// Digests in the order in which their sets arrived; of one that a call brings, when others may name it.
    sent: Mutex<VecDeque<(String, Option<Instant>)>>,
}

impl SentSets {
    /// Empty. Without the capability, sets are never named by digest.
    pub(crate) fn new(by_digest: bool) -> Self {
        Self { by_digest, sent: Mutex::default() }
    }

    /// Whether a call may name the set; if not, it brings it. Of many calls that begin together, the first does.
    pub(crate) async fn has(&self, set: &BackendSet) -> bool {
        let coming = {
            let mut sent = self.sent.lock();
            let Some((_, coming)) = sent.iter().find(|(digest, _)| *digest == set.digest) else {
                self.put(&mut sent, set, Some(Instant::now() + HEAD_START));
                return false;
            };
            *coming
        };
        if let Some(from) = coming {
            sleep_until(from).await;
        }
        true
    }

    pub(crate) fn arrive(&self, set: &BackendSet) {
        self.put(&mut self.sent.lock(), set, None);
    }

    fn put(&self, sent: &mut VecDeque<(String, Option<Instant>)>, set: &BackendSet, coming: Option<Instant>) {
        if !self.by_digest {
            return;
        }
        sent.retain(|(digest, _)| *digest != set.digest);
        sent.push_back((set.digest.clone(), coming));
        while sent.len() > defaults::KNOWN_BACKEND_SETS {
            sent.pop_front();
        }
    }

    pub(crate) fn lose(&self, set: &BackendSet) {
        self.sent.lock().retain(|(digest, _)| *digest != set.digest);
    }
}

/// A message, and an encoded message for one of its fields, placed after all other fields: what many calls share is
/// converted and encoded once.
#[derive(Debug, Clone)]
pub(crate) struct Spliced<M> {
    pub(crate) message: M,
    /// The number of that field.
    pub(crate) tag: u32,
    pub(crate) entry: Bytes,
}

impl<M: Rpc> Rpc for Spliced<M> {
    type Answer = M::Answer;

    const METHOD: &'static Method = M::METHOD;
}

impl<M: Message> Message for Spliced<M> {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.message.encode_raw(buf);
        encode_key(self.tag, WireType::LengthDelimited, buf);
        encode_varint(self.entry.len() as u64, buf);
        buf.put_slice(&self.entry);
    }

    fn encoded_len(&self) -> usize {
        let length = self.entry.len();
        self.message.encoded_len() + key_len(self.tag) + encoded_len_varint(length as u64) + length
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
        self.entry.clear();
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider_proto::v1alpha1 as pb;

    use super::*;

    #[test]
    fn it_reads_as_the_whole_message() {
        let nodes =
            |number| (0..number).map(|at| pb::NodeRef { name: format!("n{at}"), ..Default::default() });
        for number in [0, 3, 300] {
            let set = pb::BackendSet {
                digest: "a".to_owned(),
                nodes: nodes(number).collect(),
                nodes_omitted: false,
            };
            let whole = pb::BatchUpdateLoadBalancersRequest {
                backends: Some(set.clone()),
                items: vec![pb::LoadBalancerUpdate { revision: 7, ..Default::default() }],
                ..Default::default()
            };
            let message = pb::BatchUpdateLoadBalancersRequest { backends: None, ..whole.clone() };
            let spliced = Spliced { message, tag: 3, entry: set.encode_to_vec().into() };
            let bytes = spliced.encode_to_vec();
            assert_eq!((bytes.len(), spliced.encoded_len()), (whole.encoded_len(), whole.encoded_len()));
            assert_eq!(pb::BatchUpdateLoadBalancersRequest::decode(&bytes[..]).unwrap(), whole);
        }
    }
}
