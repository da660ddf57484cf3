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
use arrow_buffer::{Buffer, MemoryReservation};
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Reading, Received, Settled, SourceOutput};
use thalweg_record::{Incomplete, Lease, Share, ViewBuilder};
use tokio::time::{Instant, timeout};

use super::Stream;
use thalweg_codec::charset::Charset;
use thalweg_codec::framing::{After, KEPT, MAX_ROWS};
use thalweg_codec::stream_framing::StreamCutter;
use thalweg_stream::cut::too_long;

/// The size of the first read, in bytes. The size doubles while more data is waiting.
const LEAST: usize = 8 << 10;

/// With less free buffer than this, in bytes, the buffer is enlarged before a read.
const SPARE: usize = 2 << 10;

/// Messages that arrived together from one peer: up to [`MAX_ROWS`] from a stream. For very short messages,
/// their ranges take far more memory than the text.
#[derive(Debug)]
pub struct Cut {
    /// The bytes of all messages.
    pub buffer: Buffer,
    /// The range of each message within `buffer`.
    pub messages: Vec<Range<usize>>,
    /// Ranges that cannot be used, with the reason.
    pub rejected: Vec<Rejected>,
    /// The character set of the bytes.
    pub charset: Charset,
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
    /// Returns the maximum number of messages in a batch.
    fn most_rows(&self) -> usize {
        MAX_ROWS
    }

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
    /// Returns a cut of this buffer, without messages yet.
    pub fn of(buffer: Buffer) -> Self {
        Self { buffer, messages: Vec::new(), rejected: Vec::new(), charset: Charset::default() }
    }

    /// Adds the messages that `bytes` contains, until the cut has [`MAX_ROWS`]. Returns true if `bytes` may
    /// contain more.
    fn add(
        &mut self,
        partitioner: &mut StreamCutter,
        bytes: &[u8],
        after: After,
        limit: ByteSize,
    ) -> Result<bool, String> {
        let added = self.add_messages(partitioner, bytes, after, limit);
        // The first bytes of a stream may have told it.
        self.charset = partitioner.charset();
        added
    }

    fn add_messages(
        &mut self,
        partitioner: &mut StreamCutter,
        bytes: &[u8],
        after: After,
        limit: ByteSize,
    ) -> Result<bool, String> {
        while self.messages.len() + self.rejected.len() < MAX_ROWS {
            let Some(piece) = partitioner.next(bytes, after)? else { return Ok(false) };
            match piece.too_long {
                false => self.messages.push(piece.range),
                true => {
                    let reason = too_long(limit, piece.range.len());
                    self.rejected.push((piece.range, reason.into()));
                }
            }
        }
        Ok(true)
    }

    /// Rejects the rest of the buffer, which cannot be cut. Only its first bytes are kept.
    fn reject_rest(&mut self, start: usize, reason: String) {
        self.rejected.push((start..self.buffer.len().min(start + KEPT), reason.into()));
    }

    /// True if a message is not empty.
    pub fn has_content(&self) -> bool {
        self.messages.iter().any(|range| !range.is_empty())
    }

