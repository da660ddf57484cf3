//! Reads from a connection as the budget permits, and cuts the bytes into messages.
//!
//! If the connection breaks, the messages that are complete by then are returned first, and the error with
//! the next read: the peer regards what it has sent as sent.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::Array;
use arrow_buffer::Buffer;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Reading, Received, Settled, SourceOutput};
use thalweg_record::{Lease, ViewBuilder};
use tokio::time::{Instant, timeout};

use super::incomplete::{Incomplete, Part};
use super::{Stream, incomplete};
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
    pub rejected: Vec<Rejected>,
}

/// A range of a buffer that cannot be used, with the reason. Most reasons are constants: a peer can send a
/// million unusable messages in a mebibyte.
pub type Rejected = (Range<usize>, Cow<'static, str>);

/// A batch of a cut that was sent.
pub struct Sent {
    /// The number of its messages.
    pub messages: usize,
    /// The number of those that were rejected: all or none.
    pub rejected: usize,
    /// How it is settled, if that was asked for.
    pub settled: Option<Settled>,
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
        rejected: &mut Vec<Rejected>,
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
        _: &mut Vec<Rejected>,
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
            cut.rejected.push((start..buffer.len().min(start + KEPT), reason.into()));
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
                    self.rejected.push((piece.range, reason.into()));
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.rejected.is_empty()
    }

    /// Sends the messages. Calls `sent` for each batch, rejected ones included; if `acked`, with the future
    /// of its settlement.
    ///
    /// # Errors
    /// If the messages cannot be sent.
    pub async fn send<F: Format>(
        mut self,
        format: &mut F,
        peer: &Arc<str>,
        acked: bool,
        out: &mut SourceOutput,
        mut sent: impl FnMut(Sent),
    ) -> Result<(), Error> {
        let mut rejected = std::mem::take(&mut self.rejected);
        let mut from = 0;
        while from < self.messages.len() {
            let to = self.messages.len().min(from + MAX_ROWS);
            let received = format.received(&self, from..to, peer, &mut rejected);
            from = to;
            if let Some(received) = received {
                let messages = received.reading.payload.len();
                let settled = match acked {
                    true => Some(out.send_acked(received).await?),
                    false => {
                        out.send(received).await?;
                        None
                    }
                };
                sent(Sent { messages, rejected: 0, settled });
            }
            if rejected.len() >= MAX_ROWS {
                self.reject(&mut rejected, peer, acked, out, &mut sent).await?;
            }
        }
        self.reject(&mut rejected, peer, acked, out, &mut sent).await
    }

    /// Sends rejected messages, in batches: a batch for each of a million empty lines would take kilobytes
    /// each, and a write of the dead letters each.
    async fn reject(
        &self,
        rejected: &mut Vec<Rejected>,
        peer: &Arc<str>,
        acked: bool,
        out: &mut SourceOutput,
        sent: &mut impl FnMut(Sent),
    ) -> Result<(), Error> {
        for rejected in rejected.chunks(MAX_ROWS) {
            // Copied, so that rejected messages do not keep the whole buffer alive.
            let mut payload = ViewBuilder::over(&[], rejected.len());
            for (range, _) in rejected {
                payload.push(self.buffer.get(range.clone()).unwrap_or_default());
            }
            let reasons = rejected.iter().map(|(_, reason)| reason.to_string()).collect();
            let payload = payload.finish();
            let reading = Reading { payload, path: Some(peer.clone()), positions: None, checkpoint: None };
            let settled = match acked {
                true => Some(out.reject_acked(reading, reasons).await?),
                false => {
                    out.reject_each(reading, reasons).await?;
                    None
                }
            };
            sent(Sent { messages: rejected.len(), rejected: rejected.len(), settled });
        }
        rejected.clear();
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
    /// The budget had no capacity for the rest of a message. Holds the reason.
    NoRoom(&'static str),
}

/// The reason if the budget had no capacity before the time limit.
const NO_CAPACITY: &str = "the memory budget had no capacity for the rest in time";

/// Reads from a connection and cuts messages.
#[derive(Debug)]
pub struct StreamReader {
    partitioner: StreamCutter,
    limit: ByteSize,
    most: usize,
    /// The size of the next read, in bytes.
    size: usize,
    /// The beginning of an incomplete message.
    held: Option<Held>,
    /// The incomplete messages of the source.
    incomplete: Incomplete,
    /// True if the last read filled the buffer: more data may be waiting.
    has_more: bool,
    /// The error that ended the last read.
    broken: Option<io::Error>,
}

/// Memory to read into, its lease, and when the incomplete message in it began.
type Begun = (Vec<u8>, Lease, Option<(Instant, Part)>);

/// The beginning of an incomplete message.
#[derive(Debug)]
struct Held {
    memory: Vec<u8>,
    lease: Lease,
    /// When the first byte of the message was read.
    since: Instant,
    part: Part,
}

impl StreamReader {
    /// Creates a reader that reads up to about `batch_bytes` bytes at once, for a source with these
    /// incomplete messages.
    pub fn new(
        partitioner: StreamCutter,
        limit: ByteSize,
        batch_bytes: usize,
        incomplete: Incomplete,
    ) -> Self {
        let most = batch_bytes.max(LEAST);
        Self { partitioner, limit, most, size: LEAST, held: None, incomplete, has_more: false, broken: None }
    }

    /// Returns when the first byte of the incomplete message was read, if there is one.
    pub fn since(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.since)
    }

    /// Moves that time by a time in which the source did not read.
    pub fn excuse(&mut self, span: Duration) {
        if let Some(held) = &mut self.held {
            held.since = (held.since + span).min(Instant::now());
        }
    }

    /// Waits until the incomplete message must be dropped because other connections need its memory.
    pub async fn dropped(&self) {
        match &self.held {
            Some(held) => held.part.dropped().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until there may be something to read.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn ready(&self, stream: &Stream) -> io::Result<()> {
        if self.has_more || self.broken.is_some() { Ok(()) } else { stream.ready().await }
    }

    /// Reads the waiting data once the budget has capacity for it. In the middle of a message, the wait for
    /// capacity is limited to `patience`.
    ///
    /// # Errors
    /// Those of the connection, once the messages that arrived before are returned.
    pub async fn read(
        &mut self,
        stream: &mut Stream,
        out: &SourceOutput,
        patience: Duration,
    ) -> io::Result<Taken> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let (mut memory, lease, begun) = match self.room(out, patience).await {
            Ok(room) => room,
            Err(reason) => return Ok(Taken::NoRoom(reason)),
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
                    self.broken = Some(error);
                    break false;
                }
            }
        };
        let read = memory.len() - before;
        if self.has_more {
            self.size = (self.size * 2).min(self.most);
        } else if read < self.size / 4 {
            self.size = (self.size / 2).max(LEAST);
        }
        Ok(self.cut(memory, lease, begun, if is_end { After::End } else { After::More }))
    }

    /// Returns memory for a read. It begins with the incomplete message, if there is one.
    async fn room(&mut self, out: &SourceOutput, patience: Duration) -> Result<Begun, &'static str> {
        let Some(held) = self.held.take() else {
            let lease = self.incomplete.reserve(out.share(), self.size, None).await;
            return Ok((Vec::with_capacity(self.size), lease, None));
        };
        if held.memory.capacity() - held.memory.len() >= SPARE {
            return Ok((held.memory, held.lease, Some((held.since, held.part))));
        }
        // Doubled, so that a long message that arrives in many pieces is not copied for each piece.
        let doubled = self.size.max(held.memory.len());
        let more = incomplete::growth(out.share(), held.lease.bytes(), SPARE, doubled);
        let reserved = tokio::select! {
            room = timeout(patience, self.incomplete.reserve(out.share(), more, Some(&held.part))) => {
                room.map_err(|_| NO_CAPACITY)
            }
            () = held.part.dropped() => Err(incomplete::REASON),
        };
        match reserved {
            Ok(room) => {
                let Held { mut memory, mut lease, since, part } = held;
                // Both leases belong to one share, so the merge always succeeds.
                drop(lease.merge(room));
                memory.reserve_exact(more);
                Ok((memory, lease, Some((since, part))))
            }
            Err(reason) => {
                self.held = Some(held);
                Err(reason)
            }
        }
    }

    /// Returns the lines that were held back, after a time without data.
    pub fn quiet(&mut self) -> Taken {
        match self.held.take() {
            Some(held) => self.cut(held.memory, held.lease, Some((held.since, held.part)), After::Quiet),
            None => Taken::Nothing,
        }
    }

    /// Returns the part of a message that was read, as rejected. No more data will be read.
    pub fn abandon(&mut self, reason: &str) -> Option<Cut> {
        let Held { memory, lease, .. } = self.held.take()?;
        let kept = memory.len().min(KEPT);
        let rejected = vec![(0..kept, format!("is cut off: {reason}").into())];
        (kept > 0).then(|| Cut { buffer: lease.freeze(memory), messages: Vec::new(), rejected })
    }

    fn cut(
        &mut self,
        mut memory: Vec<u8>,
        mut lease: Lease,
        begun: Option<(Instant, Part)>,
        after: After,
    ) -> Taken {
        let mut cut =
            Cut { buffer: Buffer::from_vec(Vec::<u8>::new()), messages: Vec::new(), rejected: Vec::new() };
        let failed = cut.add(&mut self.partitioner, &memory, after, self.limit).err();
        let done = self.partitioner.advance();
        let is_end = after == After::End || failed.is_some();
        if let Some(reason) = failed {
            cut.rejected.push((done..memory.len().min(done + KEPT), reason.into()));
        }
        let rest = memory.get(done..).unwrap_or_default();
        if cut.is_empty() {
            if !is_end && done > 0 {
                // The skipped part of a message that is too long.
                memory.drain(..done);
            }
            if !is_end && !memory.is_empty() {
                self.hold(memory, lease, begun);
            }
            return if is_end { Taken::End(None) } else { Taken::Nothing };
        }
        if !is_end && !rest.is_empty() {
            // Splitting off the rest's part of the lease never waits: `freeze` takes any missing bytes
            // without waiting.
            self.hold(rest.to_vec(), lease.split(rest.len()), None);
        }
        if memory.len() < memory.capacity() / 4 {
            memory.shrink_to_fit();
        }
        let cut = Cut { buffer: lease.freeze(memory), ..cut };
        if is_end { Taken::End(Some(cut)) } else { Taken::Cut(cut) }
    }

    /// Keeps the beginning of an incomplete message. `begun` is `None` if the message began with this read.
    fn hold(&mut self, memory: Vec<u8>, lease: Lease, begun: Option<(Instant, Part)>) {
        let (since, part) = begun.unwrap_or_else(|| (Instant::now(), self.incomplete.begin()));
        part.hold(lease.bytes());
        self.held = Some(Held { memory, lease, since, part });
    }
}
