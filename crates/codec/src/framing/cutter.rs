//! Finds the messages in the bytes that were read.

use std::ops::Range;

use arrow_array::{BinaryViewArray, UInt64Array};
use arrow_buffer::Buffer;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use thalweg_config::ByteSize;
use thalweg_record::ViewBuilder;

use crate::charset::Charset;

use super::{After, Framing, Piece, Skip, StreamPosition};

/// The maximum number of bytes kept of a message that is too long, so that it can be recognised.
pub const KEPT: usize = 4 << 10;

/// A message of this size, in bytes, is not too long for any budget.
const USUAL: usize = 64 << 10;

/// The maximum number of messages per batch. For very short messages, the columns use far more memory than
/// the text.
pub const MAX_ROWS: usize = 16_384;

/// Finds messages in the bytes of a stream.
#[derive(Debug)]
pub struct Cutter {
    delimiter: Finder<'static>,
    /// The delimiter, if it is a single byte.
    byte: Option<u8>,
    /// The carriage return that is removed before a line feed; otherwise empty.
    carriage_return: Vec<u8>,
    charset: Charset,
    /// The decoded message.
    decoded: String,
    pattern: Option<Regex>,
    limit: usize,
    /// True if the limit is that of the memory, which is below the configured one.
    is_of_memory: bool,
    /// The offset of the buffer in the stream, in bytes.
    pub(super) offset: u64,
    /// The index in the buffer at which the incomplete message begins.
    start: usize,
    /// With a start pattern: the index at which the last line of that message begins.
    line: usize,
    /// The index up to which no delimiter was found.
    scanned: usize,
    skip: Skip,
    /// The number of messages in the last batch, as an estimate for the next.
    rows: usize,
}

impl Cutter {
    /// Starts at a position in a stream. A message may have at most `limit` bytes.
    pub fn new(framing: &Framing, limit: ByteSize, from: StreamPosition) -> Self {
        let delimiter = &framing.delimiter.0;
        Self {
            delimiter: Finder::new(delimiter).into_owned(),
            byte: match delimiter[..] {
                [byte] => Some(byte),
                _ => None,
            },
            carriage_return: if delimiter == b"\n" { b"\r".to_vec() } else { Vec::new() },
            charset: Charset::default(),
            decoded: String::new(),
            pattern: framing.start_pattern.as_ref().map(|pattern| pattern.regex().clone()),
            limit: limit.as_usize(),
            is_of_memory: false,
            offset: from.offset,
            start: 0,
            line: 0,
            scanned: 0,
            skip: from.skip,
            rows: 64,
        }
    }

    /// Reads a stream in this character set. Messages are decoded, see [`next_batch`](Self::next_batch).
    #[must_use]
    pub fn reading(mut self, charset: Charset) -> Self {
        let delimiter = charset.encoded(self.delimiter.needle());
        self.byte = match delimiter[..] {
            [byte] => Some(byte),
            _ => None,
        };
        self.delimiter = Finder::new(&delimiter).into_owned();
        self.carriage_return = charset.encoded(&self.carriage_return);
        self.charset = charset;
        self
    }

    /// Limits a message to half of `memory` bytes as well: while a long message is read, there are two
    /// buffers with it. Messages of the usual size pass with any budget.
    pub fn within(&mut self, memory: usize) {
        let most = (memory / 2).max(USUAL);
        if most < self.limit {
            (self.limit, self.is_of_memory) = (most, true);
        }
    }

    /// Returns the position after the messages that were returned so far.
    pub fn position(&self) -> StreamPosition {
        StreamPosition { offset: self.offset + self.start as u64, skip: self.skip }
    }

    /// Returns the index in the buffer at which the incomplete message begins.
    pub(crate) fn begun(&self) -> usize {
        self.start
    }

