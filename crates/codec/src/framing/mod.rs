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

mod cutter;
mod delimiter;

use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::Mistake;
use thalweg_config::{ByteSize, Pattern, TimeSpan};

pub use cutter::{CutBatch, Cutter, KEPT, MAX_ROWS, TooLong};
pub use delimiter::Delimiter;

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

impl Framing {
    /// The mistakes that a schema cannot find in the framing options of a component.
    pub fn check(&self, limit: ByteSize) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = check_limit(limit).into_iter().collect();
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

/// What is wrong with the option `max_message_bytes`.
pub fn check_limit(limit: ByteSize) -> Option<Mistake> {
    if limit.bytes() > 0 && limit <= MAX_LIMIT {
        return None;
    }
    let message = format!("`max_message_bytes` is {limit}, but must be between 1 and {MAX_LIMIT}.");
    Some(Mistake::new("max_message_bytes", message).help(format!("The default is {DEFAULT_LIMIT}.")))
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamPosition {
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

#[cfg(test)]
mod tests;
