//! The two halves of a connection, which a client of a broker reads and writes by different tasks.
//!
//! Both notice a server that is gone without a word: nothing arrives for longer than it may take, or nothing
//! that is written leaves.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use thalweg_engine::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

/// The size of a read.
const READ: usize = 32 << 10;
/// How long a write may take.
const WRITE: Duration = Duration::from_secs(30);

/// The half that is read.
#[derive(Debug)]
pub struct FromServer<R> {
    half: R,
    /// How long the server may send nothing.
    silence: Duration,
    /// How long the server has sent nothing, while it was waited for.
    silent: Duration,
}

impl<R: AsyncRead + Unpin> FromServer<R> {
    /// Reads from a server that sends something at least this often.
    pub fn new(half: R, silence: Duration) -> Self {
        Self { half, silence, silent: Duration::ZERO }
    }

    /// Sets the time after which the server sends something in any case.
    pub fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// Appends bytes that arrive within `left`. Returns false if there are none. The wait has begun at
    /// `begun`, maybe with other bytes that were no whole message. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the connection broke, or the server has closed it, or is silent for too long.
    pub async fn fill(
        &mut self,
        buffer: &mut Vec<u8>,
        begun: Instant,
        left: Duration,
    ) -> Result<bool, Error> {
        match tokio::time::timeout(left, self.read(buffer)).await {
            Ok(filled) => filled.map(|()| true),
            Err(_) => {
                self.silent = self.silent.saturating_add(begun.elapsed());
                if self.silent >= self.silence {
                    return Err(Error::temporary("the server does not answer any more"));
                }
                Ok(false)
            }
        }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        buffer.reserve(READ);
        match self.half.read_buf(buffer).await {
            Ok(0) => Err(Error::temporary("the server has closed the connection")),
            Ok(_) => {
                self.silent = Duration::ZERO;
                Ok(())
            }
            Err(error) => Err(Error::temporary("the connection broke").caused_by(error)),
        }
    }
}

/// The half that is written, whole frames at a time.
#[derive(Debug)]
pub struct ToServer<W> {
    half: Mutex<W>,
    /// True while a frame is being written, and for ever if that did not end.
    is_broken: AtomicBool,
}

impl<W: AsyncWrite + Unpin> ToServer<W> {
    /// Writes to a connection of which nothing was written yet, or whole frames.
    pub fn new(half: W) -> Self {
        Self { half: Mutex::new(half), is_broken: AtomicBool::new(false) }
    }

    /// Writes frames.
    ///
    /// # Errors
    /// If the connection broke, or takes nothing for some time. It is of no use then.
    pub async fn write(&self, frames: &[u8]) -> Result<(), Error> {
        match frames.is_empty() {
            true => Ok(()),
            false => self.write_noted(frames, || ()).await,
        }
    }

    /// Writes frames. Calls `note` before, in the order of all writes, and returns its result.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_noted<T>(&self, frames: &[u8], note: impl FnOnce() -> T) -> Result<T, Error> {
        let mut half = self.half.lock().await;
        let noted = note();
        // A write that was left in the middle of a frame cannot be continued.
        if self.is_broken.swap(true, Relaxed) {
            return Err(Error::temporary("the connection broke"));
        }
        let written = async {
            half.write_all(frames).await?;
            half.flush().await
        };
        match tokio::time::timeout(WRITE, written).await {
            Ok(Ok(())) => {
                self.is_broken.store(false, Relaxed);
                Ok(noted)
            }
            Ok(Err(error)) => Err(Error::temporary("the connection broke").caused_by(error)),
            Err(_) => Err(Error::temporary("the server takes nothing any more")),
        }
    }

    /// Writes the last frames, and closes this half.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_and_close(&self, frames: &[u8]) -> Result<(), Error> {
        self.write(frames).await?;
        let closed = self.half.lock().await.shutdown().await;
        closed.map_err(|error| Error::temporary("the connection broke").caused_by(error))
    }

    /// True if nothing can be written any more.
    pub fn is_broken(&self) -> bool {
        // Another task may be writing, which holds the lock.
        self.half.try_lock().is_ok() && self.is_broken.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    #[tokio::test]
    async fn bytes_that_arrive_are_appended_and_a_closed_connection_is_an_error() {
        let (mut server, client) = tokio::io::duplex(64);
        let (mut half, mut buffer) = (FromServer::new(client, HOUR), b"ab".to_vec());
        server.write_all(b"cd").await.unwrap();
        assert!(half.fill(&mut buffer, Instant::now(), HOUR).await.unwrap());
        assert_eq!(buffer, b"abcd");
        drop(server);
        let error = half.fill(&mut buffer, Instant::now(), HOUR).await.unwrap_err();
        assert_eq!(error.to_string(), "the server has closed the connection");
    }

    #[tokio::test]
    async fn a_server_may_be_silent_for_as_long_as_was_agreed() {
        let (_server, client) = tokio::io::duplex(64);
        let (mut half, mut buffer) = (FromServer::new(client, HOUR), Vec::new());
        assert!(!half.fill(&mut buffer, Instant::now(), Duration::ZERO).await.unwrap());
        half.set_silence(Duration::ZERO);
        let error = half.fill(&mut buffer, Instant::now(), Duration::ZERO).await.unwrap_err();
        assert_eq!(error.to_string(), "the server does not answer any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_left_in_the_middle_breaks_the_connection() {
        let (mut server, client) = tokio::io::duplex(4);
        let half = ToServer::new(client);
        half.write(b"").await.unwrap();
        half.write(b"whole").await.expect_err("nothing reads it");
        assert!(half.is_broken());
        let mut read = [0; 4];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(half.write(b"x").await.unwrap_err().to_string(), "the connection broke");
    }

    #[tokio::test]
    async fn notes_are_taken_in_the_order_of_writes() {
        let (mut server, client) = tokio::io::duplex(64);
        let (half, count) = (ToServer::new(client), AtomicU64::new(0));
        let next = || count.fetch_add(1, Relaxed);
        let (first, second) = tokio::join!(half.write_noted(b"a", next), half.write_noted(b"b", next));
        assert_eq!((first.unwrap(), second.unwrap()), (0, 1));
        half.write_and_close(b"c").await.unwrap();
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"abc");
    }
}
