//! Splits records into values.
//!
//! Most records have no quotes. Such a record is split at its delimiters in one sweep. In a record with
//! quotes, a quoted value is a view of the payload too; only a value with a doubled quote is copied. Nothing
//! is allocated per record. (`csv-core` would copy all values, and ignore an unclosed quote silently.)
//!
//! See docs/decisions/029-hot-codecs-are-our-own.md.

use arrow_array::{Array, BinaryViewArray};
use memchr::{memchr, memchr_iter};

use crate::columns::{Columns, missing};
use crate::not_utf8;

/// The syntax of records.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The byte between two values.
    pub delimiter: u8,
    /// The byte around quoted values. `None` if values are never quoted.
    pub quote: Option<u8>,
    /// True if white space around values is removed.
    pub trim: bool,
    /// True if a record may have too few or too many values.
    pub flexible: bool,
}

impl Dialect {
    /// Calls `each` with the number and text of each value of a record, and returns the number of values.
    /// `scratch` holds values with doubled quotes.
    ///
    /// # Errors
    /// If a quote is not closed, or is closed in the middle of a value.
    #[inline]
    pub fn split(
        self,
        record: &str,
        scratch: &mut String,
        mut each: impl FnMut(usize, &str),
    ) -> Result<usize, String> {
        let bytes = record.as_bytes();
        let trim = |piece| if self.trim { str::trim(piece) } else { piece };
        let quote = self.quote.filter(|&quote| memchr(quote, bytes).is_some());
        let mut column = 0;
        let mut at = 0;
        let Some(quote) = quote else {
            for end in memchr_iter(self.delimiter, bytes) {
                each(column, trim(record.get(at..end).unwrap_or_default()));
                column += 1;
                at = end + 1;
            }
            each(column, trim(record.get(at..).unwrap_or_default()));
            return Ok(column + 1);
        };
        let is_space =
            |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t')) && byte != Some(&self.delimiter);
        loop {
            while self.trim && is_space(bytes.get(at)) {
                at += 1;
            }
            if bytes.get(at) != Some(&quote) {
                let rest = record.get(at..).unwrap_or_default();
                let end = memchr(self.delimiter, rest.as_bytes());
                each(column, trim(rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()));
                column += 1;
                match end {
                    Some(end) => at += end + 1,
                    None => return Ok(column),
                }
                continue;
            }
            let opening = at;
            at += 1;
            scratch.clear();
            let piece = loop {
                let rest = record.get(at..).unwrap_or_default();
                let Some(closing) = memchr(quote, rest.as_bytes()) else {
                    return Err(format!("the quote at byte {opening} is not closed"));
                };
                at += closing + 1;
                if bytes.get(at) == Some(&quote) {
                    scratch.push_str(rest.get(..=closing).unwrap_or_default());
                    at += 1;
                    continue;
                }
                let piece = rest.get(..closing).unwrap_or_default();
                if scratch.is_empty() {
                    break piece;
                }
                scratch.push_str(piece);
                break scratch.as_str();
            };
            each(column, piece);
            column += 1;
            while self.trim && is_space(bytes.get(at)) {
                at += 1;
            }
            match bytes.get(at) {
                None => return Ok(column),
                Some(&byte) if byte == self.delimiter => at += 1,
                Some(_) => {
                    let delimiter = char::from(self.delimiter);
                    return Err(format!("a quote is closed before byte {at}, but no `{delimiter}` follows"));
                }
            }
        }
    }

    /// Parses one record into the columns.
    fn row(self, value: &[u8], columns: &mut Columns, scratch: &mut String) -> Result<(), String> {
        let record = text(value)?;
        let expected = columns.len();
        let mut misfit = None;
        let found = self.split(record, scratch, |column, piece| {
            if column < expected
                && misfit.is_none()
                && let Err(reason) = columns.push(column, piece)
            {
                misfit = Some(reason);
            }
        })?;
        if found != expected && !self.flexible {
            let s = if found == 1 { "" } else { "s" };
            return Err(format!("has {found} value{s} for {expected} columns"));
        }
        misfit.map_or(Ok(()), Err)
    }

    /// Parses the records of a batch into the columns. `field` is the name of the input column.
    pub fn rows(self, input: &BinaryViewArray, field: &str, columns: &mut Columns, scratch: &mut String) {
        columns.begin(input.data_buffers(), input.len());
        for row in 0..input.len() {
            let parsed = match input.is_null(row) {
                true => Err(missing(field)),
                false => self.row(input.value(row), columns, scratch),
            };
            if let Err(reason) = parsed {
                columns.fail(row, reason);
            }
            columns.end(row);
        }
    }
}

/// Returns a record as text, without the carriage return at the end of a Windows line.
pub(super) fn text(value: &[u8]) -> Result<&str, String> {
    let value = value.strip_suffix(b"\r").unwrap_or(value);
    simdutf8::basic::from_utf8(value).map_err(|_| not_utf8(value))
}
