//! The frames of the client, which are written as a whole.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use thalweg_engine::Error;
use thalweg_net::net::Stream;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::Mutex;

/// How long a write may take.
const WRITE: Duration = Duration::from_secs(30);

/// Writes the frames of a connection.
pub(crate) struct Writer {
    half: Mutex<WriteHalf<Stream>>,
    /// True while a frame is being written, and for ever if that did not end.
    is_broken: AtomicBool,
}

impl Writer {
    pub(super) fn new(half: WriteHalf<Stream>) -> Self {
        Self { half: Mutex::new(half), is_broken: AtomicBool::new(false) }
    }

    /// Writes frames.
    ///
    /// # Errors
    /// If the connection broke, or takes nothing for some time. It is of no use then.
    pub(crate) async fn write(&self, frames: &[u8]) -> Result<(), Error> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut half = self.half.lock().await;
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
                Ok(())
            }
            Ok(Err(error)) => Err(Error::temporary("the connection broke").caused_by(error)),
            Err(_) => Err(Error::temporary("the server takes nothing any more")),
        }
    }

    /// True if nothing can be written any more.
    pub(crate) fn is_broken(&self) -> bool {
        // A heartbeat may be under way, which holds the lock.
        self.half.try_lock().is_ok() && self.is_broken.load(Relaxed)
    }
}
