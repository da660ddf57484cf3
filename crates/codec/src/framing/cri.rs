//! Joins the lines of container logs that a container runtime has cut.
//!
//! A line is `TIME STREAM TAGS TEXT`, where the first tag is `P` (partial) or `F` (full). The lines of
//! `stdout` and `stderr` alternate, so the parts of a message are not adjacent. They are copied together: a
//! message is the first line with the tag `F`, followed by the texts of the others. Lines that were not cut
//! stay where they are in the buffer, and so do lines of another form.
//!
//! A run resumes at the first line of an unfinished message. Lines between that one and the place that was
//! reached are read again. Those of finished messages are dropped: each stream has the offset from which its
//! lines count. So a checkpoint has a few offsets, and no text. (Rejected: to keep the parts in the
//! checkpoint. They may have as many bytes as a message, and are saved twice a second.)

use std::ops::Range;

use memchr::memchr;
use serde::{Deserialize, Serialize};

use super::{KEPT, Skip, StreamPosition};

/// The state of joining at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JoinPosition {
    /// The offset in bytes up to which lines were read. Those of another form count from here.
    pub done: u64,
    /// The offset in bytes from which the lines of `stdout` count, and those of `stderr`.
    pub from: [u64; 2],
    /// Whether the message of `stdout`, and that of `stderr`, was too long and its further parts are skipped.
    pub skips: [bool; 2],
}

/// A message of several lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The offset of its first line in the stream, in bytes.
    pub(super) begin: u64,
    /// Its first line with the tag `F`, and the texts of the others.
    pub(super) text: Vec<u8>,
}

impl Message {
    /// Adds a part. Returns false and adds only its first bytes if the message would have more than `limit`
    /// bytes.
    fn add(&mut self, part: &[u8], limit: usize) -> bool {
        let fits = self.text.len() + part.len() <= limit;
        let most = if fits { part.len() } else { part.len().min(KEPT) };
        self.text.extend_from_slice(part.get(..most).unwrap_or_default());
        fits
    }
}

/// The result of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The line is a message.
    Single,
    /// The line was kept, or belongs to a message that is skipped.
    Nothing,
    /// The line ends a message.
    Whole(Message),
    /// The message exceeds the limit. Has its first bytes.
    TooLong(Message),
}

/// The state of a stream.
#[derive(Debug, Default)]
enum Open {
    /// It is between two messages.
    #[default]
    Nothing,
    /// A message has begun.
    Parts(Message),
    /// A message was too long: its further parts are skipped.
    Skipping,
}

/// Joins partial lines.
#[derive(Debug)]
pub(super) struct Joiner {
    /// The maximum size of a message in bytes.
    pub(super) limit: usize,
    done: u64,
    from: [u64; 2],
    /// `stdout` and `stderr`.
    streams: [Open; 2],
}

impl Joiner {
    pub(super) fn new(limit: usize, from: Option<JoinPosition>) -> Self {
        let JoinPosition { done, from, skips } = from.unwrap_or_default();
        let open = |skips| if skips { Open::Skipping } else { Open::Nothing };
        Self { limit, done, from, streams: skips.map(open) }
    }

    /// Returns where to resume if the lines before `here` were read.
    pub(super) fn position(&self, here: StreamPosition) -> StreamPosition {
        let skips = self.streams.each_ref().map(|open| matches!(open, Open::Skipping));
        let done = here.offset.max(self.done);
        let mut from = self.from;
        for (from, open) in from.iter_mut().zip(&self.streams) {
            *from = match open {
                Open::Parts(message) => message.begin,
                // Its first line was not read again yet.
                Open::Nothing | Open::Skipping if *from >= here.offset => *from,
                Open::Nothing | Open::Skipping => done,
            };
        }
        let begin = from.into_iter().min().unwrap_or(done);
        let at = match begin < here.offset {
            true => StreamPosition { offset: begin, skip: Skip::Nothing, ..here },
            false => here,
        };
        let is_plain = done == at.offset && skips == [false; 2];
        StreamPosition { join: (!is_plain).then_some(JoinPosition { done, from, skips }), ..at }
    }

