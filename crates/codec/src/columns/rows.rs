//! One text a message, and columns from it.

use arrow_schema::ArrowError;
use thalweg_record::Batch;
use thalweg_record::Outputs;

use super::Columns;
use crate::target::{Input, Texts};

/// What finds columns in the text of one message.
pub trait RowParser {
    /// Where the text is.
    fn input(&self) -> &Input;

    /// What it adds to.
    fn columns(&mut self) -> &mut Columns;

    /// Adds one value, or NULL, to each column.
    ///
    /// # Errors
    /// Why the message is rejected; it does not matter what was added by then.
    fn parse(&mut self, text: &str) -> Result<(), String>;
}

/// Parses the text of each message of a batch. Who has none gets NULLs, and if nobody can have one the batch goes on as it is.
///
/// # Errors
/// As those of a transform.
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
            Ok(None) => {
                parser.columns().fill(row);
                Ok(())
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = parsed {
            parser.columns().fail(row, reason);
        }
    }
    parser.columns().finish(batch, out)
}
