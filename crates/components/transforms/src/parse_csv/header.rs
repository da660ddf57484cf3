//! Files whose first record names their columns.

use arrow_array::Array;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::{Batch, all_but};

use super::VALUE;
use crate::headers::{Headers, unreadable};
use thalweg_codec::columns::{missing, reject_all};
use thalweg_codec::csv::{Dialect, names};
use thalweg_codec::keys::bytes_of;
use thalweg_stream::pieces::Pieces;

/// Parses records whose columns are named by the first record of their file.
pub(super) struct WithHeader {
    pub(super) dialect: Dialect,
    pub(super) headers: Headers,
    pub(super) max_columns: usize,
    /// True if the messages are dead letters: the first of them is not the first of its file.
    pub(super) is_replay: bool,
    pub(super) field: String,
    pub(super) scratch: String,
    pub(super) pieces: Pieces,
}

impl WithHeader {
    /// Returns the offset of the batch's first record, and whether that record is a header.
    fn header(&self, batch: &Batch) -> (Option<u64>, bool) {
        let first = batch.positions().and_then(|positions| positions.values().first().copied());
        let path = &batch.meta().path;
        let is_known = self.headers.knows(path);
        let is_header = match first {
            // A file begins at offset 0, or at most 3 after a byte order mark. After a header of one or two
            // bytes, the second record begins there too.
            Some(first) if first <= 3 => self.headers.begins(path).is_none_or(|begins| begins >= first),
            Some(_) => !is_known && path.is_none() && !self.is_replay,
            None => !is_known && !self.is_replay,
        };
        (first, is_header)
    }

    /// Reads the header if the batch begins with one. Returns the other messages.
    fn begin(&mut self, batch: Batch, out: &mut Outputs) -> Result<Option<Batch>, Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            reject_all(batch, &missing(&self.field), out)?;
            return Ok(None);
        };
        let (first, is_header) = self.header(&batch);
        if input.is_empty() || !is_header {
            return Ok(Some(batch));
        }
        let names = match input.is_null(0) {
            true => Err(missing(&self.field)),
            false => names(self.dialect, input.value(0), self.max_columns, &mut self.scratch),
        };
        // A header that cannot be read is kept: with other options, a replay reads it, and what follows it.
        let unread = names.as_ref().err().map(|reason| (0, unreadable(reason)));
        self.headers.learn(batch.meta().path.clone(), first, names);
        if unread.is_some() {
            return Ok(out.reject(batch, unread.into_iter().collect())?);
        }
        let others = all_but(batch.rows(), [0]);
        Ok(batch.filter(&others)?)
    }
}

impl Transform for WithHeader {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.pieces.push(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.pieces.take()
            && let Some(batch) = self.begin(batch, out)?
        {
            self.headers.tick();
            match self.headers.columns(&batch.meta().path) {
                Ok(columns) => self.pieces.cut(batch, VALUE * columns.len()),
                Err(reason) => reject_all(batch, &reason, out)?,
            }
        }
        if let Some(piece) = self.pieces.next_piece() {
            match (bytes_of(&piece, &self.field), self.headers.columns(&piece.meta().path)) {
                (Some(input), Ok(columns)) => {
                    self.dialect.rows(&input, &self.field, columns, &mut self.scratch);
                    columns.finish(piece, out)?;
                }
                (None, _) => reject_all(piece, &missing(&self.field), out)?,
                (_, Err(reason)) => reject_all(piece, &reason, out)?,
            }
        }
        if !self.pieces.is_empty() {
            out.hold(std::time::Duration::ZERO);
        }
        Ok(())
    }

    fn state(&mut self) -> Option<serde_json::Value> {
        self.headers.state()
    }

    fn restore(&mut self, saved: serde_json::Value) -> Result<(), Error> {
        self.headers.restore(saved)
    }
}
