//! Bounds the messages of a server.
//!
//! The client's library holds a message until all of it has come, and the header of a message may announce up
//! to 2 GiB. It also holds parameters, notices before the connection is ready, and the rows of a query
//! without a limit. So a server, or what answers in its place, could make the process grow without end. This
//! stream reads the headers of messages as they pass, and breaks the connection at the first that is too
//! large, or when all messages beside data are too many.
//!
//! A limit in the library was not possible, because it has none; a client of our own for one limit was
//! rejected.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest message that is no row, in bytes.
const LARGEST: u64 = 1 << 20;
/// The bytes of messages beside data that an operation may receive.
const ALLOWANCE: u64 = 8 << 20;
/// A message begins with its tag and its length.
const HEADER: usize = 5;

/// The bytes that the server may still send, shared by a connection and its stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowance(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The bytes that it may send beside data, until the next operation begins.
    left: AtomicU64,
    /// Why the stream broke the connection.
    excess: Mutex<Option<String>>,
}

impl Allowance {
    /// Begins an operation.
    pub(crate) fn renew(&self) {
        self.0.left.store(ALLOWANCE, Relaxed);
    }

    /// Returns why the stream broke the connection, if it did.
    pub(crate) fn excess(&self) -> Option<String> {
        self.0.excess.lock().clone()
    }

    fn take(&self, bytes: u64) -> bool {
        self.0.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// Follows the messages of a server.
#[derive(Debug)]
pub(crate) struct Watch {
    allowance: Allowance,
    /// The largest row, in bytes.
    row: u64,
    header: [u8; HEADER],
    /// The bytes of the header that are there.
    filled: usize,
    /// The bytes of the body that are to come.
    body: u64,
    /// True once the connection is ready: notices are then not kept.
    is_ready: bool,
    /// The bytes of parameters that came. They are kept as long as the connection lasts.
    parameters: u64,
}

impl Watch {
    pub(crate) fn new(allowance: Allowance, row: u64) -> Self {
        Self { allowance, row, header: [0; HEADER], filled: 0, body: 0, is_ready: false, parameters: 0 }
    }

    /// Follows the next bytes.
    ///
    /// # Errors
    /// The reason to break the connection.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.body > 0 {
                let skipped = usize::try_from(self.body).unwrap_or(usize::MAX).min(bytes.len());
                self.body -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            let missing = (HEADER - self.filled).min(bytes.len());
            self.header[self.filled..self.filled + missing].copy_from_slice(&bytes[..missing]);
            self.filled += missing;
            bytes = &bytes[missing..];
            if self.filled == HEADER {
                self.filled = 0;
                self.body = self.check()?;
            }
        }
        Ok(())
    }

    /// Returns the size of the body of the message whose header is there.
    fn check(&mut self) -> Result<u64, String> {
        let [tag, a, b, c, d] = self.header;
        // The length counts itself.
        let length = u32::from_be_bytes([a, b, c, d]);
        let Some(body) = length.checked_sub(4).filter(|_| i32::try_from(length).is_ok()) else {
            return Err("the server sent a message of an impossible length".to_owned());
        };
        let body = u64::from(body);
        let is_data = tag == b'd';
        let largest = match tag {
            b'd' => self.row,
            b'D' => self.row.max(LARGEST),
            _ => LARGEST,
        };
        if body > largest {
            return Err(match is_data {
                true => {
                    format!("the server sent a row of {body} bytes, more than `max_row_bytes` ({largest})")
                }
                false => format!("the server sent a message of {body} bytes, more than {largest}"),
            });
        }
        let is_kept = !is_data && (tag != b'N' || !self.is_ready);
        if is_kept && !self.allowance.take(body + HEADER as u64) {
            return Err(format!("the server sent more than {ALLOWANCE} bytes beside data"));
        }
        if tag == b'S' {
            self.parameters += body + HEADER as u64;
            if self.parameters > LARGEST {
                return Err(format!("the server sent more than {LARGEST} bytes of parameters"));
            }
        }
        self.is_ready |= tag == b'Z';
        Ok(body)
    }
}

