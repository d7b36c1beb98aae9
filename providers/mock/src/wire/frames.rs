//! gRPC messages in HTTP bodies: five bytes of header, then the message.

use std::future::ready;

use cloudprovider_sdk::GrpcResponse;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tonic::{Status, body::Body};

const HEAD: usize = 5;

/// The only message of a unary body; `None` if it is compressed, truncated, or not the only one.
pub(crate) fn only_message(body: &Bytes) -> Option<Bytes> {
    let (message, rest) = split(body)?;
    rest.is_empty().then_some(message)
}

/// The first message and what follows it.
pub(crate) fn split(body: &Bytes) -> Option<(Bytes, Bytes)> {
    let head: [u8; HEAD] = body.get(..HEAD)?.try_into().ok()?;
    let [compressed, length @ ..] = head;
    let end = HEAD.checked_add(usize::try_from(u32::from_be_bytes(length)).ok()?)?;
    if compressed != 0 || body.len() < end {
        return None;
    }
    Some((body.slice(HEAD..end), body.slice(end..)))
}

/// A message with its header.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// A successful answer with one message.
pub(crate) fn ok_answer(message: &[u8]) -> GrpcResponse {
    let trailers =
        HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    // Frames, not a body of known size: that would announce its length, as no gRPC server does.
    let frames = [Frame::data(framed(message)), Frame::trailers(trailers)].map(Ok::<_, Status>);
    answer(Body::new(StreamBody::new(stream::iter(frames))))
}

/// An answer that ends in a reset of the stream.
pub(crate) fn reset_answer() -> GrpcResponse {
    // HTTP/2 shows an error in place of a frame as a reset of the stream.
    let breaks_off = ready(Err::<Frame<Bytes>, _>(Status::unknown("the answer is lost")));
    answer(Body::new(StreamBody::new(stream::once(breaks_off))))
}

pub(crate) fn answer(body: Body) -> GrpcResponse {
    let mut answer = GrpcResponse::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

/// A stream's body, with each message passed through `change`, which may omit it or reset the stream, and its trailers to
/// `ended`.
pub(crate) fn changed(
    inner: Body,
    mut change: impl FnMut(Bytes) -> Result<Option<Bytes>, Status> + Send + 'static,
    ended: impl FnOnce(&HeaderMap) + Send + 'static,
) -> Body {
    let (mut unread, mut ended) = (BytesMut::new(), Some(ended));
    let frames = BodyStream::new(inner).filter_map(move |frame| {
        ready(match frame.map(Frame::into_data) {
            Err(status) => Some(Err(status)),
            Ok(Err(last)) => {
                if let (Some(trailers), Some(ended)) = (last.trailers_ref(), ended.take()) {
                    ended(trailers);
                }
                Some(Ok(last))
            }
            Ok(Ok(data)) => {
                unread.extend_from_slice(&data);
                let passed = changed_messages(&mut unread, &mut change).transpose();
                passed.map(|messages| messages.map(Frame::data))
            }
        })
    });
    Body::new(StreamBody::new(frames))
}

/// The complete messages among the unread bytes, each passed through `change`.
fn changed_messages(
    unread: &mut BytesMut,
    change: &mut impl FnMut(Bytes) -> Result<Option<Bytes>, Status>,
) -> Result<Option<Bytes>, Status> {
    let mut out = BytesMut::new();
    let mut whole = std::mem::take(unread).freeze();
    while let Some((message, rest)) = split(&whole) {
        whole = rest;
        if let Some(message) = change(message)? {
            out.put(framed(&message));
        }
    }
    unread.extend_from_slice(&whole);
    Ok((!out.is_empty()).then(|| out.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let body = framed(b"abc");
        assert_eq!(only_message(&body), Some(Bytes::from_static(b"abc")));
        assert_eq!(only_message(&body.slice(..6)), None, "cut off");
        let two = Bytes::from([framed(b"a"), framed(b"b")].concat());
        assert_eq!(only_message(&two), None, "two");
        assert_eq!(split(&two).unwrap().1, framed(b"b"));
        assert_eq!(only_message(&Bytes::from_static(&[1, 0, 0, 0, 0])), None, "compressed");
        assert_eq!(only_message(&framed(b"")), Some(Bytes::new()));
    }
}
