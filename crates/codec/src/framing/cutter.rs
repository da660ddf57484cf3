//! Finds the messages in the bytes that were read.

use std::ops::Range;

use memchr::memmem::Finder;
use regex::bytes::Regex;
use thalweg_config::ByteSize;

use crate::charset::Charset;

use super::cri::Joiner;
use super::{After, Framing, Join, Piece, Skip, StreamPosition};

/// The maximum number of bytes kept of a message that is too long, so that it can be recognised.
pub const KEPT: usize = 4 << 10;

/// A message of this size, in bytes, is not too long for any budget.
const USUAL: usize = 64 << 10;

/// Finds messages in the bytes of a stream.
#[derive(Debug)]
pub struct Cutter {
    delimiter: Finder<'static>,
    /// The delimiter, if it is a single byte.
    byte: Option<u8>,
    /// The carriage return that is removed before a line feed; otherwise empty.
    carriage_return: Vec<u8>,
    pub(super) charset: Charset,
    /// True if the delimiter is searched from character to character.
    walks: bool,
    /// True before the first bytes of a text, which may be a byte order mark.
    awaits_mark: bool,
    /// True if a byte order mark is no part of the first message.
    drops_mark: bool,
    pub(super) join: Option<Box<Joiner>>,
    pattern: Option<Regex>,
    pub(super) limit: usize,
    /// The part of the memory that the limit is, if that is below the configured limit.
    pub(super) of_memory: Option<&'static str>,
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
    pub(super) rows: usize,
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
            walks: false,
            awaits_mark: false,
            drops_mark: false,
            join: framing.join.map(|Join::Cri| Box::new(Joiner::new(limit.as_usize(), from.join))),
            pattern: framing.start_pattern.as_ref().map(|pattern| pattern.regex().clone()),
            limit: limit.as_usize(),
            of_memory: None,
            offset: from.offset,
            start: 0,
            line: 0,
            scanned: 0,
            skip: from.skip,
            rows: 64,
        }
    }

    /// Reads a text in this character set, without a byte order mark at its start. Messages are decoded, see
    /// [`next_batch`](Self::next_batch).
    #[must_use]
    pub fn reading(mut self, charset: Charset) -> Self {
        self.drops_mark = true;
        self.awaits_mark = self.offset == 0;
        self.read(charset);
        self
    }

    /// Searches for the delimiter in this character set. The present one may have another order of bytes.
    fn read(&mut self, charset: Charset) {
        if charset == self.charset {
            return;
        }
        let recoded = |bytes: &[u8]| -> Vec<u8> {
            match self.charset.unit() {
                1 => charset.encoded(bytes),
                _ => bytes.chunks(2).flat_map(|unit| unit.iter().rev()).copied().collect(),
            }
        };
        let delimiter = recoded(self.delimiter.needle());
        self.carriage_return = recoded(&self.carriage_return);
        self.byte = match delimiter[..] {
            [byte] => Some(byte),
            _ => None,
        };
        self.walks = charset.may_mistake(&delimiter);
        self.delimiter = Finder::new(&delimiter).into_owned();
        self.charset = charset;
    }

    /// Learns the order of the bytes from the first bytes of the stream, if they have a byte order mark: for
    /// a start in the middle.
    pub fn learn_order(&mut self, first: &[u8]) {
        if let Some((_, charset)) = self.charset.after_mark(first, true) {
            self.read(charset);
        }
    }

    /// Returns the character set, in the order of bytes that the byte order mark tells.
    pub(crate) fn charset(&self) -> Charset {
        self.charset
    }

    /// Limits a message to half of `memory` bytes as well: while a long message is read, there are two
    /// buffers with it. A message that is decoded or joined is limited to a quarter. Messages of the usual
    /// size pass with any budget.
    pub fn within(&mut self, memory: usize) {
        let (share, text) = match self.charset.is_utf8() && self.join.is_none() {
            true => (memory / 2, "half of `memory`"),
            false => (memory / 4, "a quarter of `memory`"),
        };
        let most = share.max(USUAL);
        if most < self.limit {
            (self.limit, self.of_memory) = (most, Some(text));
            if let Some(join) = &mut self.join {
                join.limit = most;
            }
        }
    }

    /// Returns the position after the messages that were returned so far.
    pub fn position(&self) -> StreamPosition {
        let here = StreamPosition {
            offset: self.offset + self.start as u64,
            skip: self.skip,
            big_endian: self.charset.is_marked() && self.charset.is_big_endian(),
            join: None,
        };
        match &self.join {
            Some(join) => join.position(here),
            None => here,
        }
    }

    /// Returns the index in the buffer at which the incomplete message begins.
    pub(crate) fn begun(&self) -> usize {
        self.start
    }

    /// Continues at another position of the stream, with an empty buffer.
    pub fn seek(&mut self, to: StreamPosition) {
        (self.offset, self.skip) = (to.offset, to.skip);
        (self.start, self.line, self.scanned) = (0, 0, 0);
        self.awaits_mark = self.drops_mark && to.offset == 0;
        self.read(self.charset.ordered(to.big_endian));
        if let Some(join) = &mut self.join {
            **join = Joiner::new(join.limit, to.join);
        }
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
        if self.awaits_mark && !self.pass_mark(bytes, after) {
            return None;
        }
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

    /// Skips a byte order mark at the start of the stream. Returns false if more bytes are needed to tell.
    fn pass_mark(&mut self, bytes: &[u8], after: After) -> bool {
        let Some((length, charset)) = self.charset.after_mark(bytes, after == After::End) else {
            return false;
        };
        self.awaits_mark = false;
        self.begin_at(length);
        self.read(charset);
        true
    }

    #[inline]
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.walks {
            return self.find_walking(bytes);
        }
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

    /// Finds a delimiter at the start of a character. Looks at each character once.
    fn find_walking(&mut self, bytes: &[u8]) -> Option<usize> {
        let delimiter = self.delimiter.needle();
        loop {
            let rest = bytes.get(self.scanned..).unwrap_or_default();
            if rest.starts_with(delimiter) {
                return Some(self.scanned);
            }
            if rest.len() < delimiter.len() {
                return None;
            }
            self.scanned += self.charset.character(rest)?;
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
        // Up to three bytes may be needed to tell where the character before a delimiter ends.
        let undecided = if self.walks { 3 } else { 0 };
        let slack = self.carriage_return.len() + self.delimiter.needle().len() - 1 + undecided;
        bytes.len() - from > self.limit.saturating_add(slack)
    }

    /// Drops the bytes in the buffer that have no delimiter, and those up to the next one.
    fn skip_line(&mut self) {
        self.skip = Skip::Line;
        self.begin_at(self.scanned);
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
            self.skip_line();
        } else if self.exceeds(bytes, start) {
            self.skip_line();
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
            self.skip_line();
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
            self.skip_line();
            return is_message.then(|| self.too_long(start));
        }
        None
    }

    /// True within a message that was too long, the rest of which is skipped.
    pub fn is_skipping(&self) -> bool {
        self.skip != Skip::Nothing || self.join.as_ref().is_some_and(|join| join.is_skipping())
    }

    /// Returns the offset in the stream of the incomplete message, in bytes. `rest` holds its bytes. `None`
    /// if there is no incomplete message.
    pub fn incomplete(&self, rest: &[u8]) -> Option<u64> {
        (!rest.is_empty() && self.skip == Skip::Nothing).then_some(self.offset)
    }
}
