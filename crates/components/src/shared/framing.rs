//! Cutting bytes into messages.
//!
//! A source reads into a buffer, a [`Cutter`] finds the messages in it, and what is left at the end (the
//! beginning of a message whose end has not been read) is put at the front of the next buffer. A message is a
//! slice of the buffer, so nothing is copied but that rest. The cutter remembers how far it has looked into
//! the rest, so that a message that arrives in a thousand pieces is not looked through a thousand times.
//!
//! What is longer than the limit is known to be so as soon as that many bytes have been seen: it is given as
//! a [`Piece`] that is `too_long`, with its first bytes, and the cutter forgets everything up to where the
//! next message begins. So the buffer never needs room for more than the limit, or twice the limit with a
//! `start_pattern`: whether a line begins the next message is known only when it was seen, up to the limit.
//!
//! A cutter gives the same messages however the input comes in pieces; that is the property it is tested for.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::UInt64Array;
use arrow_buffer::Buffer;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{ByteSize, Pattern, TimeSpan};
use thalweg_engine::{Error, Mark, Mistake, Outlet, Reading};
use thalweg_record::ViewBuilder;

/// How much of a message that is too long is kept, to recognise it by.
const KEPT: usize = 4 << 10;

/// The most messages in a batch: of very short ones, the columns weigh far more than the text.
const MAX_ROWS: usize = 16_384;

/// The longest that messages may be allowed to be: one lies in one buffer, and a buffer is less than 4 GiB.
const MAX_LIMIT: ByteSize = ByteSize::gib(1);

/// The length up to which messages are accepted where nothing else is said.
pub const DEFAULT_LIMIT: ByteSize = ByteSize::mib(1);

/// Where one message ends and the next begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Framing {
    /// What stands between two messages: `"\n"` (the default; a carriage return before it is removed), `"\0"`
    /// for what `find -print0` writes, or any other text. `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH` are
    /// understood.
    pub delimiter: Delimiter,
    /// Messages of several lines: a message begins at each line that matches this regular expression, and
    /// goes on to the next that does. Example: `^\d{4}-\d{2}-\d{2}`.
    pub start_pattern: Option<Pattern>,
    /// With `start_pattern`, on input that is still being written: when no line was added for so long, the
    /// message is regarded as complete. 1 second where nothing is said.
    pub timeout: Option<TimeSpan>,
}

/// What stands between two messages.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Delimiter(Vec<u8>);

impl Default for Delimiter {
    fn default() -> Self {
        Self(b"\n".to_vec())
    }
}

impl TryFrom<String> for Delimiter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            if character != '\\' {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            bytes.push(match rest.next() {
                Some('n') => b'\n',
                Some('r') => b'\r',
                Some('t') => b'\t',
                Some('0') => 0,
                Some('\\') => b'\\',
                Some('x') => {
                    let digits: String = rest.by_ref().take(2).collect();
                    u8::from_str_radix(&digits, 16)
                        .ok()
                        .filter(|_| digits.len() == 2)
                        .ok_or_else(|| format!("`\\x{digits}` is not a byte: write two digits, as in `\\x1e`."))?
                }
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "`\\{other}` is not known here: write `\\n`, `\\r`, `\\t`, `\\0`, `\\xHH`, or `\\\\` for a \
                         backslash."
                    ));
                }
            });
        }
        if bytes.is_empty() {
            return Err("A delimiter cannot be empty: write `\\n`, `\\0` or some other text.".to_owned());
        }
        Ok(Self(bytes))
    }
}

impl From<Delimiter> for String {
    fn from(delimiter: Delimiter) -> Self {
        let mut text = String::new();
        for chunk in delimiter.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\n' => text.push_str("\\n"),
                    '\r' => text.push_str("\\r"),
                    '\t' => text.push_str("\\t"),
                    '\0' => text.push_str("\\0"),
                    '\\' => text.push_str("\\\\"),
                    other => text.push(other),
                }
            }
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
        }
        text
    }
}

