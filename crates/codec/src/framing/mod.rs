//! Cuts bytes into messages.
//!
//! A source reads into a buffer, and a [`Cutter`] finds the messages in it. The rest at the end is the start
//! of a message whose end has not been read. It is moved to the front of the next buffer. A message is a
//! slice of the buffer, so only that rest is copied. The cutter remembers how far it has searched the rest.
//! Hence a message that arrives in a thousand pieces is not searched a thousand times.
//!
//! The cutter detects a message that exceeds the limit as soon as that many bytes have been read. It returns
//! the first bytes as a [`Piece`] that is `too_long`, and drops everything up to the next message. So the
//! buffer never holds more than the limit, or twice the limit with a `start_pattern`. In that case the cutter
//! must see a line, up to the limit, to know whether it begins the next message.
//!
//! A stream of another character set than UTF-8 is cut as it is, and its messages are decoded after that, see
//! [`charset`](crate::charset).
//!
//! A cutter returns the same messages however the input is split into reads. The tests check this property.

mod batch;
mod cri;
mod cutter;
mod delimiter;
mod options;

use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{ByteSize, Mistake, Pattern, TimeSpan};

pub use batch::{CutBatch, MAX_ROWS, TooLong};
pub use cri::JoinPosition;
pub use cutter::{Cutter, KEPT};
pub use delimiter::Delimiter;
pub use options::CutOptions;

/// The maximum of `max_message_bytes`: a message is in a single buffer, and a buffer is smaller than 4 GiB.
const MAX_LIMIT: ByteSize = ByteSize::gib(1);

/// The default of `max_message_bytes`.
pub const DEFAULT_LIMIT: ByteSize = ByteSize::mib(1);

/// Where one message ends and the next begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Framing {
    /// The text between two messages: `"\n"` (the default), `"\0"` for the output of `find -print0`, or any
    /// other text. With `"\n"`, a carriage return before it is removed. The escapes are `\n`, `\r`, `\t`,
    /// `\0`, `\\` and `\xHH`.
    pub delimiter: Delimiter,
    /// For messages of several lines: a message begins at each line that matches this regular expression, and
    /// ends before the next such line. Example: `^\d{4}-\d{2}-\d{2}`.
    pub start_pattern: Option<Pattern>,
    /// With `start_pattern`, on input that is still being written: the time without a new line after which
    /// the message is complete. The default is 1 second.
    pub timeout: Option<TimeSpan>,
    /// `cri` joins the lines of the container logs of Kubernetes that the container runtime has cut, mostly
    /// after 16 KiB. The parts of `stdout` and `stderr` are kept apart. A message is the first line with the
    /// tag `F` in place of `P`, followed by the texts of the others, so `parse_cri` parses it like a line
    /// that was not cut. Lines of another form stay as they are. By default nothing is joined.
    pub join: Option<Join>,
}

/// The form of the lines that are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// That of the container runtime interface: `TIME STREAM P TEXT`, with the tag `F` in the last line.
    Cri,
}

impl Framing {
    /// Returns the mistakes in the framing options of a component that a schema cannot find.
    pub fn check(&self, limit: ByteSize) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = check_limit(limit).into_iter().collect();
        if self.timeout.is_some() && self.start_pattern.is_none() {
            let mistake = Mistake::new("framing", "`timeout` has no effect without `start_pattern`.");
            mistakes.push(mistake.help("Remove it, or say in `start_pattern` how messages begin."));
        }
        if self.join.is_some() && (self.start_pattern.is_some() || self.delimiter != Delimiter::default()) {
            let message = "`join` is for lines: it goes with neither `start_pattern` nor `delimiter`.";
            mistakes.push(Mistake::new("framing", message).help("Leave out one of them."));
        }
        mistakes
    }

    /// Returns the time without input after which a message of several lines is complete. `None` without a
    /// `start_pattern`: then each message has a visible end.
    pub fn quiet(&self) -> Option<Duration> {
        let timeout = self.timeout.map_or(Duration::from_secs(1), TimeSpan::duration);
        self.start_pattern.as_ref().map(|_| timeout)
    }
}

/// Returns the mistake in the option `max_message_bytes`, if there is one.
pub fn check_limit(limit: ByteSize) -> Option<Mistake> {
    if limit.bytes() > 0 && limit <= MAX_LIMIT {
        return None;
    }
    let message = format!("`max_message_bytes` is {limit}, but must be between 1 and {MAX_LIMIT}.");
    Some(Mistake::new("max_message_bytes", message).help(format!("The default is {DEFAULT_LIMIT}.")))
}

/// The bytes to skip before the next message begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Nothing.
    #[default]
    Nothing,
    /// The rest of the line. With a start pattern, then also lines that do not match it.
    Line,
    /// Lines, until one matches the start pattern.
    Lines,
}

/// A position in a stream from which a cutter can resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamPosition {
    /// The offset in the stream, in bytes.
    pub offset: u64,
    /// The bytes to skip at this offset.
    pub skip: Skip,
    /// True if a byte order mark tells that the units of `utf-16` begin with their high byte.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub big_endian: bool,
    /// With `join`: the state of joining, if it is not that between two messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinPosition>,
}

/// Whether more bytes follow those in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// More bytes may follow.
    More,
    /// More bytes may follow, but none has arrived for a while: complete lines are not held back.
    Quiet,
    /// No bytes follow.
    End,
}

/// A message in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The range of the message in the buffer. If the message is too long, the range of its first bytes.
    pub range: Range<usize>,
    /// True if the message exceeds the limit.
    pub too_long: bool,
}

impl Piece {
    /// Extends the message up to the next one, which begins at `next`, unless it is too long.
    pub(crate) fn up_to(self, next: usize) -> Self {
        match self.too_long {
            true => self,
            false => Self { range: self.range.start..next, ..self },
        }
    }
}

#[cfg(test)]
mod tests;
