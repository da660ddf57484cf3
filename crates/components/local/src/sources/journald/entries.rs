//! The output of `journalctl` as messages, with the cursor of each entry.

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::Buffer;
use thalweg_codec::framing::{After, MAX_ROWS};
use thalweg_codec::journal;
use thalweg_config::ByteSize;
use thalweg_engine::{Checkpoint, Error, Reading, SourceOutput};
use thalweg_record::ViewBuilder;
use thalweg_stream::cut::too_long;

use crate::program::Messages;

/// The one partition of a journal.
pub(super) const PARTITION: &str = "journal";

/// The field with the cursor of an entry.
const CURSOR: &[u8] = b"__CURSOR";

/// The field with the unit of an entry.
const UNIT: &[u8] = b"_SYSTEMD_UNIT";

/// Makes messages of the entries of one run.
pub(super) struct Entries {
    cutter: journal::Entries,
    limit: ByteSize,
    excluded: Vec<String>,
    /// The cursor of the last entry that was read, in this run or before.
    pub(super) cursor: Option<String>,
    /// True if this run has read an entry.
    pub(super) has_begun: bool,
    path: Arc<str>,
}

/// Entries of a buffer.
struct Cut {
    messages: ViewBuilder,
    /// The first bytes of an entry that is too long, behind the others, and the cursor before it.
    too_long: Option<(Range<usize>, Option<String>)>,
    /// True if no other entry in the buffer is complete.
    is_last: bool,
}

impl Entries {
    /// Starts behind the entry with this cursor.
    pub(super) fn new(
        limit: ByteSize,
        excluded: Vec<String>,
        cursor: Option<String>,
        path: &Arc<str>,
    ) -> Self {
        let cutter = journal::Entries::new(limit.as_usize());
        Self { cutter, limit, excluded, cursor, has_begun: false, path: path.clone() }
    }

    /// Cuts the next entries, at most `most`.
    fn cut(&mut self, buffer: &Buffer, most: usize) -> Result<Cut, Error> {
        let mut messages = ViewBuilder::over(std::slice::from_ref(buffer), 0);
        while messages.len() < most {
            // The program ends each entry: one at the end of its output that is not complete was cut off.
            let piece = self.cutter.next(buffer, After::More).map_err(|reason| {
                let message = format!("`{}` wrote an entry that {reason}", self.path);
                Error::permanent(message)
            })?;
            let Some(piece) = piece else { return Ok(Cut { messages, too_long: None, is_last: true }) };
            let entry = buffer.get(piece.range.clone()).unwrap_or_default();
            let before = if piece.too_long { self.cursor.clone() } else { None };
            if !self.take(entry) {
                continue;
            }
            if piece.too_long {
                return Ok(Cut { messages, too_long: Some((piece.range, before)), is_last: false });
            }
            messages.push_range(0, piece.range.start, piece.range.len());
        }
        Ok(Cut { messages, too_long: None, is_last: false })
    }

    /// Notes the cursor of an entry. Returns false if the entry is left out.
    fn take(&mut self, entry: &[u8]) -> bool {
        let (mut cursor, mut unit) = (None, None);
        // The fields before the end of an entry that is too long.
        let _ = journal::fields(entry, |name, value| match entry.get(name) {
            Some(CURSOR) => cursor = cursor.take().or_else(|| entry.get(value)),
            Some(UNIT) => unit = unit.take().or_else(|| entry.get(value)),
            _ => {}
        });
        let cursor = cursor.and_then(|cursor| std::str::from_utf8(cursor).ok());
        let is_known = !self.has_begun && cursor.is_some() && cursor == self.cursor.as_deref();
        self.has_begun = true;
        if let Some(cursor) = cursor {
            self.cursor = Some(cursor.to_owned());
        }
        !is_known && !unit.is_some_and(|unit| self.excluded.iter().any(|name| name.as_bytes() == unit))
    }

    /// Returns entries with the checkpoint behind this cursor.
    fn reading(&self, messages: ViewBuilder, cursor: Option<&String>) -> Reading {
        let offset =
            |cursor: &String| Checkpoint { partition: PARTITION.into(), offset: cursor.as_str().into() };
        let checkpoint = cursor.map(offset);
        Reading { payload: messages.finish(), path: Some(self.path.clone()), positions: None, checkpoint }
    }
}

impl Messages for Entries {
    async fn send(&mut self, buffer: &Buffer, _: After, out: &mut SourceOutput) -> Result<(), Error> {
        loop {
            let left = out.left();
            let Cut { messages, too_long: lost, is_last } =
                self.cut(buffer, left.min(out.batch_rows().unwrap_or(MAX_ROWS)))?;
            if !messages.is_empty() {
                let cursor = match &lost {
                    Some((_, before)) => before.as_ref(),
                    None => self.cursor.as_ref(),
                };
                out.send(self.reading(messages, cursor)).await?;
            }
            if let Some((range, _)) = lost {
                let kept = range.len();
                let mut first = ViewBuilder::over(&[], 1);
                first.push(buffer.get(range).unwrap_or_default());
                out.reject(self.reading(first, self.cursor.as_ref()), &too_long(self.limit, kept)).await?;
            }
            if is_last {
                return Ok(());
            }
            if out.left() == 0 {
                return Err(out.limit_reached());
            }
        }
    }

    fn advance(&mut self) -> usize {
        self.cutter.advance()
    }

    async fn reject_rest(&mut self, rest: &[u8], out: &mut SourceOutput) -> Result<(), Error> {
        if !rest.is_empty() {
            tracing::warn!("`{}`: `{}` ended within an entry, which is read again", out.name(), self.path);
        }
        Ok(())
    }
}
