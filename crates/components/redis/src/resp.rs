//! The protocol of Redis, RESP2: commands to bytes, and bytes to replies.
//!
//! A reply is decoded as its bytes arrive, from pieces of any size. A server that is broken or hostile makes
//! the decoder neither panic nor recurse, and what it keeps has a limit. The rest of a text that is too long,
//! and what has no room, is read and dropped, so that the replies after it are still understood. No length
//! that the server names reserves memory.
//!
//! RESP3 was rejected. It is spoken only by a client that asks for it, and what it adds are types for replies
//! that this crate does not use. The crate `redis` was rejected as well: it holds any text of any length.
//!
//! See docs/decisions/091-redis-by-a-protocol-of-our-own.md.

use std::fmt;

/// The longest line: an error, a status or a number.
const LINE: usize = 16 << 10;
/// How deep lists may be nested. The entries of a stream are on the fourth level.
const DEPTH: usize = 8;
/// The most values and bytes of a reply, also if they are dropped.
const VALUES: usize = 1 << 24;
const BYTES: u64 = 4 << 30;
/// The memory of a value beside its text.
const VALUE: usize = 2 * size_of::<Reply>();
/// The bytes that are kept of a text that is too long.
pub(crate) const KEPT: usize = thalweg_codec::framing::KEPT;

/// Commands, as bytes to be written.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

impl Commands {
    /// Begins a command of this many words. They must follow by [`word`](Self::word).
    pub(crate) fn begin(&mut self, words: usize) {
        self.count += 1;
        self.head(b'*', words);
    }

    /// Adds the next word of the command that was begun.
    pub(crate) fn word(&mut self, word: &[u8]) {
        self.head(b'$', word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a command.
    pub(crate) fn push(&mut self, words: &[&[u8]]) {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word));
    }

    fn head(&mut self, kind: u8, number: usize) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The bytes of all commands.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of commands.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Forgets all commands but the first `count`, which have this many bytes.
    pub(crate) fn truncate(&mut self, bytes: usize, count: usize) {
        self.bytes.truncate(bytes);
        self.count = count;
    }
}

/// A reply of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status, such as `OK`.
    Status(String),
    /// An error: its kind in capitals, and a sentence.
    Error(String),
    /// A number.
    Number(i64),
    /// A text of any bytes.
    Text(Text),
    /// Nothing.
    Null,
    /// Several values.
    List(List),
}

/// A text of any bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text {
    /// The text; of one that is too long, the beginning; nothing if there was no room.
    pub(crate) kept: Vec<u8>,
    /// The length that it has at the server.
    pub(crate) length: usize,
}

/// Several values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// The values; the first ones if there was no room for all.
    pub(crate) values: Vec<Reply>,
    /// True if there was no room for all.
    pub(crate) is_cut: bool,
}

impl Text {
    /// True if all of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        self.kept.len() == self.length
    }
}

impl Reply {
    /// Returns the text of a text or a status.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) if text.is_whole() => Some(&text.kept),
            Self::Status(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// Returns the values of a list. Nothing is an empty list.
    pub(crate) fn list(self) -> Option<List> {
        match self {
            Self::List(list) => Some(list),
            Self::Null => Some(List::default()),
            _ => None,
        }
    }
}

/// The parts of a reply that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest text, in bytes. Of a longer one the first [`KEPT`] bytes are kept.
    pub(crate) text: usize,
    /// The memory of all values of a reply, in bytes.
    pub(crate) all: usize,
}

impl Limits {
    /// For replies that carry no messages.
    pub(crate) const SMALL: Self = Self { text: 4 << 10, all: 1 << 20 };
}

/// Why bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer does not follow the protocol of Redis: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads replies.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The lists that have begun, the outer ones first.
    open: Vec<Open>,
    next: Next,
    /// The memory of the values of this reply.
    held: usize,
    /// The values and bytes of this reply.
    values: usize,
    bytes: u64,
}

/// A list that has begun.
#[derive(Debug)]
struct Open {
    list: List,
    /// The number of values that are missing.
    left: usize,
}

/// The part of the reply to which the next byte belongs.
#[derive(Debug)]
enum Next {
    /// A line with the beginning of a value.
    Line(Vec<u8>),
    /// A text, of which these bytes are missing, with the line end after it. `wanted` of its bytes are kept.
    Text { text: Text, wanted: usize, left: usize },
}

impl Default for Next {
    fn default() -> Self {
        Self::Line(Vec::new())
    }
}

