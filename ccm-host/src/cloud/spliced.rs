//! A message with a part that is already encoded: content shared by many calls is converted and encoded once.

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};

/// A message, and encoded messages for one of its fields, placed after all other fields.
#[derive(Debug, Clone)]
pub(super) struct Spliced<M> {
    pub(super) message: M,
    /// The number of that field.
    pub(super) tag: u32,
    pub(super) entries: Vec<Bytes>,
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
    use cloudprovider_proto::v1alpha1 as pb;

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
