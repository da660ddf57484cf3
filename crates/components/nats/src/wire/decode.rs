//! From the bytes of a connection to operations.
//!
//! An operation is a line. That of a message says the length of the body that follows. Memory is taken as
//! bytes arrive, and never more than a limit: a longer line is an error, and of a longer payload the
//! beginning is kept and the rest skipped. A message must not be an error for its size alone, because any
//! client may send it, and a stream would deliver it again and again.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr;
use thalweg_redact::{beginning, foreign};

use super::{Headers, Info, LARGEST_HEADERS, Malformed, Message};

/// The longest line, in bytes. A server takes 4 KiB from its clients by default.
const LINE: usize = 64 << 10;
/// The largest message of the protocol, in bytes: servers count with 32 bits and a sign.
const LARGEST: usize = i32::MAX as usize;
/// The most characters of a line that are shown.
const SHOWN: usize = 60;
/// The end of a line, and of a body.
const END: &[u8] = b"\r\n";

/// A line of a server, with the body of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The server's description of itself.
    Info(Box<Info>),
    /// A message, for the subscription with this number.
    Message(u64, Message),
    /// A question whether the client is there.
    Ping,
    /// The answer to such a question.
    Pong,
    /// Something was done.
    Ok,
    /// Something was not done.
    Error(String),
}

/// Cuts bytes into operations.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// The bytes before this one were decoded.
    start: usize,
    /// No line ends between `start` and this byte.
    searched: usize,
    /// The number of bytes to skip that have not arrived yet.
    skip: usize,
    /// The message whose body is next.
    head: Option<Head>,
    /// The most bytes of a payload that are kept.
    limit: usize,
}

/// The line of a message.
#[derive(Debug)]
struct Head {
    subscription: u64,
    subject: Arc<str>,
    reply: Option<Arc<str>>,
    /// The size of the headers, and of the payload after them.
    headers: usize,
    payload: usize,
}

/// A line.
enum Line {
    Whole(Operation),
    /// The body of a message follows.
    Head(Head),
}

impl Head {
    /// The size of the headers that are kept.
    fn kept_headers(&self) -> usize {
        if self.headers > LARGEST_HEADERS { 0 } else { self.headers }
    }
}

impl Decoder {
    /// Keeps at most `limit` bytes of a payload.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, searched: 0, skip: 0, head: None, limit: limit.min(LARGEST) }
    }

    /// Returns the buffer to append arriving bytes to. Call it when [`decode`](Self::decode) has returned
    /// none.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        // A large message leaves a large buffer, which is seldom needed again.
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        &mut self.buffer
    }

    /// True if all bytes that arrived were decoded.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.buffer.len() && self.skip == 0 && self.head.is_none()
    }

    /// Returns the next operation, if it has arrived.
    ///
    /// # Errors
    /// If what arrived is none. The connection is of no use then.
    pub(crate) fn decode(&mut self) -> Result<Option<Operation>, Malformed> {
        loop {
            let skipped = self.skip.min(self.buffer.len() - self.start);
            self.start += skipped;
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(None);
            }
            if self.head.is_some() {
                return self.message();
            }
            let Some(line) = self.line()? else { return Ok(None) };
            match parse(self.buffer.get(line).unwrap_or_default())? {
                Line::Whole(operation) => return Ok(Some(operation)),
                Line::Head(head) => {
                    self.skip = head.headers - head.kept_headers();
                    self.head = Some(head);
                }
            }
        }
    }

    /// Returns the next line without its end, if it has arrived.
    fn line(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        let from = self.searched.max(self.start);
        let found = memchr(b'\n', self.buffer.get(from..).unwrap_or_default()).map(|at| from + at);
        let line = self.start..found.unwrap_or(self.buffer.len());
        if line.len() > LINE {
            return Err(Malformed(format!("a line of more than {LINE} bytes")));
        }
        match found {
            Some(end) => {
                self.start = end + 1;
                Ok(Some(line))
            }
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }

    /// Returns the message whose line was read, if its body has arrived.
    fn message(&mut self) -> Result<Option<Operation>, Malformed> {
        let Some(head) = &self.head else { return Ok(None) };
        let (headers, payload) = (head.kept_headers(), head.payload.min(self.limit));
        let rest = head.payload - payload;
        // The end of a payload that is cut is skipped with the rest of it.
        let end = if rest == 0 { END.len() } else { 0 };
        let arrived = self.buffer.get(self.start..).unwrap_or_default();
        let Some((body, _)) = arrived.split_at_checked(headers + payload + end) else { return Ok(None) };
        let (kept_headers, body) = body.split_at(headers);
        let (kept_payload, tail) = body.split_at(payload);
        if rest == 0 && tail != END {
            return Err(Malformed("a message that is longer than it says".to_owned()));
        }
        let message = Message {
            subject: head.subject.clone(),
            reply: head.reply.clone(),
            headers: Headers::new(kept_headers),
            headers_size: head.headers,
            payload: Bytes::copy_from_slice(kept_payload),
            size: head.payload,
        };
        let operation = Operation::Message(head.subscription, message);
        self.head = None;
        self.start += headers + payload + end;
        self.skip = if rest == 0 { 0 } else { rest + END.len() };
        Ok(Some(operation))
    }
}