impl Framing {
    /// The mistakes that a schema cannot find in the framing options of a component.
    pub fn check(&self, limit: ByteSize) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if limit.bytes() == 0 || limit > MAX_LIMIT {
            let message = format!("`max_message_bytes` is {limit}, but must be between 1 and {MAX_LIMIT}.");
            let mistake = Mistake::new("max_message_bytes", message);
            mistakes.push(mistake.help(format!("The default is {DEFAULT_LIMIT}.")));
        }
        if self.timeout.is_some() && self.start_pattern.is_none() {
            let mistake = Mistake::new("framing", "`timeout` means nothing without `start_pattern`.");
            mistakes.push(mistake.help("Remove it, or say in `start_pattern` how messages begin."));
        }
        mistakes
    }

    /// How long nothing must have come for a message of several lines to be complete: `None` if messages
    /// have an end that can be seen.
    pub fn quiet(&self) -> Option<Duration> {
        let timeout = self.timeout.map_or(Duration::from_secs(1), TimeSpan::duration);
        self.start_pattern.as_ref().map(|_| timeout)
    }
}

/// What is to be passed over before the next message begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Nothing.
    #[default]
    Nothing,
    /// The rest of the line; with a start pattern then also lines that do not match it.
    Line,
    /// Lines, until one matches the start pattern.
    Lines,
}

/// A place in a stream from which a cutter can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The number of bytes before it.
    pub offset: u64,
    /// What is to be passed over there.
    pub skip: Skip,
}

/// What is known of the bytes after those in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// There may be more.
    More,
    /// There may be more, but nothing came for a while: whole lines are not kept back.
    Quiet,
    /// There are none.
    End,
}

