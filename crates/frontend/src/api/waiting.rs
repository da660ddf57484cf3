//! A stream whose writes have a time limit: a client that reads nothing does not keep its connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long one write may wait for the client.
const LIMIT: Duration = Duration::from_secs(30);

/// A stream with a limit on the time of each write.
pub(super) struct Limited<S> {
    stream: S,
    /// The end of the time, while a write waits.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, end: None }
    }

    /// Returns an error in place of a write that has waited for too long.
    fn within<T>(&mut self, context: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.end = None;
            return write;
        }
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(LIMIT)));
        end.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.within(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        self.within(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_too_long_fails_and_a_slow_reader_is_no_failure() {
        let (mut client, server) = duplex(4);
        let mut server = Limited::new(server);
        let reading = tokio::spawn(async move {
            let mut bytes = [0; 4];
            for _ in 0..3 {
                sleep(LIMIT / 2).await;
                client.read_exact(&mut bytes).await.unwrap();
            }
            client
        });
        server.write_all(&[0; 16]).await.unwrap();
        let _client = reading.await.unwrap();
        let error = server.write_all(&[0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
