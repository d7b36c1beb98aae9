//! Calls with bytes instead of messages: for fields and values that no message of ours has.

use http::uri::PathAndQuery;
use prost::bytes::{Buf as _, BufMut as _, Bytes};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::Patient;

/// A unary call of any method, by its path on the wire, with any bytes.
///
/// # Errors
///
/// The status that the provider returns.
pub async fn raw_call(wire: &Patient, path: &str, request: Request<Bytes>) -> Result<Bytes, Status> {
    let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))?;
    let mut grpc = Grpc::new(wire.clone()).max_decoding_message_size(64 << 20);
    grpc.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
