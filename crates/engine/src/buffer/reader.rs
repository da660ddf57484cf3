//! The reading end of a buffer: a source.
//!
//! Each segment is a partition, and the offset is that of a block. A segment is removed when a checkpoint
//! covers all of it.
//!
//! A run that is asked to stop need not deliver what is in the buffer: the next run does. The reader still
//! sends for a moment, so that a buffer with little in it is empty afterwards.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_buffer::Buffer;
use async_trait::async_trait;
use thalweg_record::PayloadWriter;
use thalweg_runtime::blocking;
use tokio::time::Instant;

use super::DiskBuffer;
use super::log::Log;
use crate::segments::read::{Messages, Next, Segment};
use crate::{Checkpoint, Context, Error, Source, SourceConfig, SourceOutput, io_error};

/// The time between two looks for what was committed, while there is nothing to send.
const POLL: Duration = Duration::from_millis(200);
/// The time between two looks at the end.
const POLL_AT_END: Duration = Duration::from_millis(10);
/// How long the reader waits at its end until what it sent is committed, counted from the last segment that
/// was. The next run removes the segments that are left.
const COMMIT_WAIT: Duration = Duration::from_secs(60);

/// The configuration of a reader.
pub(super) struct Reading(pub(super) Arc<DiskBuffer>);

impl SourceConfig for Reading {
    // It removes what it has sent.
    fn starts_over(&self) -> bool {
        false
    }

    // It removes only segments that a checkpoint covers.
    fn rereads(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Reader::new(self.0.log()?)))
    }
}

pub(super) struct Reader {
    log: Arc<Log>,
    has_begun: bool,
    /// True once everything is sent, or the run stops.
    has_ended: bool,
    current: Option<Segment>,
    /// Segments that were read to their end, and are not removed.
    uncommitted: Vec<ReadSegment>,
    linger: Linger,
}

/// A segment that was read to its end.
struct ReadSegment {
    number: u32,
    partition: String,
    end: u64,
    is_damaged: bool,
}

/// When a reader that was asked to stop ends.
struct Linger {
    time: Duration,
    end: OnceLock<Instant>,
}

impl Linger {
    fn end(&self) -> Instant {
        *self.end.get_or_init(|| Instant::now() + self.time)
    }

    fn is_over(&self, out: &SourceOutput) -> bool {
        out.is_stopping() && Instant::now() >= self.end()
    }

    async fn over(&self, out: &SourceOutput) {
        out.stopping().await;
        tokio::time::sleep_until(self.end()).await;
    }
}

#[async_trait]
impl Source for Reader {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if !self.has_begun {
            self.forget_missing(out);
            self.has_begun = true;
        }
        while !self.has_ended {
            self.remove_committed(out)?;
            if self.linger.is_over(out) {
                break;
            }
            // Asked first: the writer appends, and then ends.
            let has_ended = self.log.has_ended();
            if self.step(out).await? {
                continue;
            }
            if has_ended {
                break;
            }
            let _ = tokio::time::timeout(POLL, self.log.appended()).await;
        }
        self.has_ended = true;
        // Some sinks settle messages when all input has ended, such as those of an object.
        out.end();
        self.wait_for_commits(out).await
    }
}

impl Reader {
    pub(super) fn new(log: Arc<Log>) -> Self {
        let linger = Linger { time: log.limits().linger, end: OnceLock::new() };
        Self { log, has_begun: false, has_ended: false, current: None, uncommitted: Vec::new(), linger }
    }

    /// Deletes the checkpoints of segments that no longer exist.
    fn forget_missing(&self, out: &SourceOutput) {
        for partition in out.partitions() {
            let number = partition.split('-').next().and_then(|number| number.parse().ok());
            if number.is_none_or(|number| !self.log.has(number)) {
                out.forget(&partition);
            }
        }
    }

    /// Sends the next block. Returns false if there is none yet.
    async fn step(&mut self, out: &mut SourceOutput) -> Result<bool, Error> {
        if self.current.is_none() {
            let saved = |partition: &str| out.saved(partition)?.as_u64();
            self.current = blocking(|| self.log.begin_next(saved))?;
        }
        let Some(segment) = &mut self.current else { return Ok(false) };
        let (length, is_finished) = self.log.extent(segment.number());
        segment.grow(length);
        match blocking(|| segment.next()).map_err(|error| unreadable(segment, &error))? {
            Next::End if !is_finished => return Ok(false),
            Next::End => self.end_segment(),
            Next::Rubbish { bytes } => {
                let begin = segment.offset();
                segment.skip_rest();
                let reason = format!("the last {bytes} bytes, from byte {begin} on, are not messages");
                self.reject(&reason, out).await?;
            }
            Next::Block { bytes, rows } => {
                let Some(body) = self.read(bytes, out).await? else { return Ok(false) };
                self.send(body, rows, out).await?;
            }
        }
        Ok(true)
    }

