//! Log output without secrets.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use cloudprovider_proto::scrub;

/// Wraps a writer of log lines and redacts what looks like a secret: values after names such as `token` or
/// `password` in any format, bearer tokens, private keys, passwords in URLs, long random strings.
///
/// The `fmt` layer of `tracing-subscriber` writes each event in one piece, so no value is split in two.
#[derive(Debug, Clone, Default)]
pub struct ScrubbingWriter<M>(M);

impl<M> ScrubbingWriter<M> {
    /// Wraps a writer, for example `std::io::stderr`.
    pub fn new(inner: M) -> Self {
        Self(inner)
    }
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for ScrubbingWriter<M> {
    type Writer = Scrubbed<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Scrubbed(self.0.make_writer())
    }
}

/// A writer that redacts each piece of text that it receives.
#[derive(Debug)]
pub struct Scrubbed<W>(W);

impl<W: Write> Write for Scrubbed<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.write_all(scrub::text(&String::from_utf8_lossy(piece)).as_bytes())?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
