//! Finds the messages in a network stream: by a delimiter, a length before each message, or a fixed size.
//!
//! The [`Cutter`] handles delimiters, as for files. Lengths need a state of their own, because they can be
//! wrong. The message after a wrong length cannot be found, so a wrong length ends the stream.

use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, Mistake, Pattern, TimeSpan};

use crate::charset::Charset;
use crate::framing::{After, Cutter, Delimiter, Framing, KEPT, Piece, StreamPosition};
use crate::journal::Entries;

/// The maximum plausible length, in bytes. A larger number was read at the wrong position.
const LONGEST: usize = 1 << 30;

/// Where one message ends and the next begins.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamFraming {
    /// How messages are separated.
    pub by: By,
    /// The text between two messages; with `ascii`, between the length and the message. The default is
    /// `"\n"`. The escapes are `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH`.
    pub delimiter: Delimiter,
    /// For `ascii`, `varint` and the binary lengths: the number of bytes before the length. The length does
    /// not include them.
    #[schemars(range(max = 65_536))]
    pub offset: usize,
    /// For binary lengths: the size of the length in bytes, 1, 2, 4 (the default) or 8. For `fixed`: the size
    /// of a message in bytes; the default is 1.
    pub size: Option<ByteSize>,
    /// True to keep the delimiter, or the bytes before a message, as a part of the message. The default is
    /// `false`, except in sources and sinks of the kind `proxy`.
    pub whole: Option<bool>,
    /// For `delimiter`: messages of several lines. A message begins at each line that matches this regular
    /// expression, and ends before the next such line. Example: `^\d{4}-\d{2}-\d{2}`.
    pub start_pattern: Option<Pattern>,
    /// With `start_pattern`: the time without a new line after which the message is complete. The default is
    /// 1 second.
    pub timeout: Option<TimeSpan>,
}

/// How messages are separated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Each message ends with `delimiter`.
    #[default]
    Delimiter,
    /// Each message begins with its length as text, followed by `delimiter`.
    Ascii,
    /// Each message begins with its length as a binary number, lowest byte first (little-endian).
    BinaryLe,
    /// Each message begins with its length as a binary number, highest byte first (big-endian).
    BinaryBe,
    /// Each message begins with its length as an integer of variable length, as Protocol Buffers write a
    /// stream of messages (`writeDelimitedTo`). `parse_protobuf` parses the messages.
    Varint,
    /// All messages have the same size.
    Fixed,
    /// Graylog's GELF: in a stream, each message ends with a NUL. In datagrams, chunks are joined, and
    /// messages that are compressed with gzip or zlib are decompressed. `parse_gelf` parses the messages.
    Gelf,
    /// The export format of systemd's journal: each message is an entry. `parse_journal` parses the entries.
    Journal,
}

impl StreamFraming {
    fn framing(&self) -> Framing {
        Framing {
            delimiter: match self.by {
                By::Gelf => Delimiter::nul(),
                _ => self.delimiter.clone(),
            },
            start_pattern: self.start_pattern.clone(),
            timeout: self.timeout,
            join: None,
        }
    }

    /// Returns the mistakes that a schema cannot find.
    pub fn check(&self, limit: ByteSize) -> Vec<Mistake> {
        let mut mistakes = self.framing().check(limit);
        let mut mistake = |message: &str, help: &str| {
            mistakes.push(Mistake::new("framing", message).help(help));
        };
        if self.start_pattern.is_some() && self.by != By::Delimiter {
            mistake(
                "`start_pattern` is for messages that end with a delimiter.",
                "Leave out `by`, or the pattern.",
            );
        }
        if self.offset > 0 && matches!(self.by, By::Delimiter | By::Fixed | By::Gelf | By::Journal) {
            mistake(
                "`offset` is for messages that begin with their length.",
                "Leave it out, or change `by`.",
            );
        }
        if matches!(self.by, By::Gelf | By::Journal) && self.delimiter != Delimiter::default() {
            mistake("`delimiter` has no effect here.", "Leave it out, or change `by`.");
        }
        let size = self.size.map(ByteSize::bytes);
        match self.by {
            By::Delimiter | By::Ascii | By::Varint | By::Gelf | By::Journal if size.is_some() => {
                mistake("`size` has no effect here.", "Leave it out, or change `by`.");
            }
            By::BinaryLe | By::BinaryBe if !matches!(size, None | Some(1 | 2 | 4 | 8)) => {
                mistake("A length has 1, 2, 4 or 8 bytes.", "For example `{ by: binary_be, size: 2 }`.");
            }
            By::Fixed if size == Some(0) || size > Some(limit.bytes()) => {
                mistake("`size` must be at least 1 and at most `max_message_bytes`.", "For example `256`.");
            }
            _ => {}
        }
        mistakes
    }

