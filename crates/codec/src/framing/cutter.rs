//! Finding the messages in what was read.

use std::ops::Range;

use arrow_array::{BinaryViewArray, UInt64Array};
use arrow_buffer::Buffer;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use thalweg_config::ByteSize;
use thalweg_record::ViewBuilder;

use super::{After, Framing, Piece, Skip, StreamPosition};

/// How much of a message that is too long is kept, to recognise it by.
pub const KEPT: usize = 4 << 10;

/// The most messages in a batch: of very short ones, the columns weigh far more than the text.
pub const MAX_ROWS: usize = 16_384;

/// Finds messages in the bytes of a stream.
#[derive(Debug)]
pub struct Cutter {
    delimiter: Finder<'static>,
    /// The delimiter, if it is a single byte.
    byte: Option<u8>,
    removes_cr: bool,
    pattern: Option<Regex>,
    limit: usize,
    /// How many bytes of the stream came before the buffer.
    pub(super) offset: u64,
    /// Where in the buffer the message begins that is not complete yet,
    start: usize,
    /// with a start pattern: where its last line begins,
    line: usize,
    /// and how far no delimiter was found.
    scanned: usize,
    skip: Skip,
    /// How many messages the last batch had: the guess for the next.
    rows: usize,
}

impl Cutter {
    /// Cuts a stream from a place in it.
    pub fn new(framing: &Framing, limit: ByteSize, from: StreamPosition) -> Self {
        let delimiter = &framing.delimiter.0;
        Self {
            delimiter: Finder::new(delimiter).into_owned(),
            byte: match delimiter[..] {
                [byte] => Some(byte),
                _ => None,
            },
            removes_cr: delimiter == b"\n",
            pattern: framing.start_pattern.as_ref().map(|pattern| pattern.regex().clone()),
            limit: limit.as_usize(),
            offset: from.offset,
            start: 0,
            line: 0,
            scanned: 0,
            skip: from.skip,
            rows: 64,
        }
    }

    /// The place of the first byte that does not belong to what was given.
    pub fn place(&self) -> StreamPosition {
        StreamPosition { offset: self.offset + self.start as u64, skip: self.skip }
    }

    /// Where in the buffer the message begins that is not complete.
    pub fn begun(&self) -> usize {
        self.start
    }

    /// Goes on at another place of the stream, with an empty buffer.
    pub fn seek(&mut self, to: StreamPosition) {
        (self.offset, self.skip) = (to.offset, to.skip);
        (self.start, self.line, self.scanned) = (0, 0, 0);
    }

    /// Whether this can be the last byte before a message.
    pub fn may_end_with(&self, byte: u8) -> bool {
        self.delimiter.needle().last() == Some(&byte)
    }

    /// The next message. `bytes` is the whole buffer; it only grows until [`advance`](Self::advance) is
    /// called.
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

    /// Forgets the bytes before the message that is not complete: the buffer begins with it from here on.
    /// Says how many these are.
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
            None => self.delimiter.find(rest),
        };
        match found {
            Some(at) => Some(self.scanned + at),
            None => {
                self.scanned = self.without_partial(bytes, self.scanned);
                None
            }
        }
    }

    /// The end of the buffer without bytes that may be the beginning of a delimiter; at least `from`.
    fn without_partial(&self, bytes: &[u8], from: usize) -> usize {
        (bytes.len() + 1).saturating_sub(self.delimiter.needle().len()).max(from)
    }

    /// The end of the line `start..end` without its carriage return.
    #[inline]
    fn trimmed(&self, bytes: &[u8], start: usize, end: usize) -> usize {
        let has_cr = self.removes_cr && end > start && bytes.get(end - 1) == Some(&b'\r');
        end - usize::from(has_cr)
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

    /// Whether what comes after `from` is too long whatever follows: of its bytes, some may yet turn out to
    /// be a carriage return or the beginning of a delimiter.
    fn exceeds(&self, bytes: &[u8], from: usize) -> bool {
        let slack = usize::from(self.removes_cr) + self.delimiter.needle().len() - 1;
        bytes.len() - from > self.limit.saturating_add(slack)
    }

    /// Drops what is in the buffer and what follows up to the next delimiter.
    fn skip_line(&mut self, bytes: &[u8]) {
        self.skip = Skip::Line;
        self.begin_at(self.without_partial(bytes, self.line.max(self.start)));
    }

    fn begin_at(&mut self, at: usize) {
        (self.start, self.line, self.scanned) = (at, at, at);
    }

    /// No further delimiter is in the buffer.
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

    /// The lines of the message before its last one.
    fn before_line(&self, bytes: &[u8]) -> Range<usize> {
        let end = self.line.saturating_sub(self.delimiter.needle().len()).max(self.start);
        self.start..self.trimmed(bytes, self.start, end)
    }

    /// Whether a line begins a message. Of one that is too long, the first bytes decide.
    fn is_start(&self, bytes: &[u8], line: &Range<usize>) -> bool {
        let end = line.end.min(line.start.saturating_add(self.limit));
        let line = bytes.get(line.start..end).unwrap_or_default();
        self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(line))
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

    /// Cuts up to [`MAX_ROWS`] messages out of the buffer.
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
            positions.push(self.offset + piece.range.start as u64);
            payload.push(&buffer[piece.range]);
        }
        if !positions.is_empty() {
            self.rows = (positions.len() + positions.len() / 8).min(MAX_ROWS);
        }
        let next = match &too_long {
            Some(message) => StreamPosition { offset: message.position, skip: Skip::Nothing },
            None => self.place(),
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
        let reason = format!(
            "is longer than `max_message_bytes` ({}): it begins at byte {position}, and only its first {} bytes \
             are kept",
            ByteSize(self.limit as u64),
            range.len()
        );
        TooLong { range, position, reason }
    }

    /// Returns the offset in the stream of an incomplete message, if `rest` is the begin of one.
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
    /// The message after these, if it exceeds the limit.
    pub too_long: Option<TooLong>,
    /// True if the buffer contains no further complete message.
    pub is_last: bool,
}

/// A message that exceeds the limit.
#[derive(Debug)]
pub struct TooLong {
    /// Its first bytes, within the buffer.
    pub range: Range<usize>,
    /// Its offset in the stream, in bytes.
    pub position: u64,
    /// Why it is rejected.
    pub reason: String,
}
