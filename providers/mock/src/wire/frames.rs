//! gRPC messages as they stand in HTTP bodies: five bytes of head, then the message.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderValue, header};
use http_body::{Frame, SizeHint};
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tonic::{Status, body::Body};

const HEAD: usize = 5;

/// The one message of a unary body; nothing when it is compressed, cut off, or not alone.
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

/// A message behind its head.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// An answer that ended well, with one message.
pub(crate) fn ok_answer(message: &[u8]) -> http::Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let whole = Whole { message: Some(framed(message)), trailers: Some(trailers) };
    answer(Body::new(whole))
}

/// An answer with this status and no message.
pub(crate) fn failed_answer(status: Status) -> http::Response<Body> {
    status.into_http()
}

/// An answer that breaks off: the stream is reset.
pub(crate) fn reset_answer() -> http::Response<Body> {
    answer(Body::new(BreakingOff))
}

pub(crate) fn answer(body: Body) -> http::Response<Body> {
    let mut answer = http::Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

/// One message, then trailers.
struct Whole {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

/// Nothing but an error, which HTTP/2 shows as a reset of the stream.
struct BreakingOff;

impl http_body::Body for BreakingOff {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(Some(Err(Status::unknown("the answer is lost"))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// What becomes of one message of a stream.
pub(crate) enum Passed {
    /// These messages in its place; none drops it.
    Messages(Vec<Vec<u8>>),
    /// The stream breaks off here.
    Reset,
}

/// A stream's body, each message handed to `change` on its way, and its last words to `ended`.
pub(crate) struct Changed<F, E> {
    inner: Body,
    rest: BytesMut,
    change: F,
    ended: Option<E>,
}

impl<F, E> Changed<F, E> {
    pub(crate) fn new(inner: Body, change: F, ended: E) -> Self {
        Self { inner, rest: BytesMut::new(), change, ended: Some(ended) }
    }
}

impl<F, E> http_body::Body for Changed<F, E>
where
    F: FnMut(Bytes) -> Passed + Unpin + Send + 'static,
    E: FnOnce(&HeaderMap) + Unpin + Send + 'static,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            let frame = match std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(last) => {
                    if let (Some(trailers), Some(ended)) = (last.trailers_ref(), this.ended.take()) {
                        ended(trailers);
                    }
                    return Poll::Ready(Some(Ok(last)));
                }
            };
            this.rest.extend_from_slice(&data);
            let mut out = BytesMut::new();
            let mut whole = std::mem::take(&mut this.rest).freeze();
            while let Some((message, rest)) = split(&whole) {
                whole = rest;
                match (this.change)(message) {
                    Passed::Messages(messages) => {
                        messages.iter().for_each(|message| out.put(framed(message)));
                    }
                    Passed::Reset => return Poll::Ready(Some(Err(Status::unknown("the stream is cut")))),
                }
            }
            this.rest = BytesMut::from(&whole[..]);
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.freeze()))));
            }
        }
    }
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
