//! How records are cut into values.
//!
//! A record without quotes, which is most of them, is cut at its delimiters in one sweep; in one with quotes a
//! quoted field too is a view of the payload, and only a field with a doubled quote in it is copied. Nothing is
//! allocated for a record. (`csv-core` would copy all of them, and pass over an unclosed quote in silence.)

use arrow_array::{Array, BinaryViewArray};
use memchr::{memchr, memchr_iter};

use crate::columns::{Columns, missing};
use crate::not_utf8;

/// What records look like.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// What stands between values.
    pub delimiter: u8,
    /// What stands around values, if anything does.
    pub quote: Option<u8>,
    /// Whether white space around values is removed.
    pub trim: bool,
    /// Whether a record may have too few values, or too many.
    pub flexible: bool,
}

impl Dialect {
    /// Gives each value of a record to `each`, and how many there were. `scratch` is for values with doubled quotes.
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
    fn row(
        self,
        value: &[u8],
        columns: &mut Columns,
        row: usize,
        scratch: &mut String,
    ) -> Result<(), String> {
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
        if found != expected {
            if !self.flexible {
                let s = if found == 1 { "" } else { "s" };
                return Err(format!("has {found} value{s} for {expected} columns"));
            }
            if misfit.is_none() {
                columns.fill(row);
            }
        }
        misfit.map_or(Ok(()), Err)
    }

    /// Parses the records of a batch into the columns.
    pub fn rows(self, input: &BinaryViewArray, field: &str, columns: &mut Columns, scratch: &mut String) {
        columns.begin(input.data_buffers(), input.len());
        for row in 0..input.len() {
            let parsed = match input.is_null(row) {
                true => Err(missing(field)),
                false => self.row(input.value(row), columns, row, scratch),
            };
            if let Err(reason) = parsed {
                columns.fail(row, reason);
            }
        }
    }
}

/// A record without the carriage return that a line of Windows ends with.
pub fn text(value: &[u8]) -> Result<&str, String> {
    let value = value.strip_suffix(b"\r").unwrap_or(value);
    simdutf8::basic::from_utf8(value).map_err(|_| not_utf8(value))
}
