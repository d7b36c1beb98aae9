//! Decodes an answer that has no more parts than were asked for.
//!
//! In: the bytes of a message, whose number the transport bounds. Out: the message, or `OUT_OF_RANGE`, as for too many
//! bytes. A part of two bytes takes hundreds once decoded, so that a bound on bytes alone bounds no memory.

use prost::{
    Message,
    bytes::Buf as _,
    encoding::{DecodeContext, decode_key, skip_field},
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Parts of an answer that are not one for each question: places that could not be reached, for example.
const OTHERS: usize = 4096;

/// Parts of an answer to a question that is not a batch: more than any page has.
const OF_A_LIST: usize = 256 << 10;

/// Encodes like prost; decodes messages of at most so many fields, repeated ones counted each time.
pub(super) struct Bounded<Q, A> {
    prost: ProstCodec<Q, A>,
    most: usize,
}

impl<Q: Message + 'static, A: Message + Default + 'static> Bounded<Q, A> {
    /// For the answer to a batch of so many items, or to one question.
    pub(super) fn to(items: Option<usize>) -> Self {
        let most = items.map_or(OF_A_LIST, |items| items.saturating_add(OTHERS));
        Self { prost: ProstCodec::default(), most }
    }
}

impl<Q: Message + 'static, A: Message + Default + 'static> Codec for Bounded<Q, A> {
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstEncoder<Q>;
    type Decoder = BoundedDecoder<A>;

    fn encoder(&mut self) -> Self::Encoder {
        self.prost.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder { prost: self.prost.decoder(), most: self.most }
    }
}

pub(super) struct BoundedDecoder<A> {
    prost: ProstDecoder<A>,
    most: usize,
}

impl<A: Message + Default> Decoder for BoundedDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // The transport hands over whole messages in one piece.
        if has_more_than(self.most, buffer.chunk()) {
            return Err(Status::out_of_range(format!("the answer has more than {} parts", self.most)));
        }
        self.prost.decode(buffer)
    }
}

/// Whether the message has more fields than this. What is no message is left to the decoder.
fn has_more_than(most: usize, mut message: &[u8]) -> bool {
    let mut fields = 0;
    while message.has_remaining() {
        let skipped = decode_key(&mut message)
            .and_then(|(tag, wire)| skip_field(wire, tag, &mut message, DecodeContext::default()));
        if skipped.is_err() {
            return false;
        }
        fields += 1;
        if fields > most {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use cloudprovider_proto::v1alpha1 as pb;

    use super::*;

    #[test]
    fn each_part_counts_and_what_is_in_it_does_not() {
        let result = pb::InstanceResult {
            error: Some(pb::ItemError { message: "many words".repeat(1000), ..Default::default() }),
            ..Default::default()
        };
        let answer = pb::BatchGetInstancesResponse { results: vec![result; 3] };
        let bytes = answer.encode_to_vec();
        assert!(has_more_than(2, &bytes) && !has_more_than(3, &bytes));
        assert!(!has_more_than(0, &[]));
        for broken in [&bytes[..bytes.len() - 1], &[0xff; 20], &[0x0b, 0x0b, 0x0b]] {
            assert!(!has_more_than(3, broken), "{broken:?}");
        }
    }
}
