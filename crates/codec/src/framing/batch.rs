//! Batches of the messages that a [`Cutter`] finds: decoded, and joined of their parts.

use std::borrow::Cow;

use arrow_array::{BinaryViewArray, UInt64Array};
use arrow_buffer::Buffer;
use thalweg_config::ByteSize;
use thalweg_record::ViewBuilder;

use super::cri::{Joined, Message};
use super::{After, Cutter, KEPT, Piece, Skip, StreamPosition};
use crate::charset::Charset;

/// With this many bytes of text that had to be decoded or joined, a batch is complete. They count on the
/// budget only when the batch is sent.
const MADE: usize = 256 << 10;

/// The maximum number of messages per batch. For very short messages, the columns use far more memory than
/// the text.
pub const MAX_ROWS: usize = 16_384;

impl Cutter {
    /// Cuts up to [`MAX_ROWS`] messages out of the buffer, in UTF-8. A message that is not valid in the
    /// character set of the stream is rejected like one that is too long.
    pub fn next_batch(&mut self, buffer: &Buffer, after: After) -> CutBatch {
        self.next_rows(buffer, after, MAX_ROWS)
    }

    /// As [`next_batch`](Self::next_batch), but up to `most` messages.
    pub fn next_rows(&mut self, buffer: &Buffer, after: After, most: usize) -> CutBatch {
        let most = most.clamp(1, MAX_ROWS);
        let mut rows = Rows::over(buffer, self.rows);
        let next = loop {
            let before = self.join.is_some().then(|| self.position());
            if rows.is_full(most) {
                break self.position();
            }
            let found = match self.next_message(buffer, after) {
                Some(Found::Message { position, bytes }) => rows.push(self.charset, position, bytes, before),
                Some(Found::Rejected(rejected)) => Err(rejected),
                Some(Found::Nothing) => Ok(()),
                None => {
                    rows.is_last = true;
                    break self.position();
                }
            };
            if let Err(rejected) = found {
                let here =
                    || StreamPosition { offset: rejected.position, skip: Skip::Nothing, ..self.position() };
                let next = before.unwrap_or_else(here);
                rows.too_long = Some(rejected);
                break next;
            }
        };
        if !rows.positions.is_empty() {
            self.rows = (rows.positions.len() + rows.positions.len() / 8).min(MAX_ROWS);
        }
        rows.finish(next)
    }

    /// Returns the next message, or a line that is joined with others.
    fn next_message<'b>(&mut self, buffer: &'b [u8], after: After) -> Option<Found<'b>> {
        let Some(Piece { range, too_long }) = self.next(buffer, after) else {
            let unfinished = self.join.as_mut().filter(|_| after == After::End)?.unfinished()?;
            return Some(Found::of(unfinished));
        };
        let position = self.offset + range.start as u64;
        let bytes = buffer.get(range).unwrap_or_default();
        let joined = match &mut self.join {
            Some(join) => join.join(bytes, position, too_long),
            None => Joined::Single,
        };
        Some(match joined {
            Joined::Single if too_long => Found::Rejected(self.rejected(bytes, position)),
            Joined::Single => Found::Message { position, bytes: Cow::Borrowed(bytes) },
            Joined::Nothing => Found::Nothing,
            Joined::Whole(message) => Found::of(message),
            Joined::TooLong(message) => Found::Rejected(self.rejected(&message.text, message.begin)),
        })
    }

    fn rejected(&self, bytes: &[u8], position: u64) -> TooLong {
        let what = self.of_memory.unwrap_or("`max_message_bytes`");
        let reason = format!(
            "is longer than {what} ({}): it begins at byte {position}, and only its first {} bytes are kept",
            ByteSize(self.limit as u64),
            bytes.len()
        );
        TooLong { bytes: bytes.to_vec(), position, reason }
    }

    /// Returns the messages whose last part has not come, each with its offset in the stream, and forgets
    /// them.
    pub fn take_unfinished(&mut self) -> Vec<(u64, Vec<u8>)> {
        let Some(join) = &mut self.join else { return Vec::new() };
        let unfinished = std::iter::from_fn(|| join.unfinished());
        unfinished.map(|message| (message.begin, message.text)).collect()
    }

    /// Returns the messages whose last part has not come as lines that have the same meaning as those that
    /// came.
    pub fn unfinished_lines(&self) -> Vec<u8> {
        self.join.as_ref().map(|join| join.lines()).unwrap_or_default()
    }
}

/// A message, or a line that is joined with others.
enum Found<'b> {
    Message { position: u64, bytes: Cow<'b, [u8]> },
    Rejected(TooLong),
    Nothing,
}

impl Found<'_> {
    fn of(message: Message) -> Self {
        Self::Message { position: message.begin, bytes: Cow::Owned(message.text) }
    }
}

/// A batch under construction.
struct Rows {
    payload: ViewBuilder,
    positions: Vec<u64>,
    /// With joined messages: where to resume before each message.
    before: Vec<StreamPosition>,
    /// The number of bytes that had to be decoded or joined.
    made: usize,
    too_long: Option<TooLong>,
    is_last: bool,
}

impl Rows {
    fn over(buffer: &Buffer, rows: usize) -> Self {
        Self {
            payload: ViewBuilder::over(std::slice::from_ref(buffer), rows),
            positions: Vec::with_capacity(rows),
            before: Vec::new(),
            made: 0,
            too_long: None,
            is_last: false,
        }
    }

    fn is_full(&self, most: usize) -> bool {
        self.positions.len() >= most || self.made >= MADE
    }

    /// Adds a message in UTF-8.
    #[inline]
    fn push(
        &mut self,
        charset: Charset,
        position: u64,
        message: Cow<'_, [u8]>,
        before: Option<StreamPosition>,
    ) -> Result<(), TooLong> {
        let is_decoded = charset.push(&message, &mut self.payload).map_err(|reason| {
            let bytes = message.get(..KEPT).unwrap_or(&message).to_vec();
            TooLong { bytes, position, reason }
        })?;
        if is_decoded || matches!(message, Cow::Owned(_)) {
            self.made += message.len();
        }
        self.positions.push(position);
        self.before.extend(before);
        Ok(())
    }

    fn finish(self, next: StreamPosition) -> CutBatch {
        CutBatch {
            payload: self.payload.finish(),
            positions: UInt64Array::from(self.positions),
            before: self.before,
            next,
            too_long: self.too_long,
            is_last: self.is_last,
        }
    }
}

/// Messages cut out of a buffer.
#[derive(Debug)]
pub struct CutBatch {
    /// The messages: views of the buffer.
    pub payload: BinaryViewArray,
    /// The offset of each message in the stream, in bytes.
    pub positions: UInt64Array,
    /// With joined messages: where to resume before each message.
    before: Vec<StreamPosition>,
    /// Where to resume after these messages.
    pub next: StreamPosition,
    /// The message after these, if it exceeds the limit or is invalid.
    pub too_long: Option<TooLong>,
    /// True if the buffer contains no further complete message.
    pub is_last: bool,
}

impl CutBatch {
    /// Returns where to resume before the message of this row, which exists.
    pub fn before(&self, row: usize) -> StreamPosition {
        let offset = self.positions.value(row);
        let plain = StreamPosition { offset, skip: Skip::Nothing, ..self.next };
        self.before.get(row).copied().unwrap_or(plain)
    }
}

/// A message that exceeds the limit, or is not valid in its character set.
#[derive(Debug)]
pub struct TooLong {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Its offset in the stream, in bytes.
    pub position: u64,
    /// Why it is rejected.
    pub reason: String,
}
