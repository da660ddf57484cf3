//! Parsers that read one text per message and fill columns from it.

use arrow_array::Array;
use arrow_schema::ArrowError;
use thalweg_record::{Batch, Outputs};

use super::{Columns, missing, reject_all};
use crate::keys::bytes_of;
use crate::target::{Input, Texts};

/// Parses the text of one message into columns.
pub trait RowParser {
    /// Returns the field that holds the text.
    fn input(&self) -> &Input;

    /// Returns the columns to fill.
    fn columns(&mut self) -> &mut Columns;

    /// Appends at most one value to each column. The others are NULL.
    ///
    /// # Errors
    /// The reason for rejecting the message. Values that were appended before the error are ignored.
    fn parse(&mut self, text: &str) -> Result<(), String>;
}

/// Parses the text of each message of a batch. A message without the text gets NULLs. If the batch does not
/// have the field at all, it is sent unchanged.
///
/// # Errors
/// If a column cannot be added or the failed messages cannot be rejected.
#[inline]
pub fn parse_rows(parser: &mut impl RowParser, batch: Batch, out: &mut Outputs) -> Result<(), ArrowError> {
    let Some(texts) = Texts::of(&batch, parser.input()) else {
        out.send(batch);
        return Ok(());
    };
    parser.columns().begin(texts.buffers(), batch.rows());
    for row in 0..batch.rows() {
        let parsed = match texts.get(row) {
            Ok(Some(text)) => parser.parse(text),
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = parsed {
            parser.columns().fail(row, reason);
        }
        parser.columns().end(row);
    }
    parser.columns().finish(batch, out)
}

/// Parses the bytes of one message into columns.
pub trait ByteParser {
    /// Returns the field that holds the bytes.
    fn field(&self) -> &str;

    /// Returns the columns to fill.
    fn columns(&mut self) -> &mut Columns;

    /// Appends at most one value to each column; the others are NULL. `row` is the number of the message in
    /// its batch.
    ///
    /// # Errors
    /// The reason for rejecting the message. Values that were appended before the error are ignored.
    fn parse(&mut self, row: usize, value: &[u8]) -> Result<(), String>;
}

/// Parses the bytes of each message of a batch. A message without the field is rejected.
///
/// # Errors
/// If a column cannot be added or the failed messages cannot be rejected.
#[inline]
pub fn parse_required(
    parser: &mut impl ByteParser,
    batch: Batch,
    out: &mut Outputs,
) -> Result<(), ArrowError> {
    let Some(input) = bytes_of(&batch, parser.field()) else {
        return reject_all(batch, &missing(parser.field()), out);
    };
    parser.columns().begin(input.data_buffers(), input.len());
    for row in 0..input.len() {
        let parsed = match input.is_null(row) {
            true => Err(missing(parser.field())),
            false => parser.parse(row, input.value(row)),
        };
        if let Err(reason) = parsed {
            parser.columns().fail(row, reason);
        }
        parser.columns().end(row);
    }
    parser.columns().finish(batch, out)
}