impl Decoder {
    /// Takes bytes from the front of `input`, until a reply is complete. Returns `None` if more bytes are
    /// needed; all are taken then.
    ///
    /// # Errors
    /// If the bytes are no reply. The decoder is of no use any more then.
    pub(crate) fn decode(&mut self, input: &mut &[u8], limits: Limits) -> Result<Option<Reply>, Malformed> {
        while !input.is_empty() {
            let before = input.len();
            let value = match &mut self.next {
                Next::Line(_) => self.line(input, limits)?,
                Next::Text { .. } => self.rest_of_text(input)?,
            };
            self.bytes = self.bytes.saturating_add((before - input.len()) as u64);
            if self.bytes > BYTES || self.values > VALUES {
                return Err(Malformed("it does not end"));
            }
            if let Some(value) = value
                && let Some(reply) = self.add(value, limits)
            {
                (self.held, self.values, self.bytes) = (0, 0, 0);
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// Reads a line, and returns the value if the line is one.
    fn line(&mut self, input: &mut &[u8], limits: Limits) -> Result<Option<Reply>, Malformed> {
        let Next::Line(line) = &mut self.next else { return Ok(None) };
        let end = input.iter().position(|byte| *byte == b'\n');
        let (taken, rest) = input.split_at(end.map_or(input.len(), |end| end + 1));
        *input = rest;
        if line.len() + taken.len() > LINE {
            return Err(Malformed("a line is too long"));
        }
        line.extend_from_slice(taken);
        if end.is_none() {
            return Ok(None);
        }
        let line = std::mem::take(line);
        let line = line.strip_suffix(b"\r\n").ok_or(Malformed("a line does not end in CR LF"))?;
        let (kind, rest) = line.split_first().ok_or(Malformed("a line is empty"))?;
        Ok(Some(match kind {
            b'+' => Reply::Status(self.text_of_line(rest)),
            b'-' => Reply::Error(self.text_of_line(rest)),
            b':' => Reply::Number(number(rest)?),
            b'$' => return self.begin_text(number(rest)?, limits),
            b'*' => return self.begin_list(number(rest)?),
            _ => return Err(Malformed("a value has an unknown kind")),
        }))
    }

    /// Returns the text of a line. It counts, so that a list of many such texts has its limit.
    fn text_of_line(&mut self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text).into_owned();
        self.held = self.held.saturating_add(text.len());
        text
    }

    fn begin_text(&mut self, length: i64, limits: Limits) -> Result<Option<Reply>, Malformed> {
        if length == -1 {
            return Ok(Some(Reply::Null));
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a length is negative"))?;
        let left = length.checked_add(2).ok_or(Malformed("a text is too long"))?;
        let wanted = if length > limits.text { length.min(KEPT) } else { length };
        let has_room = self.held.saturating_add(wanted).saturating_add(VALUE) <= limits.all;
        let wanted = if has_room { wanted } else { 0 };
        self.held = self.held.saturating_add(wanted);
        self.next = Next::Text { text: Text { kept: Vec::new(), length }, wanted, left };
        Ok(None)
    }

    fn rest_of_text(&mut self, input: &mut &[u8]) -> Result<Option<Reply>, Malformed> {
        let Next::Text { text, wanted, left } = &mut self.next else { return Ok(None) };
        let (taken, rest) = input.split_at(input.len().min(*left));
        *input = rest;
        let (of_text, end) = taken.split_at(taken.len().min(left.saturating_sub(2)));
        for (number, byte) in end.iter().enumerate() {
            let is_first = *left - of_text.len() - number == 2;
            if *byte != if is_first { b'\r' } else { b'\n' } {
                return Err(Malformed("a text does not end in CR LF"));
            }
        }
        let kept = of_text.len().min(*wanted - text.kept.len());
        text.kept.extend(of_text.iter().take(kept));
        *left -= taken.len();
        if *left > 0 {
            return Ok(None);
        }
        let text = std::mem::take(text);
        self.next = Next::default();
        Ok(Some(Reply::Text(text)))
    }

    fn begin_list(&mut self, length: i64) -> Result<Option<Reply>, Malformed> {
        match length {
            -1 => Ok(Some(Reply::Null)),
            0 => Ok(Some(Reply::List(List::default()))),
            _ if self.open.len() >= DEPTH => Err(Malformed("lists are nested too deep")),
            _ => {
                let left = usize::try_from(length).map_err(|_| Malformed("a length is negative"))?;
                self.open.push(Open { list: List::default(), left });
                Ok(None)
            }
        }
    }

    /// Adds a value to the list that it is in. Returns the reply if it is complete.
    fn add(&mut self, mut value: Reply, limits: Limits) -> Option<Reply> {
        loop {
            self.held = self.held.saturating_add(VALUE);
            self.values += 1;
            let Some(open) = self.open.last_mut() else { return Some(value) };
            match self.held <= limits.all {
                true => open.list.values.push(value),
                false => open.list.is_cut = true,
            }
            open.left -= 1;
            if open.left > 0 {
                return None;
            }
            value = Reply::List(self.open.pop().map(|open| open.list).unwrap_or_default());
        }
    }
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Malformed("a number is none"))
}

/// Decodes bytes that come in these pieces, for the fuzz target. Returns how many replies there are, whether
/// the bytes are well-formed as far as they go, and what is kept of the last reply.
#[doc(hidden)]
pub fn decoded(pieces: &[&[u8]], text: usize, all: usize) -> (usize, bool, String) {
    let (mut decoder, limits) = (Decoder::default(), Limits { text, all });
    let (mut replies, mut last) = (0, String::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match decoder.decode(&mut rest, limits) {
                Ok(Some(reply)) => {
                    replies += 1;
                    last = format!("{reply:?}");
                }
                Ok(None) => break,
                Err(_) => return (replies, false, last),
            }
        }
    }
    (replies, true, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: Limits = Limits { text: 1 << 20, all: 1 << 20 };

    fn all(bytes: &[u8], limits: Limits) -> Result<Vec<Reply>, Malformed> {
        let (mut decoder, mut rest, mut replies) = (Decoder::default(), bytes, Vec::new());
        while let Some(reply) = decoder.decode(&mut rest, limits)? {
            replies.push(reply);
        }
        Ok(replies)
    }

    fn text(kept: &[u8], length: usize) -> Reply {
        Reply::Text(Text { kept: kept.to_vec(), length })
    }

    fn list(values: Vec<Reply>, is_cut: bool) -> Reply {
        Reply::List(List { values, is_cut })
    }

    #[test]
    fn commands_are_written_word_by_word() {
        let mut commands = Commands::default();
        commands.push(&[b"GET", b"a\r\nb"]);
        commands.push(&[b"PING"]);
        assert_eq!(commands.bytes(), b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n");
        assert_eq!(commands.count(), 2);
    }

    #[test]
    fn each_kind_of_value_is_read() {
        let bytes =
            b"+OK\r\n-ERR no\r\n:-7\r\n$3\r\n\r\n\x00\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n";
        assert_eq!(
            all(bytes, WIDE).unwrap(),
            [
                Reply::Status("OK".to_owned()),
                Reply::Error("ERR no".to_owned()),
                Reply::Number(-7),
                text(b"\r\n\0", 3),
                Reply::Null,
                Reply::Null,
                list(vec![], false),
                list(vec![list(vec![Reply::Number(1)], false), text(b"", 0)], false),
            ]
        );
    }

    #[test]
    fn what_has_no_room_is_dropped_and_the_next_reply_is_read() {
        let long = format!("${}\r\n{}\r\n+OK\r\n", 2 * KEPT, "x".repeat(2 * KEPT));
        let replies = all(long.as_bytes(), Limits { text: 10, all: 1 << 20 }).unwrap();
        assert_eq!(replies, [text("x".repeat(KEPT).as_bytes(), 2 * KEPT), Reply::Status("OK".to_owned())]);
        let limits = Limits { text: 100, all: 2 * VALUE };
        let replies = all(b"*3\r\n$2\r\nab\r\n:1\r\n:2\r\n+OK\r\n", limits).unwrap();
        let cut = list(vec![text(b"ab", 2)], true);
        assert_eq!(replies, [cut, Reply::Status("OK".to_owned())]);
        let replies = all(b"*2\r\n$90\r\n", Limits { text: 100, all: VALUE }).unwrap();
        assert!(replies.is_empty());
        let lines = format!("*2\r\n+{0}\r\n-{0}\r\n", "x".repeat(9000));
        let replies = all(lines.as_bytes(), Limits { text: 100, all: 1000 }).unwrap();
        assert_eq!(replies, [list(vec![], true)]);
    }

    #[test]
    fn bytes_that_are_no_reply_are_an_error() {
        let deep = "*1\r\n".repeat(DEPTH + 1);
        let endless = "x".repeat(LINE + 1);
        for (bytes, expected) in [
            ("\r\n", "a line is empty"),
            ("+OK\n", "a line does not end in CR LF"),
            ("HTTP/1.1 400\r\n", "a value has an unknown kind"),
            (":1x\r\n", "a number is none"),
            ("$-2\r\n", "a length is negative"),
            ("*-9\r\n", "a length is negative"),
            ("$9223372036854775807\r\nx\r\n\r\n*99999999999999999999\r\n", ""),
            ("*99999999999999999999\r\n", "a number is none"),
            ("$1\r\nxyz", "a text does not end in CR LF"),
            (deep.as_str(), "lists are nested too deep"),
            (endless.as_str(), "a line is too long"),
        ] {
            match all(bytes.as_bytes(), WIDE) {
                Ok(replies) => assert_eq!((replies, expected), (vec![], "")),
                Err(Malformed(found)) => assert_eq!(found, expected, "{bytes}"),
            }
        }
    }

    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-z ]{0,9}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            "[A-Z ]{0,9}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|text| {
                let mut bytes = format!("${}\r\n", text.len()).into_bytes();
                bytes.extend(text);
                bytes.extend(b"\r\n");
                bytes
            }),
        ];
        leaf.prop_recursive(3, 30, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(|values| {
                let mut bytes = format!("*{}\r\n", values.len()).into_bytes();
                bytes.extend(values.concat());
                bytes
            })
        })
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_replies_do_not_run_into_each_other(
            replies in prop::collection::vec(any_reply(), 1..5),
            cut in 1_usize..20,
            limits in prop_oneof![Just(WIDE), Just(Limits { text: 8, all: 300 })],
        ) {
            let bytes = replies.concat();
            let whole = all(&bytes, limits).unwrap();
            prop_assert_eq!(whole.len(), replies.len());
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for mut piece in bytes.chunks(cut) {
                while let Some(reply) = decoder.decode(&mut piece, limits).unwrap() {
                    found.push(reply);
                }
            }
            prop_assert_eq!(found, whole);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = all(&bytes, WIDE);
        }
    }
}