    /// Continues at another position of the stream, with an empty buffer.
    pub fn seek(&mut self, to: StreamPosition) {
        (self.offset, self.skip) = (to.offset, to.skip);
        (self.start, self.line, self.scanned) = (0, 0, 0);
    }

    /// True if these last bytes of a stream can be those before a message. There are
    /// [`tail_bytes`](Self::tail_bytes).
    pub fn may_end_with(&self, bytes: &[u8]) -> bool {
        self.delimiter.needle().ends_with(bytes)
    }

    /// Returns the number of bytes that [`may_end_with`](Self::may_end_with) looks at.
    pub fn tail_bytes(&self) -> usize {
        self.charset.unit()
    }

    /// Returns the next message, or `None` if the buffer has no complete one. `bytes` is the whole buffer. It
    /// must only grow until [`advance`](Self::advance) is called.
    #[inline]
    pub fn next(&mut self, bytes: &[u8], after: After) -> Option<Piece> {
        if self.pattern.is_some() {
            return self.next_started(bytes, after);
        }
        loop {
            let Some(end) = self.find(bytes) else { return self.rest(bytes, after) };
            let range = self.start..self.trimmed(bytes, self.start, end);
            self.start = end + self.delimiter.needle().len();
            self.scanned = self.start;
            if self.skip == Skip::Nothing {
                return Some(self.piece(range));
            }
            self.skip = Skip::Nothing;
        }
    }

    /// Drops the bytes before the incomplete message, and returns their number. From then on, the buffer must
    /// begin with that message.
    pub fn advance(&mut self) -> usize {
        let done = std::mem::take(&mut self.start);
        self.offset += done as u64;
        self.line = self.line.saturating_sub(done);
        self.scanned = self.scanned.saturating_sub(done);
        done
    }