    /// Returns the time without input after which a message of several lines is complete. `None` without a
    /// `start_pattern`: then each message has a visible end.
    pub fn quiet(&self) -> Option<Duration> {
        self.framing().quiet()
    }

    /// Starts a new stream. `whole` is the default of the option `whole`.
    pub fn begin(&self, limit: ByteSize, whole: bool) -> StreamCutter {
        let size = self.size.map(ByteSize::as_usize);
        let begun =
            |kind| StreamCutter { kind, whole: self.whole.unwrap_or(whole), charset: Charset::default() };
        let head = match self.by {
            By::Delimiter | By::Gelf => {
                let cutter = Cutter::new(&self.framing(), limit, StreamPosition::default());
                return begun(Kind::Cut(Box::new(cutter)));
            }
            By::Journal => return begun(Kind::Entries(Entries::new(limit.as_usize()))),
            By::Ascii => Head::Ascii { offset: self.offset, delimiter: self.delimiter.bytes().to_vec() },
            By::BinaryLe => Head::Binary { offset: self.offset, size: size.unwrap_or(4), is_big: false },
            By::BinaryBe => Head::Binary { offset: self.offset, size: size.unwrap_or(4), is_big: true },
            By::Varint => Head::Varint { offset: self.offset },
            By::Fixed => Head::Fixed(size.unwrap_or(1)),
        };
        begun(Kind::Measured(Measured::new(head, limit)))
    }
}

/// Finds messages in the bytes of a stream.
#[derive(Debug)]
pub struct StreamCutter {
    kind: Kind,
    whole: bool,
    charset: Charset,
}

#[derive(Debug)]
enum Kind {
    Cut(Box<Cutter>),
    Measured(Measured),
    Entries(Entries),
    /// Decided by the first byte: a digit begins a length.
    Undecided(ByteSize),
}

impl StreamCutter {
    /// Finds messages of RFC 6587. Each has its length before it, or ends with a line feed; the first byte of
    /// the stream tells which.
    pub fn of_syslog(limit: ByteSize) -> Self {
        Self { kind: Kind::Undecided(limit), whole: false, charset: Charset::default() }
    }

    /// Finds messages of RFC 6587 that have their length before them.
    pub fn of_octets(limit: ByteSize) -> Self {
        let head = Head::Ascii { offset: 0, delimiter: b" ".to_vec() };
        let kind = Kind::Measured(Measured::new(head, limit));
        Self { kind, whole: false, charset: Charset::default() }
    }

    /// Reads a text in this character set: the delimiter is searched in it, and a byte order mark at the
    /// start is skipped. Messages are not decoded.
    #[must_use]
    pub fn reading(self, charset: Charset) -> Self {
        let kind = match self.kind {
            Kind::Cut(cutter) => Kind::Cut(Box::new(cutter.reading(charset))),
            kind => kind,
        };
        Self { kind, charset, ..self }
    }

    /// Returns the character set of the messages, in the order of bytes that the byte order mark tells.
    pub fn charset(&self) -> Charset {
        match &self.kind {
            Kind::Cut(cutter) if !self.charset.is_utf8() => cutter.charset(),
            _ => self.charset,
        }
    }

    /// Returns the next message, or `None` if the buffer has no complete one. `bytes` is the whole buffer. It
    /// must only grow until [`advance`](Self::advance) is called.
    ///
    /// # Errors
    /// The reason why the rest of the stream cannot be used: a length is wrong, or the stream ends within a
    /// message. After `advance`, the buffer begins with the faulty message.
    pub fn next(&mut self, bytes: &[u8], after: After) -> Result<Option<Piece>, String> {
        if let Kind::Undecided(limit) = self.kind {
            *self = match bytes.first() {
                None => return Ok(None),
                Some(b'1'..=b'9') => Self::of_octets(limit),
                Some(_) => StreamFraming::default().begin(limit, false),
            }
            .reading(self.charset);
        }
        match &mut self.kind {
            Kind::Undecided(_) => Ok(None),
            Kind::Measured(measured) => measured.next(bytes, after, self.whole),
            Kind::Entries(entries) => {
                let piece = entries.next(bytes, after)?;
                Ok(piece.map(|piece| if self.whole { piece.up_to(entries.begun()) } else { piece }))
            }
            Kind::Cut(cutter) => {
                let piece = cutter.next(bytes, after);
                Ok(piece.map(|piece| if self.whole { piece.up_to(cutter.begun()) } else { piece }))
            }
        }
    }

