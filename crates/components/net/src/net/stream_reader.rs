//! Reads from a connection as the budget permits, and cuts the bytes into messages.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::Array;
use arrow_buffer::Buffer;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Reading, Received, Settled, SourceOutput};
use thalweg_record::{Lease, ViewBuilder};

use super::Stream;
use thalweg_codec::framing::{After, KEPT, MAX_ROWS};
use thalweg_codec::stream_framing::StreamCutter;

/// The size of the first read, in bytes. The size doubles while more data is waiting.
const LEAST: usize = 8 << 10;

/// With less free buffer than this, in bytes, the buffer is enlarged before a read.
const SPARE: usize = 2 << 10;

/// Messages that arrived together from one peer.
#[derive(Debug)]
pub struct Cut {
    /// The bytes of all messages.
    pub buffer: Buffer,
    /// The range of each message within `buffer`.
    pub messages: Vec<Range<usize>>,
    /// Ranges that cannot be used, with the reason.
    pub rejected: Vec<(Range<usize>, String)>,
}

/// Turns cut messages into the batches that a source sends.
pub trait Format: Clone + Send + Sync + 'static {
    /// Returns the batch for those messages of `cut` with an index in `rows`. Messages that cannot be used
    /// are added to `rejected`.
    fn received(
        &mut self,
        cut: &Cut,
        rows: Range<usize>,
        peer: &Arc<str>,
        rejected: &mut Vec<(Range<usize>, String)>,
    ) -> Option<Received>;
}

/// Sends messages unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Format for Plain {
    fn received(
        &mut self,
        cut: &Cut,
        rows: Range<usize>,
        peer: &Arc<str>,
        _: &mut Vec<(Range<usize>, String)>,
    ) -> Option<Received> {
        let messages = cut.messages.get(rows)?;
        let mut payload = ViewBuilder::over(std::slice::from_ref(&cut.buffer), messages.len());
        for message in messages {
            payload.push_range(0, message.start, message.len());
        }
        let payload = payload.finish();
        Some(Reading { payload, path: Some(peer.clone()), positions: None, checkpoint: None }.into())
    }
}

impl Cut {
    /// Cuts a whole buffer that no more data follows.
    pub fn all(buffer: Buffer, mut partitioner: StreamCutter, limit: ByteSize) -> Self {
        let mut cut =
            Cut { buffer: Buffer::from_vec(Vec::<u8>::new()), messages: Vec::new(), rejected: Vec::new() };
        if let Err(reason) = cut.add(&mut partitioner, &buffer, After::End, limit) {
            let start = partitioner.advance();
            cut.rejected.push((start..buffer.len().min(start + KEPT), reason));
        }
        Cut { buffer, ..cut }
    }

