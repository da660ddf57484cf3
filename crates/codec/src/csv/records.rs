//! Finds the ends of the records of a file.
//!
//! A line feed ends a record unless it is within quotes. A quote counts only where it opens a value, as in
//! [`Dialect`]. One unclosed quote would make a single record of the rest of the file, so records have a
//! limit. If a record is longer, or is not closed at the end of the file, only its first line is rejected.
//! The next record begins at the next line. No decision depends on more bytes than the limit, so a file
//! yields the same records however it is split into reads. (`csv-core` was considered: it copies all values
//! and has no limits.)
//!
//! An incomplete record is scanned again when more of it has been read. The buffer at least doubles each
//! time, so this costs little.
//!
//! See docs/decisions/029-hot-codecs-are-our-own.md.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2};
use serde::{Deserialize, Serialize};
use thalweg_config::ByteSize;

use super::Dialect;
use super::skeleton::{MARK, skeleton};
use crate::charset::Charset;
use crate::framing::KEPT;

/// The byte order mark of UTF-8, which some programs write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A record in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The range of the record in the searched bytes, without its line end. If the record has a fault, the
    /// range is its first line, or the start of that line.
    pub range: Range<usize>,
    /// The number of the line in the file on which the record begins. Lines count from 1.
    pub line: u64,
    /// The reason why the record cannot be used.
    pub fault: Option<Fault>,
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The record is longer than the limit, or has a quote that is not closed within the limit.
    TooLong,
    /// The record has a quote that is not closed before the end of the file.
    NotClosed,
}

/// A position between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordPosition {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The number of the line, counted from 1.
    pub line: u64,
    /// True if the bytes up to the next line feed must be skipped.
    pub skips: bool,
}

impl Default for RecordPosition {
    fn default() -> Self {
        Self { offset: 0, line: 1, skips: false }
    }
}

/// Finds the records in the bytes of a file.
#[derive(Debug)]
pub struct Records {
    dialect: Dialect,
    charset: Charset,
    /// The byte order mark that the searched bytes may begin with.
    mark: &'static [u8],
    limit: usize,
    has_begun: bool,
    /// The offset of the buffer in the file, in bytes.
    offset: u64,
    /// The index in the buffer at which the next record begins.
    start: usize,
    /// The number of the line at `start`.
    line: u64,
    /// True if the bytes up to the next line feed must be skipped.
    skips: bool,
}

/// The end of a record.
struct End {
    /// The end of the record without its line end.
    end: usize,
    /// The start of the next record.
    next: usize,
    /// The number of line feeds before `next`.
    lines: u64,
}

impl Records {
    /// Starts at a position in a file. A record may have at most `limit` bytes.
    pub fn new(dialect: Dialect, limit: ByteSize, from: RecordPosition) -> Self {
        let RecordPosition { offset, line, skips } = from;
        Self {
            dialect,
            charset: Charset::default(),
            mark: BYTE_ORDER_MARK,
            limit: limit.as_usize(),
            has_begun: offset > 0,
            offset,
            start: 0,
            line,
            skips,
        }
    }

    /// Reads a file in this character set. Records are searched in [`searched`](Self::searched) bytes.
    #[must_use]
    pub fn reading(mut self, charset: Charset) -> Self {
        if !charset.has_ascii() {
            self.limit = (self.limit / charset.unit()).max(1);
            self.mark = &[MARK];
        }
        self.charset = charset;
        self
    }