/// A stream whose incoming messages are bounded.
pub(crate) struct Guarded<S> {
    stream: S,
    watch: Watch,
}

impl<S> Guarded<S> {
    pub(crate) fn new(stream: S, watch: Watch) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, into) {
            Poll::Ready(Ok(())) => {
                let read = into.filled().get(before..).unwrap_or_default();
                Poll::Ready(this.watch.pass(read).map_err(|reason| {
                    *this.watch.allowance.0.excess.lock() = Some(reason.clone());
                    io::Error::new(io::ErrorKind::InvalidData, reason)
                }))
            }
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn watch(row: u64) -> Watch {
        let allowance = Allowance::default();
        allowance.renew();
        Watch::new(allowance, row)
    }

    fn message(tag: u8, body: usize) -> Vec<u8> {
        let mut message = vec![tag];
        message.extend_from_slice(&(body as u32 + 4).to_be_bytes());
        message.resize(HEADER + body, 0);
        message
    }

    #[test]
    fn a_message_that_is_too_large_is_known_by_its_header() {
        assert_eq!(watch(10).pass(&message(b'd', 10)), Ok(()));
        assert_eq!(
            watch(10).pass(&message(b'd', 11)[..HEADER]),
            Err("the server sent a row of 11 bytes, more than `max_row_bytes` (10)".to_owned())
        );
        assert_eq!(
            watch(10).pass(&[b'T', 0x7f, 0, 0, 0]),
            Err(format!("the server sent a message of {} bytes, more than 1048576", 0x7f00_0000 - 4))
        );
        // The rows of queries may be as large as those of `COPY`.
        assert_eq!(watch(2 << 20).pass(&message(b'D', 2 << 20)[..HEADER]), Ok(()));
        for length in [[0, 0, 0, 3], [0xff, 0, 0, 0]] {
            let header = [&b"R"[..], &length].concat();
            let impossible = "the server sent a message of an impossible length".to_owned();
            assert_eq!(watch(10).pass(&header), Err(impossible));
        }
    }

    #[test]
    fn what_is_kept_has_a_limit_and_rows_and_later_notices_have_none() {
        let mut watch = watch(100);
        let too_much = "the server sent more than 8388608 bytes beside data".to_owned();
        let many = |watch: &mut Watch, tag| {
            (0..100).map(|_| watch.pass(&message(tag, 100_000))).find(Result::is_err).unwrap_or(Ok(()))
        };
        assert_eq!(many(&mut watch, b'T'), Err(too_much.clone()));
        watch.allowance.renew();
        // However many operations begin meanwhile.
        let mut last = Ok(());
        for _ in 0..11 {
            watch.allowance.renew();
            last = watch.pass(&message(b'S', 100_000));
        }
        assert_eq!(last, Err("the server sent more than 1048576 bytes of parameters".to_owned()));
        assert_eq!(watch.pass(&message(b'Z', 1)), Ok(()));
        assert_eq!(many(&mut watch, b'N'), Ok(()));
        for _ in 0..200_000 {
            assert_eq!(watch.pass(&message(b'd', 90)), Ok(()));
        }
        assert_eq!(many(&mut watch, b'D'), Err(too_much));
    }

    proptest! {
        #[test]
        fn messages_are_followed_however_they_are_cut(
            bodies in prop::collection::vec(0..40usize, 1..10),
            cut in 1..7usize,
        ) {
            let all: Vec<u8> = bodies.iter().flat_map(|body| message(b'd', *body)).collect();
            let mut watch = watch(30);
            let passed = all.chunks(cut).map(|bytes| watch.pass(bytes)).find(Result::is_err);
            prop_assert_eq!(passed.is_some(), bodies.iter().any(|body| *body > 30));
        }
    }
}