    /// Adds the messages that `bytes` contains.
    fn add(
        &mut self,
        partitioner: &mut StreamCutter,
        bytes: &[u8],
        after: After,
        limit: ByteSize,
    ) -> Result<(), String> {
        while let Some(piece) = partitioner.next(bytes, after)? {
            match piece.too_long {
                false => self.messages.push(piece.range),
                true => {
                    let kept = piece.range.len();
                    let reason = format!(
                        "is longer than `max_message_bytes` ({limit}), and only its first {kept} bytes are kept"
                    );
                    self.rejected.push((piece.range, reason));
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.rejected.is_empty()
    }

    /// Sends the messages. Calls `sent` for each batch with its number of messages and, if `acked`, with the
    /// future of its settlement.
    ///
    /// # Errors
    /// If the messages cannot be sent.
    pub async fn send<F: Format>(
        mut self,
        format: &mut F,
        peer: &Arc<str>,
        acked: bool,
        out: &mut SourceOutput,
        mut sent: impl FnMut(usize, Option<Settled>),
    ) -> Result<(), Error> {
        let mut rejected = std::mem::take(&mut self.rejected);
        let mut from = 0;
        while from < self.messages.len() {
            let to = self.messages.len().min(from + MAX_ROWS);
            let received = format.received(&self, from..to, peer, &mut rejected);
            from = to;
            let Some(received) = received else { continue };
            let count = received.reading.payload.len();
            match acked {
                true => sent(count, Some(out.send_acked(received).await?)),
                false => {
                    out.send(received).await?;
                    sent(count, None);
                }
            }
        }
        // In batches: a batch for each of a million empty lines would take kilobytes each, and a write of the
        // dead letters each.
        for rejected in rejected.chunks(MAX_ROWS) {
            // Copied, so that rejected messages do not keep the whole buffer alive.
            let mut payload = ViewBuilder::over(&[], rejected.len());
            for (range, _) in rejected {
                payload.push(self.buffer.get(range.clone()).unwrap_or_default());
            }
            let reasons = rejected.iter().map(|(_, reason)| reason.clone()).collect();
            let payload = payload.finish();
            let reading = Reading { payload, path: Some(peer.clone()), positions: None, checkpoint: None };
            out.reject_each(reading, reasons).await?;
        }
        Ok(())
    }
}

/// The result of a read.
#[derive(Debug)]
pub enum Taken {
    /// Messages, rejected ranges, or both.
    Cut(Cut),
    /// No complete message yet.
    Nothing,
    /// The stream has ended, or the rest of it cannot be parsed. Holds what was cut before that point.
    End(Option<Cut>),
    /// The budget had no capacity for the rest of a message before the time limit.
    NoRoom,
}

/// Reads from a connection and cuts messages.
#[derive(Debug)]
pub struct StreamReader {
    partitioner: StreamCutter,
    limit: ByteSize,
    most: usize,
    /// The size of the next read, in bytes.
    size: usize,
    /// The beginning of an incomplete message.
    held: Option<(Vec<u8>, Lease)>,
    /// True if the last read filled the buffer: more data may be waiting.
    has_more: bool,
}

impl StreamReader {
    /// Creates a reader that reads up to about `batch_bytes` bytes at once.
    pub fn new(partitioner: StreamCutter, limit: ByteSize, batch_bytes: usize) -> Self {
        Self { partitioner, limit, most: batch_bytes.max(LEAST), size: LEAST, held: None, has_more: false }
    }

    /// True if part of a message has been read.
    pub fn is_in_a_message(&self) -> bool {
        self.held.is_some()
    }

    /// Waits until there may be something to read.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn ready(&self, stream: &Stream) -> io::Result<()> {
        if self.has_more { Ok(()) } else { stream.ready().await }
    }

    /// Reads the waiting data once the budget has capacity for it. In the middle of a message, the wait for
    /// capacity is limited to `patience`.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn read(
        &mut self,
        stream: &mut Stream,
        out: &SourceOutput,
        patience: Duration,
    ) -> io::Result<Taken> {
        let (mut memory, lease) = match self.held.take() {
            None => (Vec::with_capacity(self.size), out.reserve(self.size).await),
            Some((mut memory, mut lease)) => {
                if memory.capacity() - memory.len() < SPARE {
                    // Doubled, so that a long message that arrives in many pieces is not copied for each
                    // piece.
                    let more = self.size.max(memory.len());
                    match tokio::time::timeout(patience, out.reserve(more)).await {
                        // Both leases belong to one share, so the merge always succeeds.
                        Ok(room) => drop(lease.merge(room)),
                        Err(_) => {
                            self.held = Some((memory, lease));
                            return Ok(Taken::NoRoom);
                        }
                    }
                    memory.reserve_exact(more);
                }
                (memory, lease)
            }
        };
        let before = memory.len();
        let mut is_end = false;
        self.has_more = loop {
            if memory.len() == memory.capacity() {
                break true;
            }
            match stream.fill(&mut memory).await {
                Ok(Some(0)) => {
                    is_end = true;
                    break false;
                }
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(error) => {
                    if !memory.is_empty() {
                        self.held = Some((memory, lease));
                    }
                    return Err(error);
                }
            }
        };
        let read = memory.len() - before;
        if self.has_more {
            self.size = (self.size * 2).min(self.most);
        } else if read < self.size / 4 {
            self.size = (self.size / 2).max(LEAST);
        }
        Ok(self.cut(memory, lease, if is_end { After::End } else { After::More }))
    }

    /// Returns the lines that were held back, after a time without data.
    pub fn quiet(&mut self) -> Taken {
        match self.held.take() {
            Some((memory, lease)) => self.cut(memory, lease, After::Quiet),
            None => Taken::Nothing,
        }
    }

    /// Returns the part of a message that was read, as rejected. No more data will be read.
    pub fn abandon(&mut self, reason: &str) -> Option<Cut> {
        let (memory, lease) = self.held.take()?;
        let kept = memory.len().min(KEPT);
        let rejected = vec![(0..kept, format!("is cut off: {reason}"))];
        (kept > 0).then(|| Cut { buffer: lease.freeze(memory), messages: Vec::new(), rejected })
    }

    fn cut(&mut self, mut memory: Vec<u8>, mut lease: Lease, after: After) -> Taken {
        let mut cut =
            Cut { buffer: Buffer::from_vec(Vec::<u8>::new()), messages: Vec::new(), rejected: Vec::new() };
        let failed = cut.add(&mut self.partitioner, &memory, after, self.limit).err();
        let done = self.partitioner.advance();
        let is_end = after == After::End || failed.is_some();
        if let Some(reason) = failed {
            cut.rejected.push((done..memory.len().min(done + KEPT), reason));
        }
        let rest = memory.get(done..).unwrap_or_default();
        if cut.is_empty() {
            if !is_end && done > 0 {
                // The skipped part of a message that is too long.
                memory.drain(..done);
            }
            if !is_end && !memory.is_empty() {
                self.held = Some((memory, lease));
            }
            return if is_end { Taken::End(None) } else { Taken::Nothing };
        }
        if !is_end && !rest.is_empty() {
            // Splitting off the rest's part of the lease never waits: `freeze` takes any missing bytes
            // without waiting.
            self.held = Some((rest.to_vec(), lease.split(rest.len())));
        }
        if memory.len() < memory.capacity() / 4 {
            memory.shrink_to_fit();
        }
        let cut = Cut { buffer: lease.freeze(memory), ..cut };
        if is_end { Taken::End(Some(cut)) } else { Taken::Cut(cut) }
    }
}