    /// Waits for memory, and reads the next block into it. Returns None if the run stops meanwhile.
    async fn read(&self, bytes: usize, out: &SourceOutput) -> Result<Option<Buffer>, Error> {
        let Some(segment) = &self.current else { return Ok(None) };
        let mut arena = tokio::select! {
            arena = out.arena(bytes.max(1)) => arena,
            () = self.linger.over(out) => return Ok(None),
        };
        let memory = arena.get_mut(..bytes).unwrap_or_default();
        blocking(|| segment.fill(memory)).map_err(|error| unreadable(segment, &error))?;
        Ok(Some(arena.freeze().slice_with_length(0, bytes)))
    }

    /// Sends the messages of a block.
    async fn send(&mut self, body: Buffer, rows: usize, out: &mut SourceOutput) -> Result<(), Error> {
        let Some(segment) = &mut self.current else { return Ok(()) };
        let begin = segment.offset();
        let decoded = blocking(|| segment.decode(body)).map_err(|error| unreadable(segment, &error))?;
        self.log.note_read(rows as u64);
        match decoded {
            Ok(messages) => {
                let (mut reading, fields) = messages.part(0, messages.rows())?;
                reading.checkpoint = Some(checkpoint(segment));
                let Messages { meta, .. } = messages;
                out.send_again(reading, meta, Some(fields)).await
            }
            Err(why) => {
                self.reject(&format!("{rows} messages at byte {begin} cannot be read: {why}"), out).await
            }
        }
    }

    /// Reports and rejects data that cannot be read. The offset is already after it.
    async fn reject(&self, reason: &str, out: &mut SourceOutput) -> Result<(), Error> {
        let Some(segment) = &self.current else { return Ok(()) };
        let reason = format!("`{}`: {reason}", segment.path().display());
        tracing::error!("{reason}; the file is kept");
        let mut payload = PayloadWriter::default();
        payload.push(b"");
        let path = Some(segment.path().to_string_lossy().into());
        let checkpoint = Some(checkpoint(segment));
        let reading = crate::Reading { payload: payload.finish(), path, positions: None, checkpoint };
        out.reject(reading, &reason).await
    }

    fn end_segment(&mut self) {
        let Some(segment) = self.current.take() else { return };
        self.uncommitted.push(ReadSegment {
            number: segment.number(),
            partition: segment.partition(),
            end: segment.offset(),
            is_damaged: segment.is_damaged(),
        });
    }

    /// Removes the segments that are committed.
    fn remove_committed(&mut self, out: &SourceOutput) -> Result<(), Error> {
        let mut at = 0;
        while let Some(read) = self.uncommitted.get(at) {
            // A segment without messages has nothing to commit.
            let is_empty = read.end <= Segment::first();
            let reached = out.committed(&read.partition).and_then(|offset| offset.as_u64());
            if !is_empty && reached.is_none_or(|offset| offset < read.end) {
                at += 1;
                continue;
            }
            blocking(|| self.log.remove(read.number, read.is_damaged))?;
            out.forget(&read.partition);
            self.uncommitted.remove(at);
        }
        Ok(())
    }

    /// Waits for a limited time until what was sent is committed. A run that stops leaves it to the next one.
    async fn wait_for_commits(&mut self, out: &SourceOutput) -> Result<(), Error> {
        let mut begun = Instant::now();
        let mut left = self.uncommitted.len();
        while left > 0 && !out.is_stopping() && begun.elapsed() < COMMIT_WAIT {
            out.save_soon();
            tokio::time::sleep(POLL_AT_END).await;
            self.remove_committed(out)?;
            if self.uncommitted.len() < left {
                (begun, left) = (Instant::now(), self.uncommitted.len());
            }
        }
        Ok(())
    }
}

/// The checkpoint after what was read of a segment.
fn checkpoint(segment: &Segment) -> Checkpoint {
    Checkpoint { partition: segment.partition().into(), offset: segment.offset().into() }
}

fn unreadable(segment: &Segment, error: &std::io::Error) -> Error {
    io_error("read", segment.path(), error)
}