    fn begun(&self) -> impl Iterator<Item = &Message> {
        self.streams.iter().filter_map(|open| match open {
            Open::Parts(message) => Some(message),
            Open::Nothing | Open::Skipping => None,
        })
    }

    /// True if the rest of a message is skipped.
    pub(super) fn is_skipping(&self) -> bool {
        self.streams.iter().any(|open| matches!(open, Open::Skipping))
    }

    /// Adds the line at an offset in the stream, of which these are the first bytes if it is too long.
    pub(super) fn join(&mut self, line: &[u8], offset: u64, too_long: bool) -> Joined {
        let Some(parts) = Line::of(line) else {
            // It was sent before the run stopped.
            return if offset < self.done { Joined::Nothing } else { Joined::Single };
        };
        if self.from.get(parts.stream).is_some_and(|from| offset < *from) {
            return Joined::Nothing;
        }
        let Some(open) = self.streams.get_mut(parts.stream) else { return Joined::Single };
        let after = if parts.is_partial { Open::Skipping } else { Open::Nothing };
        match std::mem::take(open) {
            Open::Nothing if too_long => {
                *open = after;
                Joined::Single
            }
            Open::Nothing if !parts.is_partial => Joined::Single,
            Open::Nothing => {
                *open = Open::Parts(Message { begin: offset, text: parts.as_full(line) });
                Joined::Nothing
            }
            Open::Skipping => {
                *open = after;
                Joined::Nothing
            }
            Open::Parts(mut message) => {
                // Only the first bytes of a part that is too long are here.
                let limit = if too_long { 0 } else { self.limit };
                if !message.add(line.get(parts.text).unwrap_or_default(), limit) {
                    message.text.truncate(self.limit.min(KEPT));
                    *open = after;
                    return Joined::TooLong(message);
                }
                if !parts.is_partial {
                    return Joined::Whole(message);
                }
                *open = Open::Parts(message);
                Joined::Nothing
            }
        }
    }

    /// Returns an unfinished message, the earlier one first, and forgets it.
    pub(super) fn unfinished(&mut self) -> Option<Message> {
        let first = self.begun().map(|message| message.begin).min()?;
        self.streams.iter_mut().find_map(|open| match std::mem::take(open) {
            Open::Parts(message) if message.begin == first => Some(message),
            other => {
                *open = other;
                None
            }
        })
    }

    /// Returns the unfinished messages as lines that begin them again.
    pub(super) fn lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for message in self.begun() {
            let start = lines.len();
            lines.extend_from_slice(&message.text);
            if let Some(Line { tag, .. }) = Line::of(&message.text)
                && let Some(tag) = lines.get_mut(start + tag)
            {
                *tag = b'P';
            }
            lines.push(b'\n');
        }
        lines
    }
}

/// The parts of a line.
struct Line {
    /// 0 for `stdout`, 1 for `stderr`.
    stream: usize,
    /// The index of the first tag.
    tag: usize,
    /// The range of the text.
    text: Range<usize>,
    is_partial: bool,
}

impl Line {
    /// Returns the parts of a line, if it has the form.
    fn of(line: &[u8]) -> Option<Self> {
        let time = memchr(b' ', line).filter(|time| *time > 0)?;
        let rest = line.get(time + 1..)?;
        let stream = [&b"stdout "[..], b"stderr "].iter().position(|name| rest.starts_with(name))?;
        let tag = time + 1 + b"stdout ".len();
        let is_partial = match line.get(tag)? {
            b'P' => true,
            b'F' => false,
            _ => return None,
        };
        let text = match line.get(tag + 1) {
            None => line.len(),
            Some(b' ') => tag + 2,
            // More tags may follow the first.
            Some(b':') => memchr(b' ', line.get(tag..)?).map_or(line.len(), |space| tag + space + 1),
            Some(_) => return None,
        };
        Some(Self { stream, tag, text: text..line.len(), is_partial })
    }

    /// Returns the line with the tag `F` in place of `P`, so that a text can be appended.
    fn as_full(&self, line: &[u8]) -> Vec<u8> {
        let mut full = line.to_vec();
        if let Some(tag) = full.get_mut(self.tag) {
            *tag = b'F';
        }
        if self.text.is_empty() && !line.ends_with(b" ") {
            full.push(b' ');
        }
        full
    }
}