/// Reads a line.
fn parse(line: &[u8]) -> Result<Line, Malformed> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let end = line.iter().position(|byte| is_space(*byte)).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    Ok(Line::Whole(match word {
        b"MSG" | b"HMSG" => return head(line, rest, word == b"HMSG").map(Line::Head),
        b"INFO" => Operation::Info(Box::new(info(rest)?)),
        b"PING" => Operation::Ping,
        b"PONG" => Operation::Pong,
        b"+OK" => Operation::Ok,
        b"-ERR" => {
            let text = String::from_utf8_lossy(rest.trim_ascii());
            Operation::Error(shown(text.trim_matches('\''), 10 * SHOWN))
        }
        _ => return Err(unknown(line)),
    }))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns what a server says about itself.
fn info(text: &[u8]) -> Result<Info, Malformed> {
    serde_json::from_slice(text).map_err(|error| Malformed(format!("an `INFO` that cannot be read: {error}")))
}

/// Reads the line of a message: subject, subscription, maybe a subject for the answer, maybe the size of the
/// headers, and the size of all.
fn head(line: &[u8], rest: &[u8], has_headers: bool) -> Result<Head, Malformed> {
    // One word more than there may be.
    let words: Vec<&[u8]> =
        rest.split(|byte| is_space(*byte)).filter(|word| !word.is_empty()).take(6).collect();
    let (subject, subscription, reply, headers, all) = match (has_headers, &words[..]) {
        (false, &[subject, subscription, all]) => (subject, subscription, None, None, all),
        (false, &[subject, subscription, reply, all]) => (subject, subscription, Some(reply), None, all),
        (true, &[subject, subscription, headers, all]) => (subject, subscription, None, Some(headers), all),
        (true, &[subject, subscription, reply, headers, all]) => {
            (subject, subscription, Some(reply), Some(headers), all)
        }
        _ => return Err(unknown(line)),
    };
    let size = |word: &[u8]| {
        number(word).and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= LARGEST)
    };
    let headers = headers.map_or(Some(0), size);
    let (Some(subscription), Some(headers), Some(all)) = (number(subscription), headers, size(all)) else {
        return Err(Malformed(format!("a message of an impossible size: `{}`", start(line))));
    };
    let Some(payload) = all.checked_sub(headers) else {
        return Err(Malformed(format!("headers that are larger than their message: `{}`", start(line))));
    };
    let text = |word: &[u8]| Arc::<str>::from(String::from_utf8_lossy(word));
    Ok(Head { subscription, subject: text(subject), reply: reply.map(text), headers, payload })
}

/// Reads a number: digits and nothing else.
fn number(word: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

fn unknown(line: &[u8]) -> Malformed {
    Malformed(format!("a line that is not of NATS: `{}`", start(line)))
}

/// Returns the beginning of a line, for messages.
fn start(line: &[u8]) -> String {
    shown(&String::from_utf8_lossy(line), SHOWN)
}

/// Returns the first characters of a text from outside.
fn shown(text: &str, most: usize) -> String {
    foreign(&beginning(text, most)).into_owned()
}