/// A message in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies. Of one that is too long, these are its first bytes.
    pub range: Range<usize>,
    /// Whether it exceeds the limit.
    pub too_long: bool,
}

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
    offset: u64,
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
    pub fn new(framing: &Framing, limit: ByteSize, from: Place) -> Self {
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
    pub fn place(&self) -> Place {
        Place { offset: self.offset + self.start as u64, skip: self.skip }
    }

    /// Goes on at another place of the stream, with an empty buffer.
    pub fn seek(&mut self, to: Place) {
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

    /// Cuts what is in `buffer` and sends it, in batches. `mark` says what to remember for a place in the
    /// stream.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub async fn send(
        &mut self,
        buffer: &Buffer,
        after: After,
        path: Option<&Arc<str>>,
        mark: impl Fn(Place) -> Option<Mark>,
        out: &mut Outlet,
    ) -> Result<(), Error> {
        loop {
            let mut payload = ViewBuilder::over(std::slice::from_ref(buffer), self.rows);
            let mut positions = Vec::with_capacity(self.rows);
            let mut too_long = None;
            let mut is_full = true;
            while positions.len() < MAX_ROWS {
                let Some(piece) = self.next(buffer, after) else {
                    is_full = false;
                    break;
                };
                if piece.too_long {
                    too_long = Some(piece.range);
                    break;
                }
                positions.push(self.offset + piece.range.start as u64);
                payload.push(&buffer[piece.range]);
            }
            if !positions.is_empty() {
                self.rows = (positions.len() + positions.len() / 8).min(MAX_ROWS);
                let place = match &too_long {
                    Some(range) => Place { offset: self.offset + range.start as u64, skip: Skip::Nothing },
                    None => self.place(),
                };
                let reading = Reading {
                    payload: payload.finish(),
                    path: path.cloned(),
                    positions: Some(UInt64Array::from(positions)),
                    mark: mark(place),
                };
                out.send(reading).await?;
            }
            if let Some(range) = too_long {
                let position = self.offset + range.start as u64;
                let limit = ByteSize(self.limit as u64);
                let reason = format!(
                    "is longer than `max_message_bytes` ({limit}): it begins at byte {position}, and only its first \
                     {} bytes are kept",
                    range.len()
                );
                self.reject(&buffer[range], position, &reason, path, mark(self.place()), out).await?;
            } else if !is_full {
                return Ok(());
            }
        }
    }

    /// Sends a message to the errors output, as a copy: the buffer is not to be kept for its sake.
    async fn reject(
        &self,
        message: &[u8],
        position: u64,
        reason: &str,
        path: Option<&Arc<str>>,
        mark: Option<Mark>,
        out: &mut Outlet,
    ) -> Result<(), Error> {
        let mut payload = ViewBuilder::over(&[], 1);
        payload.push(message);
        let reading = Reading {
            payload: payload.finish(),
            path: path.cloned(),
            positions: Some(UInt64Array::from(vec![position])),
            mark,
        };
        out.reject(reading, reason).await
    }

    /// Rejects the beginning of a message whose end cannot be read.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub async fn reject_rest(
        &self,
        rest: &[u8],
        reason: &str,
        path: Option<&Arc<str>>,
        out: &mut Outlet,
    ) -> Result<(), Error> {
        if rest.is_empty() || self.skip != Skip::Nothing {
            return Ok(());
        }
        self.reject(rest, self.offset, reason, path, None, out).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framing(delimiter: &[u8], pattern: Option<&str>) -> Framing {
        Framing {
            delimiter: Delimiter(delimiter.to_vec()),
            start_pattern: pattern.map(|pattern| pattern.parse().unwrap()),
            timeout: None,
        }
    }

    /// A message: where it begins, its bytes, and whether it was too long.
    type Cut = (u64, Vec<u8>, bool);

    /// Cuts as a source does, with input that comes in pieces of the given lengths.
    fn cut(framing: &Framing, limit: usize, input: &[u8], chunks: &[usize]) -> Vec<Cut> {
        let mut cutter = Cutter::new(framing, ByteSize(limit as u64), Place::default());
        let (mut buffer, mut cuts, mut rest) = (Vec::new(), Vec::new(), input);
        let mut chunks = chunks.iter().cycle();
        loop {
            let (chunk, after) = rest.split_at((*chunks.next().unwrap()).min(rest.len()));
            rest = after;
            buffer.extend_from_slice(chunk);
            let after = if rest.is_empty() { After::End } else { After::More };
            while let Some(piece) = cutter.next(&buffer, after) {
                let position = cutter.offset + piece.range.start as u64;
                cuts.push((position, buffer[piece.range].to_vec(), piece.too_long));
            }
            let done = cutter.advance();
            buffer.drain(..done);
            let delimiter = framing.delimiter.0.len();
            assert!(buffer.len() <= 2 * limit + 2 * delimiter + 2, "{} bytes are held", buffer.len());
            if rest.is_empty() {
                assert!(buffer.is_empty());
                return cuts;
            }
        }
    }

    /// The same, with all input at hand and no thought of speed.
    fn model(framing: &Framing, limit: usize, input: &[u8]) -> Vec<Cut> {
        let delimiter = &framing.delimiter.0;
        let trim = |line: &[u8]| match line.split_last() {
            Some((b'\r', line)) if delimiter == b"\n" => line.len(),
            _ => line.len(),
        };
        // Lines, as their beginning, the end of their text and the end with the delimiter.
        let mut lines = Vec::new();
        let mut start = 0;
        while start < input.len() {
            let rest = &input[start..];
            let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
            let (text, whole) = match found {
                Some(end) => (trim(&rest[..end]), end + delimiter.len()),
                None => (rest.len(), rest.len()),
            };
            lines.push((start, start + text, start + whole));
            start += whole;
        }
        let mut messages: Vec<(usize, usize)> = Vec::new();
        for (start, end, _) in lines {
            let begins = match &framing.start_pattern {
                Some(pattern) => pattern.is_match(&input[start..end.min(start + limit)]),
                None => true,
            };
            match messages.last_mut() {
                Some(message) if !begins => message.1 = end,
                _ => messages.push((start, end)),
            }
        }
        let cut = |(start, end): (usize, usize)| {
            let too_long = end - start > limit;
            let end = if too_long { start + limit.min(KEPT) } else { end };
            (start as u64, input[start..end].to_vec(), too_long)
        };
        messages.into_iter().map(cut).collect()
    }

    /// Few letters, so that delimiters and their parts are frequent.
    fn letters() -> impl Strategy<Value = u8> {
        prop_oneof![4 => prop::sample::select(b"ab\n\r\0-".to_vec()), 1 => any::<u8>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_messages_are_those_of_the_model_however_the_input_comes(
            delimiter in prop_oneof![
                3 => Just(b"\n".to_vec()),
                1 => Just(b"\0".to_vec()),
                3 => prop::collection::vec(prop::sample::select(b"ab\r\n".to_vec()), 1..4),
            ],
            pattern in prop::option::of(prop::sample::select(vec!["^a", "b$", "a", "^$", "-"])),
            input in prop::collection::vec(letters(), 0..80),
            chunks in prop_oneof![
                Just(vec![1]),
                Just(vec![usize::MAX]),
                prop::collection::vec(1..20usize, 1..6),
            ],
            limit in prop_oneof![3 => 1..12usize, 1 => Just(1000)],
        ) {
            let framing = framing(&delimiter, pattern);
            prop_assert_eq!(cut(&framing, limit, &input, &chunks), model(&framing, limit, &input));
        }

        #[test]
        fn going_on_from_any_place_gives_the_messages_that_were_left(
            pattern in prop::option::of(prop::sample::select(vec!["^a", "-"])),
            input in prop::collection::vec(letters(), 0..80),
            limit in 1..12usize,
            stop in 0..30usize,
            chunk in 1..10usize,
        ) {
            let framing = framing(b"\n", pattern);
            let whole = model(&framing, limit, &input);
            // Until `stop` messages were given, a little of the input at a time.
            let mut cutter = Cutter::new(&framing, ByteSize(limit as u64), Place::default());
            let (mut given, mut read) = (0, 0);
            let place = loop {
                let from = usize::try_from(cutter.offset).unwrap();
                read = (read + chunk).min(input.len());
                let after = if read == input.len() { After::End } else { After::More };
                while given < stop && cutter.next(&input[from..read], after).is_some() {
                    given += 1;
                }
                let place = cutter.place();
                cutter.advance();
                if given == stop || read == input.len() {
                    break place;
                }
            };
            let mut cutter = Cutter::new(&framing, ByteSize(limit as u64), place);
            let rest = &input[usize::try_from(place.offset).unwrap()..];
            let mut left = Vec::new();
            while let Some(piece) = cutter.next(rest, After::End) {
                left.push(cutter.offset + piece.range.start as u64);
            }
            let expected: Vec<u64> = whole.iter().skip(given).map(|cut| cut.0).collect();
            prop_assert_eq!(left, expected);
        }

        #[test]
        fn a_delimiter_is_written_as_it_is_read(bytes in prop::collection::vec(any::<u8>(), 1..8)) {
            let delimiter = Delimiter(bytes);
            prop_assert_eq!(Delimiter::try_from(String::from(delimiter.clone())), Ok(delimiter));
        }
    }

    fn texts(cuts: &[Cut]) -> Vec<&str> {
        cuts.iter().map(|cut| std::str::from_utf8(&cut.1).unwrap()).collect()
    }

    #[test]
    fn a_carriage_return_is_removed_before_a_line_feed_and_nowhere_else() {
        let lines = framing(b"\n", None);
        for chunk in [1, 3, 100] {
            let cuts = cut(&lines, 100, b"a\r\nb\rc\n\r\nd\r\r\ne\r", &[chunk]);
            assert_eq!(texts(&cuts), ["a", "b\rc", "", "d\r", "e\r"]);
        }
        assert_eq!(texts(&cut(&framing(b"\0", None), 100, b"a\r\0b\n", &[1])), ["a\r", "b\n"]);
    }

    #[test]
    fn lines_without_the_start_pattern_belong_to_the_message_before() {
        let trace = framing(b"\n", Some(r"^\d"));
        let input = b"  left over\n1 panic\n  at a\r\n  at b\r\n2 fine\n3 last";
        for chunk in [1, 2, 7, 100] {
            let cuts = cut(&trace, 100, input, &[chunk]);
            assert_eq!(texts(&cuts), ["  left over", "1 panic\n  at a\r\n  at b", "2 fine", "3 last"]);
        }
    }

    #[test]
    fn lines_are_not_kept_back_when_nothing_came_for_a_while() {
        let mut cutter = Cutter::new(&framing(b"\n", Some("^a")), DEFAULT_LIMIT, Place::default());
        let input = b"a1\n b\npart";
        assert_eq!(cutter.next(input, After::More), None);
        assert_eq!(cutter.next(input, After::Quiet), Some(Piece { range: 0..5, too_long: false }));
        assert_eq!(cutter.next(input, After::Quiet), None);
        assert_eq!(cutter.place().offset, 6);
    }

    #[test]
    fn a_wrong_delimiter_is_explained() {
        let refused = |text: &str| Delimiter::try_from(text.to_owned()).unwrap_err();
        assert!(refused("").contains("cannot be empty"));
        assert!(refused("\\").contains("`\\` is not known here"));
        assert!(refused("\\q").contains("`\\q` is not known here"));
        assert!(refused("\\x1").contains("`\\x1` is not a byte"));
        assert_eq!(Delimiter::try_from("\\r\\n\\x1e|".to_owned()), Ok(Delimiter(b"\r\n\x1e|".to_vec())));
    }
}