    /// Returns the bytes to search in place of those in the buffer: the same, if the character set has the
    /// syntax in its usual bytes.
    pub fn searched<'b>(&self, bytes: &'b [u8], is_end: bool) -> Cow<'b, [u8]> {
        let Dialect { delimiter, quote, .. } = self.dialect;
        let syntax = [delimiter, quote.unwrap_or(delimiter)];
        if self.charset.has_ascii() && !self.charset.may_mistake(&syntax) {
            return Cow::Borrowed(bytes);
        }
        Cow::Owned(skeleton(self.charset, bytes, is_end))
    }

    /// Returns the range in the buffer of a range of the searched bytes.
    pub fn in_buffer(&self, range: &Range<usize>) -> Range<usize> {
        range.start * self.charset.unit()..range.end * self.charset.unit()
    }

    /// Returns the position at which the next record begins.
    pub fn position(&self) -> RecordPosition {
        RecordPosition { offset: self.offset_of(self.start), line: self.line, skips: self.skips }
    }

    /// Returns the offset in the file of an index in the searched bytes, in bytes.
    pub fn offset_of(&self, at: usize) -> u64 {
        self.offset + (at * self.charset.unit()) as u64
    }

    /// Returns the next record that is not empty, or `None` if the buffer has no complete one. `bytes` are
    /// the searched bytes of the whole buffer. It must only grow until [`advance`](Self::advance) is called.
    /// `is_end` is true if the file ends with the buffer.
    #[inline]
    pub fn next(&mut self, bytes: &[u8], is_end: bool) -> Option<Record> {
        if !self.has_begun {
            if bytes.len() < self.mark.len() && !is_end {
                return None;
            }
            self.has_begun = true;
            self.start = if bytes.starts_with(self.mark) { self.mark.len() } else { 0 };
        }
        loop {
            let rest = bytes.get(self.start..).unwrap_or_default();
            if rest.is_empty() {
                return None;
            }
            if self.skips {
                let Some(end) = memchr(b'\n', rest) else {
                    self.start = bytes.len();
                    return None;
                };
                self.skips = false;
                self.start += end + 1;
                self.line += 1;
                continue;
            }
            // A record of the maximum length, with its line end.
            let most = self.limit.saturating_add(2);
            let is_last = is_end && rest.len() < most;
            let window = rest.get(..most).unwrap_or(rest);
            let (start, line) = (self.start, self.line);
            match self.end(window, is_last) {
                Some(End { end, next, lines }) if end <= self.limit => {
                    self.start += next;
                    self.line += lines;
                    if end > 0 {
                        return Some(Record { range: start..start + end, line, fault: None });
                    }
                }
                None if !is_last && rest.len() < most => return None,
                found => {
                    let fault = if is_last && found.is_none() { Fault::NotClosed } else { Fault::TooLong };
                    let length = self.skip_first_line(window, is_last);
                    return Some(Record { range: start..start + length, line, fault: Some(fault) });
                }
            }
        }
    }

    /// Skips the first line. Returns how many of its bytes the faulty record contains.
    fn skip_first_line(&mut self, window: &[u8], is_last: bool) -> usize {
        if let Some(end) = memchr(b'\n', window) {
            self.start += end + 1;
            self.line += 1;
            return trimmed(window, end);
        }
        self.start += window.len();
        self.skips = !is_last;
        if is_last { window.len() } else { window.len().min(KEPT) }
    }

    /// Returns the end of the record at the start of the window. `is_last` is true if no bytes follow the
    /// window.
    #[inline]
    fn end(&self, window: &[u8], is_last: bool) -> Option<End> {
        let at_end =
            |lines| is_last.then(|| End { end: trimmed(window, window.len()), next: window.len(), lines });
        let (mut at, mut lines) = (0, 0);
        loop {
            let rest = window.get(at..).unwrap_or_default();
            let found = match self.dialect.quote {
                Some(quote) => memchr2(quote, b'\n', rest),
                None => memchr(b'\n', rest),
            };
            let Some(found) = found else { return at_end(lines) };
            let found = at + found;
            if window.get(found) == Some(&b'\n') {
                return Some(End { end: trimmed(window, found), next: found + 1, lines: lines + 1 });
            }
            at = found + 1;
            if self.opens(window, found) {
                let closed = self.close(window, at)?;
                lines += memchr_iter(b'\n', window.get(at..closed).unwrap_or_default()).count() as u64;
                at = closed;
            }
        }
    }

    /// True if the quote is at the start of a value.
    fn opens(&self, window: &[u8], quote: usize) -> bool {
        let before = window.get(..quote).unwrap_or_default();
        let is_space =
            |byte: &u8| self.dialect.trim && matches!(byte, b' ' | b'\t') && *byte != self.dialect.delimiter;
        let last = before.iter().rev().find(|byte| !is_space(byte));
        last.is_none_or(|&byte| byte == self.dialect.delimiter)
    }

    /// Returns the index after the quote that closes a value. The text of the value begins at `at`.
    fn close(&self, window: &[u8], mut at: usize) -> Option<usize> {
        let quote = self.dialect.quote?;
        loop {
            at += memchr(quote, window.get(at..)?)? + 1;
            if window.get(at) != Some(&quote) {
                return Some(at);
            }
            at += 1;
        }
    }

    /// Drops the bytes before the incomplete record, and returns their number. From then on, the buffer must
    /// begin with that record.
    pub fn advance(&mut self) -> usize {
        let done = std::mem::take(&mut self.start) * self.charset.unit();
        self.offset += done as u64;
        done
    }
}