    /// Drops the bytes before the incomplete message, and returns their number. From then on, the buffer must
    /// begin with that message.
    pub fn advance(&mut self) -> usize {
        match &mut self.kind {
            Kind::Cut(cutter) => cutter.advance(),
            Kind::Measured(measured) => std::mem::take(&mut measured.start),
            Kind::Entries(entries) => entries.advance(),
            Kind::Undecided(_) => 0,
        }
    }
}

/// Finds messages whose size is known before they arrive.
#[derive(Debug)]
struct Measured {
    head: Head,
    limit: usize,
    /// The index in the buffer at which the incomplete message begins.
    start: usize,
    /// The number of bytes to skip: the rest of a message that is too long.
    skip: usize,
}

#[derive(Debug)]
enum Head {
    Ascii { offset: usize, delimiter: Vec<u8> },
    Binary { offset: usize, size: usize, is_big: bool },
    Varint { offset: usize },
    Fixed(usize),
}

impl Head {
    /// Returns the number of bytes before a message and in it. `None` if more bytes are needed to tell.
    fn read(&self, bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
        match self {
            Head::Fixed(size) => Ok(Some((0, *size))),
            Head::Binary { offset, size, is_big } => {
                let Some(number) = bytes.get(*offset..offset + size) else { return Ok(None) };
                let add = |length: u64, byte: &u8| length << 8 | u64::from(*byte);
                let length = match is_big {
                    true => number.iter().fold(0, add),
                    false => number.iter().rev().fold(0, add),
                };
                Ok(Some((offset + size, plausible(length)?)))
            }
            Head::Varint { offset } => {
                let rest = bytes.get(*offset..).unwrap_or_default();
                Ok(varint(rest)?.map(|(size, length)| (offset + size, length)))
            }
            Head::Ascii { offset, delimiter } => {
                let Some(text) = bytes.get(*offset..) else { return Ok(None) };
                let digits = text.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
                if digits == text.len() {
                    return Ok(None);
                }
                let number = text.get(..digits).and_then(|digits| std::str::from_utf8(digits).ok());
                let length = number.and_then(|number| number.parse().ok());
                let Some(length) = length else { return Err("does not begin with a length".to_owned()) };
                let rest = text.get(digits..).unwrap_or_default();
                let known = rest.len().min(delimiter.len());
                if rest.get(..known) != delimiter.get(..known) {
                    return Err("has no delimiter after its length".to_owned());
                }
                if known < delimiter.len() {
                    return Ok(None);
                }
                Ok(Some((offset + digits + known, plausible(length)?)))
            }
        }
    }
}

/// Returns the size and the value of a length of variable size. `None` if more bytes are needed to tell.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
    /// The number of bytes of the largest plausible length.
    const LONGEST_VARINT: usize = 5;
    let mut length = 0;
    for (number, byte) in bytes.iter().take(LONGEST_VARINT).enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * number);
        if *byte < 0x80 {
            return Ok(Some((number + 1, plausible(length)?)));
        }
    }
    if bytes.len() < LONGEST_VARINT { Ok(None) } else { plausible(u64::MAX).map(|_| None) }
}

fn plausible(length: u64) -> Result<usize, String> {
    let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
    length.ok_or_else(|| "begins with a length of more than 1 GiB".to_owned())
}

impl Measured {
    fn new(head: Head, limit: ByteSize) -> Self {
        Self { head, limit: limit.as_usize(), start: 0, skip: 0 }
    }