    #[inline]
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let rest = bytes.get(self.scanned..).unwrap_or_default();
        let found = match self.byte {
            Some(byte) => memchr::memchr(byte, rest),
            None if self.charset.has_ascii() => self.delimiter.find(rest),
            None => self.find_aligned(rest),
        };
        match found {
            Some(at) => Some(self.scanned + at),
            None => {
                self.scanned = self.without_partial(bytes, self.scanned);
                None
            }
        }
    }

    /// Finds a delimiter between two characters: the bytes of two neighbours may look like one.
    fn find_aligned(&self, rest: &[u8]) -> Option<usize> {
        let begin = self.offset + self.scanned as u64;
        let is_aligned = |at: usize| (begin + at as u64).is_multiple_of(self.charset.unit() as u64);
        let mut from = 0;
        loop {
            let at = from + self.delimiter.find(rest.get(from..)?)?;
            if is_aligned(at) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Returns the end of the buffer without bytes that may be the start of a delimiter, but at least `from`.
    fn without_partial(&self, bytes: &[u8], from: usize) -> usize {
        (bytes.len() + 1).saturating_sub(self.delimiter.needle().len()).max(from)
    }

    /// Returns the end of the line `start..end` without its carriage return.
    #[inline]
    fn trimmed(&self, bytes: &[u8], start: usize, end: usize) -> usize {
        let line = bytes.get(start..end).unwrap_or_default();
        if line.ends_with(&self.carriage_return) { end - self.carriage_return.len() } else { end }
    }

    #[inline]
    fn piece(&self, range: Range<usize>) -> Piece {
        if range.len() > self.limit {
            return self.too_long(range.start);
        }
        Piece { range, too_long: false }
    }

    fn too_long(&self, start: usize) -> Piece {
        Piece { range: start..start + self.limit.min(KEPT), too_long: true }
    }

    /// True if the message at `from` exceeds the limit whatever follows. The last bytes may turn out to be a
    /// carriage return or the start of a delimiter, and do not count.
    fn exceeds(&self, bytes: &[u8], from: usize) -> bool {
        let slack = self.carriage_return.len() + self.delimiter.needle().len() - 1;
        bytes.len() - from > self.limit.saturating_add(slack)
    }

    /// Drops the bytes in the buffer and those up to the next delimiter.
    fn skip_line(&mut self, bytes: &[u8]) {
        self.skip = Skip::Line;
        self.begin_at(self.without_partial(bytes, self.line.max(self.start)));
    }

    fn begin_at(&mut self, at: usize) {
        (self.start, self.line, self.scanned) = (at, at, at);
    }

    /// Returns a message from the end of the buffer, which contains no further delimiter.
    fn rest(&mut self, bytes: &[u8], after: After) -> Option<Piece> {
        let start = self.start;
        if after == After::End {
            self.begin_at(bytes.len());
            let is_message = start < bytes.len() && self.skip == Skip::Nothing;
            return is_message.then(|| self.piece(start..bytes.len()));
        }
        if self.skip != Skip::Nothing {
            self.skip_line(bytes);
        } else if self.exceeds(bytes, start) {
            self.skip_line(bytes);
            return Some(self.too_long(start));
        }
        None
    }

    /// As [`next`](Self::next), with a start pattern.
    fn next_started(&mut self, bytes: &[u8], after: After) -> Option<Piece> {
        loop {
            if self.skip == Skip::Nothing && self.before_line(bytes).len() > self.limit {
                let start = std::mem::replace(&mut self.start, self.line);
                self.skip = Skip::Lines;
                return Some(self.too_long(start));
            }
            let Some(end) = self.find(bytes) else { return self.rest_started(bytes, after) };
            let next = end + self.delimiter.needle().len();
            let line = self.line..self.trimmed(bytes, self.line, end);
            match self.skip {
                Skip::Line => {
                    self.begin_at(next);
                    self.skip = Skip::Lines;
                }
                Skip::Lines if !self.is_start(bytes, &line) => self.begin_at(next),
                Skip::Lines => {
                    self.skip = Skip::Nothing;
                    (self.line, self.scanned) = (next, next);
                }
                Skip::Nothing => {
                    let complete = (self.line > self.start && self.is_start(bytes, &line))
                        .then(|| self.before_line(bytes));
                    if complete.is_some() {
                        self.start = self.line;
                    }
                    (self.line, self.scanned) = (next, next);
                    if let Some(range) = complete {
                        return Some(self.piece(range));
                    }
                }
            }
        }
    }

    /// Returns the range of the incomplete message without its last line.
    fn before_line(&self, bytes: &[u8]) -> Range<usize> {
        let end = self.line.saturating_sub(self.delimiter.needle().len()).max(self.start);
        self.start..self.trimmed(bytes, self.start, end)
    }

    /// True if a line begins a message. For a line that exceeds the limit, its first bytes decide.
    fn is_start(&self, bytes: &[u8], line: &Range<usize>) -> bool {
        let end = line.end.min(line.start.saturating_add(self.limit));
        let line = bytes.get(line.start..end).unwrap_or_default();
        let Some(pattern) = &self.pattern else { return false };
        match self.charset.is_utf8() {
            true => pattern.is_match(line),
            false => pattern.is_match(self.charset.decode_lossy(line).as_bytes()),
        }
    }

    fn rest_started(&mut self, bytes: &[u8], after: After) -> Option<Piece> {
        let line = self.line..bytes.len();
        if after == After::End {
            match self.skip {
                Skip::Nothing if self.line > self.start => {
                    let before = self.before_line(bytes);
                    if line.is_empty() || self.is_start(bytes, &line) {
                        self.start = self.line;
                        return Some(self.piece(before));
                    }
                }
                Skip::Line => self.begin_at(bytes.len()),
                Skip::Lines if !self.is_start(bytes, &line) => self.begin_at(bytes.len()),
                Skip::Lines | Skip::Nothing => {}
            }
            self.skip = Skip::Nothing;
            return self.rest(bytes, after);
        }
        if self.skip == Skip::Line {
            self.skip_line(bytes);
            return None;
        }
        let exceeds = self.exceeds(bytes, self.line);
        let has_lines = self.skip == Skip::Nothing && self.line > self.start;
        if has_lines && (after == After::Quiet || (exceeds && self.is_start(bytes, &line))) {
            let before = self.before_line(bytes);
            self.start = self.line;
            return Some(self.piece(before));
        }
        if exceeds {
            let is_message = self.skip == Skip::Nothing || self.is_start(bytes, &line);
            let start = self.start;
            self.skip_line(bytes);
            return is_message.then(|| self.too_long(start));
        }
        None
    }

    /// Cuts up to [`MAX_ROWS`] messages out of the buffer, in UTF-8. A message that is not valid in the
    /// character set of the stream is rejected like one that is too long.
    pub fn next_batch(&mut self, buffer: &Buffer, after: After) -> CutBatch {
        let mut payload = ViewBuilder::over(std::slice::from_ref(buffer), self.rows);
        let mut positions = Vec::with_capacity(self.rows);
        let mut too_long = None;
        let mut is_last = false;
        while positions.len() < MAX_ROWS {
            let Some(piece) = self.next(buffer, after) else {
                is_last = true;
                break;
            };
            if piece.too_long {
                too_long = Some(self.rejected(piece.range));
                break;
            }
            let position = self.offset + piece.range.start as u64;
            let message = &buffer[piece.range.clone()];
            match self.charset.text(message, position == 0, &mut self.decoded) {
                Ok(text) => payload.push(text),
                Err(reason) => {
                    let range = piece.range.start..piece.range.end.min(piece.range.start + KEPT);
                    too_long = Some(TooLong { range, position, reason });
                    break;
                }
            }
            positions.push(position);
        }
        if !positions.is_empty() {
            self.rows = (positions.len() + positions.len() / 8).min(MAX_ROWS);
        }
        let next = match &too_long {
            Some(message) => StreamPosition { offset: message.position, skip: Skip::Nothing },
            None => self.position(),
        };
        CutBatch {
            payload: payload.finish(),
            positions: UInt64Array::from(positions),
            next,
            too_long,
            is_last,
        }
    }

    fn rejected(&self, range: Range<usize>) -> TooLong {
        let position = self.offset + range.start as u64;
        let what = if self.is_of_memory { "half of `memory`" } else { "`max_message_bytes`" };
        let reason = format!(
            "is longer than {what} ({}): it begins at byte {position}, and only its first {} bytes are kept",
            ByteSize(self.limit as u64),
            range.len()
        );
        TooLong { range, position, reason }
    }

    /// True within a message that was too long, the rest of which is skipped.
    pub fn is_skipping(&self) -> bool {
        self.skip != Skip::Nothing
    }

    /// Returns the offset in the stream of the incomplete message, in bytes. `rest` holds its bytes. `None`
    /// if there is no incomplete message.
    pub fn incomplete(&self, rest: &[u8]) -> Option<u64> {
        (!rest.is_empty() && self.skip == Skip::Nothing).then_some(self.offset)
    }
}

/// Messages cut out of a buffer.
#[derive(Debug)]
pub struct CutBatch {
    /// The messages: views of the buffer.
    pub payload: BinaryViewArray,
    /// The offset of each message in the stream, in bytes.
    pub positions: UInt64Array,
    /// Where to resume after these messages.
    pub next: StreamPosition,
    /// The message after these, if it exceeds the limit or is invalid.
    pub too_long: Option<TooLong>,
    /// True if the buffer contains no further complete message.
    pub is_last: bool,
}

/// A message that exceeds the limit, or is not valid in its character set.
#[derive(Debug)]
pub struct TooLong {
    /// The range of its first bytes in the buffer.
    pub range: Range<usize>,
    /// Its offset in the stream, in bytes.
    pub position: u64,
    /// Why it is rejected.
    pub reason: String,
}