/// Returns the end of a line without its carriage return.
#[inline]
fn trimmed(window: &[u8], end: usize) -> usize {
    let has_return = end > 0 && window.get(end - 1) == Some(&b'\r');
    end - usize::from(has_return)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dialect(trim: bool) -> Dialect {
        Dialect { delimiter: b',', quote: Some(b'"'), trim, flexible: false }
    }

    /// A record that was found: its line, text, offset in the file, and fault.
    type Found = (u64, String, u64, Option<Fault>);

    /// Reads as a component does, in pieces of these lengths.
    fn read(dialect: Dialect, limit: u64, text: &[u8], pieces: &[usize]) -> Vec<Found> {
        let mut records = Records::new(dialect, ByteSize(limit), RecordPosition::default());
        let (mut buffer, mut rest, mut found) = (Vec::new(), text, Vec::new());
        let mut pieces = pieces.iter().cycle();
        loop {
            let (piece, after) = rest.split_at((*pieces.next().unwrap()).min(rest.len()));
            rest = after;
            buffer.extend_from_slice(piece);
            while let Some(Record { range, line, fault }) = records.next(&buffer, rest.is_empty()) {
                let position = records.offset_of(range.start);
                found.push((line, String::from_utf8_lossy(&buffer[range]).into_owned(), position, fault));
            }
            let done = records.advance();
            buffer.drain(..done);
            assert!(
                buffer.len() < limit as usize + 2 + BYTE_ORDER_MARK.len(),
                "{} bytes are held",
                buffer.len()
            );
            if rest.is_empty() {
                return found;
            }
        }
    }

    fn texts(text: &str, trim: bool) -> Vec<String> {
        read(dialect(trim), 1 << 20, text.as_bytes(), &[7]).into_iter().map(|found| found.1).collect()
    }

    #[test]
    fn line_feeds_within_quotes_end_nothing() {
        assert_eq!(
            texts("a,b\n\"1\n2\",3\r\n4,\"x\"\"\n\"\n", false),
            ["a,b", "\"1\n2\",3", "4,\"x\"\"\n\""]
        );
        assert_eq!(texts("a\"b\nc \"d\n", false), ["a\"b", "c \"d"]);
        assert_eq!(texts("a, \"b\nc\"\nd", true), ["a, \"b\nc\"", "d"]);
        assert_eq!(texts("a, \"b\nc\"\nd", false), ["a, \"b", "c\"", "d"]);
    }

    #[test]
    fn empty_lines_are_passed_over_and_lines_are_counted() {
        let found = read(dialect(false), 100, b"\xef\xbb\xbfa\n\r\n\n\"b\n\n\"\nc\r", &[1]);
        let lines: Vec<_> = found.iter().map(|(line, text, at, _)| (*line, text.as_str(), *at)).collect();
        assert_eq!(lines, [(1, "a", 3), (4, "\"b\n\n\"", 8), (7, "c", 14)]);
    }

    #[test]
    fn a_quote_that_is_not_closed_costs_one_line() {
        let found = read(dialect(false), 1 << 20, b"a,b\n\"1,2\n3,4\n5,6", &[1 << 10]);
        let found: Vec<_> = found.iter().map(|(_, text, _, fault)| (text.as_str(), *fault)).collect();
        let not_closed = Some(Fault::NotClosed);
        assert_eq!(found, [("a,b", None), ("\"1,2", not_closed), ("3,4", None), ("5,6", None)]);
    }

    #[test]
    fn what_is_too_long_is_passed_over_up_to_the_next_line() {
        let text = format!("a\n{}\nb\n", "x".repeat(10_000));
        let found = read(dialect(false), 5_000, text.as_bytes(), &[100]);
        let found: Vec<_> = found.iter().map(|(line, text, _, fault)| (*line, text.len(), *fault)).collect();
        assert_eq!(found, [(1, 1, None), (2, KEPT, Some(Fault::TooLong)), (3, 1, None)]);
    }

    proptest! {
        #[test]
        fn a_file_gives_the_same_records_however_it_comes_in_pieces(
            text in "[ab\",\n\r \t]{0,120}",
            pieces in prop::collection::vec(1..20usize, 1..5),
            limit in prop_oneof![4..20u64, Just(1000)],
            trim in any::<bool>(),
        ) {
            let whole = read(dialect(trim), limit, text.as_bytes(), &[1 << 20]);
            prop_assert_eq!(&read(dialect(trim), limit, text.as_bytes(), &pieces), &whole);
            for (line, found, position, fault) in whole {
                let at = position as usize;
                prop_assert_eq!(&text[at..at + found.len()], &found);
                prop_assert_eq!(text[..at].matches('\n').count() as u64 + 1, line);
                prop_assert!(fault.is_some() || found.len() <= limit as usize);
            }
        }

        #[test]
        fn what_was_written_is_what_is_read(
            rows in prop::collection::vec(prop::collection::vec("[a-c\",\n\r ]{0,6}", 2..4), 0..20),
            pieces in prop::collection::vec(1..30usize, 1..5),
        ) {
            let quoted = |value: &String| format!("\"{}\"", value.replace('"', "\"\""));
            let written: Vec<String> =
                rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",")).collect();
            let text: String = written.iter().flat_map(|row| [row.as_str(), "\r\n"]).collect();
            let read = read(dialect(false), 1 << 20, text.as_bytes(), &pieces);
            prop_assert!(read.iter().all(|found| found.3.is_none()));
            prop_assert_eq!(read.into_iter().map(|found| found.1).collect::<Vec<_>>(), written);
        }
    }
}