    fn next(&mut self, bytes: &[u8], after: After, whole: bool) -> Result<Option<Piece>, String> {
        let passed = self.skip.min(bytes.len() - self.start);
        self.start += passed;
        self.skip -= passed;
        let rest = bytes.get(self.start..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let is_last = after == After::End;
        let cut_off = || Err("is cut off: the stream ended within it".to_owned());
        let Some((head, length)) = self.head.read(rest)? else {
            return if is_last { cut_off() } else { Ok(None) };
        };
        let too_long = length > self.limit;
        let needed = head + if too_long { length.min(KEPT).min(self.limit) } else { length };
        if rest.len() < needed {
            return if is_last { cut_off() } else { Ok(None) };
        }
        let first = if whole { 0 } else { head };
        let range: Range<usize> = self.start + first..self.start + needed;
        self.start += needed;
        self.skip = head + length - needed;
        Ok(Some(Piece { range, too_long }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_config::testing::{messages, options};

    use crate::testing::cut_texts;

    fn cut(cutter: StreamCutter, input: &[u8], size: usize) -> (Vec<String>, Option<String>) {
        cut_texts(cutter, 100, input, size)
    }

    fn begin(yaml: &str, limit: u64) -> StreamCutter {
        let partition: StreamFraming = options(yaml);
        assert_eq!(partition.check(ByteSize(limit)), []);
        partition.begin(ByteSize(limit), false)
    }

    /// Cuts the input in pieces of every size. The result must always be the same.
    fn all(yaml: &str, limit: u64, input: &[u8]) -> (Vec<String>, Option<String>) {
        let whole = cut(begin(yaml, limit), input, input.len());
        for chunk in 1..input.len() {
            assert_eq!(cut(begin(yaml, limit), input, chunk), whole, "in pieces of {chunk}");
        }
        whole
    }

    fn found(yaml: &str, input: &[u8]) -> Vec<String> {
        let (found, wrong) = all(yaml, 100, input);
        assert_eq!(wrong, None);
        found
    }

    #[test]
    fn every_way_to_tell_messages_apart() {
        assert_eq!(found("{}", b"one\r\ntwo\n\nthree"), ["one", "two", "", "three"]);
        assert_eq!(found("{ whole: true }", b"one\r\ntwo\n\nthree"), ["one\r\n", "two\n", "\n", "three"]);
        assert_eq!(found("{ delimiter: '--' }", b"one--two--"), ["one", "two"]);
        assert_eq!(
            found("{ by: ascii, delimiter: ':' }", b"3:one4:two\n0:5:three"),
            ["one", "two\n", "", "three"]
        );
        assert_eq!(found("{ by: ascii, delimiter: ' ', offset: 2 }", b"##3 one##3 two"), ["one", "two"]);
        assert_eq!(found("{ by: ascii, delimiter: ' ', offset: 2, whole: true }", b"##3 one"), ["##3 one"]);
        assert_eq!(found("{ by: binary_le, size: 1 }", b"\x03one\x00\x03two"), ["one", "", "two"]);
        assert_eq!(found("{ by: binary_le, size: 2, offset: 1 }", b"#\x03\x00one"), ["one"]);
        assert_eq!(found("{ by: binary_le }", b"\x03\0\0\0one"), ["one"]);
        assert_eq!(found("{ by: binary_be, size: 8 }", b"\0\0\0\0\0\0\0\x03one"), ["one"]);
        assert_eq!(found("{ by: varint }", b"\x03one\x00\x83\x00two"), ["one", "", "two"]);
        assert_eq!(found("{ by: varint, offset: 1, whole: true }", b"#\x03one#\x00"), ["#\x03one", "#\0"]);
        assert_eq!(found("{ by: fixed, size: 3 }", b"onetwo"), ["one", "two"]);
        assert_eq!(found("{ by: gelf }", b"{\"a\":\n1}\0{}\0{}"), ["{\"a\":\n1}", "{}", "{}"]);
        assert_eq!(found("{ by: journal }", b"A=1\nB=2\n\nC=3\n\n"), ["A=1\nB=2", "C=3"]);
        assert_eq!(found("{ by: journal, whole: true }", b"A=1\n\nB=2\n\n"), ["A=1\n\n", "B=2\n\n"]);
        assert_eq!(found("{ start_pattern: '^\\S' }", b"a\n b\nc"), ["a\n b", "c"]);
    }

    #[test]
    fn what_is_too_long_is_passed_over_and_the_next_is_found() {
        let (found, wrong) = all("{ by: ascii, delimiter: ' ' }", 4, b"10 0123456789 3 one");
        assert_eq!(found, ["0123…"]);
        assert_eq!(wrong.unwrap(), "does not begin with a length");
        let (found, wrong) = all("{ by: varint }", 4, b"\x8a\x000123456789\x03one");
        assert_eq!((found, wrong), (vec!["0123…".to_owned(), "one".to_owned()], None));
        let (found, wrong) = all("{ by: ascii, delimiter: ' ' }", 4, b"10 01234567893 one");
        assert_eq!((found, wrong), (vec!["0123…".to_owned(), "one".to_owned()], None));
    }

    #[test]
    fn what_cannot_be_understood_ends_the_stream_with_a_reason() {
        let wrong = |yaml: &str, input: &[u8]| all(yaml, 100, input).1.unwrap();
        assert_eq!(wrong("{ by: ascii, delimiter: ' ' }", b"x"), "does not begin with a length");
        assert_eq!(wrong("{ by: ascii, delimiter: ' ' }", b"3:one"), "has no delimiter after its length");
        assert_eq!(
            wrong("{ by: ascii, delimiter: ' ' }", b"99999999999999999999 x"),
            "does not begin with a length"
        );
        assert_eq!(wrong("{ by: ascii, delimiter: ' ' }", b"3 on"), "is cut off: the stream ended within it");
        assert_eq!(
            wrong("{ by: binary_le, size: 4 }", b"\xff\xff\xff\xff"),
            "begins with a length of more than 1 GiB"
        );
        assert_eq!(wrong("{ by: binary_le, size: 4 }", b"\x03\0"), "is cut off: the stream ended within it");
        for length in [&b"\x80\x80\x80\x80\x10"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"] {
            assert_eq!(wrong("{ by: varint }", length), "begins with a length of more than 1 GiB");
        }
        assert_eq!(wrong("{ by: varint }", b"\x80"), "is cut off: the stream ended within it");
        assert_eq!(wrong("{ by: varint }", b"\x03on"), "is cut off: the stream ended within it");
        assert_eq!(wrong("{ by: fixed, size: 3 }", b"oneto"), "is cut off: the stream ended within it");
    }

    #[test]
    fn syslog_tells_by_its_first_byte_how_it_is_framed() {
        let limit = ByteSize(100);
        for chunk in 1..12 {
            let counted = cut(StreamCutter::of_syslog(limit), b"6 <1>one6 <1>two", chunk);
            assert_eq!(counted.0, ["<1>one", "<1>two"]);
            let lines = cut(StreamCutter::of_syslog(limit), b"<1>one\n<1>two\n", chunk);
            assert_eq!(lines.0, ["<1>one", "<1>two"]);
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let mistakes = |yaml: &str| messages(options::<StreamFraming>(yaml).check(ByteSize(100)));
        assert_eq!(
            mistakes("{ by: ascii, start_pattern: a }"),
            ["`start_pattern` is for messages that end with a delimiter."]
        );
        assert_eq!(mistakes("{ offset: 1 }"), ["`offset` is for messages that begin with their length."]);
        assert_eq!(mistakes("{ size: 1 }"), ["`size` has no effect here."]);
        assert_eq!(mistakes("{ by: varint, size: 1 }"), ["`size` has no effect here."]);
        assert_eq!(mistakes("{ by: binary_le, size: 3 }"), ["A length has 1, 2, 4 or 8 bytes."]);
        assert_eq!(
            mistakes("{ by: fixed, size: 101 }"),
            ["`size` must be at least 1 and at most `max_message_bytes`."]
        );
        assert_eq!(mistakes("{ by: gelf, delimiter: '|' }"), ["`delimiter` has no effect here."]);
        assert_eq!(mistakes("{ timeout: 1s }"), ["`timeout` has no effect without `start_pattern`."]);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_and_no_panic(
            input in prop::collection::vec(prop_oneof![0..5u8, b'0'..b'4', Just(b' '), any::<u8>()], 0..60),
            kind in 0..9usize,
            chunk in 1..20usize,
        ) {
            let kinds = [
                "{ by: ascii, delimiter: ' ' }", "{ by: binary_le, size: 1 }", "{ by: binary_be, size: 2, offset: 1 }",
                "{ by: fixed, size: 3 }", "{ whole: true }", "{ by: binary_le, size: 1, whole: true }",
                "{ by: gelf }", "{ by: journal }", "{ by: varint }",
            ];
            let at_once = cut(begin(kinds[kind], 6), &input, input.len());
            prop_assert_eq!(cut(begin(kinds[kind], 6), &input, chunk), at_once);
        }
    }
}
