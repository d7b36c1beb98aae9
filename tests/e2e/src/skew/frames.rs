//! A body of gRPC messages that are translated as they pass.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use anyhow::Result;
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};

/// The translation of a message.
pub(crate) type Translate = Box<dyn Fn(&[u8]) -> Result<Vec<u8>> + Send>;
/// A body in transit.
pub(crate) type Passing = UnsyncBoxBody<Bytes, anyhow::Error>;

const HEAD: usize = 5;

/// A body whose complete messages are translated; everything between them (trailers) passes.
pub(crate) struct Translated {
    inner: Incoming,
    translate: Translate,
    gathered: Vec<u8>,
}

impl Translated {
    pub(crate) fn new(inner: Incoming, translate: Translate) -> Self {
        Self { inner, translate, gathered: Vec::new() }
    }

    /// The complete messages gathered so far, translated.
    fn whole(&mut self) -> Result<Vec<u8>> {
        let mut done = Vec::new();
        while let Some(&[compressed, length @ ..]) = self.gathered.first_chunk::<HEAD>() {
            let end = HEAD + usize::try_from(u32::from_be_bytes(length))?;
            if self.gathered.len() < end {
                break;
            }
            anyhow::ensure!(compressed == 0, "a compressed message cannot be translated");
            let message: Vec<u8> = self.gathered.drain(..end).skip(HEAD).collect();
            let message = (self.translate)(&message)?;
            done.push(0);
            done.extend(u32::try_from(message.len())?.to_be_bytes());
            done.extend(message);
        }
        Ok(done)
    }
}

impl Body for Translated {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, anyhow::Error>>> {
        let this = self.get_mut();
        loop {
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            let data = match frame?.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            this.gathered.extend_from_slice(&data);
            let whole = this.whole()?;
            if !whole.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(whole.into()))));
            }
        }
    }
}
