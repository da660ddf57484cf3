//! The writing end of a buffer: a sink.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thalweg_config::ByteSize;
use thalweg_record::Batch;
use thalweg_runtime::blocking;
use tokio::time::Instant;

use super::DiskBuffer;
use super::log::Log;
use crate::segments::write::Refusal;
use crate::settings::WhenBufferFull;
use crate::{Context, Error, Rejects, Sink, SinkConfig, WriteOutcome};

/// How long a batch waits for room before the wait is shown as a temporary error.
const PATIENCE: Duration = Duration::from_secs(5);

/// The meaning of the gauge `buffer_bytes`.
pub(crate) const BYTES: &str = "Bytes in a buffer, on disk or in memory.";

/// The configuration of a writer.
pub(super) struct Writing {
    pub(super) buffer: Arc<DiskBuffer>,
    /// True if messages that are dropped leave by `errors`.
    pub(super) to_errors: bool,
}

impl SinkConfig for Writing {
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let log = self.buffer.log()?;
        let show = |name, help, value: fn(&Log) -> u64| {
            let log = log.clone();
            context.details.show_gauge(name, help, move || value(&log));
        };
        show("buffer_bytes", BYTES, Log::bytes);
        show("buffer_messages", "Messages that wait in a buffer on disk.", Log::unread);
        let help = "The age of the oldest segment of a buffer with messages that wait.";
        show("buffer_oldest_seconds", help, Log::oldest_seconds);
        show("buffer_dropped_total", "Messages dropped because a buffer was full.", Log::dropped);
        Ok(Box::new(Appending { log, name: self.buffer.name.clone(), to_errors: self.to_errors }))
    }
}

struct Appending {
    log: Arc<Log>,
    name: Arc<str>,
    to_errors: bool,
}

impl Appending {
    /// Says that the buffer is full.
    fn fullness(&self) -> String {
        format!("the buffer of `{}` is full: it holds {}", self.name, ByteSize(self.log.limits().bytes))
    }

    /// Drops a batch that a full buffer has no room for.
    fn drop_newest(&self, batch: &Batch, rejects: &mut Rejects) {
        self.log.note_dropped(batch.rows() as u64);
        if self.to_errors {
            reject(batch, rejects, &self.fullness());
        }
    }
}

fn reject(batch: &Batch, rejects: &mut Rejects, reason: &str) {
    let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
    (0..rows).for_each(|row| rejects.reject(row, reason.to_owned()));
}

#[async_trait]
impl Sink for Appending {
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let freed = self.log.freed();
            let mut freed = std::pin::pin!(freed);
            freed.as_mut().enable();
            match blocking(|| self.log.append(batch)) {
                Ok(()) => return Ok(WriteOutcome::Buffered),
                Err(Refusal::Failed(error)) => return Err(error),
                Err(Refusal::TooLarge) => {
                    let reason = format!("a batch is larger than the whole buffer of `{}`", self.name);
                    reject(batch, rejects, &reason);
                    return Ok(WriteOutcome::Durable);
                }
                Err(Refusal::Full) => {}
            }
            match self.log.limits().when_full {
                // Else the run may end meanwhile, and the next one would append these messages again.
                WhenBufferFull::Wait | WhenBufferFull::Error if self.log.is_dirty() => {
                    return Err(Error::temporary(self.fullness()));
                }
                WhenBufferFull::Wait => {}
                // Of the oldest, none can be dropped: the reader has begun them all.
                WhenBufferFull::DropNewest | WhenBufferFull::DropOldest => {
                    self.drop_newest(batch, rejects);
                    return Ok(WriteOutcome::Durable);
                }
                WhenBufferFull::Error => {
                    let help = "and `when_full: error` ends the run. Nothing is lost";
                    return Err(Error::permanent(format!("{}, {help}", self.fullness())));
                }
            }
            if tokio::time::timeout_at(deadline, freed).await.is_err() {
                return Err(Error::temporary(format!("{}, and its input waits", self.fullness())));
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        blocking(|| self.log.sync())
    }

    fn writes_whole(&self) -> bool {
        true
    }

    /// Batches are synced together while more come, and at once when there are none: their senders may wait.
    fn is_due(&self) -> bool {
        self.log.is_dirty()
    }

    async fn finish(&mut self) -> Result<(), Error> {
        blocking(|| self.log.finish())
    }
}

/// A writer that failed has not finished, and the reader must not wait for more.
impl Drop for Appending {
    fn drop(&mut self) {
        self.log.end();
    }
}