    /// Returns the cut with its messages in UTF-8. Those that are invalid are rejected.
    pub(crate) fn decoded(self, out: &SourceOutput) -> Self {
        if self.charset.is_utf8() {
            return self;
        }
        let Self { buffer, messages, mut rejected, charset } = self;
        let mut bytes = Vec::with_capacity(messages.iter().map(Range::len).sum());
        let copy = |range: Range<usize>, bytes: &mut Vec<u8>| {
            let start = bytes.len();
            bytes.extend_from_slice(buffer.get(range).unwrap_or_default());
            start..bytes.len()
        };
        for (range, _) in &mut rejected {
            *range = copy(range.clone(), &mut bytes);
        }
        let mut decoded = Vec::with_capacity(messages.len());
        for range in messages {
            let start = bytes.len();
            let message = buffer.get(range.clone()).unwrap_or_default();
            match charset.decode_onto(message, &mut bytes) {
                Ok(()) => decoded.push(start..bytes.len()),
                Err(reason) => {
                    bytes.truncate(start);
                    let kept = range.start..range.end.min(range.start + KEPT);
                    rejected.push((copy(kept, &mut bytes), reason.into()));
                }
            }
        }
        let buffer = out.claim(bytes.capacity()).freeze(bytes);
        Self { messages: decoded, rejected, ..Self::of(buffer) }
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
        self,
        format: &mut F,
        peer: &Arc<str>,
        acked: bool,
        out: &mut SourceOutput,
        mut sent: impl FnMut(Sent),
    ) -> Result<(), Error> {
        let mut cut = self.decoded(out);
        let mut rejected = std::mem::take(&mut cut.rejected);
        let ranges = cut.messages.capacity() * size_of::<Range<usize>>();
        let _claimed = out.claim(ranges + rejected.capacity() * size_of::<Rejected>());
        let mut from = 0;
        while from < cut.messages.len() {
            let to = cut.messages.len().min(from + format.most_rows());
            let received = format.received(&cut, from..to, peer, &mut rejected);
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
                cut.reject(&mut rejected, peer, acked, out, &mut sent).await?;
            }
        }
        cut.reject(&mut rejected, peer, acked, out, &mut sent).await
    }

    /// Returns rejected messages, and the reasons. They are copied, so that they do not keep the whole buffer
    /// alive.
    pub(crate) fn refused(&self, rejected: &[Rejected], peer: &Arc<str>) -> (Reading, Vec<String>) {
        let mut payload = ViewBuilder::over(&[], rejected.len());
        for (range, _) in rejected {
            payload.push(self.buffer.get(range.clone()).unwrap_or_default());
        }
        let reasons = rejected.iter().map(|(_, reason)| reason.to_string()).collect();
        let payload = payload.finish();
        (Reading { payload, path: Some(peer.clone()), positions: None, checkpoint: None }, reasons)
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
            let (reading, reasons) = self.refused(rejected, peer);
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

/// Cuts a whole buffer that no more data follows.
#[derive(Debug)]
pub struct Cuts {
    buffer: Buffer,
    limit: ByteSize,
    /// `None` after the last message.
    partitioner: Option<StreamCutter>,
}

impl Cuts {
    /// Cuts this buffer.
    pub fn new(buffer: Buffer, partitioner: StreamCutter, limit: ByteSize) -> Self {
        Self { buffer, limit, partitioner: Some(partitioner) }
    }
}

impl Iterator for Cuts {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        let partitioner = self.partitioner.as_mut()?;
        let mut cut = Cut::of(self.buffer.clone());
        match cut.add(partitioner, &self.buffer, After::End, self.limit) {
            Ok(true) => return Some(cut),
            Ok(false) => {}
            Err(reason) => cut.reject_rest(partitioner.advance(), reason),
        }
        self.partitioner = None;
        (!cut.is_empty()).then_some(cut)
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
    /// The rest of the last read, if it may contain more complete messages.
    uncut: Option<Uncut>,
    /// The account of the source.
    share: Share,
    /// True if the last read filled the buffer: more data may be waiting.
    has_more: bool,
    /// The error that ended the last read.
    broken: Option<io::Error>,
}

/// Memory to read into, its lease, and when the incomplete message in it began.
type Begun = (Vec<u8>, Lease, Option<(Instant, Incomplete)>);

/// The beginning of an incomplete message.
#[derive(Debug)]
struct Held {
    memory: Vec<u8>,
    lease: Lease,
    /// When the first byte of the message was read.
    since: Instant,
    part: Incomplete,
}

/// A buffer out of which not all complete messages are cut.
#[derive(Debug)]
struct Uncut {
    buffer: Buffer,
    /// For the incomplete message at the end of the buffer. Empty until then.
    lease: Lease,
    after: After,
}

impl StreamReader {
    /// Creates a reader that reads up to about `batch_bytes` bytes at once, for a source with this account.
    pub fn new(partitioner: StreamCutter, limit: ByteSize, batch_bytes: usize, share: Share) -> Self {
        let most = batch_bytes.max(LEAST);
        Self {
            partitioner,
            limit,
            most,
            size: LEAST,
            held: None,
            uncut: None,
            share,
            has_more: false,
            broken: None,
        }
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
    /// capacity is limited to `patience`. Before the next read, [`next_cut`](Self::next_cut) must have
    /// returned `None`.
    ///
    /// # Errors
    /// Those of the connection, once the messages that arrived before are returned.
    pub async fn read(&mut self, stream: &mut Stream, patience: Duration) -> io::Result<Taken> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let (mut memory, lease, begun) = match self.room(patience).await {
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
    async fn room(&mut self, patience: Duration) -> Result<Begun, &'static str> {
        let Some(held) = self.held.take() else {
            let lease = self.share.reserve_for(self.size, None).await;
            return Ok((Vec::with_capacity(self.size), lease, None));
        };
        if held.memory.capacity() - held.memory.len() >= SPARE {
            return Ok((held.memory, held.lease, Some((held.since, held.part))));
        }
        // Doubled, so that a long message that arrives in many pieces is not copied for each piece.
        let doubled = self.size.max(held.memory.len());
        let more = self.share.growth(held.lease.bytes(), SPARE, doubled);
        let granted = async {
            // A client does not lose a message because the source was paused in its middle.
            self.share.opened().await;
            timeout(patience, self.share.reserve_for(more, Some(&held.part))).await
        };
        let reserved = tokio::select! {
            room = granted => room.map_err(|_| NO_CAPACITY),
            () = held.part.dropped() => Err(Incomplete::REASON),
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

    /// Returns more messages of the last read or of [`quiet`](Self::quiet), or `None` if all are cut.
    pub fn next_cut(&mut self) -> Option<Taken> {
        let Uncut { buffer, lease, after } = self.uncut.take()?;
        let mut cut = Cut::of(buffer.clone());
        let added = cut.add(&mut self.partitioner, &buffer, after, self.limit);
        Some(self.taken(cut, added, lease, after))
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
        (kept > 0).then(|| Cut { rejected, ..Cut::of(lease.freeze(memory)) })
    }

    fn cut(
        &mut self,
        mut memory: Vec<u8>,
        mut lease: Lease,
        begun: Option<(Instant, Incomplete)>,
        after: After,
    ) -> Taken {
        let mut cut = Cut::of(Buffer::from_vec(Vec::<u8>::new()));
        let added = cut.add(&mut self.partitioner, &memory, after, self.limit);
        if cut.is_empty() && added == Ok(false) {
            let done = self.partitioner.advance();
            if after == After::End {
                return Taken::End(None);
            }
            // The skipped part of a message that is too long.
            memory.drain(..done);
            if !memory.is_empty() {
                self.hold(memory, lease, begun);
            }
            return Taken::Nothing;
        }
        if memory.len() < memory.capacity() / 4 {
            memory.shrink_to_fit();
        }
        let rest = lease.split(0);
        cut.buffer = lease.freeze(memory);
        self.taken(cut, added, rest, after)
    }

    /// Returns the messages of a cut, to which `added` is the result of adding them. Keeps the rest of its
    /// buffer, under this lease.
    fn taken(&mut self, mut cut: Cut, added: Result<bool, String>, mut lease: Lease, after: After) -> Taken {
        if added == Ok(true) {
            self.uncut = Some(Uncut { buffer: cut.buffer.clone(), lease, after });
            return Taken::Cut(cut);
        }
        let done = self.partitioner.advance();
        let is_end = after == After::End || added.is_err();
        if let Err(reason) = added {
            cut.reject_rest(done, reason);
        }
        let rest = cut.buffer.get(done..).unwrap_or_default();
        if !is_end && !rest.is_empty() {
            // Never waits: the bytes are claimed.
            lease.resize(rest.len());
            self.hold(rest.to_vec(), lease, None);
        }
        match (is_end, cut.is_empty()) {
            (true, is_empty) => Taken::End((!is_empty).then_some(cut)),
            (false, true) => Taken::Nothing,
            (false, false) => Taken::Cut(cut),
        }
    }

    /// Keeps the beginning of an incomplete message. `begun` is `None` if the message began with this read.
    fn hold(&mut self, memory: Vec<u8>, lease: Lease, begun: Option<(Instant, Incomplete)>) {
        let (since, part) = begun.unwrap_or_else(|| (Instant::now(), self.share.begin_message()));
        part.hold(lease.bytes());
        self.held = Some(Held { memory, lease, since, part });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_codec::stream_framing::StreamFraming;
    use thalweg_engine::testing::options;
    use thalweg_record::Budget;

    const LIMIT: ByteSize = ByteSize::mib(1);

    #[tokio::test]
    async fn very_many_messages_are_cut_in_parts() {
        let budget = Budget::new(1 << 20);
        let cutter = StreamFraming::default().begin(LIMIT, false);
        let mut reader = StreamReader::new(cutter, LIMIT, 1 << 20, budget.share());
        let memory = [vec![b'\n'; 2 * MAX_ROWS], b"one\ntw".to_vec()].concat();
        let lease = budget.share().reserve(memory.capacity()).await;
        let mut taken = Some(reader.cut(memory, lease, None, After::More));
        let mut found = Vec::new();
        while let Some(Taken::Cut(cut)) = taken {
            assert!(cut.rejected.is_empty());
            found.push(cut.messages.len());
            taken = reader.next_cut();
        }
        assert_eq!(found, [MAX_ROWS, MAX_ROWS, 1]);
        assert!(taken.is_none());
        // The incomplete message is kept, and counted.
        assert_eq!(reader.held.as_ref().map(|held| held.memory.as_slice()), Some(&b"tw"[..]));
        assert_eq!(budget.used(), 2);
        let held = reader.held.take().unwrap();
        let memory = [held.memory, b"o\n".to_vec()].concat();
        let Taken::End(Some(cut)) = reader.cut(memory, held.lease, None, After::End) else { panic!() };
        let texts: Vec<&[u8]> = cut.messages.iter().map(|range| &cut.buffer[range.clone()]).collect();
        assert_eq!(texts, [b"two"]);
        assert!(reader.next_cut().is_none());
    }

    /// The end of a stream, and a length that is wrong, come after messages that fill whole parts.
    #[tokio::test]
    async fn the_end_of_the_stream_comes_with_the_last_part() {
        let budget = Budget::new(1 << 20);
        let framing: StreamFraming = options("{ by: ascii, delimiter: ':' }");
        for (end, rejected) in [("", None), ("x", Some("does not begin with a length"))] {
            let cutter = || framing.begin(LIMIT, false);
            let bytes = [b"0:".repeat(MAX_ROWS), end.as_bytes().to_vec()].concat();
            let mut reader = StreamReader::new(cutter(), LIMIT, 1 << 20, budget.share());
            let lease = budget.share().reserve(bytes.capacity()).await;
            let first = reader.cut(bytes.clone(), lease, None, After::End);
            assert!(matches!(first, Taken::Cut(cut) if cut.messages.len() == MAX_ROWS));
            let Some(Taken::End(last)) = reader.next_cut() else { panic!() };
            let cuts: Vec<Cut> = Cuts::new(bytes.into(), cutter(), LIMIT).collect();
            assert_eq!((cuts.len(), cuts[0].messages.len()), (1 + last.iter().len(), MAX_ROWS));
            for last in [last.as_ref(), cuts.get(1)] {
                let reason = last.and_then(|cut| cut.rejected.first()).map(|(_, reason)| &**reason);
                assert_eq!(reason, rejected);
            }
        }
    }
}
